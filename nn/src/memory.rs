//! The memory size of this machine, so that oversized requests are rejected instead of aborting the program.

use unisono::{Error, Result};

/// If the machine does not report its memory: more than any machine is likely to have.
const UNKNOWN: usize = 1 << 44;

/// The memory of this machine in bytes.
pub(crate) fn bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.map_or(UNKNOWN, |kilobytes| kilobytes.saturating_mul(1024))
}

/// An identifier that is unique to this machine since its last boot; `None` if the machine does not report it.
pub(crate) fn boot_id() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.replace('-', "");
    i64::from_str_radix(text.get(..15)?, 16).ok()
}

/// Rejects a request for more bytes than this machine's memory.
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
    fn what_is_larger_than_the_memory_is_rejected() {
        assert!(bytes() > 1 << 20);
        check_fits("test", "numbers", bytes(), "none").expect("they fit");
        for size in [bytes() + 1, usize::MAX] {
            let error = check_fits("test", "numbers", size, "take fewer").expect_err("too many").to_string();
            assert!(error.contains(&format!("{size} bytes")) && error.contains("take fewer"), "{error}");
        }
    }
}
