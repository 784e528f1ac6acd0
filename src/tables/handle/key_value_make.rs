//! Creation of a key-value table: checks, memory, empty parts.

use std::sync::Arc;

use super::key_value::KeyValueTable;
use super::make::{TableDefinition, TablePlan};
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::engine::base::{Base, heap_key};
use crate::tables::lifecycle::creation::TableCreation;
use crate::tables::shard::key_value::core::KeyValueCore;
use crate::tables::shard::key_value::key_placement::KeyPlacement;
use crate::tables::shard::key_value::keys::KeyType;
use crate::tables::shard::key_value::layout::{KeyValueLayout, KeyValueShape};
use crate::tables::shard::key_value::limit::RowLimit;
use crate::tables::shard::key_value::memory::KeyValueHeap;
use crate::tables::shard::key_value::part::PartHeader;
use crate::tables::spec::description::TableKind;
use crate::tables::{TableOptions, Tables};

/// Maximum size of one key's values, in bytes.
const MAX_ROW_BYTES: usize = 1 << 32;

fn too_large(dim: usize, dtype: DType) -> Error {
    let expected = format!("at most {MAX_ROW_BYTES} bytes for each key");
    Error::usage("table", expected, format!("{dim} values of {dtype}"), "use a matrix")
}

/// Rejects a limit that leaves a server without rows, and an eviction without a limit.
fn check_limit(options: &TableOptions, servers: usize) -> Result<()> {
    match (options.max_rows, options.eviction) {
        (None, Some(eviction)) => {
            let expected = "no eviction for a table without max_rows";
            Err(Error::usage("table", expected, eviction.to_string(), "pass max_rows, or leave eviction out"))
        }
        (Some(max_rows), _) if max_rows < servers => {
            let expected = format!("max_rows of at least {servers}, one row for each server");
            Err(Error::usage("table", expected, max_rows.to_string(), "pass more, or use fewer servers"))
        }
        _ => Ok(()),
    }
}

impl KeyValueTable {
    /// Creates a table of `dim` values per key. Collective.
    ///
    /// A key without adds has the values given by `options.init`, which depend on the key alone, and uses no memory. The server
    /// of an integer key is its remainder by the number of servers; that of a byte string is its FNV-1a hash's remainder.
    ///
    /// With `options.max_rows`, every server may hold `max_rows / servers` rows (the first ones get one more if there is a
    /// remainder), divided in the same way between up to 16 parts, each with a lock, by the keys' hashes. A part that is full evicts
    /// a row for a new key, so neither a server nor the table ever has more rows. A part has room for at least 256 rows, if its
    /// server has, so that the parts are full at about the same time.
    pub fn create(
        tables: &Tables,
        keys: KeyType,
        dim: usize,
        dtype: DType,
        options: TableOptions,
    ) -> Result<KeyValueTable> {
        tables.group.check_open("table")?;
        let definition =
            TableDefinition { kind: TableKind::KeyValue, rows: 1, cols: dim, dtype, pipelined: false };
        let more = format!(", {} keys, at first {:?}", keys.name(), options.init);
        let fits = dim.checked_mul(dtype.size()).is_some_and(|bytes| bytes <= MAX_ROW_BYTES);
        let fits = if fits { Ok(()) } else { Err(too_large(dim, dtype)) };
        let creation = TableCreation::begin(tables, options.name.as_deref(), definition.kind);
        creation.agree_on(fits.and_then(|()| check_limit(&options, tables.servers())))?;
        let eviction = options.eviction.unwrap_or_default();
        let more = match options.max_rows {
            None => more,
            Some(max_rows) => format!("{more}, at most {max_rows} rows ({eviction})"),
        };
        let TablePlan { description, rule, add } = TablePlan::new(&creation, &definition, &options, &more)?;
        let options = TableOptions { add, ..options };
        let key_placement = KeyPlacement::new(&tables.inner);
        let shape = KeyValueShape {
            keys,
            row_bytes: description.row_bytes(),
            state_row_bytes: dim * rule.state_dtype().size(),
            planes: rule.shared_planes() + rule.worker_planes() * tables.workers(),
            workers: tables.workers(),
            servers: key_placement.local_servers(),
        };
        let limit = options.max_rows.map(|max_rows| {
            RowLimit::new(max_rows, eviction, tables.servers(), key_placement.local_server_numbers())
        });
        let layout = KeyValueLayout::new(shape, limit);
        let memory = KeyValueHeap {
            endpoint: tables.inner.endpoint.clone(),
            name: heap_key(&tables.inner, &description),
        };
        let extent = creation.allocate(&description, layout.total, |extent| {
            for part in 0..layout.parts {
                PartHeader::at(extent, layout.header(part)).prepare(&memory, &layout, part, extent.start);
            }
        })?;
        let base = Base::new(
            &tables.inner,
            creation.is_new(),
            description,
            extent,
            layout.clock,
            &options,
            rule.is_linear(),
        );
        let core = Arc::new(KeyValueCore { base, layout, key_placement, memory, rule, init: options.init });
        let _use_guard = tables.inner.register(core.clone());
        creation.barrier()?;
        core.complete();
        Ok(KeyValueTable {
            core,
            group: tables.group.clone(),
            _use_guard,
            _shutdown: Some(tables.shutdown.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{AddOptions, Keys, Role};
    use crate::testing::spawn_worlds;

    #[test]
    fn all_memory_is_freed_with_the_last_handle() {
        spawn_worlds(3, |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            for keys in [KeyType::Int, KeyType::Bytes] {
                let options = TableOptions { name: Some("large".into()), ..TableOptions::default() };
                let table = KeyValueTable::create(&tables, keys, 100, DType::F64, options).unwrap();
                let (endpoint, name, heap_key) =
                    (&tables.inner.endpoint, tables.inner.key("large"), table.core.heap_key);
                let numbers: Vec<i64> = (0..10_000).collect();
                let texts: Vec<Vec<u8>> =
                    numbers.iter().map(|number| number.to_ne_bytes().repeat(5)).collect();
                let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
                let keys = if keys == KeyType::Int { Keys::Int(&numbers) } else { Keys::Bytes(&texts) };
                table.add(keys, &vec![0; 8 * 1_000_000], &AddOptions::default()).unwrap();
                tables.barrier().unwrap();
                // Old indexes are freed: each part has one index, a few segments and, for byte strings, a few key blocks.
                let taken = endpoint.find_shared(heap_key).len();
                assert!((60..250).contains(&taken), "{taken}");
                assert_eq!(endpoint.find_shared(name).len(), 1);
                tables.barrier().unwrap();
                drop(table);
                tables.barrier().unwrap();
                assert!(endpoint.find_shared(heap_key).is_empty() && endpoint.find_shared(name).is_empty());
            }
        });
    }
}
