//! Halos of PyTorch tensors: compared with Gloo and with one rank, and the memory that a rank needs.

use std::ffi::OsString;

use super::HaloArray;
use crate::bench::HaloBench;
use crate::bench::figures::{self, BenchFigure, FigureSpec, SpeedTarget, check_module, figures, lines};
use crate::bench::ranks::{Row, list, run_program_ranks};
use crate::bench::size::Size;
use crate::json::Json;
use crate::launcher::Signals;
use crate::run::python;

/// The module of the Python package that each rank runs.
const MODULE: &str = "unisono.bench.halo";

/// Number of ranks that compute a stack of convolutions together.
const TOGETHER: usize = 2;

/// Number of ranks that partition an image that is large for one rank.
const MANY: usize = 4;

/// Target: the memory of one of these ranks, as a fraction of the memory of a single rank.
const TARGET_MEMORY: f64 = 0.35;

const FIGURES: [FigureSpec; 7] = [
    ("halos in place / Gloo", "gloo_halos", "ours", "gloo", SpeedTarget::Faster(4.0)),
    ("halos in place, small array / Gloo", "gloo_small", "ours", "gloo", SpeedTarget::Faster(4.0)),
    ("forward / Gloo", "gloo_forward", "ours", "gloo", SpeedTarget::Faster(1.0)),
    ("conv stack on 2 ranks / on one", "stack", "parts", "one", SpeedTarget::Times(0.6)),
    ("the same, halos behind work / on one", "stack", "overlapped", "one", SpeedTarget::Times(0.6)),
    ("its training step on 2 ranks / on one", "training", "parts", "one", SpeedTarget::Open),
    ("the same, halos behind work / on one", "training", "overlapped", "one", SpeedTarget::Open),
];

/// Results of the benchmark.
pub(super) struct Measured {
    figures: Vec<BenchFigure>,
    memory: Option<Memory>,
    side: usize,
}

/// Peak memory in bytes of a single rank, and of the largest of several ranks.
struct Memory {
    alone: f64,
    shared: f64,
    /// The same, minus the memory in use before the image was loaded (the interpreter and the libraries).
    alone_beyond: f64,
    shared_beyond: f64,
}

impl Memory {
    fn from(alone: &[Row], shared: &[Row]) -> Option<Memory> {
        let find = |rows: &[Row], what: &str| rows.iter().find(|row| row.what == what).map(|row| row.minimum);
        Some(Memory {
            alone: find(alone, "peak")?,
            shared: find(shared, "peak")?,
            alone_beyond: find(alone, "beyond")?,
            shared_beyond: find(shared, "beyond")?,
        })
    }

    /// Peak memory of one of several ranks, as a fraction of that of a single rank.
    fn share(&self) -> f64 {
        self.shared / self.alone
    }

    /// The same for the memory that the image takes.
    fn share_beyond(&self) -> f64 {
        self.shared_beyond / self.alone_beyond
    }
}

/// Runs the benchmark, or reports on stderr why it is skipped; the error is the exit status of failed ranks.
pub(super) fn measure(
    options: &HaloBench,
    this_program: &[OsString],
    signals: &mut Signals,
) -> Result<Option<Measured>, i32> {
    let Some(python) = python(this_program) else {
        eprintln!("left out: halos of PyTorch's tensors need Python, but there is no python3 on PATH");
        return Ok(None);
    };
    let program = [python.into_os_string(), "-m".into(), MODULE.into()];
    if check_module(&program).is_err() {
        eprintln!("left out: halos of PyTorch's tensors, see above");
        return Ok(None);
    }
    let mut ranks = |count: usize, arguments: Vec<OsString>| {
        let command = program.iter().cloned().chain(arguments).collect();
        run_program_ranks(command, count, this_program, signals)
    };
    let HaloArray { shape, grid, halo, seconds } = &options.array;
    let numbers = |numbers: &[usize]| list(numbers.iter().map(usize::to_string));
    let measure = |what: &str, more: Vec<OsString>| {
        let seconds = ["--seconds".into(), seconds.to_string().into()];
        ["--measure".into(), what.into()].into_iter().chain(seconds).chain(more).collect::<Vec<OsString>>()
    };
    let side = |side: usize| vec!["--side".into(), side.to_string().into()];
    let array: Vec<OsString> = vec![
        "--shape".into(),
        numbers(shape),
        "--grid".into(),
        numbers(grid),
        "--halo".into(),
        halo.to_string().into(),
    ];
    let mut rows = ranks(options.array.ranks(), measure("gloo", array))?;
    rows.extend(ranks(TOGETHER, measure("stack", side(options.stack)))?);
    let alone = ranks(1, measure("memory", side(options.image)))?;
    let shared = ranks(MANY, measure("memory", side(options.image)))?;
    let memory = Memory::from(&alone, &shared);
    Ok(Some(Measured { figures: figures(&rows, &FIGURES), memory, side: options.image }))
}

pub(super) fn table(measured: &Measured) -> String {
    let mut text =
        format!("with PyTorch, one thread each; in turns with the reference\n{}", lines(&measured.figures));
    if let Some(memory) = &measured.memory {
        let mebibytes = |bytes: f64| Size(((bytes / f64::from(1 << 20)).round() as usize) << 20);
        let side = measured.side;
        text += &format!(
            "memory for a training step of a U-Net on {side} x {side}, the most that a process has had: {} alone, at most {} \
             on each of {MANY} ranks: {:.2}, wanted ≤ {TARGET_MEMORY} {};\n\
             without the interpreter and the libraries: {} and {}: {:.2}\n",
            mebibytes(memory.alone),
            mebibytes(memory.shared),
            memory.share(),
            if memory.share() <= TARGET_MEMORY { "yes" } else { "NO" },
            mebibytes(memory.alone_beyond),
            mebibytes(memory.shared_beyond),
            memory.share_beyond(),
        );
    }
    text
}

pub(super) fn records(measured: &Measured) -> Vec<Json> {
    let mut list = figures::records(&measured.figures);
    list.extend(measured.memory.as_ref().map(|memory| {
        Json::Object(vec![
            ("name", "memory of a rank".into()),
            ("side", measured.side.into()),
            ("ranks", MANY.into()),
            ("bytes", memory.shared.into()),
            ("reference_bytes", memory.alone.into()),
            ("bytes_beyond_start", memory.shared_beyond.into()),
            ("reference_bytes_beyond_start", memory.alone_beyond.into()),
            ("share", memory.share().into()),
            ("share_beyond_start", memory.share_beyond().into()),
            ("wanted_share", TARGET_MEMORY.into()),
        ])
    }));
    list
}
