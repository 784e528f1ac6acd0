//! Ranks as real processes: the conformance suite, and what happens when ranks die, stop, or disagree.

mod endings;
mod exposure;
mod halo;
mod harness;
mod key_value;
mod later_tables;
mod mistakes;
mod misuse;
mod restarts;
mod soak;
mod steps;
mod tables;
#[path = "../../examples/tables/user_defined.rs"]
mod user_defined;

use harness::Job;
use unisono::World;
use unisono::testing::conformance;

/// Not a test itself: what each rank of the other tests runs.
#[test]
fn rank() {
    let Ok(scenario) = std::env::var(harness::SCENARIO) else { return };
    let world = World::init().unwrap();
    match scenario.as_str() {
        "conformance" => conformance::run(world.group()).unwrap(),
        "endless" => endings::endless(&world),
        "absent" => endings::absent(&world),
        "silent" => endings::silent(&world),
        "impatient" => endings::impatient(&world),
        "halo" => halo::endless(&world),
        "halo conformance" => halo::every_case(&world),
        "early" => endings::early(&world),
        "stopped half-way" => exposure::late(&world),
        "mismatch" => mistakes::mismatch(&world),
        "second init" => mistakes::second_init(&world),
        "arena" => mistakes::arena_limits(&world),
        "come and go" => restarts::come_and_go(&world),
        "does not resume" => restarts::does_not_resume(&world),
        "late" => restarts::late(&world),
        "patient" => restarts::patient(&world),
        "messages" => restarts::messages(&world),
        "soak" => soak::rank(&world),
        "adding" => tables::adding(&world),
        "in step" => tables::in_step(&world),
        "user defined" => user_defined::run(&world).unwrap(),
        "growing" => key_value::growing(&world),
        "evicting" => key_value::evicting(&world),
        "come back" => tables::come_back(&world),
        "later tables" => later_tables::later(&world),
        "in a round" => later_tables::in_a_round(&world),
        "averages" => later_tables::averages(&world),
        "unequal steps" => steps::unequal(&world),
        "from the clock" => steps::from_the_clock(&world),
        "in rounds" => steps::in_rounds(&world),
        "half made" => later_tables::half_made(&world),
        other => panic!("no scenario is called {other}"),
    }
}

#[test]
fn every_verb_works_on_one_to_six_processes() {
    for size in [1, 2, 3, 4, 6] {
        Job::start(size, "conformance").all_succeed();
    }
}

#[test]
fn the_example_of_a_user_defined_table_works_on_processes() {
    Job::start(4, "user defined").all_succeed();
}
