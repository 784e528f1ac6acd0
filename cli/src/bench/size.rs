//! Parsing and formatting of sizes and times.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

const UNITS: [(&str, usize); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("B", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let text = text.trim();
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
            .unwrap_or((text, 1));
        let bytes = number.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
        bytes
            .filter(|bytes| *bytes > 0)
            .map(Size)
            .ok_or_else(|| "expected a size such as 64KiB or 100MB".into())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        let (name, unit) = unit.copied().unwrap_or(("B", 1));
        f.pad(&format!("{} {name}", self.0 / unit))
    }
}

/// A time with three digits and a fitting unit: "3.21 µs", "14.2 ms".
pub(crate) fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_show_as_written() {
        for (text, bytes) in [("4 KiB", 4096), ("100 MB", 100_000_000), ("7 B", 7), ("1 GiB", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
            assert_eq!(text.replace(' ', "").parse(), Ok(Size(bytes)));
            assert_eq!(Size(bytes).to_string(), text);
        }
        for wrong in ["", "0", "MB", "-1KB", "1.5MB", "9999999999999GiB"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!([3.214e-6, 14.22e-3, 0.1, 2.5].map(time), ["3.21 µs", "14.2 ms", "100 ms", "2.50 s"]);
    }
}
