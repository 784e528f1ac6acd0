//! Collective creation of a table, and reopening after a restart: the first rank of each host allocates the memory, the others
//! attach.

use crate::error::{Error, Lost, Result, SAME_CALLS};
use crate::tables::Tables;
use crate::tables::engine::header::{MAX_DESCRIPTION, TableHeader};
use crate::tables::remote::{RemoteReply, with_server_rank};
use crate::tables::spec::description::{Description, TableKind};
use crate::tables::spec::verbs;
use crate::transport::Verb;
use crate::transport::arena::{Extent, InFlightGuard};
use crate::world::Group;

/// Maximum length of a call's description in the exchange, in bytes.
const EXCHANGE_BYTES: usize = 1024;

/// The collective operation that ranks agree on; errors name it, including errors about ranks that did not arrive.
pub(crate) struct Purpose {
    verb: Verb,
    words: String,
}

impl Purpose {
    /// A call of which only the verb is known.
    pub fn of(verb: Verb) -> Purpose {
        Purpose { verb, words: verb.name().into() }
    }

    pub fn new_table(name: &str) -> Purpose {
        Purpose { verb: verbs::NEW_TABLE, words: format!("making table {name:?}") }
    }

    pub fn save(target: &str) -> Purpose {
        Purpose { verb: verbs::SAVE, words: format!("saving to {target:?}") }
    }

    pub fn load(target: &str) -> Purpose {
        Purpose { verb: verbs::LOAD, words: format!("loading from {target:?}") }
    }

    /// Runs calls of the group as part of this operation.
    pub fn during<R>(&self, calls: impl FnOnce() -> Result<R>) -> Result<R> {
        calls().map_err(|error| error.during(&self.words))
    }
}

/// Announces to all ranks what this rank is about to do, or why it cannot; fails on all ranks unless all announce the same. If
/// one rank cannot, every rank fails with the same kind of error, which names that rank.
pub(crate) fn agree(group: &Group, purpose: &Purpose, mine: Result<String>) -> Result<()> {
    agreement(group, purpose, mine)?
}

/// The outer result is that of the exchange itself: on an outer error, it is unknown what the other ranks received.
fn agreement(group: &Group, purpose: &Purpose, mine: Result<String>) -> Result<Result<()>> {
    let calls = match exchange(group, purpose, mine.map(String::into_bytes), EXCHANGE_BYTES)? {
        Ok(calls) => calls,
        Err(error) => return Ok(Err(error)),
    };
    if calls.iter().all(|call| *call == calls[0]) {
        return Ok(Ok(()));
    }
    let words = |call: &Vec<u8>| String::from_utf8_lossy(call).trim_end_matches('\0').to_string();
    let calls = calls.iter().map(words).enumerate().collect();
    let advice = SAME_CALLS.into();
    Ok(Err(Error::Mismatch { rank: group.rank(), group: "tables".into(), number: 0, calls, advice }))
}

/// Exchanges values of up to `bytes` bytes, padded with zeroes, or the reason why a rank has none. The two results are those
/// of [`agreement`].
pub(crate) fn exchange(
    group: &Group,
    purpose: &Purpose,
    mine: Result<Vec<u8>>,
    bytes: usize,
) -> Result<Result<Vec<Vec<u8>>>> {
    let mut value = mine.clone().unwrap_or_default();
    value.resize(bytes, 0);
    let error = mine.as_ref().err();
    let report = error.map_or(Vec::new(), |error| {
        RemoteReply { number: 0, outcome: Err(error.clone()), packed: false, more: false }.encode()
    });
    match purpose.during(|| group.exchange_outcomes(purpose.verb, &value, error, &report))? {
        Ok(values) => Ok(Ok(values)),
        Err(failure) => {
            let reported = || RemoteReply::decode(purpose.during(|| failure.report)?);
            Ok(mine.and_then(|_| Err(as_reported(reported()?, failure.rank, group.rank()))))
        }
    }
}

/// A collective call on tables.
#[derive(Debug, Clone, Copy)]
pub enum TablesCall<'a> {
    /// The creation of a table.
    Create {
        /// The kind of the table.
        kind: TableKind,
        /// Its name, if it has one.
        name: Option<&'a str>,
    },
    /// [`Tables::save`].
    Save,
    /// [`Tables::load`].
    Load,
}

impl Tables {
    /// Reports to the other ranks, which make this collective call, that this rank has rejected its arguments: they fail with
    /// the same error, and all ranks stay in step. Made in place of the call; fails if the other ranks do not make it.
    ///
    /// Calls do this themselves with the arguments that they reject. This method is for bindings, which must also reject what
    /// they cannot convert.
    ///
    /// ```
    /// use unisono::tables::{ArrayTable, Role, TableKind, TableOptions, Tables, TablesCall};
    /// use unisono::{Error, testing};
    /// testing::spawn_worlds(2, |world| {
    ///     let tables = Tables::join(world, Role::Both).unwrap();
    ///     if world.rank() == 1 {
    ///         let error = Error::usage("table", "a size", "\"three\"", "pass a number");
    ///         tables.reject(TablesCall::Create { kind: TableKind::Array, name: None }, &error).unwrap();
    ///     } else {
    ///         let error = ArrayTable::<f32>::create(&tables, 3, None, TableOptions::default()).err().unwrap();
    ///         assert!(error.to_string().starts_with("rank 0: table on rank 1: expected a size"), "{error}");
    ///     }
    ///     tables.barrier().unwrap();
    /// });
    /// ```
    pub fn reject(&self, call: TablesCall, error: &Error) -> Result<()> {
        self.group.check_open("table")?;
        let _series = self.inner.endpoint.own_slot().process.series_guard();
        let purpose = match call {
            TablesCall::Create { kind, name } => {
                let creation = TableCreation::begin(self, name, kind);
                match creation.is_new() {
                    true => creation.purpose(),
                    false => return Ok(()),
                }
            }
            TablesCall::Save => Purpose::of(verbs::SAVE),
            TablesCall::Load => Purpose::of(verbs::LOAD),
        };
        agreement(&self.group, &purpose, Err(error.clone().at_rank(self.inner.rank))).map(drop)
    }
}

/// The error that stopped one rank, as reported on another rank.
fn as_reported(reply: RemoteReply, at: usize, rank: usize) -> Error {
    match reply.outcome.err().map(|error| with_server_rank(error, at)) {
        Some(Error::Usage { operation, expected, received, advice, .. }) => {
            Error::usage(operation, expected, received, advice).at_rank(rank)
        }
        // The interrupt hit another rank, not this one.
        Some(Error::Interrupted { operation, number, group, .. }) => {
            let lost = vec![Lost::new(at, None, "it was interrupted")];
            Error::PeerLost { rank, operation, number, group, lost }
        }
        Some(error) => error,
        None => Error::internal("tables", "an error that is none"),
    }
}

/// The memory of an existing table on this host.
fn find(tables: &Tables, name: &str) -> Option<(Extent, String)> {
    let prefix = format!("table {name:?}:");
    tables.inner.endpoint.find_shared(tables.inner.key(name)).into_iter().find_map(|extent| {
        let text = TableHeader::of(&extent).read()?;
        text.starts_with(&prefix).then_some((extent, text))
    })
}

/// A table being created collectively by all ranks, or reopened by a process that replaces a dead one.
pub(crate) struct TableCreation<'a> {
    pub tables: &'a Tables,
    pub name: String,
    /// The table of the dead process, which its replacement reopens without the other ranks.
    existing: Option<(Extent, String)>,
    /// Keeps this rank from being restarted: if it dies during creation, the others cannot tell how far it got.
    _series: Option<InFlightGuard<'a>>,
}

impl<'a> TableCreation<'a> {
    /// Begins creation; a table without a name is named after its kind and number.
    pub fn begin(tables: &'a Tables, name: Option<&str>, kind: TableKind) -> TableCreation<'a> {
        let name = name.map_or_else(|| tables.next_name(kind.name()), str::to_owned);
        let existing = if tables.inner.restarted { find(tables, &name) } else { None };
        let series = existing.is_none().then(|| tables.inner.endpoint.own_slot().process.series_guard());
        TableCreation { tables, name, existing, _series: series }
    }

    fn purpose(&self) -> Purpose {
        Purpose::new_table(&self.name)
    }

    /// Whether all ranks create the table collectively.
    pub fn is_new(&self) -> bool {
        self.existing.is_none()
    }

    /// Passes the result of a check on if all ranks passed theirs: a rank that fails a check reports it, so that the others do
    /// not wait.
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

    /// Waits until all ranks have the table. Otherwise the first rank to drop its handle could be the last user and free the
    /// memory.
    pub fn barrier(&self) -> Result<()> {
        if self.is_new() { self.purpose().during(|| self.tables.group.barrier()) } else { Ok(()) }
    }

    /// The table's memory on this host: allocated by the host's first rank, looked up by the others. `prepare` runs on the fresh
    /// memory before any other rank sees it.
    pub fn allocate(
        &self,
        description: &Description,
        bytes: usize,
        prepare: impl FnOnce(&Extent),
    ) -> Result<Extent> {
        let (tables, endpoint) = (self.tables, &self.tables.inner.endpoint);
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
        // Also the barrier that ensures all ranks have dropped the tables they meant to drop before.
        agree(&tables.group, &self.purpose(), mine)?;
        if tables.inner.has_remote_ranks() {
            self.purpose().during(|| tables.inner.registry.release_dropped(&tables.group))?;
        }
        let membership = &tables.shutdown.membership;
        let make = || match find(tables, &description.name) {
            Some((_, other)) => {
                Err(reject("a new name", format!("a second one beside {other}"), "name it differently"))
            }
            None => {
                let extent = endpoint.allocate_shared(tables.inner.key(&description.name), bytes)?;
                prepare(&extent);
                TableHeader::of(&extent).write(&text, membership.next_number());
                Ok(Some(extent))
            }
        };
        let created = if tables.inner.is_host_leader() { make() } else { Ok(None) };
        let (created, error) = match created {
            Ok(created) => (created, None),
            Err(error) => (None, Some(error)),
        };
        // Also the barrier that the other ranks pass before they look the table up.
        let agreement = agreement(&tables.group, &self.purpose(), error.map_or(Ok("made".into()), Err));
        // Another host failed to allocate. After a failed exchange the memory stays: some ranks may have found it already.
        if let (Some(extent), Ok(Err(_))) = (&created, &agreement) {
            endpoint.free_shared(extent);
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
        TableHeader::of(&extent).attach(endpoint.local_rank, true);
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
        match TableHeader::of(extent).attach(self.tables.inner.endpoint.local_rank, false) {
            true => Ok(extent.clone()),
            false => reject("one that all have dropped", "keep tables until all workers are done"),
        }
    }
}
