//! Damaged messages between hosts: an error or a request, never a panic, and no more memory than the message's length accounts
//! for.

use super::failures::failure;
use crate::memory::DType;
use crate::tables::remote::compress::{self, Compression, Packer, RowIds};
use crate::tables::remote::reply::RemoteReply;
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};
use crate::testing::{fuzz, mutate};

fn floats(count: usize) -> Vec<u8> {
    (0..count).flat_map(|number| ((number % 5) as f32 - 2.0).to_le_bytes()).collect()
}

#[test]
fn damaged_requests() {
    let rows =
        [RowList::All, RowList::List(vec![3, -1, 7]), RowList::Keys(vec![b"key".to_vec(), Vec::new()])];
    let verbs = [
        RequestVerb::Add,
        RequestVerb::GetChanged { buffer: 3 },
        RequestVerb::KeyAdd,
        RequestVerb::Custom(9),
    ];
    let request = |verb: RequestVerb, rows: &RowList| {
        let mut request = RemoteRequest::new(1, 2, verb);
        request.rows = rows.clone();
        request.options = vec![1, 2, 3];
        request.reply = Some((DType::F32, Compression::Int8));
        request.payload = floats(10);
        request.encode(42)
    };
    let good: Vec<Vec<u8>> =
        verbs.iter().flat_map(|verb| rows.iter().map(|rows| request(*verb, rows))).collect();
    fuzz!(|script: &[u8]| {
        let bytes = mutate(&good, script);
        let length = bytes.len();
        if let Ok((number, request)) = RemoteRequest::decode(bytes) {
            let items = match &request.rows {
                RowList::All => 0,
                RowList::List(rows) => 8 * rows.len(),
                RowList::Keys(keys) => keys.iter().map(|key| 8 + key.len()).sum(),
            };
            assert!(items + request.options.len() + request.payload.len() <= length);
            let again = RemoteRequest::decode(request.clone().encode(number)).expect("it was a request");
            assert_eq!(again, (number, request));
        }
    });
}

#[test]
fn damaged_replies() {
    let packed = |compression| compress::pack_reply(floats(300), DType::F32, compression);
    let mut good: Vec<Vec<u8>> = [Compression::F16, Compression::BF16, Compression::Int8]
        .into_iter()
        .map(|compression| {
            let (payload, packed) = packed(compression);
            RemoteReply { number: 3, outcome: Ok(payload), packed, more: false }.encode()
        })
        .collect();
    good.push(RemoteReply { number: 4, outcome: Err(failure(2)), packed: false, more: false }.encode());
    fuzz!(|script: &[u8]| {
        let bytes = mutate(&good, script);
        let length = bytes.len();
        if let Ok(RemoteReply { outcome: Ok(elements), .. }) = RemoteReply::decode(bytes) {
            assert!(elements.len() <= 8 * length, "{} bytes from {length}", elements.len());
        }
    });
}

#[test]
fn damaged_packed_adds() {
    let mut sparse = floats(300);
    sparse[40..].fill(0);
    let mut good = Vec::new();
    for compression in [Compression::None, Compression::F16, Compression::Int8, Compression::TopK(0.1)] {
        for delta in [&floats(300), &sparse] {
            good.push(Packer::new(DType::F32, 10, compression).pack(RowIds::From(0), delta).0.into_owned());
        }
    }
    fuzz!(|script: &[u8]| {
        if let Ok(delta) = compress::unpack(&mutate(&good, script), DType::F32, 1200) {
            assert_eq!(delta.len(), 1200);
        }
    });
}
