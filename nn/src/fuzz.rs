//! Shared code of this crate's fuzz tests.

/// Calls a check with the scripts of [`unisono::testing::try_scripts`] and with those that failed before; under a fuzzer,
/// with the fuzzer's scripts.
macro_rules! fuzz {
    ($check:expr) => {{
        let mut check = $check;
        if cfg!(not(fuzzing_libfuzzer)) {
            unisono::testing::try_scripts(&mut check);
        }
        bolero::check!().with_max_len(unisono::testing::LONGEST_SCRIPT).with_iterations(0).for_each(check)
    }};
}
pub(crate) use fuzz;
