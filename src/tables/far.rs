//! The part of a call that other hosts must do: what is asked of each, and where its answer goes.

use std::sync::PoisonError;

use super::base::Base;
use super::core::Core;
use super::description::TableKind;
use super::picks::Pick;
use super::remote::compress::{Packer, Units};
use super::remote::{Remote, Request, RowList, Verb};
use super::{AddOptions, Compression, Consistency, Rows};
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::transport::{self, Call};

impl Base {
    /// Tells the other hosts' clocks what this worker does, without waiting for them.
    pub(super) fn tell_others(&self, call: &Call, worker: usize, verb: Verb) -> Result<()> {
        self.tell(call, worker, verb, &[])
    }

    /// As [`Base::tell_others`], with what else there is to say.
    pub(super) fn tell(&self, call: &Call, worker: usize, verb: Verb, payload: &[u8]) -> Result<()> {
        // After the goodbye nobody listens, or tables of a later joining do.
        let Some(remote) = self.inner.remote().filter(|_| !self.inner.is_closed()) else { return Ok(()) };
        self.other_server_hosts().try_for_each(|host| {
            let mut request = Request::new(self.number, worker as u32, verb);
            request.payload = payload.to_vec();
            remote.post(call, self.server_of(host)?, request)
        })
    }

    /// The other hosts that have servers.
    pub(super) fn other_server_hosts(&self) -> impl Iterator<Item = usize> + '_ {
        self.inner.server_hosts().filter(|&host| host != self.host())
    }

    /// The rank that answers for another host.
    pub(super) fn server_of(&self, host: usize) -> Result<usize> {
        let server = self.inner.host_server(host);
        server.ok_or_else(|| Error::internal("table", "a host with shards and without a server"))
    }

    /// Whether this rank's host has servers.
    pub(super) fn has_servers(&self) -> bool {
        self.inner.host_server(self.host()).is_some()
    }

    /// Whether every host must hear of every call: those that count rounds would fall out of step.
    pub(super) fn tells_everybody(&self) -> bool {
        matches!(self.description.consistency, Consistency::Bsp { .. })
    }

    /// How another host may pack what it answers to a get.
    pub(super) fn reply_form(&self) -> Option<(DType, Compression)> {
        let packs = self.compression != Compression::None && self.description.dtype.is_float();
        packs.then_some((self.description.dtype, self.compression))
    }
}

/// Sends requests: waits for their answers, or not even for them to be applied.
pub(super) fn send(remote: &Remote, call: &Call, requests: Vec<(usize, Request)>, wait: bool) -> Result<()> {
    match wait {
        true => remote.call_all(call, requests).map(|_| ()),
        false => requests.into_iter().try_for_each(|(server, request)| remote.post(call, server, request)),
    }
}

impl Core {
    /// Whether this rank's host takes part in every call. With rounds it does if it holds rows of the table: others are
    /// told of no call. Otherwise its clock counts where it has servers, which shows how old values are.
    pub(super) fn takes_part(&self) -> bool {
        match self.description.consistency {
            Consistency::Bsp { .. } => {
                self.placement.on_host(self.host()).any(|segment| segment.end > segment.first)
            }
            _ => self.has_servers(),
        }
    }

    /// The other hosts that hold rows.
    fn other_hosts(&self) -> impl Iterator<Item = usize> + '_ {
        let hosts = if self.inner.remote().is_some() { self.placement.hosts() } else { Vec::new() };
        hosts.into_iter().filter(|&host| host != self.host())
    }

    /// A request for the part of these rows that a host holds, and where they stand in the caller's list. `None` where
    /// there is nothing to ask. With rounds every host must hear of every call.
    fn ask(&self, host: usize, worker: usize, verb: Verb, rows: Rows) -> Option<(Request, Vec<Pick>)> {
        let mut request = Request::new(self.number, worker as u32, verb);
        let Rows::List(list) = rows else { return Some((request, Vec::new())) };
        let picks: Vec<Pick> = self.placement.picks(list, host).collect();
        if picks.is_empty() && !self.tells_everybody() {
            return None;
        }
        request.rows = RowList::List(picks.iter().map(|pick| list[pick.position as usize]).collect());
        Some((request, picks))
    }

    /// Brings what other hosts hold to its places in `out`.
    pub(super) fn get_far(&self, call: &Call, worker: usize, rows: Rows, out: &mut [u8]) -> Result<()> {
        let Some(remote) = self.inner.remote() else { return Ok(()) };
        let mut asked = Vec::new();
        let mut requests = Vec::new();
        for host in self.other_hosts() {
            if let Some((mut request, picks)) = self.ask(host, worker, Verb::Get, rows) {
                request.reply = self.reply_form();
                requests.push((self.server_of(host)?, request));
                asked.push((host, picks));
            }
        }
        let _waiting = self.inner.seat.note_wait(transport::Verb::TableGet, call.number);
        let bytes = self.description.row_bytes();
        for ((host, picks), reply) in asked.iter().zip(remote.call_all(call, requests)?) {
            let count = match rows {
                Rows::All => self.placement.rows_on(*host),
                Rows::List(_) => picks.len(),
            };
            if reply.len() != count * bytes {
                return Err(Error::internal(
                    "get",
                    format!("{} bytes instead of {}", reply.len(), count * bytes),
                ));
            }
            let mut rest = &reply[..];
            match rows {
                Rows::All => {
                    for segment in self.placement.on_host(*host) {
                        let place = &mut out[segment.first * bytes..segment.end * bytes];
                        let (part, behind) = rest.split_at(place.len());
                        place.copy_from_slice(part);
                        rest = behind;
                    }
                }
                Rows::List(_) => {
                    for (pick, row) in picks.iter().zip(reply.chunks_exact(bytes)) {
                        out[pick.position as usize * bytes..][..bytes].copy_from_slice(row);
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends the rows of a delta that other hosts hold; waits for them if `wait`.
    pub(super) fn add_far(
        &self,
        call: &Call,
        worker: usize,
        rows: Rows,
        delta: &[u8],
        options: &AddOptions,
        wait: bool,
    ) -> Result<()> {
        let Some(remote) = self.inner.remote() else { return Ok(()) };
        let mut requests = Vec::new();
        for host in self.other_hosts() {
            let Some((mut request, picks)) = self.ask(host, worker, Verb::Add, rows) else { continue };
            request.options = options.to_bytes().to_vec();
            (request.payload, request.packed) = self.pack(host, rows, &picks, delta);
            requests.push((self.server_of(host)?, request));
        }
        send(remote, call, requests, wait)
    }

    /// Forgets what adds have lost: the table becomes another one.
    pub(super) fn forget_losses(&self) {
        self.packers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The part of a delta that is for one host, as it travels.
    fn pack(&self, host: usize, rows: Rows, picks: &[Pick], delta: &[u8]) -> (Vec<u8>, bool) {
        let bytes = self.description.row_bytes();
        let part: Vec<u8> = match rows {
            Rows::All => self.part_of(host, delta).into_owned(),
            Rows::List(_) => picks
                .iter()
                .flat_map(|pick| &delta[pick.position as usize * bytes..][..bytes])
                .copied()
                .collect(),
        };
        let mut packers = self.packers.lock().unwrap_or_else(PoisonError::into_inner);
        let packer = packers.entry(host).or_insert_with(|| {
            let row = match self.description.kind {
                TableKind::Array => self.placement.rows_on(host),
                _ => self.description.cols,
            };
            Packer::new(self.description.dtype, row, self.compression)
        });
        match rows {
            Rows::All => packer.pack(Units::From(0), &part),
            Rows::List(_) => {
                let local: Vec<i64> = picks.iter().map(|pick| i64::from(pick.row)).collect();
                packer.pack(Units::List(&local), &part)
            }
        }
    }

    /// Brings those rows of other hosts that this reader has not seen; returns their numbers.
    pub(super) fn get_changed_far(
        &self,
        call: &Call,
        worker: usize,
        buffer: usize,
        list: &[i64],
        out: &mut [u8],
    ) -> Result<Vec<i64>> {
        let Some(remote) = self.inner.remote() else { return Ok(Vec::new()) };
        let verb = Verb::GetChanged { buffer: buffer as u8 };
        let (mut asked, mut requests, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for host in self.other_hosts() {
            if let Some((mut request, picks)) = self.ask(host, worker, verb, Rows::List(list)) {
                let numbers = self.views.ask(host, buffer);
                request.payload = numbers.to_bytes();
                requests.push((self.server_of(host)?, request));
                asked.push((host, numbers, picks));
            }
        }
        let bytes = self.description.row_bytes();
        for ((_, _, picks), reply) in asked.iter().zip(remote.call_all(call, requests)?) {
            for entry in reply.chunks_exact(4 + bytes) {
                let (index, row) = entry.split_at(4);
                let index = u32::from_ne_bytes(index.try_into().unwrap_or_default()) as usize;
                let pick = picks
                    .get(index)
                    .ok_or_else(|| Error::internal("get_changed", "a row nobody asked for"))?;
                out[pick.position as usize * bytes..][..bytes].copy_from_slice(row);
                changed.push(list[pick.position as usize]);
            }
        }
        asked.iter().for_each(|(host, numbers, _)| self.views.arrived(*host, buffer, *numbers));
        Ok(changed)
    }
}
