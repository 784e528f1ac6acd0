//! The layer rule: a module may use any layer below its own, never one above it, and siblings never use each other.

use crate::lexer::product_code;
use crate::paths::{module_of, named};
use crate::tree::{Breach, Source};

/// From the ground up; modules of one row are siblings.
const LAYERS: &[&[&str]] =
    &[&["error"], &["memory", "cuda"], &["transport"], &["world"], &["collectives"], &["tables", "halo"]];

/// These stand beside the house and may use all of it; nothing in the house uses them.
const BESIDE: &[&str] = &["testing", "launch"];

/// The backends of `transport`: strangers to each other, but that two stand on the arena, and `hosts` puts MPI beside
/// whatever serves one host.
const BACKENDS: &[&str] = &["arena", "local", "shm", "mpi", "hosts"];
const BACKENDS_MAY_USE: &[(&str, &str)] = &[("local", "arena"), ("shm", "arena"), ("hosts", "mpi")];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// What `lib.rs` lifts to the root: the name, and the module that it comes from.
pub fn reexports(library: &Source) -> Vec<(String, String)> {
    let code = product_code(&library.text).replace("pub use ", "pub use crate::");
    named(&code, &[])
        .into_iter()
        .filter(|path| path.segments.len() > 1)
        .map(|path| (path.segments[path.segments.len() - 1].clone(), path.segments[0].clone()))
        .collect()
}

pub fn check(file: &Source, reexports: &[(String, String)]) -> Vec<Breach> {
    let own = module_of(&file.path);
    let is_test = own.iter().any(|module| module == "tests");
    if !file.is_rust() || !file.path.starts_with("src/") || own.is_empty() || is_test {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    for path in named(&product_code(&file.text), &own) {
        let Some(first) = path.segments.first() else { continue };
        let lifted = reexports.iter().find(|(name, _)| name == first).map(|(_, module)| module);
        let mut target = path.segments.clone();
        if let Some(module) = lifted {
            target[0].clone_from(module);
        }
        if let Some(what) = between(&own, &target) {
            breaches.push(Breach::new(path.line, what));
        }
    }
    breaches
}

fn between(own: &[String], target: &[String]) -> Option<String> {
    let (from, to) = (own[0].as_str(), target[0].as_str());
    if from == to {
        return between_backends(own.get(1)?, target.get(1)?);
    }
    if BESIDE.contains(&from) {
        return None;
    }
    let Some(from_layer) = layer(from) else {
        return Some(format!("the module `{from}` has no layer; give it one in tests/tidy/layers.rs"));
    };
    if BESIDE.contains(&to) {
        return Some(format!("`{from}` (layer {from_layer}) uses `{to}`, which stands beside the layers"));
    }
    let to_layer = layer(to)?;
    if to_layer == from_layer {
        return Some(format!("`{from}` uses its sibling `{to}` (both layer {to_layer})"));
    }
    (to_layer > from_layer)
        .then(|| format!("`{from}` (layer {from_layer}) uses `{to}` (layer {to_layer}) above it"))
}

fn between_backends(from: &str, to: &str) -> Option<String> {
    let strangers = from != to && BACKENDS.contains(&from) && BACKENDS.contains(&to);
    (strangers && !BACKENDS_MAY_USE.contains(&(from, to)))
        .then(|| format!("the backend `transport::{from}` uses the backend `transport::{to}`"))
}

#[cfg(test)]
fn breaches(path: &str, text: &str) -> Vec<String> {
    let names = reexports(&Source::new(
        "src/lib.rs",
        "pub mod world;\npub use world::{Group, World};\npub use error::Error;\n",
    ));
    let file = Source::new(path, text);
    check(&file, &names).iter().map(|breach| breach.at(&file)).collect()
}

#[test]
fn looking_up_is_a_breach_that_names_both_layers() {
    let found = breaches(
        "src/memory/copy.rs",
        "//! Copies.\nuse crate::error::Error;\nuse crate::{collectives::barrier};\n",
    );
    assert_eq!(found, ["src/memory/copy.rs:3: `memory` (layer 1) uses `collectives` (layer 4) above it"]);
    assert_eq!(
        breaches("src/memory/copy.rs", "fn f(world: &crate::World) {}").len(),
        1,
        "a name at the root is followed"
    );
    assert_eq!(
        breaches("src/memory/copy.rs", "use super::super::world::Group;").len(),
        1,
        "super is followed"
    );
}

#[test]
fn siblings_and_backends_are_strangers() {
    assert_eq!(breaches("src/tables/mod.rs", "use crate::halo::Plan;").len(), 1);
    assert_eq!(breaches("src/transport/mpi/mod.rs", "use super::shm::Wait;").len(), 1);
    assert_eq!(breaches("src/transport/hosts.rs", "use super::arena::Arena;").len(), 1);
    assert_eq!(breaches("src/transport/shm/mod.rs", "use crate::transport::arena::Arena;"), [""; 0]);
}

#[test]
fn looking_down_is_fine_and_testing_sees_all() {
    assert_eq!(
        breaches("src/collectives/mod.rs", "use crate::{Error, world::Group, transport::Call};"),
        [""; 0]
    );
    assert_eq!(breaches("src/testing/mod.rs", "use crate::collectives;"), [""; 0]);
    assert_eq!(breaches("src/world/mod.rs", "use crate::testing::spawn;").len(), 1);
    assert_eq!(breaches("src/world/tests/mod.rs", "use crate::testing::spawn;"), [""; 0]);
    assert_eq!(
        breaches(
            "src/world/mod.rs",
            "//! [`crate::testing`]\n#[cfg(test)]\nmod tests {\n use crate::testing;\n}"
        ),
        [""; 0]
    );
}

#[test]
fn a_new_module_needs_a_layer() {
    assert_eq!(breaches("src/misc/mod.rs", "use crate::error::Error;").len(), 1);
}
