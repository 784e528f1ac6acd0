//! Shared memory corrupted by another process: the result is an error or a valid answer, never a panic, a hang or an access
//! outside the arena.

use std::sync::atomic::Ordering;
use std::time::Duration;

use memmap2::MmapMut;

use super::peer_slot::PeerSlot;
use super::{Arena, ArenaHeader, MAGIC, ring};
use crate::testing::{call, fuzz, mutate};
use crate::transport::{
    Envelope, Incoming, MatchKey, NonblockingTransport, Signature, Transport, Verb, local,
};

#[test]
fn damaged_headers() {
    let good = {
        let map = MmapMut::map_anon(Arena::bytes(2, 1 << 16)).unwrap();
        let arena = Arena::format(map.into(), 2, 1 << 16);
        // SAFETY: the arena begins with its header, which no longer changes.
        let header = unsafe { std::slice::from_raw_parts(arena.at(0), size_of::<ArenaHeader>()) };
        [header.to_vec()]
    };
    fuzz!(|script: &[u8]| {
        let mut header = mutate(&good, script);
        header.resize(size_of::<ArenaHeader>(), 0);
        let mut map = MmapMut::map_anon(Arena::bytes(2, 1 << 16)).unwrap();
        map[..header.len()].copy_from_slice(&header);
        let length = map.len();
        if let Ok(arena) = Arena::open(map.into()) {
            assert_eq!(arena.header().magic.load(Ordering::Relaxed), MAGIC);
            assert!(arena.layout.total() <= length, "{:?}", arena.layout);
            // Access the last byte of everything that the layout promises.
            arena.peer_slot(arena.local_size() - 1).activity();
            let (start, end) = arena.layout.shared_heap_range();
            arena.range(start, end - start);
        }
    });
}

#[test]
fn damaged_process_records() {
    fuzz!(|script: &[u8]| {
        let mut bytes = mutate(&[vec![0; size_of::<PeerSlot>()]], script);
        bytes.resize(size_of::<PeerSlot>(), 0);
        let mut memory: Box<std::mem::MaybeUninit<PeerSlot>> = Box::new_uninit();
        // SAFETY: the copy fills the slot, and any bytes are a valid slot: all its fields are atomic numbers.
        let peer_slot = unsafe {
            memory.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            memory.assume_init()
        };
        let _ = (peer_slot.pid(), peer_slot.is_lost(), peer_slot.incarnation(), peer_slot.process_ended());
        let _ = (
            peer_slot.process.status(),
            peer_slot.process.restart_obstacle(),
            peer_slot.process.heap_high_water(),
            peer_slot.activity(),
        );
        assert!(!peer_slot.describe().0.is_empty());
        let _ = peer_slot.request_location(Duration::ZERO);
    });
}

#[test]
fn forged_rings() {
    let match_key = MatchKey { context: 0, tag: 1, signature: Signature::new(Verb::RECV, 40) };
    let later = MatchKey { tag: 2, ..match_key };
    let message = |match_key: &MatchKey, bytes: usize| {
        [bytemuck::bytes_of(&Envelope::new(match_key, bytes)), &vec![7; bytes]].concat()
    };
    // Increments of the two counters, then the stream.
    let stream = |messages: &[Vec<u8>]| [vec![0; 16], messages.concat()].concat();
    let good = [
        stream(&[message(&match_key, 40), message(&later, 500)]),
        stream(&[message(&later, 500), message(&match_key, 40)]),
        stream(&[message(&later, 3), message(&match_key, 39), message(&match_key, 40)]),
    ];
    fuzz!(|script: &[u8]| {
        let mut bytes = mutate(&good, script);
        bytes.resize(bytes.len().max(16), 0);
        let (counters, stream) = bytes.split_at(16);
        let [written, read] =
            [0, 8].map(|at| u64::from_le_bytes(counters[at..at + 8].try_into().expect("eight bytes")));
        let transports = local::create(2).unwrap();
        let transport = &transports[0];
        let call = call(0, "recv");
        let mut memory = [0; 120];
        let (_, rest) = memory.split_at_mut(40);
        // SAFETY: the ticket is cancelled before the buffer goes out of scope.
        let ticket =
            unsafe { transport.begin(&match_key, &[], &mut [Incoming { from: 1, bytes: &mut rest[..40] }]) };
        let ring = transport.endpoint.arena.ring(1, 0);
        ring.write(stream);
        ring.forge(written, read);
        let outcome = transport.poll(&call, &ticket);
        let taken = transport.receive_next(&call, later.context, later.tag, Duration::ZERO);
        // A send to the same rank: that ring's counters may be forged as well.
        transport.endpoint.arena.ring(0, 1).forge(read, written);
        let _ = transport.post(&call, 1, &later, vec![1; 50]);
        transport.cancel(ticket);
        if let (Ok(true), Ok(_)) = (outcome, taken) {
            let waiting = (stream.len() as u64).wrapping_add(written).wrapping_sub(read);
            assert!(waiting <= ring::CAPACITY as u64, "counters that cannot be right were accepted");
        }
        assert!(
            memory[..40].iter().chain(&memory[80..]).all(|&byte| byte == 0),
            "memory of others was written"
        );
    });
}
