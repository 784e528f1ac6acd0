//! Messages of the status service: one request and one reply per connection. Both are bounded, and parsed as input that
//! any program may have sent.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::error::Missing;

/// Known to the ranks of one job only: requests without it get no reply.
pub(super) type JobToken = [u8; 16];

const MAGIC: [u8; 4] = *b"uni1";

/// The longest body of a reply, in bytes.
pub(super) const MAX_BODY: usize = 8 << 10;

/// Lost ranks that a reply names, at most.
pub(super) const MAX_LOST: usize = 16;

/// What is asked: the status of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct StatusRequest {
    magic: [u8; 4],
    token: JobToken,
    pub about: u32,
    /// Whether to include the source line, which may take up to half a second to determine; 0 or 1.
    pub locate: u32,
}

impl StatusRequest {
    pub const SIZE: usize = size_of::<StatusRequest>();

    pub fn new(token: JobToken, about: usize, locate: bool) -> StatusRequest {
        StatusRequest { magic: MAGIC, token, about: about as u32, locate: u32::from(locate) }
    }

    /// A valid request of this job about one of its ranks.
    pub fn read(bytes: &[u8; StatusRequest::SIZE], token: &JobToken, size: usize) -> Option<StatusRequest> {
        let request: StatusRequest = bytemuck::pod_read_unaligned(bytes);
        let valid = request.magic == MAGIC && request.token == *token;
        (valid && (request.about as usize) < size && request.locate <= 1).then_some(request)
    }
}

/// The status of a rank, as its own process or another rank of its host knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RankStatus {
    /// Its process runs.
    Alive {
        doing: Missing,
        /// Whether it is leaving the world.
        leaving: bool,
    },
    /// Its process has ended.
    Lost {
        /// Whether it had left the world in an orderly way.
        left: bool,
    },
    Unknown,
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StatusReply {
    /// The rank that replies.
    pub from: usize,
    /// The rank that was asked about.
    pub about: usize,
    pub status: RankStatus,
    /// Further ranks whose processes have ended, as far as the replying rank knows.
    pub lost: Vec<usize>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ReplyHeader {
    magic: [u8; 4],
    token: JobToken,
    body: u32,
}

const HEADER: usize = size_of::<ReplyHeader>();

/// Why received bytes are not a reply, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyError {
    Incomplete,
    Invalid,
}

impl StatusReply {
    pub fn encode(&self, token: JobToken) -> Vec<u8> {
        let body = serde_json::to_vec(self).unwrap_or_default();
        let header = ReplyHeader { magic: MAGIC, token, body: body.len() as u32 };
        [bytemuck::bytes_of(&header), &body].concat()
    }

    /// Reads what has arrived so far of a reply of rank `from` to a question about `about`.
    pub fn read(
        bytes: &[u8],
        token: &JobToken,
        (from, about): (usize, usize),
        size: usize,
    ) -> Result<StatusReply, ReplyError> {
        let (header, body) = bytes.split_at_checked(HEADER).ok_or(ReplyError::Incomplete)?;
        let header: ReplyHeader = bytemuck::pod_read_unaligned(header);
        let length = header.body as usize;
        if header.magic != MAGIC || header.token != *token || length > MAX_BODY || body.len() > length {
            return Err(ReplyError::Invalid);
        }
        if body.len() < length {
            return Err(ReplyError::Incomplete);
        }
        let mut reply: StatusReply = serde_json::from_slice(body).map_err(|_| ReplyError::Invalid)?;
        if (reply.from, reply.about) != (from, about) || reply.lost.len() > MAX_LOST {
            return Err(ReplyError::Invalid);
        }
        if reply.lost.iter().any(|&rank| rank >= size || rank == from) {
            return Err(ReplyError::Invalid);
        }
        if let RankStatus::Alive { doing, .. } = &mut reply.status {
            doing.rank = about;
            // They are shown on terminals.
            let texts = [Some(&mut doing.doing), doing.call.as_mut(), doing.location.as_mut()];
            texts.into_iter().flatten().for_each(|text| text.retain(|letter| !letter.is_control()));
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fuzz, mutate};
    use proptest::prelude::*;

    const TOKEN: JobToken = [7; 16];

    fn reply() -> StatusReply {
        let mut doing = Missing::new(1, Some(5), "in all_reduce #3 for 2.0 s");
        doing.location = Some("train.py:7 in step".into());
        StatusReply { from: 2, about: 1, status: RankStatus::Alive { doing, leaving: false }, lost: vec![3] }
    }

    #[test]
    fn a_request_needs_the_token_and_a_rank_of_the_job() {
        let request = StatusRequest::new(TOKEN, 3, true);
        let bytes: &[u8; StatusRequest::SIZE] = bytemuck::cast_ref(&request);
        assert_eq!(StatusRequest::read(bytes, &TOKEN, 4), Some(request));
        assert_eq!(StatusRequest::read(bytes, &[8; 16], 4), None, "another job");
        assert_eq!(StatusRequest::read(bytes, &TOKEN, 3), None, "no such rank");
    }

    #[test]
    fn a_reply_is_read_when_it_is_complete() {
        let bytes = reply().encode(TOKEN);
        let read = |bytes: &[u8]| StatusReply::read(bytes, &TOKEN, (2, 1), 4);
        assert_eq!(read(&bytes), Ok(reply()));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Err(ReplyError::Incomplete));
        }
        assert_eq!(read(&[&bytes[..], b" "].concat()), Err(ReplyError::Invalid));
        assert_eq!(StatusReply::read(&bytes, &[8; 16], (2, 1), 4), Err(ReplyError::Invalid));
        assert_eq!(StatusReply::read(&bytes, &TOKEN, (1, 1), 4), Err(ReplyError::Invalid), "another rank");
        assert_eq!(StatusReply::read(&bytes, &TOKEN, (2, 1), 3), Err(ReplyError::Invalid), "no rank 3");
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        let doing = Missing::new(1, None, "\u{1b}[31mred\n");
        let hostile = StatusReply { status: RankStatus::Alive { doing, leaving: true }, ..reply() };
        let read = StatusReply::read(&hostile.encode(TOKEN), &TOKEN, (2, 1), 4).unwrap();
        let RankStatus::Alive { doing, .. } = read.status else { panic!("{read:?}") };
        assert_eq!(doing.doing, "[31mred");
    }

    #[test]
    fn damaged_status_replies() {
        let statuses = [
            reply().status,
            RankStatus::Lost { left: true },
            RankStatus::Lost { left: false },
            RankStatus::Unknown,
        ];
        let good = statuses.map(|status| StatusReply { status, ..reply() }.encode(TOKEN));
        fuzz!(|script: &[u8]| {
            let bytes = mutate(&good, script);
            if let Ok(read) = StatusReply::read(&bytes, &TOKEN, (2, 1), 4) {
                assert_eq!((read.from, read.about), (2, 1));
                assert!(read.lost.len() <= MAX_LOST && read.lost.iter().all(|&rank| rank < 4 && rank != 2));
            }
        });
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_request(bytes in prop::array::uniform28(any::<u8>())) {
            prop_assert_eq!(StatusRequest::read(&bytes, &TOKEN, 4), None);
        }
    }
}
