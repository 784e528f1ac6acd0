//! Serving requests of other hosts' ranks on this host's keys.

use super::core::KeyValueCore;
use super::keys::Keys;
use crate::error::{Error, Result};
use crate::tables::AddOptions;
use crate::tables::engine::base::Turn;
use crate::tables::engine::call::get_local;
use crate::tables::engine::registry::OpenTable;
use crate::tables::engine::rounds::{add_to_round, apply_complete_rounds};
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};
use crate::transport::Call;

impl OpenTable for KeyValueCore {
    fn serve(&self, call: &Call, worker: usize, request: &RemoteRequest) -> Result<Vec<u8>> {
        if !matches!(request.verb, RequestVerb::KeyGet | RequestVerb::KeyAdd) {
            apply_complete_rounds(self, call)?;
        }
        match request.verb {
            RequestVerb::KeyLength => Ok((self.len() as u64).to_le_bytes().to_vec()),
            RequestVerb::KeyItems => {
                let items = self.local_items(call)?;
                Ok(RowList::from(items.keys).encode(items.values))
            }
            RequestVerb::KeyEvicted => {
                let evicted = self.take_evicted(call)?;
                Ok(RowList::from(evicted.keys).encode(evicted.missed.to_le_bytes().to_vec()))
            }
            _ => match &request.rows {
                RowList::List(keys) => self.serve_keys(call, worker, request, Keys::Int(keys)),
                RowList::Keys(keys) => {
                    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                    self.serve_keys(call, worker, request, Keys::Bytes(&keys))
                }
                RowList::All => Err(self.unexpected_request(request)),
            },
        }
    }
}

impl KeyValueCore {
    fn serve_keys(&self, call: &Call, worker: usize, request: &RemoteRequest, keys: Keys) -> Result<Vec<u8>> {
        if keys.key_type() != self.layout.shape.keys || !self.key_placement.remote_positions(keys).is_empty()
        {
            return Err(Error::internal("table", "a request for keys that cannot be here"));
        }
        let bytes = keys.len() * self.layout.shape.row_bytes;
        match request.verb {
            RequestVerb::KeyGet => {
                let mut out = vec![0; bytes];
                get_local(self, call, worker, Turn::Granted, || self.read(call, worker, keys, &mut out))?;
                Ok(out)
            }
            RequestVerb::KeyAdd => {
                let delta = request.delta(self.description.dtype, bytes)?;
                let options = AddOptions::from_bytes(&request.options)?;
                if self.accumulates() {
                    let request = request.with_payload(delta.into_owned());
                    add_to_round(self, call, worker, Turn::Granted, request)?;
                    return Ok(Vec::new());
                }
                // The worker's own host has counted this add, so it counts here too, even if it fails.
                let mut outcome = Ok(());
                self.add_local(call, worker, Turn::Granted, || {
                    outcome = self.write(call, worker, keys, &delta, &options);
                    Ok(())
                })?;
                outcome.map(|()| Vec::new())
            }
            RequestVerb::KeyDelete => self.remove(call, worker, keys).map(|()| Vec::new()),
            RequestVerb::KeyContains => {
                Ok(self.contains(call, worker, keys)?.into_iter().map(u8::from).collect())
            }
            _ => Err(self.unexpected_request(request)),
        }
    }
}
