//! What a table of any kind has in a checkpoint: the items that this rank writes, and what a load needs.

use serde_json::{Value, json};

use super::base::Base;
use super::shard::Shard;
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::checkpoint::{Checkpoint, TensorPiece, TensorSpec};
use crate::tables::updater::UpdateRule;
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
pub(crate) trait Checkpointable: Shard {
    /// The items that this rank writes.
    fn items<'a>(&'a self, group: &'a Group) -> Result<Vec<Item<'a>>>;

    /// Checks what the checkpoint contains of this table without changing anything; running the result changes the table. Fails
    /// unless everything the load needs is present.
    fn prepare_load<'a>(&'a self, group: &'a Group, checkpoint: &'a Checkpoint) -> Result<LoadStep<'a>>;

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

/// What a table keeps for each row or key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableSection {
    Values,
    /// The number of adds, if the updater has state.
    Steps,
    /// One of the updater's state arrays: those shared by all workers, then those of each worker.
    Plane(usize),
}

/// A section as a checkpoint stores it.
pub(crate) struct Column {
    pub section: TableSection,
    /// The tensor's name, after that of the table.
    pub name: String,
    pub dtype: DType,
    /// Elements per row.
    pub width: usize,
    /// Whether a checkpoint must contain it: a new worker has no state yet.
    pub required: bool,
}

impl Column {
    pub fn row_bytes(&self) -> usize {
        self.width * self.dtype.size()
    }
}

/// Bytes read from a checkpoint at a time.
const CHUNK: usize = 8 << 20;

/// Number of rows of a tensor that are read at a time.
pub(crate) fn chunk_rows(row_bytes: usize) -> usize {
    (CHUNK / row_bytes.max(1)).max(1)
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

    /// The columns of a table with this updater; the state of workers that no longer exist is omitted.
    pub(crate) fn columns(&self, rule: &dyn UpdateRule) -> Vec<Column> {
        let (dtype, width) = (self.description.dtype, self.description.cols);
        let (shared, own, state) = (rule.shared_planes(), rule.worker_planes(), rule.state_dtype());
        let values =
            Column { section: TableSection::Values, name: "values".into(), dtype, width, required: true };
        let mut columns = vec![values];
        for plane in 0..shared + own * self.inner.roles.workers.len() {
            let name = match plane.checked_sub(shared) {
                None => format!("state-{plane}"),
                Some(plane) => format!("worker-{}/state-{}", plane / own, plane % own),
            };
            let (section, required) = (TableSection::Plane(plane), plane < shared);
            columns.push(Column { section, name, dtype: state, width, required });
        }
        if columns.len() > 1 {
            let (section, name) = (TableSection::Steps, "steps".into());
            columns.push(Column { section, name, dtype: DType::I64, width: 1, required: true });
        }
        columns
    }

    /// Fails unless the checkpoint has this tensor, or none of its name if it is not required.
    pub(crate) fn check_saved(
        &self,
        checkpoint: &Checkpoint,
        wanted: &TensorSpec,
        required: bool,
    ) -> Result<()> {
        match checkpoint.tensor(&wanted.name) {
            Some(found) if found == wanted => Ok(()),
            None if !required => Ok(()),
            Some(found) => Err(self.checkpoint_mismatch(format!("{found:?} instead of {wanted:?}"))),
            None => Err(self.checkpoint_mismatch(format!("no {}", wanted.name))),
        }
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
