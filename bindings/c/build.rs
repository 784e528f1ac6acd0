//! Names the shared library, so that programs find it by that name whatever file they were linked with, and keeps it loaded.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libunisono.so");
    // LuaJIT unloads libraries when it ends; threads in the background need the code until the process does.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
