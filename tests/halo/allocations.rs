//! Counts allocations: reusing a plan makes none.

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;

use unisono::DType;
use unisono::halo::{Edges, Exchange, ExchangeOptions, Grid, Layout, Plan, Window};
use unisono::testing::spawn;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is forwarded to the system's allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Block) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(pointer, block) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_reused_plan_allocates_nothing() {
    spawn(4, |group| {
        let grid = Grid::parse("h=2,w=2", 4).unwrap();
        let layout = Layout::new(&grid, &[2, 3, 20, 21], &[("h", 2), ("w", 3)]).unwrap();
        let window = Window { kernel: 7, padding: (3, 3), ..Window::IDENTITY };
        let windows = [Window::IDENTITY, Window::IDENTITY, window, window];
        let plan = Plan::window(&layout, &windows, &[Edges::default(); 4], None, group.rank()).unwrap();
        let part = vec![1.0f32; plan.own().elements()];
        let mut padded = vec![0.0f32; plan.needed().elements()];
        let mut gradient = part.clone();
        let mut exchange = Exchange::new(&group, plan, ExchangeOptions::of(DType::F32)).unwrap();
        assert!(exchange.is_direct());
        let mut calls = || {
            exchange.forward(&part, &mut padded).unwrap();
            exchange.refresh(&mut padded).unwrap();
            exchange.adjoint(&padded, &mut gradient).unwrap();
            exchange.adjoint_within(&mut padded).unwrap();
            exchange
                .begin(&[bytemuck::cast_slice(&part)], &mut [bytemuck::cast_slice_mut(&mut padded)])
                .unwrap();
            exchange.end(&mut [bytemuck::cast_slice_mut(&mut padded)]).unwrap();
        };
        calls();
        let before = COUNT.with(Cell::get);
        (0..200).for_each(|_| calls());
        assert_eq!(COUNT.with(Cell::get) - before, 0, "rank {}", group.rank());
    });
}
