//! The program `unisono` as installed by cargo; the Python wheel calls the same library.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "unisono".into());
    let this_program = std::env::current_exe().map(Into::into).unwrap_or(name);
    let status = unisono_cli::main(arguments.collect(), vec![this_program]);
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}
