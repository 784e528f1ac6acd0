//! Steps: calls on the levels of a group over several hosts, made by one call on that group. Users know only that call: errors name
//! it, and peers see it as this rank's activity.

use std::sync::Arc;
use std::time::Instant;

use super::Group;
use super::group::GroupCore;
use crate::transport::{Call, Verb};

/// The user's call, while its steps run.
#[derive(Clone)]
pub(super) struct EnclosingCall {
    pub group: Arc<GroupCore>,
    pub operation: &'static str,
    pub number: u64,
    pub started: Instant,
}

impl Group {
    /// A handle of another group for one step of a call on this one: it inherits the call's remaining time and interrupt hook,
    /// and its errors are those of the call.
    pub(crate) fn step_of(&self, call: &Call, group: &Group) -> Group {
        let mut step = group.with_timeout(call.remaining());
        step.options.interrupt = self.options.interrupt.clone();
        step.options.enclosing = Some(EnclosingCall {
            group: self.core.clone(),
            operation: call.operation,
            number: call.number,
            started: call.time.started(),
        });
        step
    }

    /// The name of the user's call that a call of this verb is, or is a step of.
    pub(super) fn operation(&self, verb: Verb) -> &'static str {
        self.options.enclosing.as_ref().map_or_else(|| verb.name(), |enclosing| enclosing.operation)
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use crate::error::{Kind, Result};
    use crate::memory::ReduceOp;
    use crate::testing;
    use crate::world::Group;

    const VERBS: [&str; 6] = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "barrier"];
    /// Two windows of a call in two levels.
    const LENGTH: usize = 1 << 18;

    fn make(group: &Group, verb: &str) -> Result<()> {
        let (mut mine, mut all) = (vec![1.0f64; LENGTH], vec![0.0; LENGTH * group.size()]);
        match verb {
            "all_reduce" => group.all_reduce(&mut mine, ReduceOp::Sum),
            "broadcast" => group.broadcast(&mut mine, group.size() - 1),
            "reduce" => group.reduce(&mut mine, ReduceOp::Sum, 1),
            "all_gather" => group.all_gather(&mine, &mut all),
            "reduce_scatter" => group.reduce_scatter(&all, &mut mine, ReduceOp::Sum),
            _ => group.barrier(),
        }
    }

    /// Every call that the text names is the third one of this verb, or the one before it, on this group.
    fn check(text: &str, verb: &str, group: &str) {
        assert!(text.contains(&format!("{verb} #3 on {group}")), "{text}");
        assert_eq!(text.matches(" on group [").count(), usize::from(group != "world"), "{text}");
        for (at, _) in text.match_indices(" #") {
            let (before, after) = (&text[..at], &text[at + 2..]);
            assert!(before.ends_with(verb) && after.starts_with(['2', '3']), "{text}");
        }
    }

    /// Two calls, and a third one that rank `absent` of the world does not make; the errors of the others. A rank that only sends
    /// may have none.
    fn errors_without(absent: usize, verb: &str, leaves: bool, members: &[usize]) -> Vec<String> {
        let ended = AtomicUsize::new(0);
        let errors = testing::spawn_placed(&[0, 0, 1, 1], |world| {
            let group = match members.len() {
                4 => Some(world.group().clone()),
                _ => world.group().subgroup(members).unwrap(),
            }?;
            (0..2).for_each(|_| make(&group, verb).unwrap());
            let kinds: &[Kind] = if leaves { &[Kind::PeerLost] } else { &[Kind::PeerLost, Kind::Timeout] };
            if world.rank() == absent {
                let until = Instant::now() + Duration::from_secs(60);
                while !leaves && ended.load(Ordering::Acquire) < group.size() - 1 && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return None;
            }
            let limit = Duration::from_millis(if leaves { 60_000 } else { 200 });
            let result = make(&group.with_timeout(limit), verb);
            ended.fetch_add(1, Ordering::Release);
            let error = result.err()?;
            assert!(kinds.contains(&error.kind()), "{error}");
            Some(error.to_string())
        });
        errors.into_iter().flatten().collect()
    }

    #[test]
    fn a_timeout_names_the_users_call() {
        for verb in VERBS {
            for absent in [0, 3] {
                let errors = errors_without(absent, verb, false, &[0, 1, 2, 3]);
                errors.iter().for_each(|text| check(text, verb, "world"));
                assert!(errors.iter().any(|text| text.contains("timed out")), "{errors:?}");
            }
        }
    }

    #[test]
    fn a_lost_rank_is_lost_to_the_users_call_on_the_users_group() {
        for verb in VERBS {
            let errors = errors_without(3, verb, true, &[3, 1, 0]);
            assert!(!errors.is_empty(), "{verb}");
            for text in &errors {
                check(text, verb, "group [3, 1, 0]");
                assert!(text.contains(" lost rank "), "{text}");
            }
        }
    }

    #[test]
    fn ranks_that_differ_learn_each_others_calls() {
        for other in [0, 1, 3] {
            let errors = testing::spawn_placed(&[0, 0, 1, 1], |world| {
                make(world.group(), "all_reduce").unwrap();
                let verb = if world.rank() == other { "broadcast" } else { "all_reduce" };
                make(world.group(), verb).unwrap_err()
            });
            let mismatches: Vec<String> =
                errors.iter().filter(|error| error.kind() == Kind::Usage).map(ToString::to_string).collect();
            assert!(!mismatches.is_empty(), "{errors:?}");
            for text in &mismatches {
                assert!(text.contains("call #2 on world differs between ranks"), "{text}");
                assert!(text.contains(&format!("rank {other} called broadcast #2")), "{text}");
                assert!(text.contains("called all_reduce #2 ("), "{text}");
            }
            for error in errors.iter().filter(|error| error.kind() != Kind::Usage) {
                let text = error.to_string();
                assert!(text.contains("#2 on world lost rank"), "{text}");
            }
        }
    }
}
