//! An option that a built-in rule uses: its default, and its valid range.

use super::UpdateContext;
use crate::memory::Real;
use crate::tables::AddOptions;
use crate::{Error, Result};

/// The valid range of an option.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SettingRange {
    /// Above zero, also when rounded to f32.
    Positive,
    /// Zero or above.
    NotNegative,
    /// From 0 up to but not including 1, also when rounded to f32.
    BelowOne,
}

impl SettingRange {
    fn contains(self, value: f64) -> bool {
        let single = value as f32;
        match self {
            SettingRange::Positive => single >= f32::MIN_POSITIVE,
            SettingRange::NotNegative => value >= 0.0,
            SettingRange::BelowOne => value >= 0.0 && single < 1.0,
        }
    }

    fn description(self) -> &'static str {
        match self {
            SettingRange::Positive => "a positive number",
            SettingRange::NotNegative => "a number that is not negative",
            SettingRange::BelowOne => "a number from 0 up to but not including 1",
        }
    }
}

/// One option of a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) default: f64,
    pub(super) range: SettingRange,
    pub(super) read: fn(&AddOptions) -> Option<f64>,
    /// Another option with the same meaning for this rule. A table never holds it, so it comes from the add and takes precedence.
    pub(super) alias: Option<&'static str>,
}

/// `setting!(momentum = 0.9, BelowOne)`: the option of this name, its default and its range; with `or rho` at the end, the option
/// `rho` is an alias.
macro_rules! setting {
    ($name:ident = $default:expr, $range:ident) => {
        $crate::tables::updater::setting::Setting {
            name: stringify!($name),
            default: $default,
            range: $crate::tables::updater::setting::SettingRange::$range,
            read: |options| options.$name,
            alias: None,
        }
    };
    ($name:ident = $default:expr, $range:ident, or $alias:ident) => {
        $crate::tables::updater::setting::Setting {
            read: |options| options.$alias.or(options.$name),
            alias: Some(stringify!($alias)),
            ..$crate::tables::updater::setting::setting!($name = $default, $range)
        }
    };
}
pub(super) use setting;

impl Setting {
    /// Its value for one update, in double precision.
    #[inline]
    pub(super) fn as_f64(&self, context: &UpdateContext) -> f64 {
        (self.read)(context.options).unwrap_or(self.default)
    }

    /// Its value for one update.
    #[inline]
    pub(super) fn of<R: Real>(&self, context: &UpdateContext) -> R {
        R::from_f64(self.as_f64(context))
    }

    /// One minus its value for one update: subtracted in double precision, because single precision has few significant digits
    /// near 1.
    #[inline]
    pub(super) fn one_minus<R: Real>(&self, context: &UpdateContext) -> R {
        R::from_f64(1.0 - self.as_f64(context))
    }
}

pub(super) fn defaults(settings: &[Setting]) -> AddOptions {
    let mut options = AddOptions::default();
    for setting in settings {
        options.set(setting.name, setting.default).expect("a setting has the name of an option");
    }
    options
}

/// The names and aliases of the settings.
pub(super) fn names(settings: &[Setting]) -> Vec<&'static str> {
    settings.iter().flat_map(|setting| [Some(setting.name), setting.alias]).flatten().collect()
}

/// The options with the rule's aliases replaced by the names of its settings.
pub(super) fn canonical(settings: &[Setting], mut options: AddOptions) -> AddOptions {
    for setting in settings {
        setting.alias.into_iter().for_each(|alias| options.rename(alias, setting.name));
    }
    options
}

pub(super) fn check(rule: &str, settings: &[Setting], options: &AddOptions) -> Result<()> {
    for setting in settings {
        let value = (setting.read)(options).unwrap_or(setting.default);
        if !setting.range.contains(value) {
            return Err(Error::usage(
                "add options",
                format!("{} as {} of the updater `{rule}`", setting.range.description(), setting.name),
                value.to_string(),
                format!("its default is {}", setting.default),
            ));
        }
    }
    Ok(())
}

/// The methods of `impl Updater` that follow from a rule's list of settings.
macro_rules! settings {
    ($settings:expr) => {
        fn defaults(&self) -> $crate::tables::AddOptions {
            $crate::tables::updater::setting::defaults($settings)
        }

        fn uses(&self) -> Option<Vec<&'static str>> {
            Some($crate::tables::updater::setting::names($settings))
        }

        fn canonical(&self, options: $crate::tables::AddOptions) -> $crate::tables::AddOptions {
            $crate::tables::updater::setting::canonical($settings, options)
        }

        fn check(&self, options: &$crate::tables::AddOptions) -> $crate::Result<()> {
            $crate::tables::updater::setting::check(
                $crate::tables::updater::Updater::<T>::name(self),
                $settings,
                options,
            )
        }
    };
}
pub(super) use settings;
