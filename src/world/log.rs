//! Debug log of the join sequence: `UNISONO_LOG=debug` prints it, and tracing subscribers receive it.

/// Logs one event.
pub(super) fn debug(text: std::fmt::Arguments<'_>) {
    tracing::debug!("{text}");
    if std::env::var("UNISONO_LOG").is_ok_and(|level| level == "debug") {
        eprintln!("unisono: {text}");
    }
}
