//! Toy tables over every transport: exact results, errors returned to the caller, ranks that die.

mod failures;
mod fuzz;
mod ranks;
mod toy;
mod wire_format;

pub(crate) use failures::a_server_dies;
pub(crate) use ranks::every_rank;

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::tables::remote::{Remote, RemotePeers, RequestHandler};
use crate::transport::{Call, CallTime, Transport, local};

/// The context of these messages.
const CONTEXT: u32 = 77;

pub(super) fn call(transport: &Arc<dyn Transport>, seconds: f64) -> Call<'static> {
    Call {
        rank: transport.rank(),
        operation: "get",
        number: 1,
        group: "tables",
        members: &[],
        hosts: &[],
        time: CallTime::new(Duration::from_secs_f64(seconds)),
        interrupt: None,
    }
}

/// Every rank may send requests to every rank, itself included.
pub(super) fn start(transport: &Arc<dyn Transport>, handler: Arc<dyn RequestHandler>) -> Result<Remote> {
    let all: Vec<usize> = (0..transport.size()).collect();
    Remote::start(
        transport.clone(),
        RemotePeers { context: CONTEXT, callers: all.clone(), servers: all },
        handler,
    )
}

/// Ranks as threads that share nothing but messages.
fn threads(ranks: usize, body: impl Fn(Arc<dyn Transport>) + Sync) {
    let transports = local::create(ranks).unwrap();
    std::thread::scope(|scope| {
        for transport in transports {
            let body = &body;
            scope.spawn(move || body(Arc::new(transport)));
        }
    });
}

#[test]
fn results_are_exact_on_threads() {
    for ranks in [1, 2, 3, 4] {
        threads(ranks, |transport| every_rank(&transport));
    }
}
