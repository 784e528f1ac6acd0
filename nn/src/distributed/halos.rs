//! Halo exchange of batches: this rank's patch of every sample, with the neighbourhood that its outputs need.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use unisono::halo::{Boundary, Edges, Exchange, ExchangeOptions, Grid, Layout, Partition, Plan, Window};
use unisono::{DType, Group, Result};

use super::comm_timer::CommTimer;
use super::sharding::Sharding;
use super::topology::Topology;
use crate::layers::{Halo, Padder, Pool};
use crate::number::Number;
use crate::shape::{ConvWindow, Shape};

/// The halo exchanges of one window over one shape, with a cached exchange for each batch size.
pub(crate) struct Halos {
    group: Group,
    grid: Grid,
    shape: Shape,
    windows: [Window; 2],
    edges: Edges,
    comm: CommTimer,
    /// Keyed by the batch size and the number of arrays exchanged together.
    exchanges: Mutex<BTreeMap<(usize, usize), Exchange>>,
    own: Shape,
    /// The shape of this rank's patch with its halo.
    pub(crate) padded: Shape,
    /// The first row and column of the patch with its halo.
    pub(crate) first: [i64; 2],
    /// Whether no rank needs a halo, and every rank needs all of its patch.
    pub(crate) is_trivial: bool,
}

impl std::fmt::Debug for Halos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Halos({} on {})", self.shape, self.grid)
    }
}

impl Halos {
    /// The exchange for a window over a shape. The values beyond the border are zeros, or −∞ for max pooling.
    pub(crate) fn new(topology: &Topology, shape: Shape, window: ConvWindow, pool: Option<Pool>) -> Halos {
        let along = |axis: usize| Window {
            kernel: window.kernel[axis],
            stride: window.stride[axis],
            padding: (window.padding[axis], window.padding[axis]),
            ..Window::IDENTITY
        };
        let boundary = match pool {
            Some(Pool::Max) => Boundary::Constant(f64::NEG_INFINITY),
            _ => Boundary::Zero,
        };
        Halos::with_windows(topology, shape, [along(0), along(1)], boundary)
    }

    /// The exchange for the output errors of a window: all outputs whose windows overlap this rank's input patch.
    pub(crate) fn of_errors(topology: &Topology, inputs: Shape, outputs: Shape, window: ConvWindow) -> Halos {
        let sizes = [(inputs.rows, outputs.rows), (inputs.columns, outputs.columns)];
        let along = |axis: usize| {
            let (stride, padding) = (window.stride[axis], window.padding[axis]);
            // At least a full stride, so that the windows over a patch begin before it even if they do not overlap it.
            let kernel = window.kernel[axis].max(stride);
            let all = ((sizes[axis].1 - 1) * stride + kernel).saturating_sub(padding);
            Window {
                kernel,
                stride,
                padding: (padding, all.saturating_sub(sizes[axis].0)),
                output_padding: sizes[axis].0.saturating_sub(all),
                transposed: true,
                ..Window::IDENTITY
            }
        };
        Halos::with_windows(topology, outputs, [along(0), along(1)], Boundary::Zero)
    }

    fn with_windows(topology: &Topology, shape: Shape, windows: [Window; 2], boundary: Boundary) -> Halos {
        let sizes = [shape.rows, shape.columns];
        let needed = |axis: usize, name: &str| {
            let number = topology.grid.axis(name).expect("a halo grid has h and w");
            let parts = topology.grid.extent(number);
            let inputs = Partition::balanced(sizes[axis], parts);
            let outputs = windows[axis].outputs(sizes[axis]).expect("the window was checked");
            let outputs = Partition::balanced(outputs, parts);
            let range = |part: usize| {
                let range = outputs.range(part);
                windows[axis].needed(range.start as i64..range.end as i64)
            };
            let own = topology.grid.coordinates(topology.spatial.group.rank())[number];
            let same = |part: usize| {
                let (range, inputs) = (range(part), inputs.range(part));
                (range.start, range.end) == (inputs.start as i64, inputs.end as i64)
            };
            (range(own), (0..parts).all(same))
        };
        let ((rows, same_rows), (columns, same_columns)) = (needed(0, "h"), needed(1, "w"));
        let length = |range: &Range<i64>| (range.end - range.start) as usize;
        let padded = match length(&rows) * length(&columns) {
            0 => [0, 0],
            _ => [length(&rows), length(&columns)],
        };
        Halos {
            group: topology.spatial.group.clone(),
            grid: topology.grid.clone(),
            shape,
            windows,
            edges: Edges::both(boundary),
            comm: topology.comm.clone(),
            exchanges: Mutex::default(),
            own: Sharding::Patch(shape).local_shape(topology),
            padded: Shape::new(shape.maps, padded[0], padded[1]),
            first: [rows.start, columns.start],
            is_trivial: same_rows && same_columns,
        }
    }

    fn create_exchange(&self, batch: usize, options: ExchangeOptions) -> Result<Exchange> {
        let shape = [batch, self.shape.maps, self.shape.rows, self.shape.columns];
        let layout = Layout::new(&self.grid, &shape, &[("h", 2), ("w", 3)])?;
        let windows = [Window::IDENTITY, Window::IDENTITY, self.windows[0], self.windows[1]];
        let edges = [Edges::default(), Edges::default(), self.edges, self.edges];
        let plan = Plan::window(&layout, &windows, &edges, None, self.group.rank())?;
        Exchange::new(&self.group, plan, options)
    }

    /// Calls `work` with the exchange of `fields` arrays of this type.
    fn exchange(
        &self,
        batch: usize,
        fields: usize,
        dtype: DType,
        work: impl FnOnce(&mut Exchange) -> Result<()>,
    ) -> Result<()> {
        // All ranks of a spatial group have the same samples: if one has none, all skip the exchange.
        if batch == 0 {
            return Ok(());
        }
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        self.comm.collective(|| match exchanges.entry((batch, fields)) {
            Entry::Occupied(made) => work(made.into_mut()),
            Entry::Vacant(free) => {
                let options = ExchangeOptions { fields, ..ExchangeOptions::of(dtype) };
                work(free.insert(self.create_exchange(batch, options)?))
            }
        })
    }

    /// Gathers the inputs that this rank's outputs need.
    pub(crate) fn forward<T: Number>(&self, batch: usize, part: &[T], padded: &mut Vec<T>) -> Result<()> {
        padded.resize(batch * self.padded.size(), T::ZERO);
        self.exchange(batch, 1, T::DTYPE, |exchange| exchange.forward(part, padded))
    }
}

impl<T: Number> Halo<T> for Halos {
    fn gather_halo(&self, batch: usize, part: &[T]) -> Result<Vec<T>> {
        let mut padded = Vec::new();
        self.forward(batch, part, &mut padded)?;
        Ok(padded)
    }

    fn adjoint(&self, batch: usize, padded: &[T], part: &mut [T]) -> Result<()> {
        self.exchange(batch, 1, T::DTYPE, |exchange| exchange.adjoint(padded, part))
    }

    fn adjoint_exact(&self, batch: usize, padded: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
        let mut parts = vec![vec![0.0; batch * self.own.size()]; padded.len()];
        let padded: Vec<&[u8]> = padded.iter().map(|field| bytemuck::cast_slice(field)).collect();
        let mut fields: Vec<&mut [u8]> =
            parts.iter_mut().map(|field| bytemuck::cast_slice_mut(field)).collect();
        self.exchange(batch, padded.len(), DType::F64, |exchange| {
            exchange.adjoint_fields(&padded, &mut fields)
        })?;
        Ok(parts)
    }
}

impl<T: Number> Padder<T> for Halos {
    fn pad(&mut self, batch: usize, maps: &[T]) -> Result<Vec<T>> {
        self.gather_halo(batch, maps)
    }
}
