//! A `RankOutput` that delivers complete lines to a callback, for commands that launch ranks of this program.

use super::{OutputStream, RankOutput};

/// Calls a function with each line that a rank prints.
pub(crate) struct Listener<F> {
    on_line: F,
    partial: Vec<(usize, OutputStream, Vec<u8>)>,
}

impl<F: FnMut(usize, OutputStream, &str)> Listener<F> {
    pub(crate) fn new(on_line: F) -> Listener<F> {
        Listener { on_line, partial: Vec::new() }
    }

    fn partial(&mut self, rank: usize, stream: OutputStream) -> usize {
        let found = self.partial.iter().position(|(r, s, _)| (*r, *s) == (rank, stream));
        found.unwrap_or_else(|| {
            self.partial.push((rank, stream, Vec::new()));
            self.partial.len() - 1
        })
    }
}

impl<F: FnMut(usize, OutputStream, &str)> RankOutput for Listener<F> {
    fn write(&mut self, rank: usize, stream: OutputStream, bytes: &[u8]) {
        let index = self.partial(rank, stream);
        let partial = &mut self.partial[index].2;
        partial.extend_from_slice(bytes);
        while let Some(end) = partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = partial.drain(..=end).collect();
            (self.on_line)(rank, stream, String::from_utf8_lossy(&line).trim_end());
        }
    }

    fn end(&mut self, rank: usize, stream: OutputStream) {
        let index = self.partial(rank, stream);
        let rest = std::mem::take(&mut self.partial[index].2);
        if !rest.is_empty() {
            (self.on_line)(rank, stream, &String::from_utf8_lossy(&rest));
        }
    }
}
