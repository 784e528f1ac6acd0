//! Which Python runs `.py` programs, and which frameworks it has.

use std::time::Duration;

use super::capture::ProbeRunner;
use super::report::{Mark, ReportSection};

const LIMIT: Duration = Duration::from_secs(20);
const FRAMEWORKS: &str = "unisono numpy torch jax pytensor tensorflow keras mpi4py";

/// Versions come from the installed metadata: importing the frameworks would take many seconds.
const SCRIPT: &str = "
import sys, importlib.metadata as metadata
print('python', sys.version.split()[0], sys.executable)
for name in sys.argv[1:]:
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name)
        continue
    if name == 'torch':
        # PyTorch finds the backend by its name since version 2.14.
        version = tuple(map(int, metadata.version(name).split('+')[0].split('.')[:2]))
        backends = metadata.entry_points(group='torch.distributed.backends')
        works = version >= (2, 8) and any(one.name == 'unisono' for one in backends)
        after = ' after import unisono.torch' if version < (2, 14) else ''
        print('process_groups', *['init_process_group(\"unisono\") works' + after] * works)
";

pub(super) fn section(runner: &mut ProbeRunner) -> ReportSection {
    let mut section = ReportSection::new("Python");
    let Some(python) = crate::run::python(runner.this_program) else {
        section.add(Mark::Missing, "python", "no python3 on PATH; needed for .py programs only");
        return section;
    };
    let mut program = vec![python.clone().into_os_string(), "-c".into(), SCRIPT.into()];
    program.extend(FRAMEWORKS.split(' ').map(Into::into));
    let captured = runner.capture(1, program, Vec::new(), LIMIT);
    if let Some(problem) = captured.problem {
        section.add(Mark::Failed, "python", format!("{}: {problem}", python.display()));
    }
    for line in captured.output {
        match line.split_once(' ') {
            Some((name, version)) => section.add(Mark::Ok, name, version),
            None => section.add(Mark::Missing, line, ""),
        }
    }
    section
}
