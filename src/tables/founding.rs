//! Making a table together, and finding one that exists: the first rank of each host makes its memory, the others look.

use super::Tables;
use super::description::Description;
use super::header::{Header, LONGEST};
use super::role::Role;
use crate::error::{Error, Result};
use crate::transport::arena::{Extent, Seat};

/// The name of the memory that holds the roles on a host.
fn roles_key(host: usize) -> u64 {
    0x726f_6c65_7300_0000 + host as u64
}

/// Notes the roles of all ranks where a restarted rank finds them.
pub(super) fn remember(seat: &Seat, host: usize, nonce: u64, roles: &[Role]) -> Result<()> {
    for old in seat.find_common(roles_key(host)) {
        seat.free_common(&old)?;
    }
    let extent = seat.take_common(roles_key(host), size_of::<Header>())?;
    let letters: String = roles.iter().map(|&role| char::from(b'0' + role as u8)).collect();
    Header::of(&extent).write(&format!("{nonce:x} {letters}"));
    Ok(())
}

/// The roles that the other ranks know, if they have joined.
pub(super) fn recall(seat: &Seat, host: usize) -> Option<(u64, Vec<Role>)> {
    let text = seat.find_common(roles_key(host)).first().and_then(|extent| Header::of(extent).read())?;
    let (nonce, letters) = text.split_once(' ')?;
    let roles = letters.bytes().map(|letter| Role::from_number(letter.wrapping_sub(b'0'))).collect();
    Some((u64::from_str_radix(nonce, 16).ok()?, roles))
}

/// Longest description of a call, as ranks exchange it.
const EXCHANGED: usize = 1024;

/// Tells all ranks what this one is about to make, or why it will not; fails on all ranks unless all say the same.
pub(super) fn agree(tables: &Tables, mine: Result<String>) -> Result<()> {
    let mut bytes = [0u8; EXCHANGED];
    let text = match &mine {
        Ok(text) => text.clone(),
        Err(error) => format!("refused: {error}"),
    };
    let text = &text.as_bytes()[..text.len().min(EXCHANGED)];
    bytes[..text.len()].copy_from_slice(text);
    let mut all = vec![0u8; EXCHANGED * tables.group.size()];
    tables.group.all_gather(&bytes, &mut all)?;
    mine?;
    let calls: Vec<&[u8]> = all.chunks_exact(EXCHANGED).collect();
    if calls.iter().all(|call| **call == bytes) {
        return Ok(());
    }
    let words = |call: &[u8]| String::from_utf8_lossy(call).trim_end_matches('\0').to_string();
    let calls = calls.into_iter().map(words).enumerate().collect();
    Err(Error::Mismatch { rank: tables.inner.rank, group: "tables".into(), number: 0, calls })
}

/// The memory of an existing table on this host.
fn find(tables: &Tables, name: &str) -> Option<(Extent, String)> {
    let prefix = format!("table {name:?}:");
    tables.inner.seat.find_common(tables.key(name)).into_iter().find_map(|extent| {
        let text = Header::of(&extent).read()?;
        text.starts_with(&prefix).then_some((extent, text))
    })
}

/// The memory of a table on this host: made by its first rank, found by the others. `prepare` is called on fresh memory
/// before anybody else sees it. Every rank calls this; a restarted one alone.
pub(super) fn found(
    tables: &Tables,
    description: &Description,
    bytes: usize,
    prepare: impl FnOnce(&Extent),
) -> Result<Extent> {
    let text = description.to_string();
    if tables.inner.restarted {
        return reopen(tables, find(tables, &description.name), &text);
    }
    let refuse = |expected: &str, received: String, advice: &str| {
        Error::usage("table", expected, received, advice).at_rank(tables.inner.rank)
    };
    let mine = match text.len() > LONGEST {
        true => Err(refuse("a short name", format!("{} bytes", description.name.len()), "shorten it")),
        false => Ok(text.clone()),
    };
    // Also the barrier behind which all ranks have dropped what they wanted to drop before.
    agree(tables, mine)?;
    let make = || match find(tables, &description.name) {
        Some((_, other)) => {
            Err(refuse("a new name", format!("a second one beside {other}"), "name it differently"))
        }
        None => {
            let extent = tables.inner.seat.take_common(tables.key(&description.name), bytes)?;
            prepare(&extent);
            Header::of(&extent).write(&text);
            Ok(Some(extent))
        }
    };
    let made = if tables.leads_host() { make() } else { Ok(None) };
    let (made, error) = match made {
        Ok(made) => (made, None),
        Err(error) => (None, Some(error)),
    };
    // Also the barrier that the others wait at before they look.
    if let Err(error) = agree(tables, error.map_or(Ok("made".into()), Err)) {
        // Another host could not make its part.
        if let Some(extent) = made {
            tables.inner.seat.free_common(&extent)?;
        }
        return Err(error);
    }
    let extent = match made {
        Some(extent) => extent,
        None => {
            let found = find(tables, &description.name);
            found.ok_or_else(|| Error::internal("table", "its memory was not found"))?.0
        }
    };
    Header::of(&extent).attach();
    Ok(extent)
}

fn reopen(tables: &Tables, existing: Option<(Extent, String)>, text: &str) -> Result<Extent> {
    let refuse = |received: String, advice: &str| {
        Err(Error::usage("table", format!("{text}, as this restarted rank makes it"), received, advice)
            .at_rank(tables.inner.rank))
    };
    match existing {
        None => refuse("no such table".into(), "make tables in the same order, or give them names"),
        Some((_, other)) if other != text => refuse(other, "make the same tables as before the restart"),
        Some((extent, _)) => {
            Header::of(&extent).attach();
            Ok(extent)
        }
    }
}
