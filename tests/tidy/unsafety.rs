//! `unsafe` is allowed only in listed files, and each use of it states why it is sound.

use crate::lexer::code_only;
use crate::tree::{Breach, Source};

/// Files and folders that need `unsafe`, and why.
const ADDRESSES: &[(&str, &str)] = &[
    ("src/memory/", "kernels over memory that other ranks see"),
    ("src/collectives/", "other ranks' memory and background buffers, for one call"),
    ("src/cuda/", "functions of NVIDIA's libraries found at run time, and memory on devices"),
    ("src/transport/mod.rs", "an exchange lends its buffers until it ends"),
    ("src/transport/hosts.rs", "the same, passed on to two transports"),
    ("src/transport/arena/", "memory that all ranks of a host share"),
    ("src/transport/counting/", "the contract on buffers of other transports"),
    ("src/transport/mailbox.rs", "buffers that are filled while their owner waits"),
    ("src/transport/nonblocking.rs", "the contract on such buffers"),
    ("src/transport/owned_exchange.rs", "buffers of messages that are under way"),
    ("src/transport/mpi/", "functions of a C library found at run time"),
    ("src/tables/shard/dense/storage.rs", "rows in shared memory, under their stripe's lock"),
    ("src/tables/shard/dense/update.rs", "rows and their state, under their stripe's lock"),
    ("src/tables/shard/cuda/", "rows on devices, under their table's lock, and spans that callers lend"),
    ("src/tables/shard/dense/device.rs", "rows on devices, under their table's lock"),
    ("src/tables/shard/dense/staged.rs", "spans on devices that callers lend"),
    ("src/tables/handle/cuda.rs", "spans that callers lend"),
    ("src/tables/shard/dense/versions.rs", "numbers in shared memory"),
    ("src/tables/lifecycle/membership.rs", "the roles in shared memory"),
    ("src/tables/engine/header.rs", "the first bytes of a table's memory"),
    ("src/tables/consistency/clock.rs", "counters in shared memory"),
    ("src/tables/engine/rounds/pending.rs", "adds in shared memory that wait for their round"),
    ("src/tables/shard/key_value/memory.rs", "a map's memory, under its parts' locks"),
    ("src/tables/shard/key_value/part.rs", "entries, under their part's lock"),
    ("src/tables/shard/key_value/key_storage.rs", "keys, under their part's lock"),
    ("src/tables/shard/custom/shards.rs", "shards, under their locks"),
    ("src/halo/cuda/", "boxes on a device, which are checked to lie inside their memory"),
    ("src/halo/box_pair.rs", "kernels over boxes, which are checked to lie inside their memory"),
    ("tests/cuda/", "device memory, for one call"),
    ("tests/halo/allocations.rs", "an allocator that counts"),
    ("tests/processes/exposure.rs", "a look at memory that another thread changes"),
    ("src/world/fork_guard.rs", "a page that the kernel wipes in forked children"),
    ("cli/src/bandwidth.rs", "a kernel for a processor's own instructions"),
    ("cli/src/launcher/rank.rs", "code between fork and exec"),
    ("nn/src/product.rs", "matrix products of another crate, on slices that were checked"),
    ("bindings/c/src/", "functions that C calls, and what it passes in pointers"),
    ("bindings/python/src/call_interface.rs", "the C interface of the PyTorch backend"),
    ("bindings/python/src/array.rs", "memory that Python owns"),
    ("bindings/python/src/cuda_interface.rs", "streams of other libraries"),
    ("bindings/python/src/out_of_place.rs", "copies on a device"),
    ("bindings/python/src/any_array.rs", "device memory that Python owns"),
    ("bindings/python/src/dlpack.rs", "a C interface between array libraries"),
    ("bindings/python/src/dlpack_exchange_api.rs", "the C functions of that interface"),
    ("bindings/python/src/fork.rs", "what a forked child must not drop"),
    ("bindings/python/src/heap.rs", "memory for results"),
    ("bindings/python/src/array_factory.rs", "streams of other libraries"),
    ("bindings/python/src/memory.rs", "arena memory lent to Python"),
];

/// The largest distance between an `unsafe` and its reason above, in lines: a statement may begin before the block does.
const NEAR: usize = 4;

fn uses(file: &Source) -> Vec<(usize, String)> {
    if !file.is_rust() {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        for (at, _) in line.match_indices("unsafe") {
            let before = line[..at].chars().next_back();
            let after = &line[at + "unsafe".len()..];
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            if !before.is_some_and(is_word) && !after.chars().next().is_some_and(is_word) {
                found.push((number + 1, after.trim_start().to_string()));
            }
        }
    }
    found
}

pub fn check_address(file: &Source) -> Vec<Breach> {
    if ADDRESSES.iter().any(|(address, _)| file.path.starts_with(address)) {
        return Vec::new();
    }
    let advice =
        "`unsafe` outside the address list; use a safe module, or add this one to tests/tidy/unsafety.rs";
    uses(file).into_iter().map(|(line, _)| Breach::new(line, advice)).collect()
}

/// Listed files that no longer contain any `unsafe`.
pub fn unused_addresses(files: &[Source]) -> Vec<&'static str> {
    let used =
        |address: &&str| files.iter().any(|file| file.path.starts_with(*address) && !uses(file).is_empty());
    ADDRESSES.iter().map(|(address, _)| *address).filter(|address| !used(address)).collect()
}

pub fn check_reason(file: &Source) -> Vec<Breach> {
    let lines: Vec<&str> = file.text.lines().collect();
    let unreasoned = |&(line, ref after): &(usize, String)| {
        needs_reason(after)
            && !has_reason(&lines, line)
            && !(after.starts_with("fn ") && keeps_a_trait(&lines, line))
    };
    let found: Vec<_> = uses(file).into_iter().filter(unreasoned).collect();
    let what = |after: &str| match after.split([' ', '(', '{']).next() {
        Some(word @ ("fn" | "impl" | "trait" | "extern")) => format!("`unsafe {word}`"),
        _ => "an `unsafe` block".to_string(),
    };
    let message =
        |after: &str| format!("{} without a `SAFETY:` comment or a `# Safety` section above it", what(after));
    found.iter().map(|(line, after)| Breach::new(*line, message(after))).collect()
}

/// Function pointer types promise nothing themselves, and the reasons for attributes are where they are listed.
fn needs_reason(after: &str) -> bool {
    let signature = after.strip_prefix("extern").unwrap_or(after).trim_start();
    let is_type = signature.strip_prefix("fn").is_some_and(|rest| rest.trim_start().starts_with('('));
    !is_type && !after.starts_with('(')
}

fn has_reason(lines: &[&str], line: usize) -> bool {
    let is_reason = |text: &&str| text.contains("SAFETY:") || text.contains("# Safety");
    let is_note = |text: &&str| text.trim_start().starts_with("//") || text.trim_start().starts_with('#');
    let above = &lines[..line - 1];
    let near = above.iter().rev().take(NEAR).any(&is_reason);
    let mut rest = above.iter().rev().skip_while(|text| !is_note(text) && !text.trim().is_empty());
    near || is_reason(&lines[line - 1]) || rest.by_ref().take_while(|text| is_note(text)).any(is_reason)
}

/// A trait states the contract of its unsafe functions once, not again in every `impl Trait for Type`.
fn keeps_a_trait(lines: &[&str], line: usize) -> bool {
    let is_outer = |text: &&&str| !text.is_empty() && !text.starts_with([' ', '}']);
    let outer = lines[..line].iter().rev().find(is_outer).copied().unwrap_or_default();
    outer.contains("impl") && outer.contains(" for ")
}

#[test]
fn unsafe_elsewhere_is_a_breach() {
    let file = Source::new("src/error.rs", "//! Fails.\nfn f() {\n    unsafe { g() }\n}\n");
    assert_eq!(check_address(&file).len(), 1);
    assert_eq!(check_address(&Source::new("src/error.rs", "// unsafe\nlet x = \"unsafe\";")), []);
}

#[test]
fn unsafe_needs_a_reason() {
    let bare = Source::new(
        "src/memory/copy.rs",
        "//! Copies.\n\nfn f() {\n    unsafe { g() }\n}\nunsafe impl Send for X {}\n",
    );
    assert_eq!(check_reason(&bare).len(), 2);
    let reasoned = "//! Copies.\n/// Copies.\n///\n/// # Safety\n/// Both are valid.\n#[inline]\npub unsafe fn f() {\n    \
                    // SAFETY: the caller guarantees it.\n    unsafe { g() }\n}\ntype F = unsafe extern \"C\" fn(i32);\n";
    assert_eq!(check_reason(&Source::new("src/memory/copy.rs", reasoned)), []);
}

#[test]
fn the_safety_comment_of_a_trait_covers_its_implementations() {
    let function = "\n    fn g() {}\n\n    unsafe fn f() {}\n}\n";
    let check = |head: &str| {
        check_reason(&Source::new("src/memory/copy.rs", &format!("//! A.\n\n{head} {{{function}"))).len()
    };
    assert_eq!((check("impl Trait for X"), check("impl X"), check("trait Trait")), (0, 1, 1));
}
