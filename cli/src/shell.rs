//! What a shell needs of the program: completions of its arguments, and manual pages.

use std::fs;
use std::path::{Path, PathBuf};

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
    /// Write all pages to this folder, as files that `man` finds there.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
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
    if let Some(folder) = &options.out {
        return write_pages(&program, folder);
    }
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
    stdout::bytes(&page(described));
    0
}

fn page(described: Command) -> Vec<u8> {
    let mut page = Vec::new();
    Man::new(described).render(&mut page).expect("memory takes every write");
    page
}

/// Writes the page of the program and one for each command.
fn write_pages(program: &Command, folder: &Path) -> i32 {
    let commands = program.get_subcommands().filter(|command| command.get_name() != "help");
    let mut pages = vec![("unisono.1".to_string(), page(program.clone()))];
    pages
        .extend(commands.map(|command| (format!("unisono-{}.1", command.get_name()), page(command.clone()))));
    let written = fs::create_dir_all(folder)
        .and_then(|()| pages.iter().try_for_each(|(name, page)| fs::write(folder.join(name), page)));
    match written {
        Ok(()) => 0,
        Err(error) => {
            let what = format!("writing manual pages to {}", folder.display());
            crate::train::failed(&unisono::Error::io(
                "man",
                what,
                error,
                "choose a folder that you can write to",
            ))
        }
    }
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
