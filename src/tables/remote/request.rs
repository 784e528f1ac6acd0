//! Requests of a worker to the server of a shard on another host.

use std::borrow::Cow;

use super::compress::{self, Compression};
use super::wire::{self, Reader, Writer, malformed};
use crate::error::{Error, Result};
use crate::memory::DType;

/// The operation requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RequestVerb {
    Get,
    Add,
    /// The worker has received all replies to its last get, from all hosts.
    GetDone,
    /// The payload is the worker's number of steps.
    Tick,
    Finish,
    /// The worker enters a collective call on the world's group; the payload is the call's number.
    EnterCall,
    LeaveCall,
    /// This worker's number of steps, as counted on that host.
    Steps,
    /// Only the rows that changed since this worker's last get into this buffer.
    GetChanged {
        buffer: u8,
    },
    KeyGet,
    KeyAdd,
    KeyContains,
    KeyLength,
    KeyItems,
    KeyDelete,
    KeyEvicted,
    /// A request to a user-defined table.
    Custom(u8),
    /// A piece of the payload of a request that has the same number and follows later.
    Piece,
}

/// How a table's clock treats a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Get,
    Add,
    /// A notification about the worker, whose result does not matter.
    Notice,
    Query,
}

impl RequestVerb {
    pub const CUSTOM_GET: RequestVerb = RequestVerb::Custom(0);
    pub const CUSTOM_ADD: RequestVerb = RequestVerb::Custom(1);

    pub fn kind(self) -> RequestKind {
        match self {
            RequestVerb::Get
            | RequestVerb::GetChanged { .. }
            | RequestVerb::KeyGet
            | RequestVerb::CUSTOM_GET => RequestKind::Get,
            RequestVerb::Add | RequestVerb::KeyAdd | RequestVerb::CUSTOM_ADD => RequestKind::Add,
            RequestVerb::Tick
            | RequestVerb::GetDone
            | RequestVerb::Finish
            | RequestVerb::EnterCall
            | RequestVerb::LeaveCall
            | RequestVerb::Piece => RequestKind::Notice,
            RequestVerb::Steps
            | RequestVerb::KeyContains
            | RequestVerb::KeyLength
            | RequestVerb::KeyItems
            | RequestVerb::KeyDelete
            | RequestVerb::KeyEvicted
            | RequestVerb::Custom(_) => RequestKind::Query,
        }
    }

    /// Whether ranks that are not workers may send it, too.
    pub fn is_open_to_all(self) -> bool {
        matches!(
            self,
            RequestVerb::KeyContains
                | RequestVerb::KeyLength
                | RequestVerb::KeyItems
                | RequestVerb::KeyDelete
                | RequestVerb::KeyEvicted
        )
    }
}

/// The rows or keys of the shard that a request refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowList {
    All,
    /// Rows, or integer keys; for a user-defined table, pairs of a server and the length of its request.
    List(Vec<i64>),
    /// Keys that are byte strings.
    Keys(Vec<Vec<u8>>),
}

impl RowList {
    /// Appends this list to a payload, for a reply that consists of both.
    pub fn encode(&self, payload: Vec<u8>) -> Vec<u8> {
        wire::append_trailer(payload, |writer| write_rows(writer, self))
    }

    /// Decodes what [`RowList::encode`] wrote.
    pub fn decode(bytes: Vec<u8>) -> Result<(RowList, Vec<u8>)> {
        wire::split_trailer(bytes, read_rows)
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RemoteRequest {
    pub table: u32,
    pub worker: u32,
    pub verb: RequestVerb,
    pub rows: RowList,
    /// The options of the add, in their own fixed encoding; empty if there are none.
    pub options: Vec<u8>,
    /// Whether the payload is compressed by [`compress`]; [`RemoteRequest::delta`] decompresses it.
    pub packed: bool,
    /// Whether the request runs only after its sender confirms it (two-phase): the first reply states that it is ready to run.
    pub needs_confirm: bool,
    /// How a reply that consists of elements of this type may be compressed.
    pub reply: Option<(DType, Compression)>,
    /// The payload, or what follows its `pieces`.
    pub payload: Vec<u8>,
    /// The beginning of the payload, in the pieces in which it has arrived ([`RequestVerb::Piece`]).
    pub pieces: Vec<Vec<u8>>,
}

/// A request for one server. Its payload may be the caller's memory, which is copied piece by piece while earlier pieces travel.
pub(crate) struct OutgoingRequest<'a> {
    pub server: usize,
    /// The request without its payload.
    pub request: RemoteRequest,
    pub payload: Cow<'a, [u8]>,
    /// The length of a piece is a multiple of this number of bytes.
    pub unit: usize,
}

impl From<(usize, RemoteRequest)> for OutgoingRequest<'_> {
    fn from((server, mut request): (usize, RemoteRequest)) -> Self {
        let payload = Cow::Owned(std::mem::take(&mut request.payload));
        OutgoingRequest { server, request, payload, unit: 1 }
    }
}

impl RemoteRequest {
    /// A request for the entire shard, without payload.
    pub fn new(table: u32, worker: u32, verb: RequestVerb) -> RemoteRequest {
        RemoteRequest {
            table,
            worker,
            verb,
            rows: RowList::All,
            options: Vec::new(),
            packed: false,
            needs_confirm: false,
            reply: None,
            payload: Vec::new(),
            pieces: Vec::new(),
        }
    }

    /// The payload as uncompressed elements; it must decode to `bytes` bytes of this type.
    pub fn delta(&self, dtype: DType, bytes: usize) -> Result<Cow<'_, [u8]>> {
        let payload = match self.pieces.is_empty() {
            true => Cow::Borrowed(self.payload.as_slice()),
            false => Cow::Owned(self.all_pieces().collect::<Vec<_>>().concat()),
        };
        if self.packed {
            return compress::unpack(&payload, dtype, bytes).map(Cow::Owned);
        }
        if payload.len() != bytes {
            let received = format!("{} bytes", payload.len());
            return Err(Error::usage(
                "add",
                format!("{bytes} bytes"),
                received,
                "pass one value per element",
            ));
        }
        Ok(payload)
    }

    /// As [`RemoteRequest::delta`], but in pieces of the same length, which is a multiple of `unit`; the last may be shorter.
    pub fn delta_pieces(&self, dtype: DType, bytes: usize, unit: usize) -> Result<Vec<Cow<'_, [u8]>>> {
        let fits = !self.packed
            && self.pieces.iter().all(|piece| piece.len().is_multiple_of(unit) && !piece.is_empty())
            && self.all_pieces().is_sorted_by(|one, next| one.len() >= next.len())
            && self.pieces.first().map(Vec::len) == self.pieces.last().map(Vec::len)
            && self.all_pieces().map(<[u8]>::len).sum::<usize>() == bytes;
        match fits {
            true => Ok(self.all_pieces().map(Cow::Borrowed).collect()),
            false => self.delta(dtype, bytes).map(|delta| vec![delta]),
        }
    }

    fn all_pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().chain([&self.payload]).map(Vec::as_slice)
    }

    /// Makes the payload one piece, for a request that only runs on one.
    pub fn join_pieces(&mut self) {
        if !self.pieces.is_empty() {
            self.payload = self.all_pieces().collect::<Vec<_>>().concat();
            self.pieces.clear();
        }
    }

    /// Takes the payload buffers of a finished request.
    pub fn take_payload(&mut self) -> impl Iterator<Item = Vec<u8>> {
        std::mem::take(&mut self.pieces).into_iter().chain([std::mem::take(&mut self.payload)])
    }

    /// The same request with another, uncompressed payload.
    pub fn with_payload(&self, payload: Vec<u8>) -> RemoteRequest {
        let RemoteRequest { rows, options, .. } = self;
        let (rows, options) = (rows.clone(), options.clone());
        RemoteRequest { rows, options, payload, ..RemoteRequest::new(self.table, self.worker, self.verb) }
    }

    /// Encodes the request for the wire, with this number.
    pub fn encode(self, number: u64) -> Vec<u8> {
        let RemoteRequest {
            table, worker, verb, rows, options, packed, needs_confirm, reply, payload, ..
        } = self;
        wire::append_trailer(payload, |writer| {
            writer.u64(number);
            writer.u32(table);
            writer.u32(worker);
            write_verb(writer, verb);
            write_rows(writer, &rows);
            writer.blob(&options);
            writer.u8(u8::from(packed));
            writer.u8(u8::from(needs_confirm));
            writer.option(reply, |writer, (dtype, compression)| {
                writer.u8(dtype as u8);
                writer.u8(compression.number());
            });
        })
    }

    /// Decodes what [`RemoteRequest::encode`] wrote.
    pub fn decode(bytes: Vec<u8>) -> Result<(u64, RemoteRequest)> {
        let ((number, mut request), payload) = wire::split_trailer(bytes, |reader| {
            let number = reader.u64()?;
            let (table, worker) = (reader.u32()?, reader.u32()?);
            let (verb, rows) = (read_verb(reader)?, read_rows(reader)?);
            let options = reader.blob()?;
            let (packed, needs_confirm) = (reader.flag()?, reader.flag()?);
            let reply = reader.option(|reader| {
                let dtype = reader.u8()?;
                let known = DType::from_number(dtype).filter(|dtype| dtype.has_kernels());
                let dtype = known.ok_or_else(|| malformed(format!("element type {dtype}")))?;
                Ok((dtype, Compression::from_number(reader.u8()?)?))
            })?;
            let request = RemoteRequest::new(table, worker, verb);
            Ok((number, RemoteRequest { rows, options, packed, needs_confirm, reply, ..request }))
        })?;
        request.payload = payload;
        Ok((number, request))
    }
}

fn write_verb(writer: &mut Writer, verb: RequestVerb) {
    let (number, detail) = match verb {
        RequestVerb::Get => (1, 0),
        RequestVerb::Add => (2, 0),
        RequestVerb::Tick => (3, 0),
        RequestVerb::Finish => (4, 0),
        RequestVerb::GetChanged { buffer } => (5, buffer),
        RequestVerb::KeyGet => (6, 0),
        RequestVerb::KeyAdd => (7, 0),
        RequestVerb::KeyContains => (8, 0),
        RequestVerb::KeyLength => (9, 0),
        RequestVerb::KeyItems => (10, 0),
        RequestVerb::Custom(detail) => (11, detail),
        RequestVerb::EnterCall => (12, 0),
        RequestVerb::LeaveCall => (13, 0),
        RequestVerb::Steps => (14, 0),
        RequestVerb::GetDone => (15, 0),
        RequestVerb::Piece => (16, 0),
        RequestVerb::KeyDelete => (17, 0),
        RequestVerb::KeyEvicted => (18, 0),
    };
    writer.u8(number);
    writer.u8(detail);
}

fn read_verb(reader: &mut Reader) -> Result<RequestVerb> {
    Ok(match (reader.u8()?, reader.u8()?) {
        (1, 0) => RequestVerb::Get,
        (2, 0) => RequestVerb::Add,
        (3, 0) => RequestVerb::Tick,
        (4, 0) => RequestVerb::Finish,
        (5, buffer) => RequestVerb::GetChanged { buffer },
        (6, 0) => RequestVerb::KeyGet,
        (7, 0) => RequestVerb::KeyAdd,
        (8, 0) => RequestVerb::KeyContains,
        (9, 0) => RequestVerb::KeyLength,
        (10, 0) => RequestVerb::KeyItems,
        (11, detail) => RequestVerb::Custom(detail),
        (12, 0) => RequestVerb::EnterCall,
        (13, 0) => RequestVerb::LeaveCall,
        (14, 0) => RequestVerb::Steps,
        (15, 0) => RequestVerb::GetDone,
        (16, 0) => RequestVerb::Piece,
        (17, 0) => RequestVerb::KeyDelete,
        (18, 0) => RequestVerb::KeyEvicted,
        (number, detail) => return Err(malformed(format!("request {number}.{detail}"))),
    })
}

fn write_rows(writer: &mut Writer, rows: &RowList) {
    match rows {
        RowList::All => writer.u8(0),
        RowList::List(rows) => {
            writer.u8(1);
            writer.numbers(rows);
        }
        RowList::Keys(keys) => {
            writer.u8(2);
            writer.list(keys, |writer, key| writer.blob(key));
        }
    }
}

fn read_rows(reader: &mut Reader) -> Result<RowList> {
    Ok(match reader.u8()? {
        0 => RowList::All,
        1 => RowList::List(reader.numbers()?),
        2 => RowList::Keys(reader.list(Reader::blob)?),
        other => return Err(malformed(format!("rows of kind {other}"))),
    })
}
