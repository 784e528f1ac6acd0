//! What a worker asks of the server of a shard on another host.

use std::borrow::Cow;

use super::compress::{self, Compression};
use super::wire::{self, Reader, Writer, foreign};
use crate::error::{Error, Result};
use crate::memory::DType;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Get,
    Add,
    /// The worker has all that its last get asked for, of all hosts.
    Got,
    /// The payload is how many steps the worker has made.
    Tick,
    Finish,
    /// The worker begins a call of the world's group; the payload is its number.
    EnterCall,
    LeaveCall,
    /// How many steps this worker has made, as that host counts them.
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
    /// A request of a user's own table.
    Custom(u8),
}

/// Which part of the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowList {
    All,
    /// Rows, or keys that are numbers; for a user's own table, a server and the length of its request, in turns.
    List(Vec<i64>),
    /// Keys that are bytes.
    Keys(Vec<Vec<u8>>),
}

impl RowList {
    /// This list behind a payload, as an answer that consists of both.
    pub fn seal(&self, payload: Vec<u8>) -> Vec<u8> {
        wire::seal(payload, |writer| write_rows(writer, self))
    }

    /// Reads what [`RowList::seal`] wrote.
    pub fn open(bytes: Vec<u8>) -> Result<(RowList, Vec<u8>)> {
        wire::open(bytes, read_rows)
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub table: u32,
    pub worker: u32,
    pub verb: Verb,
    pub rows: RowList,
    /// The add's options, in their own fixed form; empty for none.
    pub options: Vec<u8>,
    /// Whether the payload is packed by [`compress`]; [`Request::delta`] unpacks it.
    pub packed: bool,
    /// Whether it runs only when its sender confirms it: the first answer says that it could be run.
    pub held: bool,
    /// How a reply that consists of elements of this type may be packed.
    pub reply: Option<(DType, Compression)>,
    pub payload: Vec<u8>,
}

impl Request {
    /// A request for the whole shard, without payload.
    pub fn new(table: u32, worker: u32, verb: Verb) -> Request {
        Request {
            table,
            worker,
            verb,
            rows: RowList::All,
            options: Vec::new(),
            packed: false,
            held: false,
            reply: None,
            payload: Vec::new(),
        }
    }

    /// The payload as plain elements, which must be so many bytes of that type.
    pub fn delta(&self, dtype: DType, bytes: usize) -> Result<Cow<'_, [u8]>> {
        if self.packed {
            return compress::unpack(&self.payload, dtype, bytes).map(Cow::Owned);
        }
        if self.payload.len() != bytes {
            let received = format!("{} bytes", self.payload.len());
            return Err(Error::usage(
                "add",
                format!("{bytes} bytes"),
                received,
                "pass one value per element",
            ));
        }
        Ok(Cow::Borrowed(&self.payload))
    }

    /// The form that travels, under this number.
    pub fn encode(self, number: u64) -> Vec<u8> {
        let Request { table, worker, verb, rows, options, packed, held, reply, payload } = self;
        wire::seal(payload, |writer| {
            writer.u64(number);
            writer.u32(table);
            writer.u32(worker);
            write_verb(writer, verb);
            write_rows(writer, &rows);
            writer.blob(&options);
            writer.u8(u8::from(packed));
            writer.u8(u8::from(held));
            writer.option(reply, |writer, (dtype, compression)| {
                writer.u8(dtype as u8);
                writer.u8(compression.number());
            });
        })
    }

    /// Reads what [`Request::encode`] wrote.
    pub fn decode(bytes: Vec<u8>) -> Result<(u64, Request)> {
        let ((number, mut request), payload) = wire::open(bytes, |reader| {
            let number = reader.u64()?;
            let (table, worker) = (reader.u32()?, reader.u32()?);
            let (verb, rows) = (read_verb(reader)?, read_rows(reader)?);
            let options = reader.blob()?;
            let packed = reader.option(|_| Ok(()))?.is_some();
            let held = reader.option(|_| Ok(()))?.is_some();
            let reply = reader.option(|reader| {
                let dtype = reader.u8()?;
                let dtype =
                    DType::from_number(dtype).ok_or_else(|| foreign(format!("element type {dtype}")))?;
                Ok((dtype, Compression::from_number(reader.u8()?)?))
            })?;
            let payload = Vec::new();
            Ok((number, Request { table, worker, verb, rows, options, packed, held, reply, payload }))
        })?;
        request.payload = payload;
        Ok((number, request))
    }
}

fn write_verb(writer: &mut Writer, verb: Verb) {
    let (number, detail) = match verb {
        Verb::Get => (1, 0),
        Verb::Add => (2, 0),
        Verb::Tick => (3, 0),
        Verb::Finish => (4, 0),
        Verb::GetChanged { buffer } => (5, buffer),
        Verb::KeyGet => (6, 0),
        Verb::KeyAdd => (7, 0),
        Verb::KeyContains => (8, 0),
        Verb::KeyLength => (9, 0),
        Verb::KeyItems => (10, 0),
        Verb::Custom(detail) => (11, detail),
        Verb::EnterCall => (12, 0),
        Verb::LeaveCall => (13, 0),
        Verb::Steps => (14, 0),
        Verb::Got => (15, 0),
    };
    writer.u8(number);
    writer.u8(detail);
}

fn read_verb(reader: &mut Reader) -> Result<Verb> {
    Ok(match (reader.u8()?, reader.u8()?) {
        (1, 0) => Verb::Get,
        (2, 0) => Verb::Add,
        (3, 0) => Verb::Tick,
        (4, 0) => Verb::Finish,
        (5, buffer) => Verb::GetChanged { buffer },
        (6, 0) => Verb::KeyGet,
        (7, 0) => Verb::KeyAdd,
        (8, 0) => Verb::KeyContains,
        (9, 0) => Verb::KeyLength,
        (10, 0) => Verb::KeyItems,
        (11, detail) => Verb::Custom(detail),
        (12, 0) => Verb::EnterCall,
        (13, 0) => Verb::LeaveCall,
        (14, 0) => Verb::Steps,
        (15, 0) => Verb::Got,
        (number, detail) => return Err(foreign(format!("request {number}.{detail}"))),
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
        other => return Err(foreign(format!("rows of kind {other}"))),
    })
}
