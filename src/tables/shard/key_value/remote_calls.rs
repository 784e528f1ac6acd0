//! The remote part of a call: which keys are requested from each other host, and where their values go.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use super::core::KeyValueCore;
use super::items::Items;
use super::keys::{KeyType, Keys, OwnedKeys};
use crate::error::{Error, Result};
use crate::tables::AddOptions;
use crate::tables::remote::compress::{Packer, RowIds, SavedResiduals};
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};
use crate::transport::Call;

/// Per remote host, the packer with the compression residuals of this worker's adds, carried over to later adds to the same keys
/// (error feedback).
#[derive(Default)]
pub(crate) struct KeyPackers {
    packers: BTreeMap<usize, Packer>,
    /// Numbers that stand for byte-string keys in the packers.
    numbers: HashMap<Vec<u8>, i64>,
}

/// A request to another host.
struct HostRequest {
    host: usize,
    request: RemoteRequest,
    /// The positions of its keys in the caller's list.
    positions: Vec<u32>,
}

impl KeyValueCore {
    /// The requests for those of these keys that other hosts hold; every other host gets one if `all_hosts`.
    fn ask(&self, worker: usize, verb: RequestVerb, keys: Keys, all_hosts: bool) -> Vec<HostRequest> {
        let mut remote_positions = self.key_placement.remote_positions(keys);
        if all_hosts {
            for host in self.other_server_hosts() {
                remote_positions.entry(host).or_default();
            }
        }
        let asked = remote_positions.into_iter().map(|(host, positions)| {
            let picked = positions.iter().map(|&position| position as usize);
            let mut request = RemoteRequest::new(self.number, worker as u32, verb);
            request.rows = match keys {
                Keys::Int(keys) => RowList::List(picked.map(|position| keys[position]).collect()),
                Keys::Bytes(keys) => RowList::Keys(picked.map(|position| keys[position].to_vec()).collect()),
            };
            HostRequest { host, request, positions }
        });
        asked.collect()
    }

    /// Sends all requests, and passes each key's reply of `bytes` bytes to `take`.
    fn fetch(
        &self,
        call: &Call,
        asked: Vec<HostRequest>,
        bytes: usize,
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let Some(remote) = self.inner.remote() else { return Ok(()) };
        let (mut places, mut requests) = (Vec::new(), Vec::new());
        for HostRequest { host, request, positions } in asked {
            requests.push((self.server_of(host)?, request));
            places.push(positions);
        }
        for (positions, reply) in places.iter().zip(remote.call_all(call, requests)?) {
            if reply.len() != positions.len() * bytes {
                let received = format!("{} bytes instead of {}", reply.len(), positions.len() * bytes);
                return Err(Error::internal("get", received));
            }
            let answers = positions.iter().zip(reply.chunks_exact(bytes));
            answers.for_each(|(&position, answer)| take(position as usize, answer));
        }
        Ok(())
    }

    /// Copies the values of keys that other hosts hold to their positions in `out`.
    pub(crate) fn get_remote(&self, call: &Call, worker: usize, keys: Keys, out: &mut [u8]) -> Result<()> {
        if self.inner.remote().is_none() {
            return Ok(());
        }
        let bytes = self.layout.shape.row_bytes;
        let mut asked = self.ask(worker, RequestVerb::KeyGet, keys, self.involves_all_hosts());
        asked.iter_mut().for_each(|asked| asked.request.reply = self.reply_encoding());
        self.fetch(call, asked, bytes, |position, row| out[position * bytes..][..bytes].copy_from_slice(row))
    }

    /// Determines which of the keys that other hosts hold have entries.
    pub(crate) fn contains_remote(&self, call: &Call, keys: Keys, found: &mut [bool]) -> Result<()> {
        if self.inner.remote().is_none() {
            return Ok(());
        }
        let asked = self.ask(self.requester_id(), RequestVerb::KeyContains, keys, false);
        self.fetch(call, asked, 1, |position, answer| found[position] = answer[0] != 0)
    }

    /// Makes an add on all hosts that hold some of its keys.
    pub(crate) fn add(
        &self,
        call: &Call,
        worker: usize,
        keys: Keys,
        delta: &[u8],
        options: &AddOptions,
        wait: bool,
    ) -> Result<()> {
        let (mut requests, mut taken) = (Vec::new(), Vec::new());
        if self.inner.remote().is_some() {
            for mut asked in self.ask(worker, RequestVerb::KeyAdd, keys, self.involves_all_hosts()) {
                let server = self.server_of(asked.host)?;
                asked.request.options = options.to_bytes().to_vec();
                taken.push((asked.host, self.pack(&mut asked, delta)));
                requests.push((server, asked.request));
            }
        }
        let local = || match (self.has_servers(), self.accumulates()) {
            (false, _) => Ok(()),
            (true, true) => self.join_round(call, worker, self.local_request(worker, keys, delta, options)),
            (true, false) => self.add_local(call, worker, || self.write(call, worker, keys, delta, options)),
        };
        self.add_on_all_hosts(call, requests, wait, local, || {
            let mut key_packers = self.key_packers.lock().unwrap_or_else(PoisonError::into_inner);
            for (host, before) in taken {
                key_packers.packers.get_mut(&host).into_iter().for_each(|packer| packer.restore(&before));
            }
        })
    }

    /// Sets a request's payload to its compressed part of a delta. Returns the previous residuals of its keys, to restore them if
    /// the add is not made.
    fn pack(&self, asked: &mut HostRequest, delta: &[u8]) -> SavedResiduals {
        let bytes = self.layout.shape.row_bytes;
        let mut part = Vec::with_capacity(asked.positions.len() * bytes);
        for &position in &asked.positions {
            part.extend_from_slice(&delta[position as usize * bytes..][..bytes]);
        }
        let mut key_packers = self.key_packers.lock().unwrap_or_else(PoisonError::into_inner);
        let KeyPackers { packers, numbers } = &mut *key_packers;
        let description = &self.description;
        let packer = packers
            .entry(asked.host)
            .or_insert_with(|| Packer::new(description.dtype, description.cols, self.compression));
        let request = &mut asked.request;
        let numbered: Vec<i64>;
        let units = match &request.rows {
            RowList::List(keys) => RowIds::List(keys),
            RowList::Keys(keys) if packer.has_feedback() => {
                let mut number = |key: &Vec<u8>| {
                    let next = numbers.len() as i64;
                    *numbers.entry(key.clone()).or_insert(next)
                };
                numbered = keys.iter().map(&mut number).collect();
                RowIds::List(&numbered)
            }
            _ => RowIds::From(0),
        };
        let before = packer.save_residuals(units, &part);
        (request.payload, request.packed) = packer.pack(units, &part);
        before
    }

    /// Discards the compression residuals: the table's content is replaced.
    pub(crate) fn clear_residuals(&self) {
        *self.key_packers.lock().unwrap_or_else(PoisonError::into_inner) = KeyPackers::default();
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
    fn ask_all(&self, call: &Call, verb: RequestVerb) -> Result<Vec<Vec<u8>>> {
        let Some(remote) = self.inner.remote() else { return Ok(Vec::new()) };
        let request = || RemoteRequest::new(self.number, self.requester_id() as u32, verb);
        let requests: Result<Vec<(usize, RemoteRequest)>> =
            self.other_server_hosts().map(|host| Ok((self.server_of(host)?, request()))).collect();
        remote.call_all(call, requests?)
    }

    /// The worker id under which this rank sends requests that any rank may send.
    pub(crate) fn requester_id(&self) -> usize {
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
