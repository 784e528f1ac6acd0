//! Thousands of random cases: forward copies bit for bit, windows over the padded parts give the outputs of one process, and
//! the adjoint passes the dot-product test.

use std::sync::atomic::{AtomicUsize, Ordering};

use unisono::halo::{Boundary, Edges, Exchange, ExchangeOptions, Grid, Layout, Plan, Window};
use unisono::testing::{spawn, spawn_on_hosts};
use unisono::{DType, Group, ReduceOp};

use crate::cases::{Case, Random, case};
use crate::oracle::{Global, offset, output, taps};

fn global(random: &mut Random, shape: &[usize]) -> Global {
    let elements = shape.iter().product();
    Global { shape: shape.to_vec(), values: (0..elements).map(|_| random.value()).collect() }
}

/// One rank's part of a case, twice through the same exchange.
fn check(group: &Group, case: &Case, direct: bool, name: &str) {
    let Case { input, outputs, windows, edges } = case;
    let plan = Plan::window(input, windows, edges, Some(outputs), group.rank()).unwrap();
    let (own, needed) = (plan.own().clone(), plan.needed().clone());
    let options = ExchangeOptions { direct, ..ExchangeOptions::of(DType::F64) };
    let mut exchange = Exchange::new(group, plan, options).unwrap();
    for round in 0..2 {
        let mut random = Random::new(round + 1);
        let x = global(&mut random, input.shape());
        let part: Vec<f64> = own.indices().map(|index| x.values[offset(&x.shape, &index)]).collect();
        let mut padded = vec![f64::NAN; needed.elements()];
        exchange.forward(&part, &mut padded).unwrap();
        for (index, value) in needed.indices().zip(&padded) {
            let expected = x.at(&index, edges, false);
            assert_eq!(value.to_bits(), expected.to_bits(), "{name}: {index:?} of {needed}");
        }
        outputs_agree(group, case, &x, &padded, name);
        refreshed(group, &mut exchange, (&part, &padded), name);

        // The dot-product test: values in a constant boundary are not part of the linear map.
        let y: Vec<f64> = (0..padded.len()).map(|_| random.value() + group.rank() as f64).collect();
        let mut gradient = vec![f64::NAN; part.len()];
        exchange.adjoint(&y, &mut gradient).unwrap();
        summed_within(group, &mut exchange, (&y, &gradient), name);
        let linear = needed.indices().map(|index| x.at(&index, edges, true));
        let forward: Vec<f64> = linear.zip(&y).map(|(value, y)| value * y).collect();
        let backward: Vec<f64> = part.iter().zip(&gradient).map(|(x, gradient)| x * gradient).collect();
        let sum = |terms: &[f64]| terms.iter().sum::<f64>();
        let size = |terms: &[f64]| terms.iter().map(|term| term.abs()).sum::<f64>();
        let mut sums = [sum(&forward), sum(&backward), size(&forward) + size(&backward)];
        group.all_reduce(&mut sums, ReduceOp::Sum).unwrap();
        assert!((sums[0] - sums[1]).abs() <= 1e-12 * sums[2].max(1.0), "{name}: dot test {sums:?}");
    }
}

/// Refreshes the halos of an array in its padded form, if the padded array contains all of every rank's part.
fn refreshed(group: &Group, exchange: &mut Exchange, (part, padded): (&[f64], &[f64]), name: &str) {
    let (own, needed) = (exchange.plan().own().clone(), exchange.plan().needed().clone());
    let shape = exchange.plan().inputs().shape().to_vec();
    let mut all_there = [i32::from(own.intersect(&needed) == own)];
    group.all_reduce(&mut all_there, ReduceOp::Min).unwrap();
    if all_there[0] == 1 {
        // Other values everywhere except beyond the edges, where the constants are.
        let extent = |at: &[i64]| at.iter().zip(&shape).all(|(at, &length)| (0..length as i64).contains(at));
        let old = |(index, value): (Vec<i64>, &f64)| if extent(&index) { f64::NAN } else { *value };
        let mut array: Vec<f64> = needed.indices().zip(padded).map(old).collect();
        for (index, value) in own.indices().zip(part) {
            let inside: Vec<i64> = index.iter().zip(needed.start()).map(|(at, start)| at - start).collect();
            array[offset(&needed.shape(), &inside)] = *value;
        }
        exchange.refresh(&mut array).unwrap();
        let same = array.iter().zip(padded).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{name}: {array:?} is not {padded:?}");
    }
}

/// The in-place adjoint has the same bits, if the padded array contains all of every rank's part.
fn summed_within(group: &Group, exchange: &mut Exchange, (y, gradient): (&[f64], &[f64]), name: &str) {
    let (own, needed) = (exchange.plan().own().clone(), exchange.plan().needed().clone());
    let mut all_there = [i32::from(own.intersect(&needed) == own)];
    group.all_reduce(&mut all_there, ReduceOp::Min).unwrap();
    if all_there[0] == 1 {
        let mut array = y.to_vec();
        exchange.adjoint_within(&mut array).unwrap();
        for (index, expected) in own.indices().zip(gradient) {
            let inside: Vec<i64> = index.iter().zip(needed.start()).map(|(at, start)| at - start).collect();
            let sum = array[offset(&needed.shape(), &inside)];
            assert_eq!(sum.to_bits(), expected.to_bits(), "{name}: {index:?} of {own}");
        }
    }
}

/// Each rank computes its outputs from its padded part alone.
fn outputs_agree(group: &Group, case: &Case, x: &Global, padded: &[f64], name: &str) {
    let Case { input, outputs, windows, edges } = case;
    let needed = Plan::window(input, windows, edges, Some(outputs), group.rank()).unwrap().needed().clone();
    let (start, shape, taps) = (needed.start(), needed.shape(), taps(windows));
    for index in outputs.region(group.rank()).indices().step_by(3) {
        let local = output(windows, &taps, &index, |position| {
            let inside: Vec<i64> = position.iter().zip(&start).map(|(at, start)| at - start).collect();
            padded[offset(&shape, &inside)]
        });
        let direct = output(windows, &taps, &index, |position| x.at(position, edges, false));
        assert_eq!(local.to_bits(), direct.to_bits(), "{name}: output {index:?}");
    }
}

#[test]
fn two_thousand_random_cases_equal_one_process() {
    let done = AtomicUsize::new(0);
    for (ranks, cases) in [(1, 400), (2, 800), (3, 800), (4, 900), (6, 700), (8, 500)] {
        spawn(ranks, |group| {
            for number in 0..cases {
                let Some(case) = case(ranks, number) else { continue };
                let name = format!("case {number} on {ranks} ranks, {}", case.input.grid());
                check(&group, &case, number % 4 != 0, &name);
                if group.rank() == 0 {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let done = done.into_inner();
    assert!(done >= 2000, "only {done} cases had windows that fit");
}

/// Parcels of many chunks, packed and unpacked alternately: uneven parts, two fields, and late neighbours.
#[test]
fn large_halos_are_refreshed_in_chunks() {
    spawn(4, |group| {
        let grid = Grid::parse("h=2,w=2", 4).unwrap();
        let layout = Layout::new(&grid, &[40, 61, 83], &[("h", 1), ("w", 2)]).unwrap();
        let wide = Window { kernel: 12, padding: (7, 4), ..Window::IDENTITY };
        let windows = [Window::IDENTITY, wide, wide];
        let edges = [Edges::default(), Edges::both(Boundary::Reflect), Edges::both(Boundary::Periodic)];
        let plan = Plan::window(&layout, &windows, &edges, None, group.rank()).unwrap();
        let (own, needed) = (plan.own().clone(), plan.needed().clone());
        assert!(plan.sources().any(|(_, elements)| elements * 16 > 100_000), "several pieces");
        let options = ExchangeOptions { fields: 2, ..ExchangeOptions::of(DType::F64) };
        let mut exchange = Exchange::new(&group, plan, options).unwrap();
        for round in 0..20 {
            let mut random = Random::new(100 * round + group.rank() as u64);
            let parts = [0, 1].map(|_| (0..own.elements()).map(|_| random.value()).collect::<Vec<f64>>());
            let mut expected = [0, 1].map(|_| vec![0.0f64; needed.elements()]);
            let bytes = parts.each_ref().map(|part| bytemuck::cast_slice::<f64, u8>(part));
            exchange
                .forward_fields(&bytes, &mut expected.each_mut().map(|x| bytemuck::cast_slice_mut(x)))
                .unwrap();
            let mut arrays = expected.clone();
            for (array, part) in arrays.iter_mut().zip(&parts) {
                array.fill(f64::NAN);
                for (index, value) in own.indices().zip(part) {
                    let inside: Vec<i64> =
                        index.iter().zip(needed.start()).map(|(at, start)| at - start).collect();
                    array[offset(&needed.shape(), &inside)] = *value;
                }
            }
            if round as usize % 5 == group.rank() {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            exchange.refresh_fields(&mut arrays.each_mut().map(|x| bytemuck::cast_slice_mut(x))).unwrap();
            assert_eq!(arrays, expected, "round {round}");
        }
    });
}

#[test]
fn several_hosts_give_the_same_results() {
    for (ranks, hosts) in [(2, 2), (4, 2), (6, 3)] {
        spawn_on_hosts(ranks, hosts, |world| {
            for number in (0..120).filter_map(|number| Some((number, case(ranks, 5000 + number)?))) {
                let name = format!("case {} on {ranks} ranks and {hosts} hosts", number.0);
                check(world.group(), &number.1, true, &name);
            }
        });
    }
}

#[test]
fn an_exchange_may_end_after_other_calls_and_exchanges() {
    for hosts in [1, 3] {
        spawn_on_hosts(3, hosts, |world| {
            let group = world.group();
            let cases: Vec<Case> = (0..60).filter_map(|number| case(3, 9000 + number)).collect();
            for pair in cases.windows(2) {
                let mut exchanges: Vec<(Exchange, Vec<f64>, Vec<f64>)> = Vec::new();
                for Case { input, outputs, windows, edges } in pair {
                    let plan = Plan::window(input, windows, edges, Some(outputs), group.rank()).unwrap();
                    let part = vec![group.rank() as f64 + 1.0; plan.own().elements()];
                    let padded = vec![f64::NAN; plan.needed().elements()];
                    let options = ExchangeOptions::of(DType::F64);
                    exchanges.push((Exchange::new(group, plan, options).unwrap(), part, padded));
                }
                for (exchange, part, padded) in &mut exchanges {
                    let bytes = bytemuck::cast_slice_mut(padded);
                    exchange.begin(&[bytemuck::cast_slice(part)], &mut [bytes]).unwrap();
                    part.fill(f64::NAN); // the data has been sent already
                }
                group.barrier().unwrap();
                for (exchange, _, padded) in exchanges.iter_mut().rev() {
                    exchange.end(&mut [bytemuck::cast_slice_mut(padded)]).unwrap();
                }
                for ((exchange, ..), (_, _, padded)) in exchanges.iter().zip(&exchanges) {
                    let plan = exchange.plan();
                    let at = pair.iter().position(|case| case.outputs == *plan.outputs()).unwrap();
                    let owners = Global {
                        shape: pair[at].input.shape().to_vec(),
                        values: unisono::halo::Region::whole(pair[at].input.shape())
                            .indices()
                            .map(|index| {
                                let index: Vec<usize> = index.iter().map(|&index| index as usize).collect();
                                pair[at].input.owner(&index, group.rank()) as f64 + 1.0
                            })
                            .collect(),
                    };
                    for (index, value) in plan.needed().indices().zip(padded) {
                        assert_eq!(*value, owners.at(&index, &pair[at].edges, false));
                    }
                }
            }
        });
    }
}
