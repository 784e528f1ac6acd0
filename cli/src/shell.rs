//! What a shell needs of the program: completions of its arguments, and manual pages.

use clap::error::ErrorKind;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::stdout;

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that will read them.
    shell: Shell,
}

#[derive(Args)]
pub(crate) struct ManArgs {
    /// The command to describe; by default the program.
    command: Option<String>,
}

/// Prints the completions of a shell.
pub(crate) fn completions(options: &CompletionsArgs, program: &Command) -> i32 {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut without_hidden(program), "unisono", &mut script);
    stdout::bytes(&script);
    0
}

/// Prints a manual page.
pub(crate) fn manual(options: &ManArgs, program: &Command) -> i32 {
    let mut program = without_hidden(program);
    program.build();
    let described = match &options.command {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command.clone(),
            None => {
                let known: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
                let text = format!("expected one of {}, received {name:?}", known.join(", "));
                let error = program.error(ErrorKind::InvalidValue, text);
                if let Err(failure) = error.print() {
                    stdout::failed(&failure);
                }
                return error.exit_code();
            }
        },
    };
    let mut page = Vec::new();
    Man::new(described).render(&mut page).expect("memory takes every write");
    stdout::bytes(&page);
    0
}

/// The program without the commands that only its own processes use: completions would list them.
fn without_hidden(program: &Command) -> Command {
    let visible = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("unisono")
        .version(env!("CARGO_PKG_VERSION"))
        .about(program.get_about().cloned().unwrap_or_default())
        .subcommand_required(true)
        .subcommands(visible)
}
