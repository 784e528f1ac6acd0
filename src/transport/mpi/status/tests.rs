//! Services on real sockets of this machine, each with the ranks of a pretended host.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use super::wire::StatusRequest;
use super::*;

/// The ranks of one host, some of which have ended.
struct Host {
    ranks: Vec<usize>,
    ended: Mutex<HashSet<usize>>,
    located: AtomicUsize,
}

impl Host {
    fn new(ranks: &[usize]) -> Arc<Host> {
        Arc::new(Host { ranks: ranks.to_vec(), ended: Mutex::default(), located: AtomicUsize::new(0) })
    }
}

impl VisibleRanks for Host {
    fn describe(&self, rank: usize, locate: bool) -> Option<Missing> {
        let mut missing = Missing::new(rank, Some(5), format!("in all_reduce #{rank}"));
        if locate {
            self.located.fetch_add(1, Ordering::Relaxed);
            missing.location = Some("train.py:7".into());
        }
        self.ranks.contains(&rank).then_some(missing)
    }

    fn all_ended(&self) -> Vec<usize> {
        self.ended.lock().unwrap().iter().copied().collect()
    }
}

/// Two hosts with two ranks each, all in this process.
struct Job {
    services: Vec<Option<StatusService>>,
    hosts: [Arc<Host>; 2],
    announced: Vec<ServiceAddress>,
}

const HOSTS: [usize; 4] = [0, 0, 2, 2];

impl Job {
    fn start() -> Job {
        let hosts = [Host::new(&[0, 1]), Host::new(&[2, 3])];
        let listeners: Vec<StatusListener> = (0..4).map(|_| StatusListener::open().unwrap()).collect();
        let announced: Vec<ServiceAddress> =
            listeners.iter().map(|listener| StatusListener::announce(Some(listener))).collect();
        let start = |(rank, listener)| {
            let plan = ServicePlan {
                rank,
                announced: &announced,
                hosts: HOSTS.to_vec(),
                same_network: vec![true; 4],
                local: hosts[rank / 2].clone(),
            };
            Some(StatusService::start(Some(listener), plan).unwrap())
        };
        let services = listeners.into_iter().enumerate().map(start).collect();
        Job { services, hosts, announced }
    }

    fn rank(&self, rank: usize) -> &StatusService {
        self.services[rank].as_ref().unwrap()
    }

    /// Waits as a call does, until a loss is known or for some time.
    fn await_rank(&self, rank: usize, awaited: usize, limit: Duration) -> Option<RemoteLoss> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if let Some(loss) = self.rank(rank).await_rank(awaited) {
                return Some(loss);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Waits until the questions of the start have been answered, which prove each address.
    fn await_proofs(&self) {
        for (rank, watched) in [(0, 2), (0, 3), (1, 2), (1, 3), (2, 0), (2, 1), (3, 0), (3, 1)] {
            let proven = |knowledge: &mut Knowledge| knowledge.ranks.get(&watched)?.proven.map(drop);
            let found = self.rank(rank).state.knowledge.wait_timeout(Duration::from_secs(60), proven);
            assert!(found.is_some(), "rank {rank} has not reached rank {watched}");
        }
    }

    fn connect(&self, rank: usize) -> TcpStream {
        let address = self.announced[rank].reachable_from(&self.announced[rank], true)[0];
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_live_rank_is_not_lost_and_describes_itself() {
    let job = Job::start();
    assert_eq!(job.await_rank(0, 2, Duration::from_secs(2)), None);
    let described = job.rank(0).describe(&[3, 2]);
    let [RemoteDescription::Known(three), RemoteDescription::Known(two)] = &described[..] else {
        panic!("{described:?}")
    };
    assert_eq!((three.rank, three.doing.as_str()), (3, "in all_reduce #3"));
    assert_eq!((two.rank, two.location.as_deref()), (2, Some("train.py:7")));
}

#[test]
fn the_end_of_a_service_is_detected_where_it_was_proven() {
    let mut job = Job::start();
    job.await_proofs();
    job.services[2] = None;
    assert_eq!(job.await_rank(0, 2, Duration::from_secs(3)), None, "its host still sees the process");
    job.services[3] = None;
    assert_eq!(job.await_rank(0, 2, LONG), Some(RemoteLoss::Ended));
    assert_eq!(job.await_rank(1, 2, LONG), Some(RemoteLoss::Ended));
}

/// As in a large job: the watcher alone has reached the rank, and waits for nothing itself.
#[test]
fn a_watcher_finds_out_what_others_ask_it() {
    let mut job = Job::start();
    job.await_proofs();
    let forget = |knowledge: &mut Knowledge| knowledge.ranks.get_mut(&2).map(|known| known.proven = None);
    job.rank(1).state.knowledge.with(forget);
    job.services[2] = None;
    job.services[3] = None;
    assert_eq!(job.await_rank(1, 2, LONG), Some(RemoteLoss::Ended));
}

#[test]
fn another_rank_of_the_host_reports_an_end() {
    let mut job = Job::start();
    job.services[2] = None;
    job.hosts[1].ended.lock().unwrap().insert(2);
    assert_eq!(job.await_rank(1, 2, LONG), Some(RemoteLoss::Ended));
}

#[test]
fn a_reply_names_other_ranks_that_are_lost() {
    let job = Job::start();
    job.hosts[1].ended.lock().unwrap().insert(3);
    let until = Instant::now() + LONG;
    while job.rank(0).known_loss(3).is_none() {
        assert!(Instant::now() < until && job.rank(0).await_rank(2).is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_rank_that_announced_it_has_left() {
    let mut job = Job::start();
    job.await_proofs();
    job.rank(2).announce_leaving();
    assert_eq!(job.await_rank(0, 2, Duration::from_secs(2)), None, "it may still send");
    job.services[2] = None;
    job.services[3] = None;
    assert_eq!(job.await_rank(0, 2, LONG), Some(RemoteLoss::Left));
}

#[test]
fn a_silent_service_is_described_by_its_host() {
    let mut job = Job::start();
    // The socket accepts connections, as that of a stopped process does, and no thread replies.
    job.services[3] = None;
    let silent = StatusListener::open().unwrap();
    let address = StatusListener::announce(Some(&silent));
    job.services[0] = None;
    let listener = StatusListener::open().unwrap();
    let mut announced = job.announced.clone();
    announced[3] = address;
    let plan = ServicePlan {
        rank: 0,
        announced: &announced,
        hosts: HOSTS.to_vec(),
        same_network: vec![true; 4],
        local: job.hosts[0].clone(),
    };
    job.services[0] = Some(StatusService::start(Some(listener), plan).unwrap());
    assert_eq!(job.await_rank(0, 3, Duration::from_secs(4)), None);
    assert!(matches!(&job.rank(0).describe(&[3])[..], [RemoteDescription::Known(_)]));
    job.services[2] = None;
    job.services[1] = None;
    std::thread::sleep(RECENT);
    assert_eq!(job.rank(0).describe(&[3]), [RemoteDescription::Silent]);
    assert_eq!(job.rank(0).known_loss(3), None);
}

#[test]
fn a_wrong_token_gets_no_reply() {
    let job = Job::start();
    for request in
        [StatusRequest::new([9; 16], 1, false), StatusRequest::new(job.rank(0).state.token, 77, false)]
    {
        let mut stream = job.connect(1);
        stream.write_all(bytemuck::bytes_of(&request)).unwrap();
        assert_eq!(stream.read(&mut [0; 100]).unwrap_or(0), 0);
    }
    let mut stream = job.connect(1);
    let valid = StatusRequest::new(job.rank(0).state.token, 1, false);
    stream.write_all(bytemuck::bytes_of(&valid)).unwrap();
    assert!(stream.read(&mut [0; 100]).unwrap() > 0);
}

#[test]
fn idle_connections_do_not_keep_others_out() {
    let job = Job::start();
    let idle: Vec<TcpStream> = (0..100).map(|_| job.connect(2)).collect();
    assert!(matches!(&job.rank(1).describe(&[2])[..], [RemoteDescription::Known(_)]), "by its host");
    let mut stream = job.connect(2);
    let valid = StatusRequest::new(job.rank(0).state.token, 2, false);
    stream.write_all(bytemuck::bytes_of(&valid)).unwrap();
    assert!(stream.read(&mut [0; 100]).unwrap() > 0, "served after the idle ones have been closed");
    drop(idle);
}

#[test]
fn many_questions_at_once_determine_the_source_line_once() {
    let job = Job::start();
    std::thread::scope(|scope| {
        for rank in [0, 1, 0, 1] {
            let service = job.rank(rank);
            scope.spawn(move || {
                assert!(matches!(&service.describe(&[2])[..], [RemoteDescription::Known(_)]));
            });
        }
    });
    assert_eq!(job.hosts[1].located.load(Ordering::Relaxed), 1);
}
