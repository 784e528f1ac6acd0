//! Every element type, several fields in one exchange, and no allocation when a plan is reused.

use half::{bf16, f16};
use unisono::halo::{Boundary, Edges, Exchange, ExchangeOptions, Grid, Layout, Plan, Window};
use unisono::testing::spawn;
use unisono::{DType, Element, Group};

/// A row of twelve elements, a window of five that spans several parts, reflected at the ends.
fn plan(group: &Group) -> Plan {
    let grid = Grid::new(&[("x", group.size() as i64)], group.size()).unwrap();
    let layout = Layout::new(&grid, &[2, 12], &[("x", 1)]).unwrap();
    let windows = [Window::IDENTITY, Window { kernel: 5, padding: (2, 2), ..Window::IDENTITY }];
    let edges = [Edges::default(), Edges { before: Boundary::Constant(3.0), after: Boundary::Reflect }];
    Plan::window(&layout, &windows, &edges, None, group.rank()).unwrap()
}

fn every_element_arrives_and_comes_back<T: Element>(group: &Group, value: impl Fn(f64) -> T) {
    let plan = plan(group);
    let (own, needed) = (plan.own().clone(), plan.needed().clone());
    let mut exchange = Exchange::new(group, plan, ExchangeOptions::of(T::DTYPE)).unwrap();
    let part: Vec<T> = own.indices().map(|index| value((index[0] * 12 + index[1]) as f64)).collect();
    let mut padded = vec![T::zeroed(); needed.elements()];
    exchange.forward(&part, &mut padded).unwrap();
    let mirror = |at: i64| if at > 11 { 22 - at } else { at };
    for (index, found) in needed.indices().zip(&padded) {
        let expected = if index[1] < 0 { 3.0 } else { (index[0] * 12 + mirror(index[1])) as f64 };
        assert_eq!(*found, value(expected), "{} {index:?}", T::DTYPE);
    }
    // How often each element occurs: once for each owner whose window contains it.
    let ones = vec![value(1.0); padded.len()];
    let mut counts = part.clone();
    exchange.adjoint(&ones, &mut counts).unwrap();
    let layout = exchange.plan().outputs().clone();
    for (index, found) in own.indices().zip(&counts) {
        let stands = |rank: usize| {
            let outputs = layout.region(rank).range(1);
            (outputs.start - 2..outputs.end + 2).filter(|&at| at >= 0 && mirror(at) == index[1]).count()
        };
        let expected: usize =
            (0..group.size()).filter(|&rank| !layout.region(rank).is_empty()).map(stands).sum();
        assert_eq!(*found, value(expected as f64), "{} {index:?}", T::DTYPE);
    }
}

#[test]
fn all_types_are_exchanged() {
    for ranks in [1, 2, 3, 5] {
        spawn(ranks, |group| {
            every_element_arrives_and_comes_back(&group, |value| value as f32);
            every_element_arrives_and_comes_back(&group, |value| value);
            every_element_arrives_and_comes_back(&group, f16::from_f64);
            every_element_arrives_and_comes_back(&group, bf16::from_f64);
            every_element_arrives_and_comes_back(&group, |value| value as i8);
            every_element_arrives_and_comes_back(&group, |value| value as u8);
            every_element_arrives_and_comes_back(&group, |value| value as i32);
            every_element_arrives_and_comes_back(&group, |value| value as i64);
        });
    }
}

#[test]
fn halves_are_summed_in_single_precision() {
    spawn(4, |group| {
        // Every rank needs the entire array, so four values are summed at each owner.
        let grid = Grid::parse("x=4", 4).unwrap();
        let layout = Layout::new(&grid, &[4], &[("x", 0)]).unwrap();
        let windows = [Window { kernel: 7, padding: (3, 3), ..Window::IDENTITY }];
        let plan = Plan::window(&layout, &windows, &[Edges::default()], None, group.rank()).unwrap();
        let needed = plan.needed().elements();
        let mut exchange = Exchange::new(&group, plan, ExchangeOptions::of(DType::F16)).unwrap();
        // In half precision 2048 + 1 is 2048: only a sum in a wider type keeps all the ones.
        let mine = if group.rank() == 0 { 2048.0 } else { 1.0 };
        let mut sum = [f16::ZERO];
        exchange.adjoint(&vec![f16::from_f32(mine); needed], &mut sum).unwrap();
        assert_eq!(sum[0], f16::from_f32(2051.0));
    });
}

#[test]
fn several_fields_share_one_exchange() {
    spawn(3, |group| {
        let options = ExchangeOptions { fields: 3, ..ExchangeOptions::of(DType::I32) };
        let (plan, mut single) =
            (plan(&group), Exchange::new(&group, plan(&group), ExchangeOptions::of(DType::I32)).unwrap());
        let (own, needed) = (plan.own().elements(), plan.needed().elements());
        let mut exchange = Exchange::new(&group, plan, options).unwrap();
        let parts: Vec<Vec<i32>> = (0..3).map(|field| vec![10 * field + group.rank() as i32; own]).collect();
        let mut padded = vec![vec![0i32; needed]; 3];
        let inputs: Vec<&[u8]> = parts.iter().map(|part| bytemuck::cast_slice(part)).collect();
        let mut outputs: Vec<&mut [u8]> = padded.iter_mut().map(|x| bytemuck::cast_slice_mut(x)).collect();
        exchange.forward_fields(&inputs, &mut outputs).unwrap();
        for (part, padded) in parts.iter().zip(&padded) {
            let mut alone = vec![0i32; needed];
            single.forward(part, &mut alone).unwrap();
            assert_eq!(alone, *padded);
        }
    });
}
