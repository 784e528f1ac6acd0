//! What a table of any kind has in a checkpoint: the items that this rank writes, and what a load needs.

use serde_json::{Value, json};

use super::base::Base;
use crate::error::{Error, Result};
use crate::tables::checkpoint::{Checkpoint, TensorPiece, TensorSpec};
use crate::world::Group;

/// Reads bytes of an item, from an offset on.
pub(crate) type Read<'a> = Box<dyn Fn(usize, &mut [u8]) -> Result<()> + 'a>;

/// Applies to a table what a checkpoint contains.
pub(crate) type LoadStep<'a> = Box<dyn FnOnce() -> Result<()> + 'a>;

/// Rows of a tensor that this rank writes.
pub(crate) struct Item<'a> {
    pub tensor: TensorSpec,
    pub first_row: usize,
    pub rows: usize,
    /// Whether the tensor is the concatenation of what the ranks write; its size and this item's first row then follow from the
    /// other ranks' items.
    pub stacked: bool,
    pub read: Read<'a>,
}

/// Checkpoint interface of a table of any kind.
pub(crate) trait Checkpointable {
    /// The items that this rank writes.
    fn items<'a>(&'a self, group: &'a Group) -> Result<Vec<Item<'a>>>;

    /// Checks what the checkpoint contains of this table without changing anything; running the result changes the table. Fails
    /// unless everything the load needs is present.
    fn prepare_load<'a>(&'a self, group: &'a Group, checkpoint: &'a Checkpoint) -> Result<LoadStep<'a>>;

    fn base(&self) -> &Base;

    /// The properties that must be equal for a table to load another table's content.
    fn matched_fields(&self) -> &'static [&'static str] {
        &["kind", "dtype", "rows", "cols", "updater"]
    }

    /// Fails unless the checkpoint contains this table.
    fn fits(&self, checkpoint: &Checkpoint) -> Result<()> {
        let base = self.base();
        let mine = base.metadata();
        let Some(saved) = base.saved_as(checkpoint) else {
            return Err(base.checkpoint_mismatch("no table of this name"));
        };
        let saved = with_current_names(saved, &checkpoint.metadata()["rules"]);
        match self.matched_fields().iter().find(|key| saved[**key] != mine[**key]) {
            None => Ok(()),
            Some(key) => Err(base.differs(key, &saved[*key], &mine[*key])),
        }
    }
}

/// Version of the updater names. Checkpoints without the number date from when `adagrad` and `momentum` meant Multiverso's rules.
pub(crate) const RULES: u64 = 2;

/// A checkpoint's metadata of a table, with its updater under the current name.
fn with_current_names(saved: &Value, rules: &Value) -> Value {
    let mut saved = saved.clone();
    if rules.is_null() {
        for (before, current) in [("adagrad", "multiverso_adagrad"), ("momentum", "multiverso_momentum")] {
            if saved["updater"] == before {
                saved["updater"] = current.into();
            }
        }
    }
    saved
}

impl Base {
    pub fn metadata(&self) -> Value {
        let description = &self.description;
        json!({
            "name": description.name, "kind": description.kind.name(), "dtype": description.dtype.name(),
            "rows": description.rows, "cols": description.cols, "updater": description.updater,
            "consistency": description.consistency.to_string(),
        })
    }

    /// A checkpoint's metadata of this table.
    pub(crate) fn saved_as<'a>(&self, checkpoint: &'a Checkpoint) -> Option<&'a Value> {
        let all = checkpoint.metadata()["tables"].as_array()?;
        all.iter().find(|other| other["name"] == self.description.name.as_str())
    }

    /// The error for a checkpoint that does not contain this table.
    pub(crate) fn checkpoint_mismatch(&self, received: impl Into<String>) -> Error {
        let advice = "make the same tables as when it was saved, under the same names";
        Error::usage("load", format!("{} in the checkpoint", self.description), received, advice)
            .at_rank(self.inner.rank)
    }

    /// The error for a checkpoint in which this table has another property.
    fn differs(&self, key: &str, saved: &Value, mine: &Value) -> Error {
        let words =
            |value: &Value| value.as_str().map_or_else(|| value.to_string(), |text| format!("`{text}`"));
        let (name, saved, mine) = (&self.description.name, words(saved), words(mine));
        let expected = format!("a checkpoint that fits table {name:?}, whose {key} is {mine}");
        let received = format!("one in which its {key} is {saved}");
        let advice =
            format!("make the table with {key} {saved} to load it, or start without this checkpoint");
        Error::usage("load", expected, received, advice).at_rank(self.inner.rank)
    }

    /// The name of one of this table's tensors.
    pub(crate) fn tensor_name(&self, part: &str) -> String {
        format!("{}/{part}", self.description.name)
    }
}

/// A concatenated item, held in memory.
pub(crate) fn stacked<'a>(tensor: TensorSpec, bytes: Vec<u8>) -> Item<'a> {
    Item { rows: tensor.rows(), first_row: 0, tensor, stacked: true, read: reading(bytes) }
}

/// Reads from memory.
pub(crate) fn reading<'a>(bytes: Vec<u8>) -> Read<'a> {
    Box::new(move |offset, out| {
        out.copy_from_slice(&bytes[offset..][..out.len()]);
        Ok(())
    })
}

impl Item<'_> {
    pub fn piece(&self) -> TensorPiece<'_> {
        TensorPiece { tensor: &self.tensor, first_row: self.first_row, rows: self.rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_from_before_the_rules_changed_name_the_rules_of_that_time() {
        let saved = |updater: &str| json!({ "updater": updater, "rows": 3 });
        for (before, current) in [("adagrad", "multiverso_adagrad"), ("momentum", "multiverso_momentum")] {
            assert_eq!(with_current_names(&saved(before), &Value::Null), saved(current));
            assert_eq!(with_current_names(&saved(before), &RULES.into()), saved(before));
        }
        assert_eq!(with_current_names(&saved("adam"), &Value::Null), saved("adam"));
    }
}
