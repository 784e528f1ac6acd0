//! If one rank cannot read its samples, all ranks end at once, and that rank reports the reason.

use crate::folder;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unisono::testing::{spawn, spawn_worlds};
use unisono::{Error, Group, Kind};
use unisono_nn::{
    DataSet, Experiment, Extensions, Failure, Inputs, Shape, Split, Store, Stored, Summary, Targets,
    TrainOptions, Trainer, train_in_world, train_on,
};

use folder::Folder;

const TEXT: &str = "
epochs: 3
batch_size: 4
data: {type: own, kind: failing}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 2, kernel: 3, activation: tanh}
    - {type: fully_connected, outputs: 2}
";

const SPARSE: &str = "
epochs: 1
batch_size: 4
data: {type: own, kind: failing}
model:
  type: sparse_autoencoder
  cost: cross_entropy
  pretrain_epochs: 3
  pretrain_rate: 0.01
  sparsity: 0.1
  layers:
    - {type: local, maps: 2, kernel: 3, weights: {type: uniform, low: -1, high: 1}}
    - {type: pooling, pool: l2, kernel: 2, stride: 1}
    - {type: contrast, kernel: 3}
    - {type: fully_connected, outputs: 2, bias: false, activation: logistic}
";

const SIDE: usize = 8;

/// Returns this number of samples, then fails.
#[derive(Debug)]
struct Failing(Arc<AtomicUsize>);

impl Store for Failing {
    fn read(&self, sample: usize, places: &[Range<usize>], values: &mut [f64]) -> unisono::Result<()> {
        let less = |left: usize| left.checked_sub(1);
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() {
            let broken = std::io::Error::other("a broken disk");
            return Err(Error::io("load data", "x.npy", broken, "fix it"));
        }
        let places = places.iter().cloned().flatten();
        values.iter_mut().zip(places).for_each(|(value, place)| *value = ((sample + place) % 7) as f64 / 7.0);
        Ok(())
    }
}

/// An experiment whose training and test samples can be read a limited number of times.
fn experiment(text: &str, change: &str, reads: [usize; 2]) -> Experiment {
    let mut extensions = Extensions::default();
    extensions.add_data("failing", move |_: &unisono_nn::Node, _| {
        let split = |count: usize, reads: usize| {
            let store = Failing(Arc::new(AtomicUsize::new(reads)));
            let inputs = Inputs::Stored(Stored::new(store, count, SIDE * SIDE));
            Split { count, inputs, targets: Targets::Classes((0..count as u32).map(|at| at % 2).collect()) }
        };
        let (train, test) = (split(10, reads[0]), split(6, reads[1]));
        Ok(DataSet { shape: Shape::new(1, SIDE, SIDE), outputs: 2, train, test })
    });
    Experiment::parse_with("x.yaml", text, &[change.to_string()], &extensions).expect("it is right")
}

fn options(folder: &Folder) -> TrainOptions {
    TrainOptions { out: folder.0.join("run"), resume: false, trace: None }
}

/// Asserts that the last rank reports the reason of the failure.
fn assert_one_reason(what: &str, results: Vec<Result<Summary, Failure>>) {
    let last = results.len() - 1;
    for (rank, result) in results.into_iter().enumerate() {
        let failure = result.expect_err(what);
        assert_eq!(failure.own, rank == last, "{what}: rank {rank}: {}", failure.error);
        let kind = if rank == last { Kind::Io } else { Kind::Usage };
        assert_eq!(failure.error.kind(), kind, "{what}: rank {rank}: {}", failure.error);
    }
}

const GRIDS: [(&str, usize); 3] = [
    ("{type: data, grid: 'data=2'}", 2),
    ("{type: halo, grid: 'h=2,w=1'}", 2),
    ("{type: halo, grid: 'data=2,h=2,w=1'}", 4),
];

#[test]
fn a_rank_that_cannot_read_ends_all_ranks_with_the_reason() {
    for (text, what) in [(TEXT, "network"), (SPARSE, "sparse")] {
        for (grid, size) in GRIDS {
            for exact in [true, false] {
                // In the third batch, or in the first test.
                for reads in [[5, usize::MAX], [usize::MAX, 1]] {
                    let folder = Folder::new("one-rank");
                    let change = format!("distributed={grid}");
                    let results = spawn(size, |group| {
                        let group = group.with_timeout(Duration::from_secs(20));
                        let reads = if group.rank() + 1 == size { reads } else { [usize::MAX; 2] };
                        let text = format!("deterministic: {exact}\n{text}");
                        let experiment = experiment(&text, &change, reads);
                        let result = train_on(&group, &experiment, &options(&folder), &mut ());
                        group.barrier().expect("no rank waits for a timeout");
                        result
                    });
                    assert_one_reason(&format!("{what} {grid} {exact} {reads:?}"), results);
                }
            }
        }
    }
}

#[test]
fn a_table_worker_that_cannot_read_ends_all_workers_with_the_reason() {
    for consistency in ["bsp", "async", "ssp:1"] {
        for reads in [[5, usize::MAX], [usize::MAX, 1]] {
            let folder = Folder::new("table-reads");
            let change = format!("distributed={{type: table, consistency: '{consistency}'}}");
            let results = spawn_worlds(2, |world| {
                let reads = if world.rank() == 1 { reads } else { [usize::MAX; 2] };
                let experiment = experiment(&format!("deterministic: false\n{TEXT}"), &change, reads);
                train_in_world(world, &experiment, &options(&folder), &mut ())
            });
            assert_one_reason(consistency, results);
        }
    }
}

/// All weights of a rank, as bits.
fn bits(trainer: &mut Trainer<f32>) -> Vec<u32> {
    let weights = trainer.network.layers().iter_mut().flat_map(|layer| layer.weights());
    weights.flat_map(|weight| weight.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>()).collect()
}

#[test]
fn no_weight_changes_in_a_batch_that_could_not_be_read() {
    for text in [TEXT, SPARSE] {
        let after = Mutex::new(Vec::new());
        let errors = spawn(2, |group: Group| {
            let group = group.with_timeout(Duration::from_secs(20));
            let reads = if group.rank() == 1 { [3, 9] } else { [usize::MAX; 2] };
            let experiment = experiment(text, "distributed={type: data, grid: 'data=2'}", reads);
            let mut trainer: Trainer<f32> = Trainer::on(&group, &experiment).expect("all data exists");
            let mut seen = Vec::new();
            // The first batch takes two samples of each rank, and the second fails on one of them.
            let error = trainer.epoch(0, &mut |_| seen.push(0)).expect_err("rank 1 has no more samples");
            assert_eq!(seen.len(), 1, "one batch was learned");
            after.lock().expect("no thread panics").push(bits(&mut trainer));
            error
        });
        assert_eq!((errors[0].kind(), errors[1].kind()), (Kind::PeerLost, Kind::Io));
        assert!(errors[0].to_string().contains("rank 1 (it could not read its samples)"), "{}", errors[0]);
        assert!(errors[1].to_string().contains("a broken disk"), "{}", errors[1]);
        // A single process has the same weights after one batch as both ranks.
        let complete = experiment(text, "seed=0", [4, 9]);
        let mut alone: Trainer<f32> = Trainer::new(&complete).expect("all data exists");
        assert_eq!(alone.epoch(0, &mut |_| {}).expect_err("no more samples").kind(), Kind::Io);
        let expected = bits(&mut alone);
        assert!(after.lock().expect("no thread panics").iter().all(|after| *after == expected));
    }
}

#[test]
fn a_rank_without_samples_at_the_start_ends_all_ranks() {
    let begin = |group: Group, rank: usize| {
        let fails = group.rank() == rank;
        let group = group.with_timeout(Duration::from_secs(20));
        let reads = if fails { [0; 2] } else { [usize::MAX; 2] };
        (experiment(TEXT, "distributed=data", reads), group)
    };
    for rank in 0..2 {
        let failures = spawn(2, |group| {
            let (experiment, group) = begin(group, rank);
            let failure = unisono_nn::check(&group, &experiment).expect_err("a rank has no samples");
            group.barrier().expect("no rank waits for a timeout");
            failure
        });
        assert!(failures[rank].own && failures[rank].error.kind() == Kind::Io, "{}", failures[rank].error);
        let other = &failures[1 - rank];
        assert!(!other.own && other.error.to_string().contains(&format!("rank {rank}")), "{}", other.error);
        let errors = spawn(2, |group| {
            let (mut experiment, group) = begin(group, rank);
            // Only one rank lacks the file.
            experiment.initial_weights = (group.rank() == rank).then(|| "none.npz".into());
            Trainer::<f32>::on(&group, &experiment).err().expect("a rank has no first weights").to_string()
        });
        assert!(errors[rank].contains("none.npz"), "{}", errors[rank]);
        assert!(errors[1 - rank].contains(&format!("rank {rank}")), "{}", errors[1 - rank]);
    }
}
