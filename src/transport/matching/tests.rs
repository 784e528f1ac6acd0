//! Matching against a naive model: one list of events per sender and tag.

use proptest::prelude::*;

use super::*;
use crate::transport::Signature;

#[derive(Debug, Clone, Copy)]
enum Event {
    Post {
        from: usize,
        tag: u32,
        length: usize,
    },
    Arrive {
        from: usize,
        tag: u32,
        length: usize,
    },
    /// Takes the next message of any source but this one.
    Next {
        tag: u32,
        busy: usize,
    },
    /// Cancels a receive.
    Cancel {
        ticket: u64,
    },
    /// The sender cancels a message.
    Withdraw {
        message: u64,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (from, tag, length) = (0..3usize, 0..2u32, 1..3usize);
    let post = (from.clone(), tag.clone(), length.clone());
    let arrive = (from.clone(), tag.clone(), length);
    let event = prop_oneof![
        4 => post.prop_map(|(from, tag, length)| Event::Post { from, tag, length }),
        4 => arrive.prop_map(|(from, tag, length)| Event::Arrive { from, tag, length }),
        1 => (tag, from).prop_map(|(tag, busy)| Event::Next { tag, busy }),
        1 => (0..40u64).prop_map(|ticket| Event::Cancel { ticket }),
        1 => (0..40u64).prop_map(|message| Event::Withdraw { message }),
    ];
    proptest::collection::vec(event, 0..60)
}

/// A queued receive or message of the model: the sequence number of its event, its sender, tag and length.
type Queued = (u64, usize, u32, usize);

/// What an event leads to: numbers are those of the events that posted a receive and brought a message.
#[derive(Debug, PartialEq)]
enum Outcome {
    Nothing,
    Paired { receive: u64, message: u64 },
    Mismatched { receive: u64, message: u64 },
    Taken { message: u64 },
}

#[derive(Default)]
struct Model {
    receives: Vec<Queued>,
    messages: Vec<Queued>,
}

impl Model {
    fn happens(&mut self, number: u64, event: Event) -> Outcome {
        let fits = |from: usize, tag: u32| move |one: &Queued| (one.1, one.2) == (from, tag);
        match event {
            Event::Post { from, tag, length } => match self.messages.iter().position(fits(from, tag)) {
                Some(at) if self.messages[at].3 == length => {
                    Outcome::Paired { receive: number, message: self.messages.remove(at).0 }
                }
                Some(at) => Outcome::Mismatched { receive: number, message: self.messages[at].0 },
                None => {
                    self.receives.push((number, from, tag, length));
                    Outcome::Nothing
                }
            },
            Event::Arrive { from, tag, length } => {
                let posted =
                    self.receives.iter().position(fits(from, tag)).map(|at| self.receives.remove(at));
                match posted {
                    Some((receive, _, _, expected)) if expected == length => {
                        Outcome::Paired { receive, message: number }
                    }
                    posted => {
                        self.messages.push((number, from, tag, length));
                        posted.map_or(Outcome::Nothing, |(receive, ..)| Outcome::Mismatched {
                            receive,
                            message: number,
                        })
                    }
                }
            }
            Event::Next { tag, busy } => {
                let next = self.messages.iter().position(|one| one.2 == tag && one.1 != busy);
                next.map_or(Outcome::Nothing, |at| Outcome::Taken { message: self.messages.remove(at).0 })
            }
            Event::Cancel { ticket } => {
                self.receives.retain(|one| one.0 != ticket);
                Outcome::Nothing
            }
            Event::Withdraw { message } => {
                self.messages.retain(|one| one.0 != message);
                Outcome::Nothing
            }
        }
    }
}

fn match_key(tag: u32) -> MatchKey {
    MatchKey { context: 3, tag, signature: Signature::default() }
}

/// The same event on the queues, as a transport applies it. Tickets and bodies are the numbers of events.
fn apply(queues: &mut MatchingQueues<u64>, number: u64, event: Event) -> Outcome {
    match event {
        Event::Post { from, tag, length } => {
            let start = std::ptr::null_mut();
            let receive =
                PostedReceive { ticket: Ticket(number), from, match_key: match_key(tag), start, length };
            match queues.take_unexpected(&receive) {
                Some(Ok(message)) => Outcome::Paired { receive: number, message: message.body },
                Some(Err(message)) => Outcome::Mismatched { receive: number, message: message.body },
                None => {
                    queues.post(receive);
                    Outcome::Nothing
                }
            }
        }
        Event::Arrive { from, tag, length } => {
            let envelope = Envelope::new(&match_key(tag), length);
            let queued = UnexpectedMessage { from, envelope, body: number };
            match queues.take_posted(from, &envelope) {
                Some(Ok(posted)) => Outcome::Paired { receive: posted.ticket.0, message: number },
                Some(Err(posted)) => {
                    queues.queue_unexpected(queued);
                    Outcome::Mismatched { receive: posted.ticket.0, message: number }
                }
                None => {
                    queues.queue_unexpected(queued);
                    Outcome::Nothing
                }
            }
        }
        Event::Next { tag, busy } => {
            let next = queues.take_next(3, tag, |message| message.from == busy);
            next.map_or(Outcome::Nothing, |message| Outcome::Taken { message: message.body })
        }
        Event::Cancel { ticket } => {
            queues.remove_receives(Ticket(ticket));
            Outcome::Nothing
        }
        Event::Withdraw { message } => {
            queues.withdraw(|unexpected| unexpected.body == message);
            Outcome::Nothing
        }
    }
}

proptest! {
    #[test]
    fn matching_agrees_with_the_model(events in events()) {
        let (mut queues, mut model) = (MatchingQueues::default(), Model::default());
        for (number, event) in events.into_iter().enumerate() {
            let number = number as u64;
            prop_assert_eq!(apply(&mut queues, number, event), model.happens(number, event), "{:?}", event);
            for &(receive, from, ..) in &model.receives {
                prop_assert_eq!(queues.awaited(Ticket(receive)).collect::<Vec<_>>(), [from]);
            }
        }
        prop_assert_eq!(queues.posted.len(), model.receives.len());
        prop_assert_eq!(queues.unexpected.len(), model.messages.len());
    }
}

#[test]
fn contexts_and_tags_are_separate() {
    let mut queues = MatchingQueues::default();
    let envelope = Envelope::new(&match_key(1), 4);
    queues.queue_unexpected(UnexpectedMessage { from: 0, envelope, body: () });
    let start = std::ptr::null_mut();
    let mut receive = PostedReceive { ticket: Ticket(1), from: 0, match_key: match_key(1), start, length: 4 };
    for other in [MatchKey { context: 4, ..match_key(1) }, match_key(2)] {
        receive.match_key = other;
        assert!(queues.take_unexpected(&receive).is_none());
        assert!(queues.take_next(other.context, other.tag, |_| false).is_none());
    }
    receive.match_key = match_key(1);
    assert!(matches!(queues.take_unexpected(&receive), Some(Ok(_))));
}

#[test]
fn the_first_failure_of_an_exchange_counts_and_stays() {
    let mut exchanges = crate::transport::exchanges::Exchanges::default();
    let (first, second) = (exchanges.open(2), exchanges.open(1));
    exchanges.fail(first, "first");
    exchanges.fail(first, "second");
    exchanges.done(second);
    assert_eq!([exchanges.state(first), exchanges.state(first)], [Err("first"); 2]);
    assert_eq!(exchanges.state(second), Ok(true));
    exchanges.close(first);
    assert!(!exchanges.is_open(first));
    assert_eq!(exchanges.state(first), Ok(true));
}
