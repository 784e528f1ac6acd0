//! Invalid requests are rejected, with an error that names the mistake, before any message.

use std::time::Duration;

use unisono::halo::{Edges, Exchange, ExchangeOptions, GlobalArray, Grid, Layout, Plan, Window};
use unisono::testing::spawn;
use unisono::{DType, Group, Kind};

fn layout(group: &Group, length: usize) -> Layout {
    let grid = Grid::new(&[("x", group.size() as i64)], group.size()).unwrap();
    Layout::new(&grid, &[length], &[("x", 0)]).unwrap()
}

fn plan(group: &Group, length: usize) -> Plan {
    let windows = [Window { kernel: 3, padding: (1, 1), ..Window::IDENTITY }];
    Plan::window(&layout(group, length), &windows, &[Edges::default()], None, group.rank()).unwrap()
}

#[test]
fn different_shapes_are_named_on_all_ranks() {
    spawn(3, |group| {
        let length = if group.rank() == 1 { 11 } else { 12 };
        let error =
            Exchange::new(&group, plan(&group, length), ExchangeOptions::of(DType::F32)).err().unwrap();
        assert_eq!(error.kind(), Kind::Usage);
        let named = if group.rank() == 1 { "[0, 2]" } else { "[1]" };
        assert!(error.to_string().contains(named), "{error}");
        // The group still works: the next plan succeeds.
        let mut exchange = Exchange::new(&group, plan(&group, 12), ExchangeOptions::of(DType::F32)).unwrap();
        exchange.forward(&[1.0f32; 4], &mut [0.0; 6]).unwrap();
    });
}

#[test]
fn different_element_types_are_detected_when_the_exchange_is_created() {
    spawn(2, |group| {
        let dtype = if group.rank() == 0 { DType::F32 } else { DType::F64 };
        let error = Exchange::new(&group, plan(&group, 8), ExchangeOptions::of(dtype)).err().unwrap();
        assert!(error.to_string().contains("element type"), "{error}");
    });
}

#[test]
fn wrong_lengths_types_and_orders_are_rejected() {
    spawn(1, |group| {
        let mut exchange = Exchange::new(&group, plan(&group, 8), ExchangeOptions::of(DType::F32)).unwrap();
        let error = exchange.forward(&[0.0f32; 7], &mut [0.0; 10]).unwrap_err();
        assert!(error.to_string().contains("1 parts of 8 x float32"), "{error}");
        let error = exchange.forward(&[0.0f64; 8], &mut [0.0; 10]).unwrap_err();
        assert!(error.to_string().contains("float64"), "{error}");
        assert!(exchange.end(&mut [&mut []]).unwrap_err().to_string().contains("call begin first"));
        let (part, mut padded) = ([0u8; 32], [0u8; 40]);
        exchange.begin(&[&part], &mut [&mut padded]).unwrap();
        assert!(
            exchange.begin(&[&part], &mut [&mut padded]).unwrap_err().to_string().contains("call end first")
        );
        exchange.end(&mut [&mut padded]).unwrap();
    });
}

#[test]
fn a_grid_of_another_size_is_rejected() {
    spawn(2, |group| {
        let grid = Grid::parse("x=3", 3).unwrap();
        let layout = Layout::new(&grid, &[9], &[("x", 0)]).unwrap();
        let error = GlobalArray::new(&group, layout).err().unwrap().to_string();
        assert!(error.contains("a grid of 2 ranks") && error.contains("x=3"), "{error}");
    });
}

#[test]
fn another_call_is_named_long_before_the_deadline() {
    spawn(2, |group| {
        let mut exchange = Exchange::new(&group, plan(&group, 8), ExchangeOptions::of(DType::F32)).unwrap();
        assert!(exchange.is_direct());
        let error = match group.rank() {
            0 => exchange.forward(&[0.0f32; 4], &mut [0.0; 6]).unwrap_err(),
            _ => group.barrier().unwrap_err(),
        };
        match group.rank() {
            0 => {
                let text = error.to_string();
                assert!(
                    text.contains("rank 0 called halo forward") && text.contains("rank 1 called barrier"),
                    "{text}"
                );
            }
            _ => assert_eq!(error.kind(), Kind::PeerLost, "{error}"),
        }
    });
}

/// A rank whose call was rejected continues with the next one: its parcels are not mistaken for those of the rejected call.
#[test]
fn the_call_after_a_rejected_one_is_not_mistaken_for_it() {
    for direct in [true, false] {
        spawn(2, |group| {
            let options = ExchangeOptions { direct, ..ExchangeOptions::of(DType::F32) };
            let mut exchange = Exchange::new(&group, plan(&group, 8), options).unwrap();
            exchange.forward(&[1.0f32; 4], &mut [0.0; 6]).unwrap();
            let mut padded = [0.0; 6];
            let error = match group.rank() {
                0 => {
                    exchange.forward(&[2.0f32; 3], &mut padded).unwrap_err();
                    exchange.forward(&[3.0f32; 4], &mut padded).unwrap_err()
                }
                _ => exchange.forward(&[2.0f32; 4], &mut padded).unwrap_err(),
            };
            let expected = if group.rank() == 0 { Kind::PeerLost } else { Kind::Usage };
            assert!(error.kind() == expected || !direct, "{error}");
        });
    }
}

#[test]
fn a_neighbour_that_does_not_arrive_is_named_at_the_deadline() {
    for direct in [true, false] {
        spawn(2, |group| {
            let options = ExchangeOptions { direct, ..ExchangeOptions::of(DType::F32) };
            let mut exchange = Exchange::new(&group, plan(&group, 8), options).unwrap();
            // A group on which the second rank waits until the first has its error.
            let aside = group.subgroup(&[0, 1]).unwrap().unwrap();
            if group.rank() == 0 {
                exchange.set_timeout(Duration::from_millis(200));
                let error = exchange.forward(&[0.0f32; 4], &mut [0.0; 6]).unwrap_err();
                assert_eq!(error.kind(), Kind::Timeout, "{error}");
                assert!(error.to_string().contains("waiting for rank 1"), "{error}");
            }
            aside.barrier().unwrap();
        });
    }
}
