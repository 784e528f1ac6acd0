//! Letters that no rank of this version writes, in any order: an error that names their sender, never a panic, and never
//! an access outside of the memory that was lent.

use std::sync::{Condvar, Mutex, PoisonError};

use super::fake::{self, Arriving, RANK, SIZE};
use crate::testing::{call, fuzz, mutate};
use crate::transport::mpi::engine::{Engine, Failure};
use crate::transport::mpi::peers::{Identity, Peers};
use crate::transport::mpi::wire::{self, CHUNK, Header, INLINE};
use crate::transport::mpi::{MpiTransport, Progress};
use crate::transport::{Envelope, Incoming, Outgoing, Signature, Slot, Ticket, Verb};

const SMALL: usize = 40;
const LARGE: usize = 2 * CHUNK + 100;
const PARCEL: usize = INLINE + 1;

fn slot(tag: u32, verb: Verb) -> Slot {
    Slot { context: 7, tag, signature: Signature::new(verb, 0) }
}

fn user() -> Slot {
    slot(5, Verb::Send)
}

fn collective() -> Slot {
    slot(Slot::COLLECTIVE, Verb::Broadcast)
}

fn request() -> Slot {
    slot(Slot::REQUEST, Verb::Send)
}

/// What happens next: the first byte says what, the second to whom, then come the length of the rest and the rest.
mod event {
    pub const LETTER: u8 = 0;
    /// The tag and the number of bytes.
    pub const CHUNK: u8 = 1;
    /// An exchange is given up.
    pub const CANCEL: u8 = 2;
    /// The server looks for its next request.
    pub const NEXT: u8 = 3;
    pub const ALL: u8 = 4;
}

fn event(what: u8, whom: u8, rest: &[u8]) -> Vec<u8> {
    [&[what, whom][..], &(rest.len() as u16).to_le_bytes(), rest].concat()
}

fn letter(from: u8, header: Header, bytes: &[u8]) -> Vec<u8> {
    event(event::LETTER, from, &[bytemuck::bytes_of(&header), bytes].concat())
}

fn chunk(from: u8, tag: u16, bytes: usize) -> Vec<u8> {
    event(event::CHUNK, from, &[&tag.to_le_bytes()[..], &(bytes as u32).to_le_bytes()].concat())
}

fn header(kind: u32, tag: u32, message: u64, slot: &Slot, bytes: usize) -> Header {
    Header { kind, tag, message, envelope: Envelope::new(slot, bytes) }
}

/// Rank 0 with two receives from rank 1, two sends to rank 2, and a large posted message for rank 1.
struct Scene {
    transport: MpiTransport,
    small: [u8; SMALL],
    large: Vec<u8>,
    sent: Vec<u8>,
    tickets: Vec<Ticket>,
}

impl Scene {
    fn new() -> Scene {
        let transport = MpiTransport {
            rank: RANK,
            size: SIZE,
            crowded: false,
            peers: Peers::new(&[Identity::own(); SIZE], RANK, None),
            engine: Mutex::new(Engine::new(fake::start())),
            news: Condvar::new(),
            scratch: Mutex::default(),
        };
        Scene {
            transport,
            small: [0; SMALL],
            large: vec![0; LARGE],
            sent: vec![0; LARGE],
            tickets: Vec::new(),
        }
    }

    /// Everything that this rank begins.
    fn begin(&mut self) {
        self.clear();
        *self.transport.engine() = Engine::new(fake::start());
        fake::allow(&self.sent);
        // SAFETY: the buffers live as long as the scene, whose end forgets all exchanges.
        self.tickets = unsafe {
            let progress: &dyn Progress = &self.transport;
            vec![
                progress.begin(&user(), &[], &mut [Incoming { from: 1, bytes: &mut self.small }]),
                progress.begin(&collective(), &[], &mut [Incoming { from: 1, bytes: &mut self.large }]),
                progress.begin(&user(), &[Outgoing { to: 2, bytes: &self.sent[..SMALL] }], &mut []),
                progress.begin(&collective(), &[Outgoing { to: 2, bytes: &self.sent }], &mut []),
            ]
        };
        let mut engine = self.transport.engine();
        assert!(engine.post(1, &request(), vec![0; PARCEL]).is_ok());
        fake::allow(&engine.parcels[0].bytes);
    }

    /// The numbers of the large send and of the posted message.
    fn offered(&self) -> [u64; 2] {
        let engine = self.transport.engine();
        [engine.offers[0].message, engine.offers[1].message]
    }

    /// Forgets what the fake MPI holds: the engine would leave it alone for ever.
    fn clear(&mut self) {
        let mut engine = self.transport.engine();
        engine.arriving = None;
        engine.letters.clear();
        engine.inbound.clear();
        engine.outbound.clear();
    }

    /// One event, and everything that follows from it.
    fn happens(&mut self, what: u8, whom: u8, rest: &[u8]) -> crate::Result<()> {
        let mut engine = self.transport.engine();
        let peer = 1 + usize::from(whom) % (SIZE - 1);
        match what % event::ALL {
            event::LETTER => fake::arrive(peer, Arriving::Letter(rest.to_vec())),
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
                if let Some((_, bytes)) = engine.take_next(request().context, Slot::REQUEST)? {
                    let received = fake::received(&bytes);
                    assert!(
                        bytes.len() <= INLINE || received == bytes.len(),
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
        ours.extend(engine.deliveries.iter().map(|delivery| vectors(&delivery.bytes)));
        for lent in fake::lent() {
            assert!(ours.iter().any(|own| own.start <= lent.start && lent.end <= own.end), "{lent:?}");
        }
    }
}

/// Conversations that keep to the protocol, as events.
fn conversations(scene: &mut Scene) -> Vec<Vec<u8>> {
    scene.begin();
    let [large, parcel] = scene.offered();
    let small = letter(1, header(wire::MESSAGE, 0, 1, &user(), SMALL), &[9; SMALL]);
    let offer = letter(1, header(wire::OFFER, 0, 2, &collective(), LARGE), &[]);
    let chunks = [chunk(1, 1, CHUNK), chunk(1, 1, CHUNK), chunk(1, 1, 100)];
    let ready = letter(2, header(wire::READY, 3, large, &collective(), LARGE), &[]);
    let parcel = letter(1, header(wire::READY, 4, parcel, &request(), PARCEL), &[]);
    let refuse = letter(2, header(wire::REFUSE, 0, large, &user(), SMALL), &[]);
    let abandon = |bytes, rank| letter(1, header(wire::ABANDON, rank, 2, &user(), bytes), &[]);
    let asked = letter(2, header(wire::OFFER, 0, 3, &request(), PARCEL), &[]);
    let early = letter(2, header(wire::MESSAGE, 0, 4, &request(), 3), &[1, 2, 3]);
    let wrong = letter(1, header(wire::OFFER, 0, 5, &collective(), PARCEL), &[]);
    let next = || event(event::NEXT, 0, &[]);
    let cancel = |ticket| event(event::CANCEL, ticket, &[]);
    let [first, second, third] = chunks;
    vec![
        [&small[..], &offer, &first, &second, &third, &ready, &parcel].concat(),
        [&offer[..], &first, &abandon(CHUNK, 2), &cancel(1), &small].concat(),
        [&offer[..], &first, &cancel(1), &second, &abandon(2 * CHUNK, wire::NO_RANK)].concat(),
        [&asked[..], &next(), &early, &chunk(2, 1, PARCEL), &next(), &next()].concat(),
        [&refuse[..], &cancel(3), &ready, &wrong].concat(),
        [&early[..], &asked, &next(), &next(), &chunk(2, 1, PARCEL), &parcel, &next()].concat(),
    ]
}

#[test]
fn forged_letters() {
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
            came |= Header::read(body, SIZE)
                .is_ok_and(|(header, _)| header.kind == wire::MESSAGE && header.envelope == expected);
            if let Err(error) = outcome {
                assert!(!error.to_string().is_empty());
                break;
            }
            rest = after;
        }
        for (number, ticket) in scene.tickets.clone().into_iter().enumerate() {
            let state = scene.transport.engine().state(ticket);
            let open = scene.transport.engine().is_open(ticket);
            match state {
                Ok(done) if done && open => match number {
                    0 => assert!(came, "a message that no rank sent"),
                    1 => assert_eq!(fake::received(&scene.large), LARGE, "a part of a message"),
                    _ => {}
                },
                Err(Failure::Mpi(_)) | Ok(_) => {}
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
    let good = [bytemuck::cast_slice::<Identity, u8>(&[Identity::own(); SIZE]).to_vec()];
    fuzz!(|script: &[u8]| {
        let mut bytes = mutate(&good, script);
        bytes.resize(good[0].len(), 0);
        let identities: Vec<Identity> =
            bytes.chunks_exact(size_of::<Identity>()).map(bytemuck::pod_read_unaligned).collect();
        let peers = Peers::new(&identities, RANK, None);
        for (rank, first) in peers.candidates().into_iter().enumerate() {
            assert!(first <= rank);
            let _ = (peers.lost(rank), peers.missing(rank), peers.apart(rank), peers.host_key(first));
        }
    });
}
