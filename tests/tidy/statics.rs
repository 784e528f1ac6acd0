//! No globals: mutable `static`s are allowed only in listed files, as is `unsafe`.

use crate::lexer::product_code;
use crate::tree::{Breach, Source};

/// Files with state that exists once per process, and why.
const ADDRESSES: &[(&str, &str)] = &[
    ("src/cuda/", "a process has one driver, one context for each device, and one number"),
    ("src/collectives/cuda/message.rs", "tags of messages, which only have to differ"),
    ("src/transport/arena/futex.rs", "the kernel's own lock, where a model checker takes its place"),
    ("src/halo/cuda/device_transport.rs", "buffers that ranks in threads of one process read where they are"),
    ("src/memory/meter.rs", "whether a thread of a test counts its passes over memory"),
    ("src/tables/shard/key_value/crash_point.rs", "after how many writes a thread of a test stops"),
    ("cli/src/stdout.rs", "a process has one standard output, which has failed or not"),
    ("src/tables/checkpoint/store/objects.rs", "what `memory://` means in a process"),
];

/// The libraries and the program. A binding has a default world, as users of its language expect.
const FOLDERS: &[&str] = &["src/", "nn/src/", "cli/src/"];

/// Types with interior mutability.
const CHANGING: &[&str] = &[
    "Mutex", "RwLock", "Atomic", "OnceLock", "OnceCell", "LazyLock", "LazyCell", "RefCell", "Cell<",
    "Condvar",
];

/// Returns the lines that begin a mutable static.
fn uses(file: &Source) -> Vec<usize> {
    let in_tests = file.path.split('/').any(|folder| folder == "tests" || folder == "tests.rs");
    if !file.is_rust() || in_tests || !FOLDERS.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let code = product_code(&file.text);
    let lines: Vec<&str> = code.lines().collect();
    let is_one = |at: &usize| {
        let line = lines[*at].trim_start();
        let line = match line.strip_prefix("pub") {
            Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest),
            None => line,
        };
        let Some(rest) = line.strip_prefix("static ") else { return false };
        // A declaration may continue on the next line.
        let declared = format!("{rest} {}", lines.get(at + 1).unwrap_or(&""));
        let declared = declared.split(['=', ';']).next().unwrap_or_default();
        declared.starts_with("mut ") || CHANGING.iter().any(|kind| declared.contains(kind))
    };
    (0..lines.len()).filter(is_one).map(|at| at + 1).collect()
}

pub fn check(file: &Source) -> Vec<Breach> {
    if ADDRESSES.iter().any(|(address, _)| file.path.starts_with(address)) {
        return Vec::new();
    }
    let advice =
        "a `static` that changes: pass the group, or add this file to tests/tidy/statics.rs with the reason";
    uses(file).into_iter().map(|line| Breach::new(line, advice)).collect()
}

/// Listed files without any.
pub fn unused_addresses(files: &[Source]) -> Vec<&'static str> {
    let used =
        |address: &&str| files.iter().any(|file| file.path.starts_with(*address) && !uses(file).is_empty());
    ADDRESSES.iter().map(|(address, _)| *address).filter(|address| !used(address)).collect()
}

#[test]
fn a_mutable_static_elsewhere_is_a_breach() {
    let breaches = |path: &str, text: &str| check(&Source::new(path, text)).len();
    assert_eq!(breaches("src/world/group.rs", "pub(crate) static X: Mutex<u8> = Mutex::new(0);\n"), 1);
    assert_eq!(
        breaches("src/world/group.rs", "fn f() {\n    static X:\n        AtomicU32 = AtomicU32::new(0);\n}"),
        1
    );
    assert_eq!(breaches("nn/src/data/mod.rs", "static mut X: u8 = 0;"), 1);
    assert_eq!(
        breaches(
            "src/world/group.rs",
            "static X: Source = Source { lock: Mutex };\nfn f(x: &'static str) {}"
        ),
        0
    );
    assert_eq!(
        breaches(
            "src/world/group.rs",
            "#[cfg(test)]\nmod tests {\n    static X: AtomicU8 = AtomicU8::new(0);\n}"
        ),
        0
    );
    assert_eq!(breaches("bindings/c/src/errors.rs", "static X: Mutex<u8> = Mutex::new(0);"), 0);
    assert_eq!(breaches("src/cuda/driver.rs", "static X: Mutex<u8> = Mutex::new(0);"), 0);
}
