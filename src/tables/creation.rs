//! Making a table together, and finding one that exists: the first rank of each host makes its memory, the others look.

use super::Tables;
use super::description::{Description, TableKind};
use super::header::{TableHeader, MAX_DESCRIPTION};
use super::remote::{Reply, name_the_rank};
use crate::error::{Error, Lost, Result};
use crate::memory::DType;
use crate::transport::Verb;
use crate::transport::arena::{Extent, Underway};
use crate::world::Group;

/// Longest description of a call, as ranks exchange it.
const EXCHANGE_BYTES: usize = 1024;

/// Instead of a description's first byte, which no text can have: the rank will not. The length of its error follows.
const REJECTED: u8 = 0xff;

/// What ranks do together when they agree on something: errors say it, of those who did not come too.
pub(super) struct Purpose {
    verb: Verb,
    words: String,
}

impl Purpose {
    pub fn join() -> Purpose {
        Purpose { verb: Verb::JoinTables, words: Verb::JoinTables.name().into() }
    }

    pub fn new_table(name: &str) -> Purpose {
        Purpose { verb: Verb::NewTable, words: format!("making table {name:?}") }
    }

    pub fn save(target: &str) -> Purpose {
        Purpose { verb: Verb::SaveTables, words: format!("saving to {target:?}") }
    }

    pub fn load(target: &str) -> Purpose {
        Purpose { verb: Verb::LoadTables, words: format!("loading from {target:?}") }
    }

    /// Makes calls of the group as parts of this.
    pub fn during<R>(&self, calls: impl FnOnce() -> Result<R>) -> Result<R> {
        calls().map_err(|error| error.during(&self.words))
    }
}

/// Tells all ranks what this one is about to do, or why it will not; fails on all ranks unless all say the same. Where one
/// will not, all hear the same kind of error, which names that rank.
pub(super) fn agree(group: &Group, purpose: &Purpose, mine: Result<String>) -> Result<()> {
    agreement(group, purpose, mine)?
}

/// The outer result is that of the exchange: whether the others have heard of an outer error is not known.
fn agreement(group: &Group, purpose: &Purpose, mine: Result<String>) -> Result<Result<()>> {
    let mut bytes = [0u8; EXCHANGE_BYTES];
    let error = match &mine {
        Ok(text) => {
            let text = &text.as_bytes()[..text.len().min(EXCHANGE_BYTES)];
            bytes[..text.len()].copy_from_slice(text);
            Vec::new()
        }
        Err(error) => {
            let error = Reply { number: 0, outcome: Err(error.clone()), packed: false }.encode();
            bytes[0] = REJECTED;
            bytes[1..9].copy_from_slice(&(error.len() as u64).to_ne_bytes());
            error
        }
    };
    let gather = |mine: &[u8]| {
        let mut all = vec![0u8; mine.len() * group.size()];
        let counts = vec![mine.len(); group.size()];
        purpose.during(|| group.raw().all_gather_as(purpose.verb, mine, &mut all, &counts, DType::U8))?;
        Ok::<_, Error>(all)
    };
    let all = gather(&bytes)?;
    let calls: Vec<&[u8]> = all.chunks_exact(EXCHANGE_BYTES).collect();
    let lengths = calls.iter().map(|call| match call[0] {
        REJECTED => bytemuck::pod_read_unaligned::<u64>(&call[1..9]) as usize,
        _ => 0,
    });
    let lengths: Vec<usize> = lengths.collect();
    if let Some(first) = lengths.iter().position(|length| *length > 0) {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut padded = error;
        padded.resize(longest, 0);
        let reported = gather(&padded).map(|all| all[first * longest..][..lengths[first]].to_vec());
        return Ok(mine.map(drop).and_then(|()| Err(as_reported(Reply::decode(reported?)?, first, group.rank()))));
    }
    if calls.iter().all(|call| **call == bytes) {
        return Ok(Ok(()));
    }
    let words = |call: &[u8]| String::from_utf8_lossy(call).trim_end_matches('\0').to_string();
    let calls = calls.into_iter().map(words).enumerate().collect();
    Ok(Err(Error::Mismatch { rank: group.rank(), group: "tables".into(), number: 0, calls }))
}

/// What kept one rank from what all wanted to do, as another one says it.
fn as_reported(reply: Reply, at: usize, rank: usize) -> Error {
    match reply.outcome.err().map(|error| name_the_rank(error, at)) {
        Some(Error::Usage { operation, expected, received, advice, .. }) => {
            Error::usage(operation, expected, received, advice).at_rank(rank)
        }
        // Nobody has interrupted this one.
        Some(Error::Interrupted { operation, number, group, .. }) => {
            let lost = vec![Lost { rank: at, pid: None, how: "it was interrupted".into() }];
            Error::PeerLost { rank, operation, number, group, lost }
        }
        Some(error) => error,
        None => Error::internal("tables", "an error that is none"),
    }
}

/// The memory of an existing table on this host.
fn find(tables: &Tables, name: &str) -> Option<(Extent, String)> {
    let prefix = format!("table {name:?}:");
    tables.inner.seat.find_common(tables.key(name)).into_iter().find_map(|extent| {
        let text = TableHeader::of(&extent).read()?;
        text.starts_with(&prefix).then_some((extent, text))
    })
}

/// A table that is being made by all ranks together, or opened again by a process that took the place of a dead one.
pub(super) struct TableCreation<'a> {
    pub tables: &'a Tables,
    pub name: String,
    /// What the dead process had: whoever takes its place opens it alone.
    existing: Option<(Extent, String)>,
    /// Others cannot tell how far a rank got that dies while a table is made: it cannot come back.
    _series: Option<Underway<'a>>,
}

impl<'a> TableCreation<'a> {
    /// Begins; without a name the table gets one from its kind and number.
    pub fn begin(tables: &'a Tables, name: Option<&str>, kind: TableKind) -> TableCreation<'a> {
        let name = name.map_or_else(|| tables.next_name(kind.name()), str::to_owned);
        let existing = if tables.inner.restarted { find(tables, &name) } else { None };
        let series = existing.is_none().then(|| tables.inner.seat.place().stay.series());
        TableCreation { tables, name, existing, _series: series }
    }

    fn purpose(&self) -> Purpose {
        Purpose::new_table(&self.name)
    }

    /// Whether all ranks make it together.
    pub fn is_new(&self) -> bool {
        self.existing.is_none()
    }

    /// Passes a check on, if all ranks passed theirs: whatever one finds wrong, the others must hear of it instead of waiting.
    pub fn agree_on<R>(&self, checked: Result<R>) -> Result<R> {
        match checked {
            Err(error) if self.is_new() => {
                let mine = Err(error.clone().at_rank(self.tables.inner.rank));
                agree(&self.tables.group, &self.purpose(), mine)?;
                Err(error)
            }
            checked => checked,
        }
    }

    /// Waits until all ranks have the table: whoever drops its handle first must not be the last one.
    pub fn barrier(&self) -> Result<()> {
        if self.is_new() { self.purpose().during(|| self.tables.group.barrier()) } else { Ok(()) }
    }

    /// The memory of the table on this host: made by its first rank, found by the others. `prepare` is called on fresh memory
    /// before anybody else sees it.
    pub fn allocate(
        &self,
        description: &Description,
        bytes: usize,
        prepare: impl FnOnce(&Extent),
    ) -> Result<Extent> {
        let (tables, seat) = (self.tables, &self.tables.inner.seat);
        let text = description.to_string();
        if let Some(existing) = &self.existing {
            return self.reopen(existing, &text);
        }
        let reject = |expected: &str, received: String, advice: &str| {
            Error::usage("table", expected, received, advice).at_rank(tables.inner.rank)
        };
        let mine = match text.len() > MAX_DESCRIPTION {
            true => Err(reject("a short name", format!("{} bytes", description.name.len()), "shorten it")),
            false => Ok(text.clone()),
        };
        // Also the barrier behind which all ranks have dropped what they wanted to drop before.
        agree(&tables.group, &self.purpose(), mine)?;
        if tables.inner.has_remote_ranks() {
            self.purpose().during(|| tables.inner.registry.release_dropped(&tables.group))?;
        }
        let membership = &tables.inner.membership;
        let make = || match find(tables, &description.name) {
            Some((_, other)) => {
                Err(reject("a new name", format!("a second one beside {other}"), "name it differently"))
            }
            None => {
                let extent = seat.take_common(tables.key(&description.name), bytes)?;
                prepare(&extent);
                TableHeader::of(&extent).write(&text, membership.next_number());
                Ok(Some(extent))
            }
        };
        let created = if tables.is_host_leader() { make() } else { Ok(None) };
        let (created, error) = match created {
            Ok(created) => (created, None),
            Err(error) => (None, Some(error)),
        };
        // Also the barrier that the others wait at before they look.
        let agreement = agreement(&tables.group, &self.purpose(), error.map_or(Ok("made".into()), Err));
        // Another host could not make its part. After a failed exchange some ranks may have found this one.
        if let (Some(extent), Ok(Err(_))) = (&created, &agreement) {
            seat.free_common(extent)?;
        }
        agreement??;
        let extent = match created {
            Some(extent) => {
                membership.mark_created(TableHeader::of(&extent).number());
                extent
            }
            None => {
                let found = find(tables, &description.name);
                found.ok_or_else(|| Error::internal("table", "its memory was not found"))?.0
            }
        };
        TableHeader::of(&extent).attach(seat.index, true);
        Ok(extent)
    }

    fn reopen(&self, (extent, other): &(Extent, String), text: &str) -> Result<Extent> {
        let reject = |received: &str, advice: &str| {
            Err(Error::usage("table", format!("{text}, as this restarted rank makes it"), received, advice)
                .at_rank(self.tables.inner.rank))
        };
        if other != text {
            return reject(other, "make the same tables as before the restart");
        }
        match TableHeader::of(extent).attach(self.tables.inner.seat.index, false) {
            true => Ok(extent.clone()),
            false => reject("one that all have dropped", "keep tables until all workers are done"),
        }
    }
}
