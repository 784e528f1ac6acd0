//! Global arrays: scattered, gathered, repartitioned, and viewed with halos.

use unisono::halo::{Boundary, Edges, GlobalArray, Grid, Layout, Region, Window};
use unisono::testing::{spawn, spawn_on_hosts};

use crate::oracle::offset;

fn part_of(global: &[i64], shape: &[usize], region: &Region) -> Vec<i64> {
    region.indices().map(|index| global[offset(shape, &index)]).collect()
}

#[test]
fn scatter_gather_and_repartition_move_every_element() {
    for (ranks, axes) in [(1, "h=1,w=1"), (2, "h=2,w=1"), (4, "h=2,w=2"), (6, "h=2,w=3"), (6, "data=3,w=2")] {
        for hosts in [1, ranks.min(2)] {
            spawn_on_hosts(ranks, hosts, |world| {
                let (group, shape) = (world.group(), [3, 5, 4]);
                let grid = Grid::parse(axes, ranks).unwrap();
                let split: Vec<(&str, usize)> = match axes.starts_with("data") {
                    true => vec![("w", 2)], // replicas along the axis data
                    false => vec![("h", 1), ("w", 2)],
                };
                let layout = Layout::new(&grid, &shape, &split).unwrap();
                let array = GlobalArray::new(group, layout.clone()).unwrap();
                let global: Vec<i64> = (0..60).map(|value| value * 7).collect();
                for root in [0, ranks - 1] {
                    let part = array.scatter((group.rank() == root).then_some(&global[..]), root).unwrap();
                    assert_eq!(part, part_of(&global, &shape, array.region()));
                    let again = array.gather(&part, Some(root)).unwrap();
                    assert_eq!(again, (group.rank() == root).then(|| global.clone()));
                    assert_eq!(array.gather(&part, None).unwrap().unwrap(), global);
                    // Across: what was divided along w is now divided along the first dimension.
                    let across = Layout::new(&grid, &shape, &[("w", 0)]).unwrap();
                    let other = array.repartition(&part, &across).unwrap();
                    assert_eq!(other, part_of(&global, &shape, &across.region(group.rank())));
                    let there = GlobalArray::new(group, across).unwrap();
                    assert_eq!(there.repartition(&other, &layout).unwrap(), part);
                }
            });
        }
    }
}

#[test]
fn indices_map_to_the_local_part_or_to_another_rank() {
    spawn(4, |group| {
        let grid = Grid::parse("h=2,w=2", 4).unwrap();
        let array =
            GlobalArray::new(&group, Layout::new(&grid, &[5, 3], &[("h", 0), ("w", 1)]).unwrap()).unwrap();
        for index in Region::whole(&[5, 3]).indices() {
            let index = [index[0] as usize, index[1] as usize];
            let owner = array.layout().owner(&index, group.rank());
            match array.to_local(&index) {
                Some(local) => assert_eq!((array.to_global(&local), owner), (index.to_vec(), group.rank())),
                None => assert_ne!(owner, group.rank()),
            }
        }
        assert_eq!(array.to_local(&[0]), None);
    });
}

#[test]
fn views_have_halos_and_return_sums() {
    spawn(4, |group| {
        let grid = Grid::parse("h=2,w=2", 4).unwrap();
        let layout = Layout::new(&grid, &[4, 4], &[("h", 0), ("w", 1)]).unwrap();
        let array = GlobalArray::new(&group, layout).unwrap();
        let window = Window { kernel: 3, padding: (1, 1), ..Window::IDENTITY };
        let edges = Edges::both(Boundary::Periodic);
        let mut view = array.view::<f64>(&[window; 2], &[edges; 2]).unwrap();
        let part: Vec<f64> = array.region().indices().map(|index| (index[0] * 4 + index[1]) as f64).collect();
        for _ in 0..3 {
            let around = view.get_fprop_view(&part).unwrap().to_vec();
            if group.rank() == 0 {
                assert_eq!(around, [15., 12., 13., 14., 3., 0., 1., 2., 7., 4., 5., 6., 11., 8., 9., 10.]);
            }
            // Each of the 16 elements occurs in every one of the four padded parts.
            assert_eq!(view.get_bprop_view(&[1.0; 16]).unwrap(), [4.0; 4]);
        }
        assert_eq!(view.plan().needed().shape(), [4, 4]);
    });
}
