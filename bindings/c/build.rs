//! Names the shared library, so that programs find it by that name whatever file they were linked with.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libunisono.so");
}
