//! Compiles C programs against the library that cargo built, and runs them as ranks of a job with a deadline.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

/// Time limit of every job, also under valgrind.
const LIMIT: Duration = Duration::from_secs(240);

pub const C: &[&str] = &["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"];
pub const CPP: &[&str] = &["c++", "-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Werror"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder with the library under its public names, as `make lib` leaves it.
pub fn library() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let folder = scratch("library");
        let mut command = Command::new(root().join("../../scripts/name-library"));
        let output = command.arg(built).arg(&folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    });
    &FOLDER
}

/// The folder for files that tests create.
pub fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("c").join(name)
}

/// Whether a program can be started; if not, reports that tests are skipped.
pub fn have(program: &str, what: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("left out: {what}, for want of {program}");
    }
    found.is_ok()
}

/// How a program is linked.
#[derive(Clone, Copy)]
pub enum Link {
    Shared(&'static str),
    Static,
}

/// Compiles tests/NAME.c and returns the path of the program.
pub fn compile(name: &str, compiler: &[&str], link: Link) -> PathBuf {
    compile_file(&root().join("tests").join(name).with_extension("c"), compiler, link)
}

/// Compiles a file and returns the path of the program.
pub fn compile_file(source: &Path, compiler: &[&str], link: Link) -> PathBuf {
    let name = source.file_stem().unwrap().to_string_lossy();
    // A unique number: another test may be running the same program.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let program = scratch(&format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    let library = library();
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-g", "-O1", "-pthread", "-o"]).arg(&program);
    command.arg("-I").arg(root().join("include"));
    command.arg(source);
    match link {
        Link::Shared(name) => {
            command.arg("-L").arg(library).arg(format!("-l{name}"));
            command.arg(format!("-Wl,-rpath,{}", library.display()));
        }
        Link::Static => {
            command.args(["-x", "none"]).arg(library.join("libunisono.a")).args(["-ldl", "-lm"]);
        }
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    program
}

/// How one process ended, and its output.
pub struct Ending {
    pub success: bool,
    pub output: String,
}

/// Runs `command` on every rank of a job of `size`; as a single process without a launcher if `size` is 0.
pub fn run(size: usize, command: impl Fn() -> Command) -> Vec<Ending> {
    let job = unisono::launch::Job::create(size.max(1)).unwrap();
    let start = |rank: usize| {
        let mut command = command();
        if size > 0 {
            command.envs(job.environment(rank));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let ranks: Vec<Child> = (0..size.max(1)).map(start).collect();
    let pids: Vec<u32> = ranks.iter().map(Child::id).collect();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // One thread per rank: no rank may block because another rank's output is being read.
        let readers = ranks.into_iter().map(|rank| thread::spawn(|| rank.wait_with_output().unwrap()));
        let readers: Vec<_> = readers.collect();
        let _ = sender.send(readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>());
    });
    let Ok(outputs) = receiver.recv_timeout(LIMIT) else {
        let doing: Vec<String> = (0..size).map(|rank| job.activity(rank)).collect();
        for pid in pids {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        panic!("the ranks did not end: {doing:#?}");
    };
    outputs.iter().map(ending).collect()
}

fn ending(output: &Output) -> Ending {
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    Ending { success: output.status.success(), output: text }
}

/// Runs a program on `size` ranks; each must succeed and print so.
pub fn succeed(size: usize, command: impl Fn() -> Command) {
    for (rank, ending) in run(size, command).iter().enumerate() {
        assert!(
            ending.success && ending.output.contains("all well"),
            "rank {rank} of {size} failed: {}",
            ending.output
        );
    }
}
