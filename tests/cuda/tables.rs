//! Tables in device memory compared with equal tables in host memory, on one host and between simulated hosts.

use unisono::cuda::{Device, DeviceMemory};
use unisono::tables::{
    AddOptions, CudaRows, MatrixTable, Repeats, Role, Rows, TableOptions, Tables, UpdaterChoice,
};
use unisono::testing::spawn_on_hosts;

use crate::has_device;

const SHAPE: (usize, usize) = (37, 12);

fn make(tables: &Tables, updater: &str, device: Option<u32>) -> MatrixTable<f32> {
    let updater = UpdaterChoice::named(updater).unwrap();
    let options = TableOptions { updater, device, ..TableOptions::default() };
    MatrixTable::create(tables, SHAPE, None, options).unwrap()
}

fn delta(rows: usize, seed: usize) -> Vec<f32> {
    (0..rows * SHAPE.1).map(|index| ((index * 31 + seed * 17) % 23) as f32 / 8.0 - 1.0).collect()
}

fn close(one: &[f32], other: &[f32]) -> bool {
    one.iter().zip(other).all(|(one, other)| (one - other).abs() <= 1e-6 * (1.0 + other.abs()))
}

#[test]
fn a_table_on_a_device_equals_one_in_host_memory() {
    if !has_device("tables") {
        return;
    }
    let device = Device::get(0).unwrap();
    let list: Vec<i64> = (0..50).map(|index| index * index % 37).collect();
    for (ranks, hosts) in [(1, 1), (3, 1), (2, 2), (4, 2)] {
        for updater in UpdaterChoice::names() {
            spawn_on_hosts(ranks, hosts, |world| {
                let tables = Tables::join(world, Role::Both).unwrap();
                let (ours, theirs) = (make(&tables, updater, Some(0)), make(&tables, updater, None));
                let memory = DeviceMemory::new(&device, 4 * SHAPE.0 * SHAPE.1).unwrap();
                for step in 0..2 * ranks {
                    if step % ranks == world.rank() {
                        let (all, some) = (delta(SHAPE.0, step), delta(list.len(), step + 5));
                        for table in [&ours, &theirs] {
                            table.add(&all).unwrap();
                            table.add_rows(&list, &some, &AddOptions::default()).unwrap();
                        }
                    }
                    tables.barrier().unwrap();
                }
                let (mut one, mut other) = (vec![0.0; SHAPE.0 * SHAPE.1], vec![0.0; SHAPE.0 * SHAPE.1]);
                ours.get(&mut one).unwrap();
                theirs.get(&mut other).unwrap();
                assert!(close(&one, &other), "{updater}, {ranks} ranks, {hosts} hosts");
                let (mut one, mut other) = (vec![0.0; 50 * SHAPE.1], vec![0.0; 50 * SHAPE.1]);
                ours.get_rows(&list, &mut one).unwrap();
                theirs.get_rows(&list, &mut other).unwrap();
                assert!(close(&one, &other), "{updater}, {ranks} ranks, {hosts} hosts");
                tables.barrier().unwrap();
                // What the device got is added to both tables, on the device and on the host.
                // SAFETY: the memory lives until the end of this rank.
                let span = unsafe { memory.span() };
                ours.table().cuda().get(CudaRows::All, span).unwrap();
                let mut values = vec![0.0f32; SHAPE.0 * SHAPE.1];
                ours.get(&mut values).unwrap();
                tables.barrier().unwrap();
                if world.rank() == ranks - 1 {
                    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
                    ours.table().cuda().add(CudaRows::All, span, &AddOptions::default()).unwrap();
                    theirs.table().add(Rows::All, &bytes, &AddOptions::default()).unwrap();
                }
                tables.barrier().unwrap();
                let mut other = values.clone();
                ours.get(&mut values).unwrap();
                theirs.get(&mut other).unwrap();
                assert!(close(&values, &other), "{updater}, {ranks} ranks, {hosts} hosts");
                tables.barrier().unwrap();
            });
        }
    }
}

/// Rows that one add lists more than once, with the delta on the device or on the host, for a table on either.
#[test]
fn repeated_rows_on_a_device_equal_those_in_host_memory() {
    if !has_device("tables") {
        return;
    }
    let device = Device::get(0).unwrap();
    let list: Vec<i64> = (0..500).map(|index| index * index % 37).collect();
    for repeats in [Repeats::Sum, Repeats::Each] {
        for updater in UpdaterChoice::names() {
            spawn_on_hosts(1, 1, |world| {
                let tables = Tables::join(world, Role::Both).unwrap();
                let make = |device| {
                    let updater = UpdaterChoice::named(updater).unwrap();
                    let options =
                        TableOptions { updater, device, repeats: Some(repeats), ..TableOptions::default() };
                    MatrixTable::<f32>::create(&tables, SHAPE, None, options).unwrap()
                };
                let (expected, values) = (make(None), delta(list.len(), 3));
                let memory = DeviceMemory::new(&device, 4 * values.len()).unwrap();
                // SAFETY: the memory lives until the end of this rank.
                let span = unsafe { memory.span() };
                // Its rows are the delta.
                let options = TableOptions { device: Some(0), ..TableOptions::default() };
                let source =
                    MatrixTable::create(&tables, (list.len(), SHAPE.1), Some(&values), options).unwrap();
                source.table().cuda().get(CudaRows::All, span).unwrap();
                let all = |table: &MatrixTable<f32>| {
                    let mut out = vec![0.0; SHAPE.0 * SHAPE.1];
                    table.get(&mut out).unwrap();
                    out
                };
                expected.add_rows(&list, &values, &AddOptions::default()).unwrap();
                for place in [Some(0), None] {
                    let (by_host, by_device) = (make(place), make(place));
                    by_host.add_rows(&list, &values, &AddOptions::default()).unwrap();
                    by_device
                        .table()
                        .cuda()
                        .add(CudaRows::List(&list), span, &AddOptions::default())
                        .unwrap();
                    for table in [&by_host, &by_device] {
                        assert!(close(&all(table), &all(&expected)), "{updater} {repeats} {place:?}");
                    }
                    let stats = by_device.table().stats().unwrap();
                    assert_eq!((stats.adds, stats.rows_added), (1, list.len() as u64));
                }
            });
        }
    }
}
