//! `make install` into a temporary folder: what it leaves there, and programs built against it by pkg-config, CMake and Lua.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{C, have, library, run, scratch, succeed};
use crate::lua::{have_luajit, root};

/// A new, empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = scratch(&format!("installed-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// `make install` without its builds: the library is the one that cargo built for the tests, and the program is left out.
fn install(action: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(root().join("scripts/install"));
    command.arg(action).env("LIBRARY", library()).env("PROGRAM", "no").env_remove("DESTDIR");
    finish(command.envs(variables.iter().copied()));
}

/// Installs under a new prefix.
fn installed(name: &str) -> PathBuf {
    let prefix = folder(name);
    install("install", &[("PREFIX", prefix.to_str().unwrap())]);
    prefix
}

/// Runs a command to its end and returns what it printed.
fn finish(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {printed}");
    printed
}

/// The files below a folder, relative to it.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()).iter().map(|inside| format!("{name}/{inside}")));
        } else {
            found.insert(name);
        }
    }
    found
}

/// The version of the library's binary interface.
fn interface() -> String {
    match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => format!("0.{}", env!("CARGO_PKG_VERSION_MINOR")),
        major => major.into(),
    }
}

/// Compiles a file with the flags that pkg-config prints.
fn compile(compiler: &[&str], source: &Path, flags: &str, program: &Path) -> PathBuf {
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).arg(source).args(flags.split_whitespace()).args(["-pthread", "-o"]);
    finish(command.arg(program));
    program.to_owned()
}

#[test]
fn an_installation_is_complete_and_can_be_removed() {
    let prefix = folder("complete");
    let stage = folder("complete-stage");
    let variables = [
        ("PREFIX", prefix.to_str().unwrap()),
        ("DESTDIR", stage.to_str().unwrap()),
        ("LIBDIR", "/opt/lib64"),
    ];
    install("install", &variables);
    assert!(files(&prefix).is_empty(), "DESTDIR holds all files");
    let staged = stage.join(prefix.strip_prefix("/").unwrap());
    let found = files(&staged);
    for name in ["include/unisono.h", "include/multiverso/c_api.h", "share/lua/5.1/unisono/native.lua"] {
        assert!(found.contains(name), "{name} is not among {found:?}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let lib = stage.join("opt/lib64");
    let link = |name: &str| fs::read_link(lib.join(name)).unwrap().into_os_string().into_string().unwrap();
    let soname = format!("libunisono.so.{}", interface());
    assert_eq!(link(&soname), format!("libunisono.so.{version}"));
    assert_eq!([link("libunisono.so"), link("libmultiverso.so")], [soname.clone(), soname]);
    for name in ["libunisono.a", "pkgconfig/unisono.pc", "cmake/unisono/unisonoConfig.cmake"] {
        assert!(lib.join(name).is_file(), "{name}");
    }
    let text = fs::read_to_string(lib.join("pkgconfig/unisono.pc")).unwrap();
    let written = fs::read_to_string(lib.join("cmake/unisono/unisonoConfig.cmake")).unwrap() + &text;
    assert!(
        text.contains("libdir=/opt/lib64\n") && text.contains("includedir=${prefix}/include\n"),
        "{text}"
    );
    assert!(!written.contains("@") && !written.contains(stage.to_str().unwrap()), "{written}");

    // Files of other packages stay.
    fs::write(staged.join("include/other.h"), "").unwrap();
    install("uninstall", &variables);
    assert_eq!(files(&stage).len(), 1, "{:?}", files(&stage));
    let again =
        Command::new(root().join("scripts/install")).arg("uninstall").envs(variables).output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains("is not installed there"), "{said}");
}

#[test]
fn a_relative_prefix_is_rejected() {
    let mut command = Command::new(root().join("scripts/install"));
    let output = command.env("LIBRARY", library()).env("PREFIX", "here").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("received here"), "{said}");
}

#[test]
fn pkg_config_finds_the_installed_library() {
    let what = "programs built with pkg-config";
    if !have("cc", what) || !have("pkg-config", what) {
        return;
    }
    let prefix = installed("pkg-config");
    let flags = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        finish(command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("unisono"))
    };
    assert_eq!(flags(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let lib = prefix.join("lib");
    let source = root().join("bindings/c/tests/collectives.c");
    let rpath = format!("{} -Wl,-rpath,{}", flags(&["--cflags", "--libs"]), lib.display());
    let program = compile(C, &source, &rpath, &prefix.join("shared"));
    succeed(3, || Command::new(&program));
    // Programs ask for the version of the interface, and therefore run without the links that the linker used.
    fs::remove_file(lib.join("libunisono.so")).unwrap();
    succeed(0, || Command::new(&program));

    // The archive alone, with what it needs of the system.
    for name in ["libmultiverso.so".into(), format!("libunisono.so.{}", interface())] {
        fs::remove_file(lib.join(name)).unwrap();
    }
    let all = flags(&["--static", "--cflags", "--libs"]);
    let program = compile(C, &source, &all, &prefix.join("static"));
    succeed(2, || Command::new(&program));
}

/// Configures and builds a CMake project whose text is `lists`, with a C and a C++ program.
fn build(name: &str, lists: &str, prefix: &Path) -> Result<PathBuf, String> {
    let project = folder(name);
    fs::write(project.join("CMakeLists.txt"), lists).unwrap();
    for file in ["collectives.c", "check.h"] {
        fs::copy(root().join("bindings/c/tests").join(file), project.join(file)).unwrap();
    }
    fs::copy(project.join("collectives.c"), project.join("collectives.cpp")).unwrap();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
    let output = configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    finish(Command::new("cmake").arg("--build").arg(project.join("build")));
    Ok(project.join("build"))
}

#[test]
fn cmake_finds_the_installed_library() {
    let what = "programs built with CMake";
    if !have("c++", what) || !have("cmake", what) {
        return;
    }
    // Moved after the installation, as packages are.
    let prefix = folder("cmake").join("moved");
    fs::rename(installed("cmake-first"), &prefix).unwrap();
    let version = interface();
    let lists = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(programs C CXX)\nfind_package(unisono {version} REQUIRED)\n\
         find_package(unisono REQUIRED)\n\
         add_executable(shared collectives.c)\ntarget_link_libraries(shared unisono::unisono)\n\
         add_executable(cpp collectives.cpp)\ntarget_link_libraries(cpp unisono::unisono)\n\
         add_executable(static collectives.c)\ntarget_link_libraries(static unisono::static)\n"
    );
    let built = build("cmake-programs", &lists, &prefix).unwrap();
    for program in ["shared", "cpp", "static"] {
        succeed(2, || Command::new(built.join(program)));
    }
    // An older interface, a newer version, and a range that ends before this version.
    for wanted in ["0.0", "99", "0.0...<0.1"] {
        let lists = format!(
            "cmake_minimum_required(VERSION 3.19)\nproject(none C)\nfind_package(unisono {wanted} REQUIRED)\n"
        );
        let error = build("cmake-wrong", &lists, &prefix).unwrap_err();
        assert!(error.contains(env!("CARGO_PKG_VERSION")), "{wanted}: {error}");
    }
    fs::remove_file(prefix.join("lib/libunisono.a")).unwrap();
    let error = build("cmake-damaged", &lists, &prefix).unwrap_err();
    let words: Vec<&str> = error.split_whitespace().collect();
    assert!(words.join(" ").contains("libunisono.a is missing: install unisono again"), "{error}");
}

/// luajit with the modules below a folder, which find the library without help.
fn luajit_with(modules: &Path, arguments: &[&str]) -> Command {
    let tests = root().join("bindings/lua/tests");
    let path = format!("{0}/?.lua;{0}/?/init.lua;{1}/?.lua", modules.display(), tests.display());
    let mut command = Command::new("luajit");
    command.current_dir(tests).args(arguments).env("LUA_PATH", path).env_remove("UNISONO_LIBRARY");
    command
}

/// The program for Multiverso among the tests of the binding.
fn lua_program(modules: &Path) -> Command {
    let program = root().join("bindings/lua/tests/multiverso.lua");
    luajit_with(modules, &[program.to_str().unwrap()])
}

#[test]
fn lua_finds_the_installed_modules_and_library() {
    if have_luajit() {
        let modules = installed("lua").join("share/lua/5.1");
        succeed(0, || lua_program(&modules));
        succeed(2, || lua_program(&modules));
    }
}

#[test]
fn the_rock_has_all_modules_and_works() {
    let what = "the rock of the Lua binding";
    if !have_luajit() || !have("luarocks", what) {
        return;
    }
    let prefix = installed("rock-library");
    let tree = folder("rock");
    let rock = format!("bindings/lua/unisono-{}-1.rockspec", env!("CARGO_PKG_VERSION"));
    let make = |library: &Path| {
        let mut command = Command::new("luarocks");
        command.current_dir(root()).args(["--lua-version", "5.1", "--tree"]).arg(&tree);
        command.args(["make", &rock]).arg(format!("UNISONO_DIR={}", library.display()));
        command
    };
    let output = make(&tree).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("UNISONO"), "without the library: {said}");
    finish(&mut make(&prefix));
    let modules = tree.join("share/lua/5.1");
    assert_eq!(files(&modules), files(&prefix.join("share/lua/5.1")), "the rockspec lists every module");
    let lib = prefix.join("lib");
    succeed(2, || {
        let mut command = lua_program(&modules);
        command.env("LD_LIBRARY_PATH", &lib);
        command
    });
}

#[test]
fn other_lua_interpreters_get_an_error_that_names_luajit() {
    if !have_luajit() {
        return;
    }
    let modules = installed("lua-without-ffi").join("share/lua/5.1");
    // What an interpreter without the module does.
    let code = "package.preload.ffi = function() error('no such module') end; require 'unisono'";
    let ending = run(0, || luajit_with(&modules, &["-e", code])).remove(0);
    assert!(!ending.success && ending.output.contains("expected LuaJIT"), "{}", ending.output);
}
