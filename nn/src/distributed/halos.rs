//! Halos of batches: this rank's part of every sample, with what its outputs need around it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

use unisono::halo::{
    Boundary, Edges, Exchange, ExchangeOptions, Grid, Layout, Partition, Plan, Window as Along,
};
use unisono::{DType, Group, Result};

use super::company::Company;
use super::faults::Faults;
use super::held::Held;
use crate::layers::{Around, Halo, Pool, Seam};
use crate::number::Number;
use crate::shape::{Shape, Window};

/// The exchanges of one window over one shape; one for each size of batch that came along.
pub(crate) struct Halos {
    group: Group,
    grid: Grid,
    shape: Shape,
    windows: [Along; 2],
    edges: Edges,
    faults: Faults,
    exchanges: BTreeMap<usize, Exchange>,
    /// The same in pieces of exact sums.
    seams: Mutex<BTreeMap<usize, Exchange>>,
    own: Shape,
    /// The shape of this rank's part with its halo.
    pub(crate) padded: Shape,
    /// Whether every rank has all that it needs, and nothing else.
    pub(crate) is_trivial: bool,
}

impl std::fmt::Debug for Halos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Halos({} on {})", self.shape, self.grid)
    }
}

impl Halos {
    /// For a window over numbers of a shape. Beyond the border are zeros, or what the largest of a window never is.
    pub(crate) fn new(company: &Company, shape: Shape, window: Window, pool: Option<Pool>) -> Halos {
        let along = |axis: usize| Along {
            kernel: window.kernel[axis],
            stride: window.stride[axis],
            padding: (window.padding[axis], window.padding[axis]),
            ..Along::IDENTITY
        };
        let windows = [along(0), along(1)];
        let sizes = [shape.rows, shape.columns];
        let needed = |axis: usize, name: &str| {
            let number = company.grid.axis(name).expect("a halo grid has h and w");
            let parts = company.grid.extent(number);
            let inputs = Partition::balanced(sizes[axis], parts);
            let outputs = windows[axis].outputs(sizes[axis]).expect("the window was checked");
            let outputs = Partition::balanced(outputs, parts);
            let range = |part: usize| {
                let range = outputs.range(part);
                windows[axis].needed(range.start as i64..range.end as i64)
            };
            let own = company.grid.coordinates(company.team.group.rank())[number];
            let same = |part: usize| {
                let (range, inputs) = (range(part), inputs.range(part));
                (range.start, range.end) == (inputs.start as i64, inputs.end as i64)
            };
            let range = range(own);
            ((range.end - range.start) as usize, (0..parts).all(same))
        };
        let ((rows, same_rows), (columns, same_columns)) = (needed(0, "h"), needed(1, "w"));
        let boundary = match pool {
            Some(Pool::Max) => Boundary::Constant(f64::NEG_INFINITY),
            _ => Boundary::Zero,
        };
        let padded = if rows * columns == 0 { [0, 0] } else { [rows, columns] };
        Halos {
            group: company.team.group.clone(),
            grid: company.grid.clone(),
            shape,
            windows,
            edges: Edges::both(boundary),
            faults: company.faults.clone(),
            exchanges: BTreeMap::new(),
            seams: Mutex::default(),
            own: Held::Patch(shape).own(company),
            padded: Shape::new(shape.maps, padded[0], padded[1]),
            is_trivial: same_rows && same_columns,
        }
    }

    fn make(&self, batch: usize, options: ExchangeOptions) -> Result<Exchange> {
        let shape = [batch, self.shape.maps, self.shape.rows, self.shape.columns];
        let layout = Layout::new(&self.grid, &shape, &[("h", 2), ("w", 3)])?;
        let windows = [Along::IDENTITY, Along::IDENTITY, self.windows[0], self.windows[1]];
        let edges = [Edges::default(), Edges::default(), self.edges, self.edges];
        let plan = Plan::window(&layout, &windows, &edges, None, self.group.rank())?;
        Exchange::new(&self.group, plan, options)
    }

    fn exchange<T: Number>(&mut self, batch: usize) -> Result<&mut Exchange> {
        if !self.exchanges.contains_key(&batch) {
            let exchange = self.make(batch, ExchangeOptions::of(T::DTYPE))?;
            self.exchanges.insert(batch, exchange);
        }
        Ok(self.exchanges.get_mut(&batch).expect("it was just made"))
    }

    /// Gathers what this rank's outputs need.
    pub(crate) fn forward<T: Number>(&mut self, batch: usize, part: &[T], padded: &mut Vec<T>) {
        padded.resize(batch * self.padded.size(), T::ZERO);
        let faults = self.faults.clone();
        // All ranks of a team have the same samples: where one has none, nobody waits.
        if batch > 0 {
            faults.guard(|| self.exchange::<T>(batch)?.forward(part, padded));
        }
    }

    /// Sums errors of padded parts where they belong.
    pub(crate) fn adjoint<T: Number>(&mut self, batch: usize, padded: &[T], part: &mut [T]) {
        let faults = self.faults.clone();
        if batch > 0 {
            faults.guard(|| self.exchange::<T>(batch)?.adjoint(padded, part));
        }
    }
}

impl<T: Number> Halo<T> for Halos {
    fn see(&mut self, batch: usize, part: &[T]) -> Vec<T> {
        self.pad(batch, part)
    }

    fn give_back(&mut self, batch: usize, padded: &[T], part: &mut [T]) {
        self.adjoint(batch, padded, part);
    }

    fn seam(&self) -> &dyn Seam {
        self
    }
}

impl Seam for Halos {
    fn give_back(&self, batch: usize, padded: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let own = self.own.size();
        let mut parts = vec![vec![0.0; batch * own]; padded.len()];
        if batch == 0 {
            return parts;
        }
        let mut seams = self.seams.lock().unwrap_or_else(PoisonError::into_inner);
        self.faults.guard(|| {
            let seam = match seams.entry(batch) {
                Entry::Occupied(made) => made.into_mut(),
                Entry::Vacant(free) => {
                    let options = ExchangeOptions { fields: padded.len(), ..ExchangeOptions::of(DType::F64) };
                    free.insert(self.make(batch, options)?)
                }
            };
            let padded: Vec<&[u8]> = padded.iter().map(|field| bytemuck::cast_slice(field)).collect();
            let mut parts: Vec<&mut [u8]> =
                parts.iter_mut().map(|field| bytemuck::cast_slice_mut(field)).collect();
            seam.adjoint_fields(&padded, &mut parts)
        });
        parts
    }
}

impl<T: Number> Around<T> for Halos {
    fn pad(&mut self, batch: usize, maps: &[T]) -> Vec<T> {
        let mut padded = Vec::new();
        self.forward(batch, maps, &mut padded);
        padded
    }
}
