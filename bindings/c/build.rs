//! Names the shared library and its version, so that programs find one that they were linked for, and keeps it loaded.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let number = |part: &str| env::var(format!("CARGO_PKG_VERSION_{part}")).expect("cargo sets it");
    // Versions below 1.0 are compatible within a minor version only.
    let version = match number("MAJOR").as_str() {
        "0" => format!("0.{}", number("MINOR")),
        major => major.into(),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libunisono.so.{version}");
    // LuaJIT unloads libraries when it ends; threads in the background need the code until the process does.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
