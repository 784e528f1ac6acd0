//! What happens while joining, for people who want to know: `UNISONO_LOG=debug` prints it, tracing subscribers get it.

/// Tells one thing.
pub(super) fn debug(text: std::fmt::Arguments<'_>) {
    tracing::debug!("{text}");
    if std::env::var("UNISONO_LOG").is_ok_and(|level| level == "debug") {
        eprintln!("unisono: {text}");
    }
}
