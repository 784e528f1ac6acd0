//! Gets and adds of key-value tables, as the engine makes them, and queries, which no clock counts.

use super::core::KeyValueCore;
use super::items::Items;
use super::keys::{KeyType, Keys, OwnedKeys};
use crate::error::{Error, Result};
use crate::tables::AddOptions;
use crate::tables::engine::call::{AddCall, AddPart, GetCall, GetPart};
use crate::tables::remote::compress::RowIds;
use crate::tables::remote::{RemoteRequest, ReplyPiece, RequestVerb, RowList};
use crate::transport::Call;

impl KeyValueCore {
    /// Splits a call by the other hosts that hold its keys; with `all_hosts`, all of them take part.
    pub(super) fn split(
        &self,
        worker: usize,
        verb: RequestVerb,
        keys: Keys,
        all_hosts: bool,
    ) -> Vec<(GetPart, RemoteRequest)> {
        let mut remote_positions = self.key_placement.remote_positions(keys);
        if all_hosts {
            for host in self.other_server_hosts() {
                remote_positions.entry(host).or_default();
            }
        }
        let part = |(host, positions): (usize, Vec<u32>)| {
            let mut request = RemoteRequest::new(self.number, worker as u32, verb);
            request.rows = listed(keys, positions.iter().copied());
            (GetPart { host, positions }, request)
        };
        remote_positions.into_iter().map(part).collect()
    }

    /// The rows of a delta at these positions.
    fn delta_of(&self, positions: impl Iterator<Item = u32>, delta: &[u8]) -> Vec<u8> {
        let bytes = self.layout.shape.row_bytes;
        let mut part = Vec::with_capacity(positions.size_hint().0 * bytes);
        positions.for_each(|position| part.extend_from_slice(&delta[position as usize * bytes..][..bytes]));
        part
    }

    /// Whether each of these keys has an entry, on any host.
    pub(crate) fn contains_anywhere(&self, call: &Call, keys: Keys) -> Result<Vec<bool>> {
        let worker = self.requester_id();
        let mut found = self.contains(call, worker, keys)?;
        if let Some(remote) = self.inner.remote() {
            let (mut parts, mut requests) = (Vec::new(), Vec::new());
            for (part, request) in self.split(worker, RequestVerb::KeyContains, keys, false) {
                requests.push((self.server_of(part.host)?, request));
                parts.push(part);
            }
            remote.send(call, requests)?.collect_whole(|index, reply| {
                let answers = checked(reply?, &parts[index], 1)?;
                let answers = parts[index].positions.iter().zip(answers);
                answers.for_each(|(&position, answer)| found[position as usize] = answer != 0);
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Number of keys on the other hosts.
    pub(crate) fn remote_len(&self, call: &Call) -> Result<usize> {
        let replies = self.ask_all(call, RequestVerb::KeyLength)?;
        replies.into_iter().try_fold(0, |sum: usize, reply| {
            let count =
                reply.try_into().ok().and_then(|reply| usize::try_from(u64::from_le_bytes(reply)).ok());
            let sum = count.and_then(|count| sum.checked_add(count));
            sum.ok_or_else(|| Error::internal("len", "an answer that is no number of keys"))
        })
    }

    /// Appends all keys and values of the other hosts.
    pub(crate) fn append_remote_items(&self, call: &Call, items: &mut Items) -> Result<()> {
        for reply in self.ask_all(call, RequestVerb::KeyItems)? {
            let (keys, values) = RowList::decode(reply)?;
            let keys = self.owned(keys)?;
            if values.len() != keys.len() * self.layout.shape.row_bytes {
                return Err(Error::internal("items", "keys and values of different number"));
            }
            items.append(keys, &values);
        }
        Ok(())
    }

    /// The replies of all other hosts.
    pub(super) fn ask_all(&self, call: &Call, verb: RequestVerb) -> Result<Vec<Vec<u8>>> {
        let Some(remote) = self.inner.remote() else { return Ok(Vec::new()) };
        let request = || RemoteRequest::new(self.number, self.requester_id() as u32, verb);
        let requests = self.other_server_hosts().map(|host| (host, request())).collect();
        remote.call_all(call, self.addressed(requests)?)
    }

    /// The worker id under which this rank sends requests that any rank may send.
    pub(super) fn requester_id(&self) -> usize {
        self.inner.worker.unwrap_or(0)
    }

    /// Keys received from another host.
    pub(crate) fn owned(&self, rows: RowList) -> Result<OwnedKeys> {
        match (self.layout.shape.keys, rows) {
            (KeyType::Int, RowList::List(keys)) => Ok(OwnedKeys::Int(keys)),
            (KeyType::Bytes, RowList::Keys(keys)) => Ok(OwnedKeys::Bytes(keys)),
            _ => Err(Error::internal("table", "keys of another type than the table's")),
        }
    }
}

/// The keys at these positions.
fn listed(keys: Keys, positions: impl Iterator<Item = u32>) -> RowList {
    let positions = positions.map(|position| position as usize);
    match keys {
        Keys::Int(keys) => RowList::List(positions.map(|position| keys[position]).collect()),
        Keys::Bytes(keys) => RowList::Keys(positions.map(|position| keys[position].to_vec()).collect()),
    }
}

/// A reply that must have `bytes` bytes for each key of the part.
fn checked(reply: Vec<u8>, part: &GetPart, bytes: usize) -> Result<Vec<u8>> {
    let expected = part.positions.len() * bytes;
    match reply.len() == expected {
        true => Ok(reply),
        false => Err(Error::internal("get", format!("{} bytes instead of {expected}", reply.len()))),
    }
}

/// Copies the values of keys to their positions in `out`.
pub(crate) struct KeysGet<'a> {
    pub keys: Keys<'a>,
    pub out: &'a mut [u8],
}

impl GetCall<KeyValueCore> for KeysGet<'_> {
    fn requests(&mut self, table: &KeyValueCore, worker: usize) -> Vec<(GetPart, RemoteRequest)> {
        let mut parts = table.split(worker, RequestVerb::KeyGet, self.keys, table.involves_all_hosts());
        parts.iter_mut().for_each(|(_, request)| request.reply = table.reply_encoding());
        parts
    }

    fn read(&mut self, table: &KeyValueCore, call: &Call, worker: usize) -> Result<()> {
        table.read(call, worker, self.keys, self.out)
    }

    fn merge(&mut self, table: &KeyValueCore, part: &GetPart, reply: Result<ReplyPiece>) -> Result<()> {
        let bytes = table.layout.shape.row_bytes;
        let reply = checked(reply?.whole()?, part, bytes)?;
        for (&position, row) in part.positions.iter().zip(reply.chunks_exact(bytes)) {
            self.out[position as usize * bytes..][..bytes].copy_from_slice(row);
        }
        Ok(())
    }
}

/// Adds a row of a delta to each key.
pub(crate) struct KeysAdd<'a> {
    pub keys: Keys<'a>,
    pub delta: &'a [u8],
    pub options: &'a AddOptions,
}

impl<'a> AddCall<'a, KeyValueCore> for KeysAdd<'a> {
    fn requests(&mut self, table: &KeyValueCore, worker: usize) -> Vec<AddPart<'a>> {
        let mut packers = table.packers();
        if let Some(limit) = &table.layout.limit {
            packers.limit(limit.max_rows);
        }
        let (dtype, cols) = (table.description.dtype, table.description.cols);
        let parts = table.split(worker, RequestVerb::KeyAdd, self.keys, table.involves_all_hosts());
        let pack = |(part, mut request): (GetPart, RemoteRequest)| {
            let delta = table.delta_of(part.positions.iter().copied(), self.delta);
            let numbered;
            let units = match &request.rows {
                RowList::List(keys) => RowIds::List(keys),
                RowList::Keys(keys)
                    if packers.of(part.host, dtype, cols, table.compression).has_feedback() =>
                {
                    numbered = packers.numbers_of(keys);
                    RowIds::List(&numbered)
                }
                _ => RowIds::From(0),
            };
            let packer = packers.of(part.host, dtype, cols, table.compression);
            let residuals = packer.save_residuals(units, &delta);
            let (payload, packed) = packer.pack(units, delta);
            request.packed = packed;
            request.options = self.options.to_bytes().to_vec();
            AddPart { host: part.host, request, payload, unit: 1, residuals }
        };
        parts.into_iter().map(pack).collect()
    }

    fn write(&mut self, table: &KeyValueCore, call: &Call, worker: usize) -> Result<()> {
        table.write(call, worker, self.keys, self.delta, self.options)
    }

    fn local_request(&self, table: &KeyValueCore, worker: usize) -> RemoteRequest {
        let local_keys = table.local_keys(self.keys);
        let positions = || local_keys.iter().map(|local_key| local_key.position);
        let mut request = RemoteRequest::new(table.number, worker as u32, RequestVerb::KeyAdd);
        request.rows = listed(self.keys, positions());
        request.options = self.options.to_bytes().to_vec();
        request.payload = table.delta_of(positions(), self.delta);
        request
    }
}
