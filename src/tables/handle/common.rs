//! The calls that handles of every kind of table have.

/// Calls of a handle with the fields `core` and `group` and the method `with_group`.
macro_rules! common_calls {
    () => {
        /// The table's name.
        pub fn name(&self) -> &str {
            &self.core.description.name
        }

        /// The consistency model: how far workers may drift apart.
        pub fn consistency(&self) -> $crate::tables::Consistency {
            self.core.description.consistency
        }

        /// A handle whose calls have a different timeout.
        #[must_use]
        pub fn with_timeout(&self, timeout: std::time::Duration) -> Self {
            self.with_group(self.group.with_timeout(timeout))
        }

        /// A handle whose waits periodically call this hook, which can interrupt them.
        #[must_use]
        pub fn with_interrupt(&self, interrupt: std::sync::Arc<$crate::transport::Interrupt>) -> Self {
            self.with_group(self.group.with_interrupt(interrupt))
        }

        /// Number of steps this worker has made: its own `tick`s, those of its process before a restart, and those that the other
        /// workers skipped for it while it was dead or waited for all of them. A loop that continues at this step can be
        /// restarted.
        pub fn clock(&self) -> $crate::Result<u64> {
            self.core.steps(&self.group)
        }

        /// Waits until all adds that this rank started on this table are applied; returns the first error that was not reported to
        /// a caller.
        pub fn flush(&self) -> $crate::Result<()> {
            self.core.flush_all_hosts(&self.group)
        }

        /// Declares that this worker makes no more calls on this table, so that the others do not wait for it there. Its adds are
        /// applied first. [`Tables::finish`](crate::tables::Tables::finish) does so for all tables.
        pub fn finish(&self) -> $crate::Result<()> {
            self.core.flush_and_finish(&self.group)
        }

        /// Staleness of the values that this rank's gets returned: entry i counts the gets at which the slowest other worker was i
        /// steps behind this one. Steps are ticks under `ssp` and adds otherwise.
        pub fn staleness(&self) -> Vec<u64> {
            self.core.staleness.histogram()
        }
    };
}

/// Calls of a handle whose table has an updater, which is at this path in its core.
macro_rules! updater_calls {
    ($($rule:ident).+) => {
        /// The update rule of adds.
        pub fn updater(&self) -> &str {
            &self.core.description.updater
        }

        /// Rejects an option name that this table's updater does not use.
        pub fn check_option(&self, option: &str) -> $crate::Result<()> {
            self.core.$($rule).+.check_name(self.name(), option)
        }

        /// Number of times a lock was recovered from a process that died holding it, on this host.
        pub fn recovered(&self) -> u64 {
            self.core.header().recovered.load(std::sync::atomic::Ordering::Relaxed)
        }

        /// Rejects options that the table's updater does not accept.
        pub(crate) fn validate_options(&self, options: &$crate::tables::AddOptions) -> $crate::Result<()> {
            if options.is_empty() {
                return Ok(());
            }
            let rule = &self.core.$($rule).+;
            let used = rule.check_used(self.name(), options);
            used.and_then(|()| rule.options(&options.or(&self.core.add)))
                .map(drop)
                .map_err(|error| error.at_rank(self.core.inner.rank).about_table(self.name()))
        }

        fn with_group(&self, group: $crate::world::Group) -> Self {
            Self { group, ..self.clone() }
        }

        /// A handle for background work, which the caller's interrupt hook does not interrupt.
        pub(crate) fn in_background(&self) -> Self {
            Self { _shutdown: None, ..self.with_group(self.group.without_interrupt()) }
        }

        /// Queues a call of this worker for the background; if the arguments were rejected, the result is that error.
        pub(crate) fn start<R: Send + 'static>(
            &self,
            operation: &'static str,
            worker: $crate::Result<usize>,
            work: impl FnOnce(&Self, &$crate::transport::Call, usize) -> $crate::Result<R> + Send + 'static,
        ) -> $crate::world::Pending<R> {
            let (promise, result) = $crate::world::pending();
            let table = self.in_background();
            self.core.queue.run(move || {
                promise.fulfil(|| work(&table, &table.core.call(&table.group, operation), worker?));
            });
            result
        }
    };
}

pub(crate) use {common_calls, updater_calls};
