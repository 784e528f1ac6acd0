//! all_reduce against MPI_Allreduce of the same library, turn by turn in the same processes.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use libloading::os::unix::Library;

use super::cases::{call, slot, start};
use crate::memory::{DType, ReduceOp};
use crate::transport::mpi::abi::Interface;
use crate::transport::mpi::{MpiTransport, search};
use crate::transport::{Incoming, Outgoing, Slot, Transport};

type Allreduce = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, usize, usize, usize) -> c_int;

/// The library's own all_reduce of f32 sums.
fn native() -> impl Fn(&mut [f32]) {
    let loaded = search::loaded(search::Launcher::detect()).remove(0);
    // SAFETY: the library is loaded already.
    let library = unsafe { Library::new(&loaded.path) }.expect("MPI is loaded");
    // SAFETY: only the addresses of the library's objects are taken.
    let object =
        |name: &str| unsafe { library.get::<*const c_void>(name) }.expect("Open MPI").as_raw_ptr() as usize;
    let (in_place, float, sum, world) = match loaded.interface {
        Interface::Standard => (1, 0x210, 0x21, 0x101),
        Interface::Mpich => (usize::MAX, 0x4c00_040a, 0x5800_0003, 0x4400_0000),
        Interface::OpenMpi => {
            (1, object("ompi_mpi_float"), object("ompi_mpi_op_sum"), object("ompi_mpi_comm_world"))
        }
    };
    // SAFETY: MPI's own signature, with handles as `abi` explains.
    let function: Allreduce = unsafe { *library.get("MPI_Allreduce").expect("MPI has it") };
    std::mem::forget(library);
    move |values| {
        let buffer = values.as_mut_ptr().cast();
        // SAFETY: the buffer has that many floats, and no other thread uses MPI here.
        let code =
            unsafe { function(in_place as *const c_void, buffer, values.len() as c_int, float, sum, world) };
        assert_eq!(code, 0);
    }
}

/// The plain algorithm of two exchanges, as the generic collectives do it.
fn two_exchanges(transport: &MpiTransport, values: &mut [f32], scratch: &mut [f32]) {
    let (own, peer, half) = (transport.rank(), 1 - transport.rank(), values.len() / 2);
    let (first, second) = values.split_at_mut(half);
    let (mine, other) = if own == 0 { (first, second) } else { (second, first) };
    let (call, slot) = (call(transport, 60.0), slot(0, Slot::COLLECTIVE, 1));
    let collected = &mut scratch[..mine.len()];
    let sends = [Outgoing { to: peer, bytes: bytemuck::cast_slice(other) }];
    let receives = &mut [Incoming { from: peer, bytes: bytemuck::cast_slice_mut(collected) }];
    transport.exchange(&call, &slot, &sends, receives).expect("the first half");
    mine.iter_mut().zip(collected.iter()).for_each(|(value, other)| *value += other);
    let sends = [Outgoing { to: peer, bytes: bytemuck::cast_slice(mine) }];
    let receives = &mut [Incoming { from: peer, bytes: bytemuck::cast_slice_mut(other) }];
    transport.exchange(&call, &slot, &sends, receives).expect("the second half");
}

pub fn bench() {
    let transport = start();
    let native = native();
    let members: Vec<usize> = (0..transport.size()).collect();
    let ours = |values: &mut [f32]| {
        let (call, slot) = (call(&transport, 60.0), slot(0, Slot::COLLECTIVE, values.len() as u64));
        let bytes = bytemuck::cast_slice_mut(values);
        transport
            .all_reduce_in_pieces(&call, &slot, &members, bytes, (DType::F32, ReduceOp::Sum))
            .expect("all_reduce");
    };
    for (count, rounds) in [(1000, 2000), (250_000, 200), (2_500_000, 30), (25_000_000, 10)] {
        let mut values = vec![1.0f32; count];
        let mut scratch = vec![0.0f32; count];
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for (way, times) in times.iter_mut().enumerate() {
                if way == 2 && transport.size() != 2 {
                    continue;
                }
                values.fill(1.0);
                native(&mut [0.0]);
                let began = Instant::now();
                match way {
                    0 => native(&mut values),
                    1 => ours(&mut values),
                    _ => two_exchanges(&transport, &mut values, &mut scratch),
                }
                let elapsed = began.elapsed();
                assert!(values.iter().all(|value| *value == transport.size() as f32), "way {way} is wrong");
                if round > 0 {
                    times.push(elapsed);
                }
            }
        }
        if transport.rank() == 0 {
            let line = |name: &str, times: &mut Vec<Duration>| {
                times.sort_unstable();
                if let (Some(first), Some(middle)) = (times.first(), times.get(times.len() / 2)) {
                    println!("{:>10} bytes {name:<14} min {first:>12.1?} median {middle:>12.1?}", count * 4);
                }
            };
            line("MPI_Allreduce", &mut times[0]);
            line("all_reduce", &mut times[1]);
            line("two exchanges", &mut times[2]);
        }
    }
    transport.shutdown(Duration::from_secs(30)).expect("MPI ends");
}
