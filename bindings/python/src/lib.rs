//! The native part of the Python package `unisono`: array views, the world, its groups and collectives, its tables.

mod any_array;
mod array;
mod array_factory;
mod call;
mod call_guard;
mod call_interface;
mod call_queue;
mod cuda_interface;
mod destination;
mod dlpack;
mod dlpack_exchange_api;
mod errors;
mod fork;
mod group;
mod halo;
mod halo_engine;
mod halo_exchange;
mod header;
mod heap;
mod in_place;
mod interrupt;
mod job;
mod key_value;
mod locate;
mod memory;
mod native_table;
mod nvidia;
mod out_of_place;
mod pending;
mod program;
mod result_array;
mod sparse_reader;
mod table;
mod table_options;
mod tables;
mod tensor;
mod world;

use pyo3::prelude::*;

/// The native module. It is private: the Python package above it is the public API.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interrupt::remember_main_thread(module.py())?;
    fork::register_hooks(module)?;
    locate::register_hooks(module)?;
    module.add_class::<world::World>()?;
    module.add_function(wrap_pyfunction!(world::placement, module)?)?;
    module.add_class::<job::Job>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<tables::Tables>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<key_value::KeyValueTable>()?;
    module.add_class::<halo::Layout>()?;
    module.add_class::<halo::HaloPlan>()?;
    module.add_class::<halo_exchange::HaloExchange>()?;
    module.add_function(wrap_pyfunction!(halo::grid_axes, module)?)?;
    module.add_function(wrap_pyfunction!(halo::boundary_source, module)?)?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<call_queue::CallQueue>()?;
    module.add_function(wrap_pyfunction!(call_interface::call_interface, module)?)?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<sparse_reader::SparseReader>()?;
    module.add_function(wrap_pyfunction!(program::main, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
