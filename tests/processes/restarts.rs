//! Ranks that are killed and restarted.

use std::io::Read;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use unisono::tables::{ArrayTable, Role, TableOptions, Tables};
use unisono::{Error, Kind, ReduceOp, World};

use crate::harness::{Job, LIMIT};

/// How often the victim dies in the long test.
const DEATHS: usize = 50;

/// The rank that is killed.
const VICTIM: usize = 1;

/// Stays between two calls until the process is killed.
fn wait_for_death() -> ! {
    eprintln!("between");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// All ranks make the same calls round after round, until the victim has died often enough. The victim takes part in a
/// varying, small number of rounds, and then waits to be killed.
pub fn come_and_go(world: &World) {
    let (group, size, rank) = (world.group(), world.size(), world.rank());
    let is_victim = rank == VICTIM;
    world.resume();
    let total = (size * (size + 1) / 2) as f64;
    let lives = (std::process::id() % 7) as usize;
    let mut buffer = world.empty(1 << 20).unwrap();
    for round in 0.. {
        if is_victim && world.restarts() < DEATHS && round == lives {
            wait_for_death();
        }
        // The victim's number of restarts determines, for all ranks in the same round, whether this round is the last.
        let deaths = if is_victim { world.restarts() } else { 0 };
        let mut small = [rank as f64 + 1.0, deaths as f64];
        group.all_reduce(&mut small, ReduceOp::Sum).unwrap();
        assert_eq!(small[0], total);
        // A call that is rejected on all ranks counts; a restarted rank must count it too.
        assert_eq!(group.broadcast(&mut small, size).unwrap_err().kind(), Kind::Usage);
        let mut large = vec![rank as f64 + 1.0; 100_001];
        group.all_reduce(&mut large, ReduceOp::Sum).unwrap();
        assert!(large.iter().all(|&value| value == total));
        let shared: &mut [f64] = bytemuck::cast_slice_mut(&mut buffer);
        shared.fill(rank as f64 + 1.0);
        group.all_reduce(shared, ReduceOp::Sum).unwrap();
        assert!(shared.iter().all(|&value| value == total));
        let mut all = vec![0; size];
        let work = move |group: &unisono::Group| group.all_gather(&[rank as i64], &mut all).map(|()| all);
        assert!(group.start(work).wait().unwrap().into_iter().eq(0..size as i64));
        let mut from_victim = [small[1]];
        group.broadcast(&mut from_victim, VICTIM).unwrap();
        assert_eq!(from_victim, [small[1]]);
        if small[1] as usize == DEATHS {
            break;
        }
    }
}

#[test]
fn a_rank_killed_between_calls_is_restarted_fifty_times() {
    let mut random = u64::from(std::process::id()) | 1;
    for size in [2, 3] {
        let mut job = Job::start_restartable(size, "come and go", &[], DEATHS);
        for death in 1..=DEATHS {
            job.wait_for_output(VICTIM, "between");
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            std::thread::sleep(Duration::from_micros((random >> 33) % 5000));
            job.kill_silently(VICTIM);
            // Sometimes the other ranks have time to detect it.
            std::thread::sleep(Duration::from_micros((random >> 40) % 2 * 60_000));
            job.restart(VICTIM, DEATHS - death);
        }
        job.all_succeed();
    }
}

/// Waits until a rank is observed in this activity.
fn until_doing(job: &Job, rank: usize, what: &str) {
    let began = Instant::now();
    while !job.memory.activity(rank).contains(what) {
        assert!(began.elapsed() < LIMIT, "{}", job.memory.activity(rank));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Rank 0 stops before the first of many calls; the others are inside it until rank 0 is continued.
pub fn late(world: &World) {
    if world.rank() == 0 {
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).unwrap();
    }
    crate::endings::endless(world);
}

#[test]
fn a_rank_killed_inside_a_call_is_lost_for_all_ranks() {
    let mut job = Job::start_restartable(3, "late", &[], 5);
    until_doing(&job, VICTIM, "in all_reduce");
    until_doing(&job, 0, "stopped by a signal");
    let pid = job.pid(VICTIM);
    job.kill_silently(VICTIM);
    job.signal(0, Signal::CONT);
    let rejected = job.memory.restart(VICTIM).unwrap_err().to_string();
    assert!(rejected.contains("its process ended inside a collective call"), "{rejected}");
    let endings = [job.end_of(0), job.end_of(2)];
    let named = format!("rank {VICTIM} (process {pid}");
    assert!(endings.iter().any(|ending| ending.output.contains(&named)), "{}", endings[0].output);
    for ending in endings {
        assert!(ending.status.success() && ending.output.contains("PeerLost"), "{}", ending.output);
    }
    // No process takes its place, not even one that the launcher never meant to start.
    let mut child = job.process_of(VICTIM);
    assert!(!child.wait().unwrap().success());
}

/// The victim waits to be killed again and again; the others wait for the victim and print the result.
pub fn patient(world: &World) {
    if world.restarts() == 0 {
        world.group().barrier().unwrap();
    }
    if world.rank() == VICTIM {
        wait_for_death();
    }
    let timeout = std::env::var("UNISONO_TEST_PATIENCE")
        .map_or(LIMIT, |text| Duration::from_secs(text.parse().unwrap()));
    let group = world.group().with_timeout(timeout);
    let error = group.all_reduce(&mut [1], ReduceOp::Sum).unwrap_err();
    eprintln!("{:?}: {error}", error.kind());
}

/// The victim dies after collectives of its own and starts from the beginning, as programs do that restore no state.
pub fn does_not_resume(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let table = ArrayTable::<i64>::create(&tables, 1, None, TableOptions::default()).unwrap();
    for round in 0..3 {
        if world.rank() == VICTIM && world.restarts() == 0 && round == 2 {
            wait_for_death();
        }
        // A call that the library rejects is not one that a later process could repeat.
        assert_eq!(world.group().broadcast(&mut [0], world.size()).unwrap_err().kind(), Kind::Usage);
        let background = world.group().start(|group| group.barrier());
        if let Err(error) = background.wait().and_then(|()| world.group().all_reduce(&mut [1], ReduceOp::Sum))
        {
            eprintln!("{:?}: {error}", error.kind());
            table.add(&[1]).unwrap();
            return;
        }
    }
    panic!("the third round mixes two runs of rank {VICTIM}");
}

#[test]
fn a_restarted_rank_that_does_not_resume_is_an_error_on_all_ranks() {
    let mut job = Job::start_restartable(3, "does not resume", &[], 5);
    job.wait_for_output(VICTIM, "between");
    job.kill_silently(VICTIM);
    job.restart(VICTIM, 4);
    let ending = job.end_of(VICTIM);
    let words = [
        "Usage: rank 1: start: expected the collective that the other ranks make next",
        "restart 1 of rank 1, which would repeat collectives: its earlier process had completed 4 collectives",
        "call world.resume() before its first collective, or start the job again",
    ];
    assert!(
        ending.status.success() && words.iter().all(|words| ending.output.contains(words)),
        "{}",
        ending.output
    );
    for rank in [0, 2] {
        let ending = job.end_of(rank);
        let named = ending.output.contains("PeerLost") && ending.output.contains("rank 1 (process");
        assert!(
            named && ending.output.contains("it was started again and would have repeated"),
            "{}",
            ending.output
        );
        assert!(ending.status.success(), "{}", ending.output);
    }
    assert!(job.memory.restart(VICTIM).is_err(), "nothing is left to take up");
}

#[test]
fn waiting_for_a_restarting_rank_has_a_deadline() {
    let mut job = Job::start_restartable(2, "patient", &[("UNISONO_TEST_PATIENCE", "2")], 1);
    job.wait_for_output(VICTIM, "between");
    job.kill_silently(VICTIM);
    let ending = job.end_of(0);
    assert!(ending.output.contains("Timeout"), "{}", ending.output);
    assert!(ending.output.contains("its process ended and is being started again"), "{}", ending.output);
}

#[test]
fn without_restarts_left_a_killed_rank_is_lost() {
    let mut job = Job::start_restartable(2, "come and go", &[], 1);
    job.wait_for_output(VICTIM, "between");
    job.kill_silently(VICTIM);
    job.restart(VICTIM, 0);
    job.wait_for_output(VICTIM, "between");
    let pid = job.pid(VICTIM);
    job.kill_silently(VICTIM);
    // The launcher has reported nothing: no restarts were left.
    let ending = job.end_of(0);
    assert!(!ending.status.success() && ending.output.contains("PeerLost"), "{}", ending.output);
    assert!(ending.output.contains(&format!("pid: Some({pid})")), "{}", ending.output);
}

#[test]
fn a_rank_that_the_launcher_does_not_restart_is_lost() {
    let mut job = Job::start_restartable(2, "patient", &[], 7);
    job.wait_for_output(VICTIM, "between");
    job.kill(VICTIM);
    let ending = job.end_of(0);
    assert!(ending.output.contains("PeerLost"), "{}", ending.output);
}

#[test]
fn only_the_process_started_by_the_launcher_is_admitted() {
    let mut job = Job::start_restartable(2, "patient", &[], 5);
    let output_of = |mut child: std::process::Child| {
        assert!(!child.wait().unwrap().success());
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    };
    job.wait_for_output(VICTIM, "between");
    let own = format!("process {} that has this rank already", job.pid(VICTIM));
    assert!(output_of(job.process_of(VICTIM)).contains(&own));
    // The rank is dead, but this process was not started in its place.
    job.kill_silently(VICTIM);
    let text = output_of(job.process_of(VICTIM));
    assert!(text.contains("a second start of rank 1"), "{text}");
    job.restart(VICTIM, 4);
    job.wait_for_output(VICTIM, "between");
    let own = format!("process {} that has this rank already", job.pid(VICTIM));
    assert!(output_of(job.process_of(VICTIM)).contains(&own));
}

/// What does not survive a restart is rejected on both sides, and disturbs nothing else.
pub fn messages(world: &World) {
    let group = world.group();
    let rejected = |result: unisono::Result<()>, words: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), Kind::PeerLost, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let again = "rank 1 was started again; messages and groups with it do not survive that";
    if world.rank() == VICTIM && world.restarts() == 0 {
        group.subgroup(&[0, 1, 2]).unwrap();
        wait_for_death();
    }
    if world.rank() != VICTIM {
        let old = group.subgroup(&[0, 1, 2]).unwrap().unwrap();
        let mut byte = [0u8];
        // A rank that waits for a message when the sender dies does not wait for the sender's successor.
        let error = group.recv(&mut byte, VICTIM, 1).unwrap_err();
        assert!(matches!(&error, Error::PeerLost { lost, .. } if lost[0].rank == VICTIM), "{error}");
        group.barrier().unwrap();
        rejected(old.barrier(), "rank 1 (process");
        rejected(group.send(&byte, VICTIM, 2), again);
        rejected(group.recv(&mut byte, VICTIM, 2), again);
        rejected(group.raw().start_recv(vec![0], unisono::DType::U8, VICTIM, 2).map(drop), again);
        rejected(group.subgroup(&[2, 1]).map(drop).and(group.subgroup(&[0, 1, 2]).map(drop)), again);
        let pair = group.subgroup(&[2, 0]).unwrap().expect("both are members");
        pair.barrier().unwrap();
        match world.rank() {
            0 => group.send(&[7u8], 2, 3).unwrap(),
            _ => group.recv(&mut byte, 0, 3).unwrap(),
        }
    } else {
        assert_eq!(world.restarts(), 1);
        group.barrier().unwrap();
        rejected(group.send(&[1u8], 0, 2), again);
        rejected(group.recv(&mut [0u8], 2, 2), again);
        rejected(group.raw().start_send(vec![1], unisono::DType::U8, 0, 2).map(drop), again);
        rejected(group.subgroup(&[0, 1]).map(drop), again);
    }
    // The world's group remains usable.
    let mut sum = [1];
    group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum, [3]);
    rejected(group.split(Some(1), 0).map(drop), again);
    group.barrier().unwrap();
}

#[test]
fn messages_and_groups_with_a_restarted_rank_are_rejected() {
    let mut job = Job::start_restartable(3, "messages", &[], 1);
    job.wait_for_output(VICTIM, "between");
    [0, 2].into_iter().for_each(|rank| until_doing(&job, rank, "in recv"));
    job.kill_silently(VICTIM);
    job.restart(VICTIM, 0);
    job.all_succeed();
}
