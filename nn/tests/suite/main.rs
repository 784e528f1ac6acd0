//! Experiments, from files to results. One program, because linking takes longer than most tests.

mod comparing;
mod distributed;
mod experiments;
mod extending;
mod failing_layer;
mod folder;
mod folders;
mod neon;
mod optimizers;
mod reading;
mod rejections;
mod results;
mod tables;
mod unreadable_samples;
