//! A table's description as text: ranks compare it when they create a table, and a restarted rank when it reopens one.

use std::fmt;

use crate::memory::DType;
use crate::tables::Consistency;

/// The kinds of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TableKind {
    Array,
    Matrix,
    SparseMatrix,
    KeyValue,
    Custom,
}

impl TableKind {
    /// The kind's name.
    pub fn name(self) -> &'static str {
        match self {
            TableKind::Array => "array",
            TableKind::Matrix => "matrix",
            TableKind::SparseMatrix => "sparse-matrix",
            TableKind::KeyValue => "key-value",
            TableKind::Custom => "custom",
        }
    }
}

/// Everything that must be equal on all ranks.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub name: String,
    pub kind: TableKind,
    pub dtype: DType,
    pub rows: usize,
    pub cols: usize,
    pub updater: String,
    pub consistency: Consistency,
    /// Further properties, as text.
    pub more: String,
}

impl Description {
    pub fn row_bytes(&self) -> usize {
        self.cols * self.dtype.size()
    }

    /// Number of elements of the full table.
    pub fn len(&self) -> usize {
        self.rows * self.cols
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Description { name, kind, dtype, rows, cols, updater, consistency, more } = self;
        write!(f, "table {name:?}: {} of ", kind.name())?;
        match kind {
            TableKind::Array => write!(f, "{rows} {dtype}")?,
            TableKind::Custom => write!(f, "{rows} shards in {cols} bytes")?,
            TableKind::KeyValue => write!(f, "{cols} {dtype} for each key")?,
            _ => write!(f, "{rows} x {cols} {dtype}")?,
        }
        write!(f, ", {updater}, {consistency}{more}")
    }
}
