//! Profiles a run: spans of work on each rank, as a trace for Chrome and Perfetto.

use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use unisono::{Error, Group, Result};

/// A longer run keeps only its first spans; the trace reports how many were dropped.
const MOST: usize = 500_000;

/// The activity of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// A layer computed its outputs.
    Fprop,
    /// A layer computed gradients.
    Bprop,
    /// A layer updated its weights.
    Update,
    /// Ranks communicated.
    Communication,
    /// Anything else: reading samples, testing, saving.
    Other,
}

impl Activity {
    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Activity::Fprop => "fprop",
            Activity::Bprop => "bprop",
            Activity::Update => "update",
            Activity::Communication => "communication",
            Activity::Other => "other",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Span {
    name: String,
    activity: Activity,
    /// Microseconds since 1970: the ranks of one host share a clock.
    begin: f64,
    /// Microseconds.
    length: f64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Lane {
    rank: usize,
    spans: Vec<Span>,
    dropped: usize,
}

/// The spans of one rank, shared by all code that works for that rank.
///
/// ```
/// use unisono_nn::{Activity, Timeline};
/// let timeline = Timeline::new(0);
/// let sum: u32 = timeline.span(Activity::Fprop, "conv1", || (0..10).sum());
/// assert_eq!(sum, 45);
/// assert!(timeline.trace().contains("conv1 fprop"));
/// ```
#[derive(Debug)]
pub struct Timeline {
    started: Instant,
    /// The start time, in microseconds since 1970.
    origin: f64,
    lane: Mutex<Lane>,
}

impl Timeline {
    /// An empty timeline of a rank.
    pub fn new(rank: usize) -> Timeline {
        let origin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let lane = Mutex::new(Lane { rank, ..Lane::default() });
        Timeline { started: Instant::now(), origin: origin.as_secs_f64() * 1e6, lane }
    }

    /// Runs `work` and records its duration.
    pub fn span<R>(&self, activity: Activity, name: &str, work: impl FnOnce() -> R) -> R {
        let begin = self.started.elapsed().as_secs_f64() * 1e6;
        let result = work();
        let length = self.started.elapsed().as_secs_f64() * 1e6 - begin;
        // A panic in another thread leaves the list consistent.
        let mut lane = self.lane.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if lane.spans.len() < MOST {
            lane.spans.push(Span { name: name.into(), activity, begin: self.origin + begin, length });
        } else {
            lane.dropped += 1;
        }
        result
    }

    /// [`Timeline::span`] with an optional timeline.
    pub fn within<R>(
        timeline: Option<&Timeline>,
        activity: Activity,
        name: &str,
        work: impl FnOnce() -> R,
    ) -> R {
        match timeline {
            Some(timeline) => timeline.span(activity, name, work),
            None => work(),
        }
    }

    /// The trace of this rank alone, in the Trace Event Format.
    pub fn trace(&self) -> String {
        let lane = self.lane.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        trace(std::slice::from_ref(&*lane))
    }

    /// The trace of all ranks of a group, on rank 0; `None` on the others. Every rank must call this.
    pub fn gather(&self, group: &Group) -> Result<Option<String>> {
        let own = {
            let lane = self.lane.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            serde_json::to_vec(&*lane).map_err(|error| Error::internal("gather trace", error.to_string()))?
        };
        let mut counts = vec![0_i64; group.size()];
        group.all_gather(&[own.len() as i64], &mut counts)?;
        let counts: Vec<usize> = counts.into_iter().map(|count| count as usize).collect();
        let mut all = vec![0_u8; if group.rank() == 0 { counts.iter().sum() } else { 0 }];
        group.gather_varied(&own, (group.rank() == 0).then_some(&mut all[..]), &counts, 0)?;
        if group.rank() > 0 {
            return Ok(None);
        }
        let mut lanes = Vec::new();
        let mut rest = &all[..];
        for count in counts {
            let (text, after) = rest.split_at(count);
            rest = after;
            let lane: Lane = serde_json::from_slice(text)
                .map_err(|error| Error::internal("gather trace", error.to_string()))?;
            lanes.push(lane);
        }
        Ok(Some(trace(&lanes)))
    }
}

/// The Trace Event Format: one process for the run, one thread per rank.
fn trace(lanes: &[Lane]) -> String {
    let first =
        lanes.iter().flat_map(|lane| &lane.spans).map(|span| span.begin).fold(f64::INFINITY, f64::min);
    let mut events: Vec<Value> = Vec::new();
    for lane in lanes {
        let name = match lane.dropped {
            0 => format!("rank {}", lane.rank),
            dropped => format!("rank {} (without its last {dropped} spans)", lane.rank),
        };
        let names = json!({"name": name});
        events.push(json!({"ph": "M", "name": "thread_name", "pid": 0, "tid": lane.rank, "args": names}));
        for span in &lane.spans {
            let shown = match span.activity {
                Activity::Other => span.name.clone(),
                activity => format!("{} {}", span.name, activity.name()),
            };
            events.push(json!({
                "ph": "X",
                "name": shown,
                "cat": span.activity.name(),
                "ts": span.begin - first,
                "dur": span.length,
                "pid": 0,
                "tid": lane.rank,
            }));
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<Value> {
        let trace: Value = serde_json::from_str(text).expect("a trace is JSON");
        trace["traceEvents"].as_array().expect("it has events").clone()
    }

    #[test]
    fn inner_spans_lie_in_outer_ones() {
        let timeline = Timeline::new(3);
        timeline.span(Activity::Other, "batch", || {
            timeline
                .span(Activity::Bprop, "conv", || std::thread::sleep(std::time::Duration::from_millis(2)));
        });
        let events = events(&timeline.trace());
        let find = |name: &str| events.iter().find(|event| event["name"] == name).expect(name).clone();
        assert_eq!(find("thread_name")["args"]["name"], "rank 3");
        let (outer, inner) = (find("batch"), find("conv bprop"));
        let number = |event: &Value, key: &str| event[key].as_f64().expect("it is a number");
        let end = |event: &Value| number(event, "ts") + number(event, "dur");
        assert!(number(&inner, "dur") >= 2000.0);
        assert!(number(&outer, "ts") <= number(&inner, "ts") && end(&inner) <= end(&outer) + 0.01);
        assert!(events.iter().all(|event| event["tid"] == 3));
    }

    #[test]
    fn every_rank_has_a_lane_even_an_idle_one() {
        for size in [1, 2, 3] {
            let traces = unisono::testing::spawn(size, |group| {
                let timeline = Timeline::new(group.rank());
                for number in 0..group.rank() {
                    timeline.span(Activity::Communication, &format!("sum{number}"), || ());
                }
                timeline.gather(&group).expect("all ranks gather")
            });
            assert!(traces[1..].iter().all(Option::is_none));
            let events = events(traces[0].as_ref().expect("rank 0 has the trace"));
            for rank in 0..size {
                let spans = events.iter().filter(|event| event["tid"] == rank && event["ph"] == "X");
                assert_eq!(spans.count(), rank);
            }
            let lanes = events.iter().filter(|event| event["ph"] == "M");
            assert_eq!(lanes.count(), size);
        }
    }
}
