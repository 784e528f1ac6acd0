//! How much memory this machine has, so that what cannot fit is refused instead of ending the program.

use unisono::{Error, Result};

/// Where a machine does not say what it has: more than any is likely to have.
const UNKNOWN: usize = 1 << 44;

/// Bytes of memory of this machine.
pub(crate) fn bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.map_or(UNKNOWN, |kilobytes| kilobytes.saturating_mul(1024))
}

/// A number that this machine has had since it was started, and no other has; nothing where it does not say.
pub(crate) fn boot_id() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.replace('-', "");
    i64::from_str_radix(text.get(..15)?, 16).ok()
}

/// Refuses something of so many bytes where this machine has less memory.
pub(crate) fn check_fits(operation: &str, what: &str, bytes: usize, advice: &str) -> Result<()> {
    let most = self::bytes();
    if bytes <= most {
        return Ok(());
    }
    let expected = format!("{what} that fit into the {most} bytes of this machine's memory");
    let more = if bytes == usize::MAX { "more than " } else { "" };
    Err(Error::usage(operation, expected, format!("{more}{bytes} bytes"), advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_the_memory_is_refused() {
        assert!(bytes() > 1 << 20);
        check_fits("test", "numbers", bytes(), "none").expect("they fit");
        for size in [bytes() + 1, usize::MAX] {
            let error = check_fits("test", "numbers", size, "take fewer").expect_err("too many").to_string();
            assert!(error.contains(&format!("{size} bytes")) && error.contains("take fewer"), "{error}");
        }
    }
}
