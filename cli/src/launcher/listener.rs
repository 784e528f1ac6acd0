//! An audience that takes whole lines, for programs that start ranks of themselves.

use super::{Audience, Stream};

/// Calls a function with each line of each rank.
pub(crate) struct Listener<F> {
    hear: F,
    partial: Vec<(usize, Stream, Vec<u8>)>,
}

impl<F: FnMut(usize, Stream, &str)> Listener<F> {
    pub(crate) fn new(hear: F) -> Listener<F> {
        Listener { hear, partial: Vec::new() }
    }

    fn partial(&mut self, rank: usize, stream: Stream) -> usize {
        let found = self.partial.iter().position(|(r, s, _)| (*r, *s) == (rank, stream));
        found.unwrap_or_else(|| {
            self.partial.push((rank, stream, Vec::new()));
            self.partial.len() - 1
        })
    }
}

impl<F: FnMut(usize, Stream, &str)> Audience for Listener<F> {
    fn hear(&mut self, rank: usize, stream: Stream, bytes: &[u8]) {
        let index = self.partial(rank, stream);
        let partial = &mut self.partial[index].2;
        partial.extend_from_slice(bytes);
        while let Some(end) = partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = partial.drain(..=end).collect();
            (self.hear)(rank, stream, String::from_utf8_lossy(&line).trim_end());
        }
    }

    fn end(&mut self, rank: usize, stream: Stream) {
        let index = self.partial(rank, stream);
        let rest = std::mem::take(&mut self.partial[index].2);
        if !rest.is_empty() {
            (self.hear)(rank, stream, &String::from_utf8_lossy(&rest));
        }
    }
}
