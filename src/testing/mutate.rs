//! Damaged copies of valid inputs, for the fuzz tests of every parser of data that another program wrote.

/// Numbers at which parsers fail: around zero, around powers of two, and the largest of each width.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_fff8,
    0xffff_ffff_ffff_ffff,
];

/// Strings at which parsers fail.
const TEXTS: [&str; 24] = [
    "",
    "-1",
    "0",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "1e308",
    "-1e999",
    "1e-400",
    "nan",
    "inf",
    "null",
    "true",
    "[]",
    "{}",
    "[[[[[[[[[[[[[[[[",
    "\"\"",
    "'",
    "\\",
    "\n",
    "\t- ",
    ": ",
    "&a *a",
    "\u{feff}",
];

/// Bytes of one step of a script.
const STEP: usize = 6;

/// A damaged copy of one of several valid inputs. The first byte of the script selects the input, and every six bytes after
/// it are one change. Any bytes are a valid script, so a fuzzer can evolve scripts that reach deep into a parser.
///
/// ```
/// use unisono::testing::mutate;
/// let good = ["good", "fine"];
/// assert_eq!(mutate(&good, &[1]), b"fine");
/// assert_eq!(mutate(&good, &[0, 0, 1, 0, 0, b'u', 0]), b"guod");
/// ```
pub fn mutate(good: &[impl AsRef<[u8]>], script: &[u8]) -> Vec<u8> {
    let (choice, steps) = script.split_first().unwrap_or((&0, &[]));
    let mut bytes = good[usize::from(*choice) % good.len()].as_ref().to_vec();
    for step in steps.chunks_exact(STEP) {
        let at = usize::from(step[1]) | usize::from(step[2]) << 8 | usize::from(step[3]) << 16;
        apply(&mut bytes, step[0], at, step[4], step[5]);
    }
    bytes
}

/// The longest script worth trying: after eight changes little is left of an input.
pub const LONGEST_SCRIPT: usize = 1 + 8 * STEP;

/// The number of scripts that a fuzz test tries: `UNISONO_FUZZ`, or few enough for every test run.
pub fn fuzz_iterations() -> usize {
    std::env::var("UNISONO_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(3000)
}

/// Calls a check with [`fuzz_iterations`] scripts, the same in every run, so that a test either always passes or always
/// fails. Prints the script for which the check panics. `make fuzz` searches for new scripts.
pub fn try_scripts(mut check: impl FnMut(&[u8])) {
    struct Printed<'a>(&'a [u8]);
    impl Drop for Printed<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the script that failed: {:?}", self.0);
            }
        }
    }
    let mut random = SplitMix64(0);
    for _ in 0..fuzz_iterations() {
        let length = random.next() as usize % (LONGEST_SCRIPT + 1);
        let script: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let printed = Printed(&script);
        check(printed.0);
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Calls a check with the scripts of [`try_scripts`] and those that failed before, or under a fuzzer with the fuzzer's.
#[cfg(test)]
macro_rules! fuzz {
    ($check:expr) => {{
        let mut check = $check;
        if cfg!(not(fuzzing_libfuzzer)) {
            crate::testing::try_scripts(&mut check);
        }
        bolero::check!().with_max_len(crate::testing::LONGEST_SCRIPT).with_iterations(0).for_each(check)
    }};
}
#[cfg(test)]
pub(crate) use fuzz;

fn apply(bytes: &mut Vec<u8>, kind: u8, at: usize, value: u8, detail: u8) {
    let length = bytes.len();
    let (at, end) = (at % (length + 1), |from: usize, count: usize| (from + count).min(length));
    match kind % 8 {
        0 if at < length => bytes[at] = value,
        1 if at < length => bytes[at] ^= 1 << (value % 8),
        2 => drop(bytes.splice(at..at, std::iter::repeat_n(value, usize::from(detail % 16) + 1))),
        3 => drop(bytes.drain(at..end(at, usize::from(value) + 1))),
        4 => bytes.truncate(at),
        5 => {
            let piece = bytes[at..end(at, usize::from(value) + 1)].to_vec();
            let to = usize::from(detail) * length / 256;
            drop(bytes.splice(to..to, piece));
        }
        6 => {
            let number = NUMBERS[usize::from(value) % NUMBERS.len()];
            let width = 1 << (detail % 4);
            let number =
                if detail & 4 == 0 { number.to_le_bytes() } else { number.swap_bytes().to_le_bytes() };
            let number = if detail & 4 == 0 { &number[..width] } else { &number[8 - width..] };
            drop(bytes.splice(at..end(at, width), number.iter().copied()));
        }
        7 => {
            let text = TEXTS[usize::from(value) % TEXTS.len()].as_bytes();
            // Replaces a number or a word, if there is one.
            let word = bytes[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            let replaced = if detail & 1 == 0 { word } else { 0 };
            drop(bytes.splice(at..at + replaced, text.iter().copied()));
        }
        _ => {}
    }
}
