//! Control messages that no rank of this version sends, in any order: the result is an error that names their sender,
//! never a panic, and never an access outside the lent memory.

use std::sync::{Mutex, PoisonError};

use super::fake::{self, Arriving, RANK, SIZE};
use crate::testing::{call, fuzz, mutate};
use crate::transport::mpi::engine::{ExchangeFailure, MpiEngine};
use crate::transport::mpi::identity::ProcessIdentity;
use crate::transport::mpi::peers::Peers;
use crate::transport::mpi::wire::{self, CHUNK, ControlHeader, EAGER_LIMIT};
use crate::transport::mpi::{MpiTransport, NonblockingTransport};
use crate::transport::{Envelope, Incoming, MatchKey, Outgoing, Signature, Ticket, Verb};

const SMALL: usize = 40;
const LARGE: usize = 2 * CHUNK + 100;
const BUFFERED: usize = EAGER_LIMIT + 1;

fn match_key(tag: u32, verb: Verb) -> MatchKey {
    MatchKey { context: 7, tag, signature: Signature::new(verb, 0) }
}

fn user() -> MatchKey {
    match_key(5, Verb::SEND)
}

fn collective() -> MatchKey {
    match_key(MatchKey::COLLECTIVE, Verb::from_number(2))
}

fn request() -> MatchKey {
    match_key(MatchKey::REQUEST, Verb::SEND)
}

/// Encoded events: the first byte is the kind, the second selects the peer or ticket, followed by the length of the
/// rest and the rest.
mod event {
    pub const CONTROL: u8 = 0;
    /// The tag and the number of bytes.
    pub const CHUNK: u8 = 1;
    /// An exchange is cancelled.
    pub const CANCEL: u8 = 2;
    /// The server polls for its next request.
    pub const NEXT: u8 = 3;
    pub const ALL: u8 = 4;
}

fn event(what: u8, whom: u8, rest: &[u8]) -> Vec<u8> {
    [&[what, whom][..], &(rest.len() as u16).to_le_bytes(), rest].concat()
}

fn control(from: u8, header: ControlHeader, bytes: &[u8]) -> Vec<u8> {
    event(event::CONTROL, from, &[bytemuck::bytes_of(&header), bytes].concat())
}

fn chunk(from: u8, tag: u16, bytes: usize) -> Vec<u8> {
    event(event::CHUNK, from, &[&tag.to_le_bytes()[..], &(bytes as u32).to_le_bytes()].concat())
}

fn header(kind: u32, tag: u32, message: u64, match_key: &MatchKey, bytes: usize) -> ControlHeader {
    ControlHeader { kind, tag, message, envelope: Envelope::new(match_key, bytes) }
}

/// Rank 0 with two receives from rank 1, two sends to rank 2, and a large buffered send to rank 1.
struct Scene {
    transport: MpiTransport,
    small: [u8; SMALL],
    large: Vec<u8>,
    sent: Vec<u8>,
    tickets: Vec<Ticket>,
}

impl Scene {
    fn new() -> Scene {
        let peers = Peers::new(&[ProcessIdentity::own(); SIZE], RANK, None);
        let transport = MpiTransport::new(fake::start(), peers);
        Scene {
            transport,
            small: [0; SMALL],
            large: vec![0; LARGE],
            sent: vec![0; LARGE],
            tickets: Vec::new(),
        }
    }

    /// Starts all of this rank's operations.
    fn begin(&mut self) {
        self.clear();
        *self.transport.engine() = MpiEngine::new(fake::start());
        fake::allow(&self.sent);
        // SAFETY: the buffers live as long as the scene, which drops all exchanges at its end.
        self.tickets = unsafe {
            let progress: &dyn NonblockingTransport = &self.transport;
            vec![
                progress.begin(&user(), &[], &mut [Incoming { from: 1, bytes: &mut self.small }]),
                progress.begin(&collective(), &[], &mut [Incoming { from: 1, bytes: &mut self.large }]),
                progress.begin(&user(), &[Outgoing { to: 2, bytes: &self.sent[..SMALL] }], &mut []),
                progress.begin(&collective(), &[Outgoing { to: 2, bytes: &self.sent }], &mut []),
            ]
        };
        let mut engine = self.transport.engine();
        assert!(engine.post(1, &request(), vec![0; BUFFERED]).is_ok());
        fake::allow(&engine.buffered_sends[0].bytes);
    }

    /// The message ids of the large send and of the buffered send.
    fn offered(&self) -> [u64; 2] {
        let engine = self.transport.engine();
        [engine.pending_sends[0].message, engine.pending_sends[1].message]
    }

    /// Drops the requests held by the fake MPI, which the engine would otherwise leak.
    fn clear(&mut self) {
        let mut engine = self.transport.engine();
        engine.control_receive = None;
        engine.control_sends.clear();
        engine.inbound.clear();
        engine.outbound.clear();
    }

    /// Applies one event, and makes progress.
    fn happens(&mut self, what: u8, whom: u8, rest: &[u8]) -> crate::Result<()> {
        let mut engine = self.transport.engine();
        let peer = 1 + usize::from(whom) % (SIZE - 1);
        match what % event::ALL {
            event::CONTROL => fake::arrive(peer, Arriving::ControlMessage(rest.to_vec())),
            event::CHUNK => {
                if let [tag @ .., a, b, c, d] = rest
                    && let Ok(tag) = tag.try_into().map(u16::from_le_bytes)
                {
                    let bytes = u32::from_le_bytes([*a, *b, *c, *d]) as usize % (CHUNK + 2);
                    fake::arrive(peer, Arriving::Chunk { tag, bytes });
                }
            }
            event::CANCEL => {
                let ticket = self.tickets[usize::from(whom) % self.tickets.len()];
                engine.cancel(ticket, None);
            }
            _ => {
                if let Some((_, bytes)) = engine.take_next(request().context, MatchKey::REQUEST)? {
                    let received = fake::received(&bytes);
                    assert!(
                        bytes.len() <= EAGER_LIMIT || received == bytes.len(),
                        "{received} of {}",
                        bytes.len()
                    );
                }
            }
        }
        engine.progress()
    }

    fn check_memory(&self) {
        let engine = self.transport.engine();
        let vectors = |bytes: &Vec<u8>| fake::range(bytes.as_ptr(), bytes.len());
        let mut ours = vec![vectors(&self.large)];
        ours.extend(engine.inbound.iter().map(|transfer| vectors(&transfer.drain)));
        ours.extend(engine.any_source_receives.iter().map(|receive| vectors(&receive.bytes)));
        for lent in fake::lent() {
            assert!(ours.iter().any(|own| own.start <= lent.start && lent.end <= own.end), "{lent:?}");
        }
    }
}

/// Event sequences that follow the protocol.
fn conversations(scene: &mut Scene) -> Vec<Vec<u8>> {
    scene.begin();
    let [large, buffered] = scene.offered();
    let small = control(1, header(wire::EAGER, 0, 1, &user(), SMALL), &[9; SMALL]);
    let rts = control(1, header(wire::RTS, 0, 2, &collective(), LARGE), &[]);
    let chunks = [chunk(1, 1, CHUNK), chunk(1, 1, CHUNK), chunk(1, 1, 100)];
    let cts = control(2, header(wire::CTS, 3, large, &collective(), LARGE), &[]);
    let buffered = control(1, header(wire::CTS, 4, buffered, &request(), BUFFERED), &[]);
    let nack = control(2, header(wire::NACK, 0, large, &user(), SMALL), &[]);
    let peer_cancel = |bytes, rank| control(1, header(wire::CANCEL, rank, 2, &user(), bytes), &[]);
    let request_rts = control(2, header(wire::RTS, 0, 3, &request(), BUFFERED), &[]);
    let early = control(2, header(wire::EAGER, 0, 4, &request(), 3), &[1, 2, 3]);
    let wrong_rts = control(1, header(wire::RTS, 0, 5, &collective(), BUFFERED), &[]);
    let next = || event(event::NEXT, 0, &[]);
    let cancel = |ticket| event(event::CANCEL, ticket, &[]);
    let [first, second, third] = chunks;
    vec![
        [&small[..], &rts, &first, &second, &third, &cts, &buffered].concat(),
        [&rts[..], &first, &peer_cancel(CHUNK, 2), &cancel(1), &small].concat(),
        [&rts[..], &first, &cancel(1), &second, &peer_cancel(2 * CHUNK, wire::NO_RANK)].concat(),
        [&request_rts[..], &next(), &early, &chunk(2, 1, BUFFERED), &next(), &next()].concat(),
        [&nack[..], &cancel(3), &cts, &wrong_rts].concat(),
        [&early[..], &request_rts, &next(), &next(), &chunk(2, 1, BUFFERED), &buffered, &next()].concat(),
    ]
}

#[test]
fn forged_control_messages() {
    let mut scene = Scene::new();
    let good = conversations(&mut scene);
    let scene = Mutex::new(scene);
    fuzz!(|script: &[u8]| {
        let mut scene = scene.lock().unwrap_or_else(PoisonError::into_inner);
        scene.begin();
        let expected = Envelope::new(&user(), SMALL);
        let events = mutate(&good, script);
        let (mut rest, mut came) = (events.as_slice(), false);
        while let [what, whom, low, high, behind @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
            let (body, after) = behind.split_at(length);
            let outcome = scene.happens(*what, *whom, body);
            scene.check_memory();
            came |= ControlHeader::read(body, SIZE)
                .is_ok_and(|(header, _)| header.kind == wire::EAGER && header.envelope == expected);
            if let Err(error) = outcome {
                assert!(!error.to_string().is_empty());
                break;
            }
            rest = after;
        }
        for (number, ticket) in scene.tickets.clone().into_iter().enumerate() {
            let state = scene.transport.engine().exchanges.state(ticket);
            let open = scene.transport.engine().exchanges.is_open(ticket);
            match state {
                Ok(done) if done && open => match number {
                    0 => assert!(came, "a message that no rank sent"),
                    1 => assert_eq!(fake::received(&scene.large), LARGE, "a part of a message"),
                    _ => {}
                },
                Err(ExchangeFailure::Mpi(_)) | Ok(_) => {}
                Err(failure) => {
                    assert!(!scene.transport.error(&call(RANK, "broadcast"), failure).to_string().is_empty())
                }
            }
            scene.transport.engine().cancel(ticket, None);
        }
        scene.check_memory();
        if scene.transport.engine().broken.is_none() {
            let large = fake::range(scene.large.as_ptr(), LARGE);
            assert!(
                fake::lent().iter().all(|lent| !large.contains(&lent.start)),
                "a cancelled buffer is lent"
            );
        }
    });
    scene.into_inner().unwrap().clear();
}

#[test]
fn damaged_identities() {
    let good = [bytemuck::cast_slice::<ProcessIdentity, u8>(&[ProcessIdentity::own(); SIZE]).to_vec()];
    fuzz!(|script: &[u8]| {
        let mut bytes = mutate(&good, script);
        bytes.resize(good[0].len(), 0);
        let identities: Vec<ProcessIdentity> =
            bytes.chunks_exact(size_of::<ProcessIdentity>()).map(bytemuck::pod_read_unaligned).collect();
        let peers = Peers::new(&identities, RANK, None);
        for (rank, first) in peers.candidates().into_iter().enumerate() {
            assert!(first <= rank);
            let _ = (
                peers.lost(rank),
                peers.missing(&[rank]),
                peers.isolation_reason(rank),
                peers.host_key(first),
            );
        }
    });
}
