//! The CUDA section of `unisono doctor`. The driver here is a fake library that implements what the doctor calls.

mod common;

use common::*;
use std::process::Command;

/// Two devices of 8 GiB, the second of which does not report its free memory.
const DRIVER: &str = r#"
#include <stddef.h>
#include <string.h>

static size_t current;

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strcpy(name, "Simulated"); return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { uuid[0] = device; return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)8 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 9; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(size_t)(device + 1); return 0; }
int cuCtxPushCurrent_v2(void *context) { current = (size_t)context; return 0; }
int cuCtxPopCurrent_v2(void **context) { current = 0; return 0; }
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) {
    if (current != 1) return 201;
    *free = (size_t)5 << 29;
    *total = (size_t)8 << 30;
    return 0;
}
"#;

/// The source that lists the driver's functions; the fake returns an error for those that are not in [`DRIVER`].
const NAMES: &str = include_str!("../../src/cuda/driver.rs");

/// The fake library in this folder; none without a C compiler.
fn build(folder: &Folder) -> Option<String> {
    let names = NAMES.split("= \"").skip(1).filter_map(|rest| rest.split('"').next());
    let stubs = names.filter(|name| !DRIVER.contains(&format!("int {name}(")));
    let stubs = stubs.map(|name| format!("int {name}(void) {{ return 801; }}\n"));
    let (source, library) = (folder.path("driver.c"), folder.path("libcuda.so.1"));
    std::fs::write(&source, DRIVER.to_string() + &stubs.collect::<String>()).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).output();
    let Ok(compiled) = compiled else {
        println!("left out: the simulated driver: there is no cc");
        return None;
    };
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    Some(library)
}

#[test]
fn doctor_prints_the_free_memory_of_each_device() {
    let folder = Folder::new();
    let Some(library) = build(&folder) else { return };
    let mut command = unisono(["doctor"]);
    command.env("UNISONO_LIBCUDA", library);
    let report = text(&finish(command).stdout);
    let line = |name: &str| {
        let found = report.lines().find(|line| line.contains(name));
        found.unwrap_or_else(|| panic!("{name} is not in {report}")).trim_start()
    };
    let (first, second) = (line("device 0 "), line("device 1 "));
    assert!(first.starts_with("ok") && first.contains("Simulated, 2.5 of 8.0 GiB free, compute"), "{first}");
    assert!(second.starts_with("missing") && second.contains("how much of its memory is free"), "{second}");
}
