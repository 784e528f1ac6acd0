//! Making a key-value table: checks, memory, empty parts.

use std::sync::{Arc, Mutex};

use super::core::Core;
use super::form::{Form, Shape};
use super::homes::Homes;
use super::keys::KeyType;
use super::memory::Memory;
use super::part::PartHeader;
use super::table::KeyValueTable;
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::base::{Base, pieces};
use crate::tables::description::TableKind;
use crate::tables::founding::Making;
use crate::tables::listing::Open;
use crate::tables::make::{Plan, Wish};
use crate::tables::rounds::accumulates;
use crate::tables::{TableOptions, Tables};

/// Bytes of values for one key, at most.
const LARGEST_ROW: usize = 1 << 32;

fn too_large(dim: usize, dtype: DType) -> Error {
    let expected = format!("at most {LARGEST_ROW} bytes for each key");
    Error::usage("table", expected, format!("{dim} values of {dtype}"), "use a matrix")
}

impl KeyValueTable {
    /// A table of `dim` values for each key. Every rank calls it.
    ///
    /// A key that nobody has added to has the values that `options.init` gives it, which depend on the key alone, and takes no
    /// memory. The server of a number is its remainder by the number of servers, that of bytes their FNV-1a hash's.
    pub fn create(
        tables: &Tables,
        keys: KeyType,
        dim: usize,
        dtype: DType,
        options: TableOptions,
    ) -> Result<KeyValueTable> {
        tables.group.check_open("table")?;
        let wish = Wish { kind: TableKind::KeyValue, rows: 1, cols: dim, dtype, pipelined: false };
        let more = format!(", {} keys, at first {:?}", keys.name(), options.init);
        let fits = dim.checked_mul(dtype.size()).is_some_and(|bytes| bytes <= LARGEST_ROW);
        let making = Making::begin(tables, options.name.as_deref(), wish.kind);
        making.together(if fits { Ok(()) } else { Err(too_large(dim, dtype)) })?;
        let Plan { description, rule, add } = Plan::new(&making, &wish, &options, &more)?;
        let homes = Homes::new(tables);
        let form = Form::new(Shape {
            keys,
            row_bytes: description.row_bytes(),
            state_row_bytes: dim * rule.state_dtype().size(),
            planes: rule.shared_planes() + rule.worker_planes() * tables.workers(),
            workers: tables.workers(),
            servers: homes.servers_here(),
        });
        let memory = Memory { seat: tables.inner.seat.clone(), name: pieces(tables, &description) };
        let extent = making.found(&description, form.total, |extent| {
            for part in 0..form.parts {
                PartHeader::at(extent, form.header(part)).prepare(&memory, &form, part, extent.start);
            }
        })?;
        let accumulates = accumulates(options.consistency, rule.is_linear());
        let base = Base::new(&making, description, extent, form.clock, add, &options, accumulates);
        let parcels = Mutex::default();
        let core = Arc::new(Core { base, form, homes, memory, rule, init: options.init, parcels });
        let used = tables.inner.enlist(Open::KeyValue(core.clone()));
        making.all_have_it()?;
        core.complete();
        Ok(KeyValueTable { core, group: tables.group.clone(), used, _end: Some(tables.end.clone()) })
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
                let (seat, name, pieces) = (&tables.inner.seat, tables.key("large"), table.core.pieces);
                let numbers: Vec<i64> = (0..10_000).collect();
                let texts: Vec<Vec<u8>> =
                    numbers.iter().map(|number| number.to_ne_bytes().repeat(5)).collect();
                let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
                let keys = if keys == KeyType::Int { Keys::Int(&numbers) } else { Keys::Bytes(&texts) };
                table.add(keys, &vec![0; 8 * 1_000_000], &AddOptions::default()).unwrap();
                tables.barrier().unwrap();
                // Old indexes are gone: each part has one, a few segments and, for bytes, a few pieces for keys.
                let taken = seat.find_common(pieces).len();
                assert!((60..250).contains(&taken), "{taken}");
                assert_eq!(seat.find_common(name).len(), 1);
                tables.barrier().unwrap();
                drop(table);
                tables.barrier().unwrap();
                assert!(seat.find_common(pieces).is_empty() && seat.find_common(name).is_empty());
            }
        });
    }
}
