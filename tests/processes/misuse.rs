//! Mistakes that safe code can make: panics, forgotten work, several threads, lists that differ. No corruption and no hang
//! may follow.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use unisono::testing::spawn;
use unisono::{Error, Group, Kind, ReduceOp};

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Another group of both ranks, on which one rank waits until the other has had its error.
fn aside(group: &Group) -> Group {
    group.subgroup(&[0, 1]).unwrap().expect("both are members")
}

#[test]
fn parts_that_differ_between_ranks_are_detected() {
    spawn(2, |group| {
        let n = 100_000;
        let mine = if group.rank() == 0 { [n, 2 * n] } else { [2 * n, n] };
        let error = group
            .all_gather_varied(&vec![1f32; mine[group.rank()]], &mut vec![0.0; 3 * n], &mine)
            .unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        // Rank 0 states that it sends 3 elements; rank 1 expects 2.
        let (sends, expects) = if group.rank() == 0 { ([1, 3], [1, 1]) } else { ([1, 1], [2, 1]) };
        let input = vec![1i32; sends.iter().sum()];
        let mut output = vec![0i32; expects.iter().sum()];
        let error = group.all_to_all_varied(&input, &sends, &mut output, &expects).unwrap_err().to_string();
        assert!(error.contains("sends 3 elements to rank 1") && error.contains("expects 2"), "{error}");
        group.barrier().unwrap();
    });
}

#[test]
fn a_panic_in_a_call_breaks_the_group_and_no_rank_gets_garbage() {
    spawn(2, |group| {
        let aside = aside(&group);
        if group.rank() == 0 {
            let angry = group.with_interrupt(Arc::new(|| panic!("a hook that panics")));
            let panicked = catch_unwind(AssertUnwindSafe(|| angry.broadcast(&mut vec![1u8; 400_000], 1)));
            assert!(panicked.is_err());
            assert_eq!(group.barrier().unwrap_err().kind(), Kind::Internal);
            aside.barrier().unwrap();
        } else {
            aside.barrier().unwrap();
            let error =
                group.broadcast(&mut vec![2u8; 400_000], 1).and_then(|()| group.barrier()).unwrap_err();
            assert_eq!(error.kind(), Kind::PeerLost, "{error}");
        }
    });
}

#[test]
fn a_panic_while_receiving_leaves_no_pointer_behind() {
    spawn(2, |group| {
        if group.rank() == 0 {
            let angry = group.with_interrupt(Arc::new(|| panic!("a hook that panics")));
            let mut buffer = vec![0u8; 1000];
            assert!(catch_unwind(AssertUnwindSafe(|| angry.recv(&mut buffer, 1, 5))).is_err());
            group.send(&[1u8], 1, 6).unwrap();
            let mut answer = [0u8];
            group.recv(&mut answer, 1, 7).unwrap();
            assert!(buffer.iter().all(|&byte| byte == 0), "the message went into a buffer that was given up");
        } else {
            group.recv(&mut [0u8], 0, 6).unwrap();
            group.send(&[0xeeu8; 1000], 0, 5).unwrap();
            group.send(&[1u8], 0, 7).unwrap();
        }
    });
}

#[test]
fn a_call_queued_behind_a_failed_one_fails_too() {
    spawn(2, |group| {
        let aside = aside(&group);
        if group.rank() == 0 {
            let (waits, inside) = (Arc::new(AtomicBool::new(false)), Instant::now());
            let hook = waits.clone();
            let hasty = group.with_timeout(Duration::from_millis(300)).with_interrupt(Arc::new(move || {
                hook.store(true, Relaxed);
                false
            }));
            std::thread::scope(|scope| {
                let first = scope.spawn(|| hasty.broadcast(&mut vec![0u8; 400_000], 1));
                while !waits.load(Relaxed) {
                    assert!(inside.elapsed() < LONG, "the first call does not wait");
                    std::thread::yield_now();
                }
                let second = scope.spawn(|| group.barrier());
                assert_eq!(first.join().unwrap().unwrap_err().kind(), Kind::Timeout);
                let error = second.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), Kind::Timeout);
                let text = error.to_string();
                assert!(
                    text.contains("barrier (not made: this group failed earlier, in broadcast;"),
                    "{text}"
                );
            });
            aside.barrier().unwrap();
        } else {
            aside.barrier().unwrap();
            let error =
                group.broadcast(&mut vec![7u8; 400_000], 1).and_then(|()| group.barrier()).unwrap_err();
            assert_eq!(error.kind(), Kind::PeerLost, "{error}");
        }
    });
}

#[test]
fn background_calls_may_start_calls_and_come_from_several_threads() {
    spawn(2, |group| {
        for _ in 0..50 {
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| group.start(|group| group.barrier()).wait().unwrap());
                }
            });
        }
        let inner = group.start(|group| group.start(|group| group.barrier()).wait());
        inner.wait().unwrap();
    });
}

#[test]
fn other_messages_do_not_extend_the_deadline_of_a_receive() {
    let ended = AtomicBool::new(false);
    spawn(3, |group| {
        let began = Instant::now();
        match group.rank() {
            0 => {
                let hasty = group.with_timeout(Duration::from_millis(200));
                assert_eq!(hasty.recv(&mut [0u8], 1, 1).unwrap_err().kind(), Kind::Timeout);
                ended.store(true, Relaxed);
            }
            1 => {}
            // Its messages keep arriving until the receive has ended; they must not be what ends it.
            _ => {
                while !ended.load(Relaxed) {
                    assert!(began.elapsed() < LONG, "the receive waits as long as messages come");
                    group.send(&[1u8], 0, 9).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        group.barrier().unwrap();
    });
}

#[test]
fn infinite_deadlines_and_huge_counts_do_not_overflow() {
    spawn(2, |group| {
        group.with_timeout(Duration::MAX).barrier().unwrap();
        let huge = [usize::MAX, 2];
        let error = group.all_gather_varied(&[0u8; 2], &mut [0u8; 1], &huge).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        let mut x = [1.0f32];
        group.all_reduce(&mut x, ReduceOp::Sum).unwrap();
    });
}
