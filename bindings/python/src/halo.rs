//! Native halo objects that need no communication: grids, layouts and plans.

use std::sync::Arc;

use pyo3::prelude::*;
use unisono::halo::{self, Boundary, Edges, Window};
use unisono::{Error, Result};

use crate::errors::{guard, raise};

/// An axis and its size.
type Axes = Vec<(String, i64)>;
/// Kernel, stride, dilation, padding before and after, transposed, output padding, ceil mode.
type WindowNumbers = (usize, usize, usize, usize, usize, bool, usize, bool);
/// A boundary's name and, for a constant, its value.
type BoundaryWords = (String, f64);
/// Begin and end index in each dimension.
type Ranges = Vec<(i64, i64)>;

fn ranges(region: &halo::Region) -> Ranges {
    (0..region.dimensions())
        .map(|dimension| (region.range(dimension).start, region.range(dimension).end))
        .collect()
}

fn grid(axes: &Axes, ranks: usize) -> Result<halo::Grid> {
    let axes: Vec<(&str, i64)> = axes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    halo::Grid::new(&axes, ranks)
}

/// The axes with their sizes, of which one may have been left open; fails if their product is not `ranks`.
#[pyfunction]
pub(crate) fn grid_axes(py: Python<'_>, axes: Axes, ranks: usize) -> PyResult<Vec<(String, usize)>> {
    let made = guard("grid", || grid(&axes, ranks)).map_err(|error| raise(py, error))?;
    Ok(made.axes().map(|(name, size)| (name.to_string(), size)).collect())
}

fn window(numbers: WindowNumbers) -> Window {
    let (kernel, stride, dilation, before, after, transposed, output_padding, ceil) = numbers;
    Window { kernel, stride, dilation, padding: (before, after), transposed, output_padding, ceil }
}

fn boundary((name, value): BoundaryWords) -> Result<Boundary> {
    Ok(match name.as_str() {
        "zero" => Boundary::Zero,
        "constant" => Boundary::Constant(value),
        "replicate" => Boundary::Replicate,
        "reflect" => Boundary::Reflect,
        "periodic" => Boundary::Periodic,
        other => {
            let known = "zero, replicate, reflect, periodic or a number";
            return Err(Error::usage(
                "window",
                known,
                format!("{other:?}"),
                "use one of these as the boundary",
            ));
        }
    })
}

/// The index of the element that fills a position of a dimension; none if a constant does.
#[pyfunction]
pub(crate) fn boundary_source(
    py: Python<'_>,
    position: i64,
    length: usize,
    before: BoundaryWords,
    after: BoundaryWords,
) -> PyResult<Option<usize>> {
    let edges = || Ok(Edges { before: boundary(before)?, after: boundary(after)? });
    let edges = guard("window", edges).map_err(|error| raise(py, error))?;
    Ok(edges.source(position, length))
}

/// Which rank owns which part of an array.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Layout {
    layout: halo::Layout,
}

#[pymethods]
impl Layout {
    #[new]
    fn new(
        py: Python<'_>,
        axes: Vec<(String, usize)>,
        shape: Vec<usize>,
        split: Vec<(String, usize)>,
        sizes: Vec<(String, Vec<usize>)>,
    ) -> PyResult<Layout> {
        let make = || {
            let ranks = axes.iter().map(|(_, size)| size).product();
            let axes = axes.iter().map(|(name, size)| (name.clone(), *size as i64)).collect();
            let split: Vec<(&str, usize)> = split.iter().map(|(name, at)| (name.as_str(), *at)).collect();
            let mut layout = halo::Layout::new(&grid(&axes, ranks)?, &shape, &split)?;
            for (axis, sizes) in &sizes {
                layout = layout.with_sizes(axis, sizes)?;
            }
            Ok(layout)
        };
        Ok(Layout { layout: guard("split", make).map_err(|error| raise(py, error))? })
    }

    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.layout.shape().to_vec()
    }

    /// The sizes of the parts along each axis that partitions a dimension.
    #[getter]
    fn sizes(&self) -> Vec<(String, Vec<usize>)> {
        let names: Vec<&str> = self.layout.grid().axes().map(|(name, _)| name).collect();
        let split = |dimension| self.layout.split(dimension);
        (0..self.layout.shape().len())
            .filter_map(split)
            .map(|(axis, partition)| (names[axis].to_string(), partition.sizes()))
            .collect()
    }

    fn region(&self, rank: usize) -> Ranges {
        ranges(&self.layout.region(rank))
    }

    fn owner(&self, py: Python<'_>, index: Vec<usize>, near: usize) -> PyResult<usize> {
        let inside = index.len() == self.layout.shape().len()
            && index.iter().zip(self.layout.shape()).all(|(index, length)| index < length);
        if !inside {
            let expected = format!("an index of an array of the shape {:?}", self.layout.shape());
            return Err(raise(
                py,
                Error::usage("owner", expected, format!("{index:?}"), "indices count from 0"),
            ));
        }
        Ok(self.layout.owner(&index, near))
    }

    /// The layout of the outputs of windows.
    fn outputs(&self, py: Python<'_>, windows: Vec<WindowNumbers>) -> PyResult<Layout> {
        let windows: Vec<Window> = windows.into_iter().map(window).collect();
        let outputs = guard("window", || self.layout.outputs(&windows));
        Ok(Layout { layout: outputs.map_err(|error| raise(py, error))? })
    }
}

/// What a rank sends, receives, copies and fills.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct HaloPlan {
    pub(crate) plan: Arc<halo::Plan>,
}

impl HaloPlan {
    fn make(py: Python<'_>, make: impl FnOnce() -> Result<halo::Plan>) -> PyResult<HaloPlan> {
        let plan = guard("halo plan", make).map_err(|error| raise(py, error))?;
        Ok(HaloPlan { plan: Arc::new(plan) })
    }
}

#[pymethods]
impl HaloPlan {
    #[staticmethod]
    fn window(
        py: Python<'_>,
        layout: &Layout,
        windows: Vec<WindowNumbers>,
        edges: Vec<(BoundaryWords, BoundaryWords)>,
        outputs: &Layout,
        rank: usize,
    ) -> PyResult<HaloPlan> {
        HaloPlan::make(py, || {
            let windows: Vec<Window> = windows.into_iter().map(window).collect();
            let edges = edges
                .into_iter()
                .map(|(before, after)| Ok(Edges { before: boundary(before)?, after: boundary(after)? }))
                .collect::<Result<Vec<_>>>()?;
            halo::Plan::window(&layout.layout, &windows, &edges, Some(&outputs.layout), rank)
        })
    }

    #[staticmethod]
    fn repartition(py: Python<'_>, layout: &Layout, to: &Layout, rank: usize) -> PyResult<HaloPlan> {
        HaloPlan::make(py, || halo::Plan::repartition(&layout.layout, &to.layout, rank))
    }

    #[staticmethod]
    fn scatter(py: Python<'_>, layout: &Layout, root: usize, rank: usize) -> PyResult<HaloPlan> {
        HaloPlan::make(py, || halo::Plan::scatter(&layout.layout, root, rank))
    }

    #[staticmethod]
    fn gather(py: Python<'_>, layout: &Layout, root: Option<usize>, rank: usize) -> PyResult<HaloPlan> {
        HaloPlan::make(py, || halo::Plan::gather(&layout.layout, root, rank))
    }

    #[getter]
    fn own(&self) -> Ranges {
        ranges(self.plan.own())
    }

    #[getter]
    fn needed(&self) -> Ranges {
        ranges(self.plan.needed())
    }

    #[getter]
    fn sources(&self) -> Vec<(usize, usize)> {
        self.plan.sources().collect()
    }

    #[getter]
    fn destinations(&self) -> Vec<(usize, usize)> {
        self.plan.destinations().collect()
    }
}
