//! The handshake of a long message: which side accesses the sender's memory, and until when. Independent of any device.
//!
//! ```text
//! sender                         receiver
//! offer           ────────────►
//!                 ◄────────────  COPY or STAGE
//! GRANTED         ────────────►
//!                                copies
//!                 ◄────────────  COPIED or FAILED
//! ```
//!
//! Up to GRANTED both sides keep their deadlines: a sender that gives up posts WITHDRAWN instead, and the receiver waits for
//! the next offer; a receiver that gives up posts FAILED. A sender that has granted a copy waits for its end, past its
//! deadline if it must: the receiver waits only for its own device, and the death of the receiver's process is detected.

use crate::error::{Lost, Result};
use crate::transport::{Call, CallTime, Incoming, MatchKey, Outgoing};
use crate::world::Group;

/// The receiver's request: to copy the bytes itself, or to have them staged through the host.
pub(super) const COPY: u8 = 1;
pub(super) const STAGE: u8 = 2;

/// The sender's answers.
const GRANTED: u8 = 3;
const WITHDRAWN: u8 = 4;

/// The outcome of the receiver's copy; it no longer accesses the sender's memory.
const COPIED: u8 = 5;
const FAILED: u8 = 6;

/// One message in flight between this rank and a peer.
#[derive(Clone, Copy)]
pub(super) struct Handshake<'a> {
    pub group: &'a Group,
    pub call: &'a Call<'a>,
    pub peer: usize,
}

impl Handshake<'_> {
    /// The sender's side: offers its memory, grants what the receiver requests, and returns the request. After an error the
    /// receiver does not use the offer.
    pub fn offer(&self, match_key: &MatchKey, answers: &MatchKey, offer: &[u8]) -> Result<u8> {
        let asked = self.send(match_key, offer).and_then(|()| self.receive_byte(answers));
        let asked = asked.inspect_err(|_| {
            // The offer may be in flight. If this fails too, the receiver is lost.
            let _ = self.post(answers, WITHDRAWN);
        })?;
        self.post(answers, GRANTED)?;
        Ok(asked)
    }

    /// The sender's side, after [`COPY`]: waits until the receiver no longer accesses the memory.
    pub fn wait_for_copy(&self, answers: &MatchKey) -> Result<()> {
        let call = Call { time: CallTime::unlimited(), interrupt: None, ..*self.call };
        let unbounded = Handshake { call: &call, ..*self };
        loop {
            match unbounded.receive_byte(answers)? {
                COPIED => return Ok(()),
                FAILED => {
                    let how = "it gave up on this message after an error";
                    return Err(self.call.lost(vec![Lost::new(self.group.members()[self.peer], None, how)]));
                }
                _ => {}
            }
        }
    }

    /// The receiver's side: requests what was offered; false if the sender has withdrawn it.
    pub fn request_access(&self, answers: &MatchKey, request: u8) -> Result<bool> {
        self.post(answers, request)?;
        let granted = self.receive_byte(answers);
        let granted = granted.inspect_err(|_| drop(self.post(answers, FAILED)))?;
        Ok(granted != WITHDRAWN)
    }

    /// The receiver's side, after a granted copy: it no longer accesses the sender's memory.
    pub fn end_copy(&self, answers: &MatchKey, outcome: Result<()>) -> Result<()> {
        let posted = self.post(answers, if outcome.is_ok() { COPIED } else { FAILED });
        outcome.and(posted)
    }

    pub fn send(&self, match_key: &MatchKey, bytes: &[u8]) -> Result<()> {
        self.group.exchange(self.call, match_key, vec![Outgoing { to: self.peer, bytes }], Vec::new())
    }

    pub fn receive(&self, match_key: &MatchKey, bytes: &mut [u8]) -> Result<()> {
        self.group.exchange(self.call, match_key, Vec::new(), vec![Incoming { from: self.peer, bytes }])
    }

    /// Sends one byte without waiting, in order with the match key's other messages.
    fn post(&self, match_key: &MatchKey, byte: u8) -> Result<()> {
        let to = self.group.members()[self.peer];
        self.group.transport().post(self.call, to, match_key, vec![byte])
    }

    fn receive_byte(&self, match_key: &MatchKey) -> Result<u8> {
        let mut byte = [0];
        self.receive(match_key, &mut byte).map(|()| byte[0])
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::error::Kind;
    use crate::testing::spawn;
    use crate::transport::{Signature, Verb};

    fn offers() -> MatchKey {
        MatchKey { context: 0, tag: 1, signature: Signature::new(Verb::SEND, 0) }
    }

    fn answers(number: u8) -> MatchKey {
        MatchKey { tag: MatchKey::TAGS | u32::from(number) << 1, ..offers() }
    }

    fn handshake<R>(group: &Group, limit: Duration, work: impl FnOnce(Handshake) -> Result<R>) -> Result<R> {
        let group = group.with_timeout(limit);
        group.message_call(Verb::SEND, |call| work(Handshake { group: &group, call, peer: 1 - group.rank() }))
    }

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn a_receiver_passes_over_offers_that_were_withdrawn() {
        spawn(2, |group| {
            if group.rank() == 0 {
                let late =
                    handshake(&group, SHORT, |handshake| handshake.offer(&offers(), &answers(1), &[1]));
                assert_eq!(late.unwrap_err().kind(), Kind::Timeout);
                group.barrier().unwrap();
                handshake(&group, LONG, |handshake| {
                    assert_eq!(handshake.offer(&offers(), &answers(2), &[2])?, COPY);
                    handshake.wait_for_copy(&answers(2))
                })
                .unwrap();
                return;
            }
            group.barrier().unwrap();
            handshake(&group, LONG, |handshake| {
                let mut offer = [0];
                loop {
                    handshake.receive(&offers(), &mut offer)?;
                    if handshake.request_access(&answers(offer[0]), COPY)? {
                        break;
                    }
                }
                assert_eq!(offer, [2], "the first one was withdrawn");
                handshake.end_copy(&answers(2), Ok(()))
            })
            .unwrap();
        });
    }

    #[test]
    fn a_sender_that_has_granted_a_copy_outlasts_it_and_learns_how_it_ended() {
        spawn(2, |group| {
            for (number, fails) in [(1, false), (2, true)] {
                if group.rank() == 0 {
                    let granted = Instant::now();
                    let sent = handshake(&group, 20 * SHORT, |handshake| {
                        assert_eq!(handshake.offer(&offers(), &answers(number), &[0])?, COPY);
                        handshake.wait_for_copy(&answers(number))
                    });
                    assert!(granted.elapsed() > 25 * SHORT, "it returned while its memory was read");
                    assert_eq!(sent.err().map(|error| error.kind()), fails.then_some(Kind::PeerLost));
                    continue;
                }
                let received = handshake(&group, LONG, |handshake| {
                    handshake.receive(&offers(), &mut [0])?;
                    assert!(handshake.request_access(&answers(number), COPY)?);
                    std::thread::sleep(30 * SHORT);
                    let broken = || Err(handshake.call.timeout(Vec::new()));
                    handshake.end_copy(&answers(number), if fails { broken() } else { Ok(()) })
                });
                assert_eq!(received.is_err(), fails);
            }
        });
    }
}
