//! Splits a byte stream into lines of bounded length.

/// Maximum length of a line in bytes; longer lines are emitted in pieces.
const MAX_LINE: usize = 1 << 14;

/// The byte before the next one, as far as line ends are concerned.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Anything,
    /// A carriage return that ended a line.
    Return,
    /// A carriage return at the start of a line: an empty line only if a newline follows.
    LoneReturn,
}

/// Collects bytes and emits lines without their line ends. A carriage return ends a line too, so that each update of a
/// progress bar is shown and the buffer stays small.
pub(crate) struct LineSplitter {
    partial: Vec<u8>,
    before: Before,
}

impl LineSplitter {
    pub(crate) fn new() -> LineSplitter {
        LineSplitter { partial: Vec::new(), before: Before::Anything }
    }

    /// Appends bytes, and emits every complete line or piece.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut emit: impl FnMut(&[u8])) {
        while let Some(&first) = bytes.first() {
            let before = std::mem::replace(&mut self.before, Before::Anything);
            if first == b'\n' && before != Before::Anything {
                if before == Before::LoneReturn {
                    emit(b"");
                }
                bytes = &bytes[1..];
                continue;
            }
            let room = MAX_LINE - self.partial.len();
            let window = &bytes[..room.min(bytes.len())];
            match window.iter().position(|&byte| byte == b'\n' || byte == b'\r') {
                Some(end) => {
                    let is_return = bytes[end] == b'\r';
                    let is_empty = end == 0 && self.partial.is_empty();
                    if is_return {
                        self.before = if is_empty { Before::LoneReturn } else { Before::Return };
                    }
                    if !(is_return && is_empty) {
                        self.emit_with(&bytes[..end], &mut emit);
                    }
                    bytes = &bytes[end + 1..];
                }
                None if window.len() == room => {
                    self.partial.extend_from_slice(window);
                    self.cut(&mut emit);
                    bytes = &bytes[room..];
                }
                None => {
                    self.partial.extend_from_slice(window);
                    bytes = &[];
                }
            }
        }
    }

    /// End of the stream: emits an unterminated last line.
    pub(crate) fn finish(&mut self, mut emit: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            self.emit_with(b"", &mut emit);
        }
    }

    fn emit_with(&mut self, rest: &[u8], emit: &mut impl FnMut(&[u8])) {
        if self.partial.is_empty() {
            return emit(rest);
        }
        self.partial.extend_from_slice(rest);
        emit(&self.partial);
        self.partial.clear();
    }

    /// Emits a full piece, but keeps back an incomplete UTF-8 character at its end.
    fn cut(&mut self, emit: &mut impl FnMut(&[u8])) {
        let length = self.partial.len();
        let lead = (1..=3).find(|&back| self.partial[length - back] & 0b1100_0000 != 0b1000_0000);
        let is_cut = |back: &usize| match self.partial[length - back] {
            0b1100_0000..=0b1101_1111 => *back < 2,
            0b1110_0000..=0b1110_1111 => *back < 3,
            0b1111_0000..=0b1111_0111 => *back < 4,
            _ => false,
        };
        let end = length - lead.filter(is_cut).unwrap_or(0);
        emit(&self.partial[..end]);
        self.partial.drain(..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `text`, which must not depend on the size of the chunks in which it arrives.
    fn lines(text: &[u8]) -> Vec<Vec<u8>> {
        let split = |chunk: usize| {
            let mut lines = LineSplitter::new();
            let mut out: Vec<Vec<u8>> = Vec::new();
            text.chunks(chunk).for_each(|bytes| lines.push(bytes, |line| out.push(line.to_vec())));
            lines.finish(|line| out.push(line.to_vec()));
            out
        };
        let whole = split(text.len().max(1));
        for chunk in [1, 2, 3, 7, 1000] {
            assert_eq!(split(chunk), whole, "in chunks of {chunk}");
        }
        whole
    }

    #[test]
    fn every_kind_of_end_is_one_end() {
        assert_eq!(lines(b"a\nb\r\nc\rd"), [b"a", b"b", b"c", b"d"]);
        assert_eq!(lines(b"\n\r\n\n"), [b"", b"", b""]);
        assert_eq!(lines(b"\r 10%\r 20%\r\r 30%\n"), [b" 10%", b" 20%", b" 30%"]);
        assert_eq!(lines(b""), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn bytes_that_are_no_text_pass() {
        assert_eq!(lines(b"\xff\xfe\n\x80"), [&b"\xff\xfe"[..], b"\x80"]);
    }

    #[test]
    fn long_lines_come_in_pieces_that_keep_characters_whole() {
        let text = "ä€𝄞".repeat(20_000);
        let pieces = lines(text.as_bytes());
        assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.len() <= MAX_LINE));
        assert!(pieces.iter().all(|piece| std::str::from_utf8(piece).is_ok()));
        assert_eq!(pieces.concat(), text.as_bytes());
        assert_eq!(lines(&[0x80; 3 * MAX_LINE]).concat(), [0x80; 3 * MAX_LINE]);
    }
}
