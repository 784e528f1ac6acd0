//! The layer rule: a module may use any layer below its own, never one above it, and siblings never use each other.

use crate::lexer::product_code;
use crate::paths::{module_of, named};
use crate::tree::{Breach, Source};

/// The layers, from the lowest up; modules of one row are siblings.
const LAYERS: &[&[&str]] =
    &[&["error"], &["memory", "cuda"], &["transport"], &["world"], &["collectives"], &["tables", "halo"]];

/// Outside the layers: these modules may use all of them, and no layer uses these.
const OUTSIDE: &[&str] = &["testing", "launch"];

/// The backends of `transport`. They do not use each other, except that two use the arena, and `hosts` combines MPI with
/// the backend of one host.
const BACKENDS: &[&str] = &["arena", "local", "shm", "mpi", "hosts"];
const BACKENDS_MAY_USE: &[(&str, &str)] = &[("local", "arena"), ("shm", "arena"), ("hosts", "mpi")];

/// The folders of `tables`, from the lowest up; those of one row are siblings.
const TABLES: &[&[&str]] = &[
    &["spec"],
    &["updater", "remote", "checkpoint"],
    &["consistency"],
    &["engine"],
    &["shard"],
    &["lifecycle"],
    &["handle"],
];

/// The modules of `tables::shard`, from the lowest up; the kinds of tables are siblings.
const SHARDS: &[&[&str]] = &[&["shape", "group_sort"], &["cuda"], &["dense", "key_value", "custom"]];

fn layer(layers: &[&[&str]], module: &str) -> Option<usize> {
    layers.iter().position(|row| row.contains(&module))
}

/// The names that a module re-exports from its submodules, each with the module that it comes from.
pub fn reexports(library: &Source) -> Vec<(String, String)> {
    let code = product_code(&library.text).replace("pub use ", "pub use crate::");
    named(&code, &[])
        .into_iter()
        .filter(|path| path.segments.len() > 1)
        .map(|path| (path.segments[path.segments.len() - 1].clone(), path.segments[0].clone()))
        .collect()
}

/// `reexports` are those of the library's root and those of `tables`.
pub fn check(file: &Source, reexports: &[Vec<(String, String)>; 2]) -> Vec<Breach> {
    let [at_root, in_tables] = reexports;
    let source_of = |names: &[(String, String)], name: &str| {
        names.iter().find(|(lifted, _)| lifted == name).map(|(_, module)| module.clone())
    };
    let own = module_of(&file.path);
    let is_test = own.iter().any(|module| module == "tests");
    if !file.is_rust() || !file.path.starts_with("src/") || own.is_empty() || is_test {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    for path in named(&product_code(&file.text), &own) {
        let Some(first) = path.segments.first() else { continue };
        let mut target = path.segments.clone();
        if let Some(module) = source_of(at_root, first) {
            // The name itself follows, so that it can also be looked up in its module.
            target.insert(0, module);
        }
        if target[0] == "tables"
            && let Some(module) = target.get(1).and_then(|name| source_of(in_tables, name))
        {
            target[1] = module;
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
        let (from, to) = (own.get(1)?.as_str(), target.get(1)?.as_str());
        return match own[0].as_str() {
            "tables" if from == "shard" && from == to => {
                between_folders(("tables::shard", SHARDS), own.get(2)?, target.get(2)?)
            }
            "tables" => between_folders(("tables", TABLES), from, to),
            _ => between_backends(from, to),
        };
    }
    if OUTSIDE.contains(&from) {
        return None;
    }
    let Some(from_layer) = layer(LAYERS, from) else {
        return Some(format!("the module `{from}` has no layer; give it one in tests/tidy/layers.rs"));
    };
    if OUTSIDE.contains(&to) {
        return Some(format!("`{from}` (layer {from_layer}) uses `{to}`, which is outside the layers"));
    }
    let to_layer = layer(LAYERS, to)?;
    if to_layer == from_layer {
        return Some(format!("`{from}` uses its sibling `{to}` (both layer {to_layer})"));
    }
    (to_layer > from_layer)
        .then(|| format!("`{from}` (layer {from_layer}) uses `{to}` (layer {to_layer}) above it"))
}

fn between_folders((parent, layers): (&str, &[&[&str]]), from: &str, to: &str) -> Option<String> {
    let Some(from_layer) = layer(layers, from) else {
        return Some(format!("`{parent}::{from}` has no layer; give it one in tests/tidy/layers.rs"));
    };
    let to_layer = layer(layers, to)?;
    let is_below = to_layer < from_layer || from == to;
    (!is_below).then(|| {
        format!("`{parent}::{from}` (layer {from_layer}) uses `{parent}::{to}` (layer {to_layer}), which is not below it")
    })
}

fn between_backends(from: &str, to: &str) -> Option<String> {
    let are_backends = from != to && BACKENDS.contains(&from) && BACKENDS.contains(&to);
    (are_backends && !BACKENDS_MAY_USE.contains(&(from, to)))
        .then(|| format!("the backend `transport::{from}` uses the backend `transport::{to}`"))
}

#[cfg(test)]
fn breaches(path: &str, text: &str) -> Vec<String> {
    let names = reexports(&Source::new(
        "src/lib.rs",
        "pub mod world;\npub use world::{Group, World};\npub use error::Error;\n",
    ));
    let tables = reexports(&Source::new("src/tables/mod.rs", "pub use lifecycle::tables::Tables;\n"));
    let file = Source::new(path, text);
    check(&file, &[names, tables]).iter().map(|breach| breach.at(&file)).collect()
}

#[test]
fn an_upward_dependency_is_a_breach_that_names_both_layers() {
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
fn siblings_and_backends_do_not_depend_on_each_other() {
    assert_eq!(breaches("src/tables/mod.rs", "use crate::halo::Plan;").len(), 1);
    assert_eq!(breaches("src/transport/mpi/mod.rs", "use super::shm::Wait;").len(), 1);
    assert_eq!(breaches("src/transport/hosts.rs", "use super::arena::Arena;").len(), 1);
    assert_eq!(breaches("src/transport/shm/mod.rs", "use crate::transport::arena::Arena;"), [""; 0]);
}

#[test]
fn folders_of_tables_are_layers() {
    let engine = |text: &str| breaches("src/tables/engine/base.rs", text);
    assert_eq!(engine("use super::queue::CallQueue;\nuse crate::tables::spec::init::Init;"), [""; 0]);
    assert_eq!(engine("use crate::tables::shard::dense::core::TableCore;").len(), 1);
    assert_eq!(
        engine("fn f(tables: &crate::tables::Tables) {}").len(),
        1,
        "a name of the module is followed"
    );
    assert_eq!(breaches("src/tables/remote/mod.rs", "use super::updater::Updater;").len(), 1, "siblings");
    assert_eq!(breaches("src/tables/misc/mod.rs", "use super::spec::init::Init;").len(), 1, "no layer");
}

#[test]
fn the_kinds_of_shards_are_siblings_above_device_memory() {
    let dense = |text: &str| breaches("src/tables/shard/dense/storage.rs", text);
    assert_eq!(
        dense("use crate::tables::shard::cuda::DeviceShard;\nuse super::layout::TableLayout;"),
        [""; 0]
    );
    assert_eq!(dense("use crate::tables::shard::key_value::part::LockedPart;").len(), 1, "siblings");
    let cuda = "use crate::tables::shard::dense::storage::Storage;";
    assert_eq!(breaches("src/tables/shard/cuda/shard.rs", cuda).len(), 1, "upwards");
}

#[test]
fn downward_dependencies_are_fine_and_testing_may_use_all() {
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
