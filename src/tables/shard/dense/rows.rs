//! The rows that a call accesses.

/// The rows that a call accesses. In an array, each row is one element.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// All rows.
    All,
    /// These rows, in this order; a row may be listed more than once.
    List(&'a [i64]),
}

impl<'a> Rows<'a> {
    pub(crate) fn of(rows: &'a Option<Vec<i64>>) -> Rows<'a> {
        rows.as_deref().map_or(Rows::All, Rows::List)
    }

    /// The number of listed rows.
    pub(crate) fn listed(self) -> Option<usize> {
        match self {
            Rows::All => None,
            Rows::List(list) => Some(list.len()),
        }
    }

    pub(crate) fn to_owned(self) -> Option<Vec<i64>> {
        match self {
            Rows::All => None,
            Rows::List(list) => Some(list.to_vec()),
        }
    }
}
