//! Multiverso's flags: `-key=value` among the arguments of the program.

use unisono::tables::{Consistency, Repeats, Role, TableOptions, UpdaterChoice};
use unisono::{Error, Result};

/// The flags that have an effect.
#[derive(Clone)]
pub(super) struct Flags {
    sync: bool,
    backup_worker_ratio: i64,
    ps_role: String,
    updater_type: String,
    /// Model averaging only: no tables.
    pub(super) ma: bool,
}

/// Flags of the original that do not apply here: they are removed from the arguments and ignored.
const IGNORED: &[&str] =
    &["omp_threads", "allocator_type", "allocator_alignment", "logtostderr", "machine_file", "port"];

impl Flags {
    pub(super) const fn new() -> Flags {
        Flags {
            sync: false,
            backup_worker_ratio: 0,
            ps_role: String::new(),
            updater_type: String::new(),
            ma: false,
        }
    }

    /// Applies an argument if it is a known flag; returns whether it is.
    pub(super) fn take(&mut self, argument: &str) -> bool {
        // As in the original, any first character is accepted as the dash, but the argument must contain a dash somewhere.
        let mut characters = argument.chars();
        characters.next();
        let Some((key, value)) = characters.as_str().split_once('=').filter(|_| argument.contains('-'))
        else {
            return false;
        };
        match key {
            "sync" => self.sync = is_true(value),
            "ma" => self.ma = is_true(value),
            "backup_worker_ratio" => self.backup_worker_ratio = leading_number(value),
            "ps_role" => value.clone_into(&mut self.ps_role),
            "updater_type" => value.clone_into(&mut self.updater_type),
            other => return IGNORED.contains(&other),
        }
        true
    }

    /// Fails if a value is invalid.
    pub(super) fn check(&self) -> Result<()> {
        self.role()?;
        self.updater()?;
        match (0..100).contains(&self.backup_worker_ratio) {
            true => Ok(()),
            false => Err(Error::usage(
                "MV_Init",
                "a percentage from 0 to 99 for -backup_worker_ratio",
                self.backup_worker_ratio.to_string(),
                "20 does without the slowest fifth of the workers",
            )),
        }
    }

    pub(super) fn role(&self) -> Result<Role> {
        match self.ps_role.as_str() {
            "" => Ok(Role::Both),
            name => Role::from_name(name),
        }
    }

    fn updater(&self) -> Result<UpdaterChoice> {
        match self.updater_type.as_str() {
            "" => Ok(UpdaterChoice::default()),
            // Multiverso's own variant of AdaGrad; its `momentum_sgd` is an alias already.
            "adagrad" => UpdaterChoice::named("multiverso_adagrad"),
            name => UpdaterChoice::named(name),
        }
    }

    /// The options of tables shared by `workers` workers.
    pub(super) fn options(&self, workers: usize) -> Result<TableOptions> {
        let backup = workers * self.backup_worker_ratio as usize / 100;
        let consistency =
            if self.sync { Consistency::Bsp { backup, mean: false } } else { Consistency::Async };
        // As in the original, a row that an add lists twice gets two steps.
        let repeats = Some(Repeats::Each);
        Ok(TableOptions { updater: self.updater()?, consistency, repeats, ..TableOptions::default() })
    }
}

fn is_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}

/// The integer at the beginning of a text, as C's `atoi` parses it; 0 if there is none.
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let end = text
        .char_indices()
        .find(|&(at, character)| !(character.is_ascii_digit() || at == 0 && matches!(character, '-' | '+')));
    text[..end.map_or(text.len(), |(at, _)| at)].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> (Flags, Vec<bool>) {
        let mut flags = Flags::new();
        let taken = arguments.iter().map(|argument| flags.take(argument)).collect();
        (flags, taken)
    }

    #[test]
    fn known_flags_are_taken_and_others_stay() {
        let (flags, taken) = read(&[
            "./my-program",
            "-sync=TRUE",
            "data.txt",
            "-updater_type=sgd",
            "--sync=false",
            "-v",
            "-port=1",
            "-omp_threads=8",
            "-unknown=1",
            "-backup_worker_ratio=25%",
            "-ps_role=worker",
            "sync=false",
        ]);
        assert_eq!(taken, [false, true, false, true, false, false, true, true, false, true, true, false]);
        assert!(flags.sync && !flags.ma);
        assert!(flags.check().is_ok());
        assert_eq!(flags.role().unwrap(), Role::Worker);
        let options = flags.options(4).unwrap();
        assert_eq!(options.consistency, Consistency::Bsp { backup: 1, mean: false });
        assert_eq!(options.updater.name(), "sgd");
        for (flag, rule) in [("adagrad", "multiverso_adagrad"), ("momentum_sgd", "multiverso_momentum")] {
            let (flags, _) = read(&[&format!("-updater_type={flag}")]);
            assert_eq!(flags.options(1).unwrap().updater.name(), rule);
        }
    }

    #[test]
    fn values_are_read_as_they_were() {
        assert!(!read(&["-sync=1"]).0.sync && !read(&["-sync="]).0.sync);
        for (text, number) in [("20", 20), ("-3x", -3), ("+7", 7), ("x", 0), ("", 0), (" 5 ", 5), ("5-2", 5)]
        {
            assert_eq!(leading_number(text), number, "{text:?}");
        }
        assert_eq!(read(&[]).0.options(4).unwrap().consistency, Consistency::Async);
        assert_eq!(
            read(&["-sync=true", "-backup_worker_ratio=24"]).0.options(4).unwrap().consistency.to_string(),
            "bsp"
        );
        for wrong in
            ["-ps_role=boss", "-updater_type=sdg", "-backup_worker_ratio=100", "-backup_worker_ratio=-1"]
        {
            let (flags, taken) = read(&[wrong]);
            assert!(taken[0] && flags.check().is_err(), "{wrong}");
        }
        assert!(read(&["-ps_role=default", "-updater_type=default"]).0.check().is_ok());
    }

    #[test]
    fn odd_arguments_do_no_harm() {
        assert_eq!(read(&["", "-", "=", "-=", "é-sync=true", "-é=ü"]).1, [false; 6]);
    }
}
