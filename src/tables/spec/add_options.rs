//! Optional hyperparameters that an add passes to the table's updater.

use std::fmt;

use crate::error::nearest::advice;
use crate::{Error, Result};

macro_rules! add_options {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Hyperparameters of a table's updater. A table has defaults, and each add may override them; options set by neither
        /// take the updater's own defaults. Options that the updater does not use are rejected.
        ///
        /// ```
        /// use unisono::tables::AddOptions;
        /// let mut options = AddOptions { momentum: Some(0.5), ..AddOptions::default() };
        /// options.set("lr", 0.1)?;
        /// options.set("epsilon", 1e-6)?; // another name of `eps`
        /// assert_eq!(options.to_string(), "lr=0.1, momentum=0.5, eps=0.000001");
        ///
        /// let error = options.set("momentun", 0.1).unwrap_err();
        /// assert!(error.to_string().contains("did you mean `momentum`?"));
        /// # Ok::<(), unisono::Error>(())
        /// ```
        #[derive(Debug, Clone, Copy, Default, PartialEq)]
        pub struct AddOptions {
            $($(#[$doc])* pub $name: Option<f64>,)*
        }

        impl AddOptions {
            /// The names of all options.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// All options, in the order of [`AddOptions::NAMES`].
            fn all(&self) -> [Option<f64>; AddOptions::NAMES.len()] {
                [$(self.$name),*]
            }

            /// Whether no option is set.
            pub(crate) fn is_empty(&self) -> bool {
                true $(&& self.$name.is_none())*
            }

            fn all_mut(&mut self) -> [&mut Option<f64>; AddOptions::NAMES.len()] {
                [$(&mut self.$name),*]
            }
        }
    };
}

add_options! {
    /// Learning rate: the step size.
    lr,
    /// Decay of the accumulated steps (momentum, nesterov, multiverso_momentum) or of the accumulated squares (dcasgda).
    momentum,
    /// Decay of the running means (adadelta); step size (multiverso_adagrad); another name of `alpha` (rmsprop).
    rho,
    /// Strength of the delay compensation (dcasgd, dcasgda); another name of `weight_decay` (lion).
    lambda,
    /// Keeps denominators away from zero.
    eps,
    /// Decay of the running mean (adam, adamw, adamax); its weight in a step (lion).
    beta1,
    /// Decay of the running mean square (adam, adamw), of the largest gradient (adamax) or of the running mean (lion).
    beta2,
    /// Decay of the mean square (rmsprop); step size (ftrl).
    alpha,
    /// Damps the first steps (ftrl).
    beta,
    /// Strength of the L1 penalty, which makes weights exactly zero (ftrl).
    lambda1,
    /// Strength of the L2 penalty (ftrl).
    lambda2,
    /// Decay of the learning rate with the number of adds (adagrad).
    lr_decay,
    /// Initial value of the sum of squares (adagrad).
    initial_accumulator_value,
    /// Decoupled weight decay: each step subtracts this times the learning rate of the value itself (adamw, lion).
    weight_decay,
}

impl AddOptions {
    /// Other names of options, for every updater.
    pub const ALIASES: &[(&str, &str)] = &[("learning_rate", "lr"), ("epsilon", "eps")];

    /// The name of an option in [`AddOptions::NAMES`], given that name or an alias; other names are returned unchanged.
    pub fn canonical(name: &str) -> &str {
        AddOptions::ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name)
    }

    /// The position of an option, by its name or an alias.
    fn position(name: &str) -> Option<usize> {
        let name = AddOptions::canonical(name);
        AddOptions::NAMES.iter().position(|known| *known == name)
    }

    /// All names and aliases.
    pub(crate) fn every_name() -> impl Iterator<Item = &'static str> {
        AddOptions::NAMES.iter().copied().chain(AddOptions::ALIASES.iter().map(|(alias, _)| *alias))
    }

    /// Length of the wire format, in bytes.
    pub(crate) const LENGTH: usize = 8 * (1 + AddOptions::NAMES.len());

    /// Sets the option with this name or alias; the value must be finite.
    pub fn set(&mut self, name: &str, value: f64) -> Result<()> {
        let Some(position) = AddOptions::position(name) else {
            return Err(Error::usage(
                "add options",
                format!("one of {}", AddOptions::NAMES.join(", ")),
                format!("{name:?}"),
                advice(name, AddOptions::every_name(), "give one of these names"),
            ));
        };
        check_finite(name, value)?;
        *self.all_mut()[position] = Some(value);
        Ok(())
    }

    /// The value of the option with this name or alias; `None` also if there is no such option.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.all()[AddOptions::position(name)?]
    }

    /// Moves the value of one option to another, if it is set.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let (from, to) = (AddOptions::position(from), AddOptions::position(to));
        if let (Some(from), Some(to)) = (from, to)
            && let Some(value) = self.all_mut()[from].take()
        {
            *self.all_mut()[to] = Some(value);
        }
    }

    /// These options; options that are not set come from `defaults`.
    pub fn or(&self, defaults: &AddOptions) -> AddOptions {
        let mut result = *self;
        for (option, default) in result.all_mut().into_iter().zip(defaults.all()) {
            *option = option.or(default);
        }
        result
    }

    /// The options that are set, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        AddOptions::NAMES.iter().zip(self.all()).filter_map(|(name, value)| Some((*name, value?)))
    }

    /// Rejects non-finite values that were written to the fields directly, without [`AddOptions::set`].
    pub(crate) fn validate(&self) -> Result<()> {
        self.iter().try_for_each(|(name, value)| check_finite(name, value))
    }

    /// Wire format: a bit mask of the options that are set, then all values, little-endian.
    pub(crate) fn to_bytes(self) -> [u8; AddOptions::LENGTH] {
        let mut bytes = [0; AddOptions::LENGTH];
        let (words, _) = bytes.as_chunks_mut::<8>();
        let mut set = 0u64;
        for (position, option) in self.all().into_iter().enumerate() {
            if let Some(value) = option {
                set |= 1 << position;
                words[1 + position] = value.to_le_bytes();
            }
        }
        words[0] = set.to_le_bytes();
        bytes
    }

    /// Decodes the output of [`AddOptions::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<AddOptions> {
        let words = match bytes.as_chunks::<8>() {
            (words, []) if bytes.len() == AddOptions::LENGTH => words,
            _ => return Err(foreign(format!("{} bytes", bytes.len()))),
        };
        let set = u64::from_le_bytes(words[0]);
        if set >> AddOptions::NAMES.len() != 0 {
            return Err(foreign(format!("options numbered {set:#x}")));
        }
        let mut options = AddOptions::default();
        for (position, option) in options.all_mut().into_iter().enumerate() {
            *option = (set >> position & 1 == 1).then(|| f64::from_le_bytes(words[1 + position]));
        }
        options.validate()?;
        Ok(options)
    }
}

fn check_finite(name: &str, value: f64) -> Result<()> {
    // Tables of f32 and of half types compute in f32, where a larger number would overflow to infinity.
    if value.is_finite() && value.abs() <= f64::from(f32::MAX) {
        return Ok(());
    }
    Err(Error::usage(
        "add options",
        format!("a finite number for {name}"),
        value.to_string(),
        "look at how it was computed",
    ))
}

fn foreign(received: String) -> Error {
    Error::usage(
        "add options",
        format!("{} bytes that hold options numbered below {}", AddOptions::LENGTH, AddOptions::NAMES.len()),
        received,
        "use the same version of unisono on every rank",
    )
}

impl fmt::Display for AddOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, value)) in self.iter().enumerate() {
            let comma = if position > 0 { ", " } else { "" };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_name_sets_its_own_field() {
        for (position, name) in AddOptions::NAMES.iter().enumerate() {
            let mut options = AddOptions::default();
            assert_eq!(options.get(name), None);
            options.set(name, 0.5 + position as f64).unwrap();
            assert_eq!(options.to_string(), format!("{name}={}", 0.5 + position as f64));
            assert_eq!(options.get(name), Some(0.5 + position as f64));
        }
        for (alias, name) in AddOptions::ALIASES {
            let mut options = AddOptions::default();
            options.set(alias, 0.5).unwrap();
            assert_eq!((options.get(alias), options.get(name)), (Some(0.5), Some(0.5)));
        }
        assert_eq!(AddOptions::default().to_string(), "");
        assert_eq!(AddOptions::default().get("colour"), None);
    }

    #[test]
    fn wrong_names_and_values_change_nothing() {
        let mut options = AddOptions::default();
        let error = options.set("momentun", 0.9).unwrap_err().to_string();
        assert!(error.contains("\"momentun\"") && error.contains("did you mean `momentum`?"), "{error}");
        let error = options.set("colour", 0.9).unwrap_err().to_string();
        assert!(error.contains("lr, momentum, rho") && !error.contains("did you mean"), "{error}");
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            let error = options.set("rho", value).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Usage);
            assert!(error.to_string().contains("a finite number for rho"), "{error}");
        }
        assert_eq!(options, AddOptions::default());
        assert!(AddOptions { beta: Some(f64::NAN), ..options }.validate().is_err());
    }

    #[test]
    fn foreign_bytes_are_rejected() {
        let bytes = AddOptions::default().to_bytes();
        assert!(AddOptions::from_bytes(&bytes[1..]).is_err());
        assert!(AddOptions::from_bytes(&[]).is_err());
        let mut later = bytes;
        later[7] = 1;
        assert!(AddOptions::from_bytes(&later).is_err());
    }

    fn any_options() -> impl Strategy<Value = AddOptions> {
        proptest::collection::vec(proptest::option::of(-1e30..1e30f64), AddOptions::NAMES.len()).prop_map(
            |values| {
                let mut options = AddOptions::default();
                options.all_mut().into_iter().zip(values).for_each(|(option, value)| *option = value);
                options
            },
        )
    }

    proptest! {
        #[test]
        fn options_travel_unchanged(options in any_options()) {
            prop_assert_eq!(AddOptions::from_bytes(&options.to_bytes()).unwrap(), options);
        }

        #[test]
        fn what_is_set_wins_over_defaults(given in any_options(), defaults in any_options()) {
            let merged = given.or(&defaults);
            for name in AddOptions::NAMES {
                prop_assert_eq!(merged.get(name), given.get(name).or(defaults.get(name)));
            }
        }
    }
}
