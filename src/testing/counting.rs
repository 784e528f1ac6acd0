//! Calls by the ranks of a machine that is modelled, not used: what they send, and how long they take in virtual time.

use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};

use crate::transport::counting::{Engine, Measurement, NetworkModel, create};
use crate::world::{Group, World};

/// Enough for a rank that makes one call at a time: there are a thousand of them.
const STACK: usize = 512 << 10;

/// One call, made by every rank.
pub(crate) type CountedCall<'a> = &'a (dyn Fn(&Group) + Sync);

/// The host of each rank, for hosts with equally many ranks.
pub(crate) fn placed(hosts: usize, ranks_per_host: usize) -> Vec<usize> {
    (0..hosts * ranks_per_host).map(|rank| rank / ranks_per_host).collect()
}

/// Makes the calls one after the other on ranks that are placed on these hosts, and returns what each has cost.
pub(crate) fn measure(hosts: &[usize], network: NetworkModel, calls: &[CountedCall]) -> Vec<Measurement> {
    let engine = Arc::new(Engine::new(network, hosts));
    std::thread::scope(|scope| {
        let run = |transport| {
            let engine = engine.clone();
            let body = move || {
                let world = World::counted(transport, hosts);
                let rank = world.rank();
                let _finish = FinishOnDrop(&engine, rank);
                engine.enter(rank);
                world.enter().unwrap();
                engine.mark(rank);
                for call in calls {
                    call(world.group());
                    engine.mark(rank);
                }
            };
            let thread = std::thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, body).expect("a thread for each rank")
        };
        let transports = create(&engine, hosts).expect("a modelled machine");
        let threads: Vec<_> = transports.into_iter().map(run).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    // The first measurement is that of joining.
    engine.measured().split_off(1)
}

struct FinishOnDrop<'a>(&'a Engine, usize);

impl Drop for FinishOnDrop<'_> {
    fn drop(&mut self) {
        self.0.finish(self.1);
    }
}

/// A buffer that takes no memory as long as no byte of it is touched.
pub(crate) fn buffer(bytes: usize) -> MmapMut {
    MmapOptions::new().len(bytes.max(1)).no_reserve_swap().map_anon().expect("address space")
}
