//! Requests and replies survive encoding and decoding, and malformed bytes are rejected.

use proptest::prelude::*;

use super::failures::failure;
use crate::memory::DType;
use crate::tables::remote::compress::Compression;
use crate::tables::remote::reply::RemoteReply;
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};

fn verbs() -> impl Strategy<Value = RequestVerb> {
    prop_oneof![
        Just(RequestVerb::Get),
        Just(RequestVerb::Add),
        Just(RequestVerb::Tick),
        Just(RequestVerb::Finish),
        any::<u8>().prop_map(|buffer| RequestVerb::GetChanged { buffer }),
        Just(RequestVerb::KeyGet),
        Just(RequestVerb::KeyAdd),
        Just(RequestVerb::KeyContains),
        Just(RequestVerb::KeyLength),
        Just(RequestVerb::KeyItems),
        Just(RequestVerb::KeyDelete),
        Just(RequestVerb::KeyEvicted),
        any::<u8>().prop_map(RequestVerb::Custom),
        Just(RequestVerb::Piece),
    ]
}

fn rows() -> impl Strategy<Value = RowList> {
    prop_oneof![
        Just(RowList::All),
        prop::collection::vec(any::<i64>(), 0..20).prop_map(RowList::List),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9).prop_map(RowList::Keys),
    ]
}

fn replies() -> impl Strategy<Value = Option<(DType, Compression)>> {
    let compressions = [Compression::None, Compression::F16, Compression::BF16, Compression::Int8];
    prop::option::of((prop::sample::select(&DType::KERNELS[..]), prop::sample::select(compressions.to_vec())))
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

prop_compose! {
    fn requests()(table: u32, worker: u32, verb in verbs(), rows in rows(), options in bytes(99), packed: bool, needs_confirm: bool,
                  reply in replies(), payload in bytes(300)) -> RemoteRequest {
        let pieces = Vec::new();
        RemoteRequest { table, worker, verb, rows, options, packed, needs_confirm, reply, payload, pieces }
    }
}

proptest! {
    #[test]
    fn requests_keep_their_meaning(request in requests(), number: u64) {
        prop_assert_eq!(RemoteRequest::decode(request.clone().encode(number)).unwrap(), (number, request));
    }

    #[test]
    fn lists_keep_their_meaning(rows in rows(), payload in bytes(300), at in 0usize..400, bit in 0u32..8) {
        let mut sealed = rows.encode(payload.clone());
        prop_assert_eq!(RowList::decode(sealed.clone()).unwrap(), (rows, payload));
        let at = at % sealed.len();
        sealed[at] ^= 1 << bit;
        let _ = RowList::decode(sealed.clone());
        sealed.truncate(at);
        let _ = RowList::decode(sealed);
    }

    #[test]
    fn hostile_requests_are_rejected(request in requests(), cut in 0usize..400, at in 0usize..400, bit in 0u32..8) {
        let whole = request.encode(5);
        let short = whole[..cut.min(whole.len() - 1)].to_vec();
        // The rest may by chance be a valid message, but not the one that was sent.
        prop_assert!(RemoteRequest::decode(short).map_or(true, |(_, found)| found.payload.len() < whole.len()));
        let mut bent = whole;
        let at = at % bent.len();
        bent[at] ^= 1 << bit;
        let _ = RemoteRequest::decode(bent);
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in bytes(200)) {
        let _ = RemoteRequest::decode(bytes.clone());
        let _ = RemoteReply::decode(bytes);
    }

    #[test]
    fn replies_keep_their_meaning(number: u64, more: bool, payload in bytes(300)) {
        let reply = RemoteReply { number, outcome: Ok(payload.clone()), packed: false, more };
        let found = RemoteReply::decode(reply.encode()).unwrap();
        prop_assert_eq!((found.number, found.more, found.outcome.unwrap()), (number, more, payload));
    }

    #[test]
    fn hostile_replies_are_rejected(sort in 0u8..8, packed: bool, at in 0usize..400, bit in 0u32..8, cut in 0usize..400) {
        let mut bytes = RemoteReply { number: 1, outcome: Err(failure(sort)), packed, more: false }.encode();
        let short = bytes[..cut.min(bytes.len() - 1)].to_vec();
        let _ = RemoteReply::decode(short);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let _ = RemoteReply::decode(bytes);
    }
}

#[test]
fn errors_keep_their_kind_and_text() {
    for sort in 0..8 {
        let error = failure(sort);
        let bytes =
            RemoteReply { number: 9, outcome: Err(error.clone()), packed: false, more: false }.encode();
        let found = RemoteReply::decode(bytes).unwrap().outcome.unwrap_err();
        assert_eq!((found.kind(), found.to_string()), (error.kind(), error.to_string()));
    }
}
