//! Pictures of 8 bits a channel: PNG in and out, PGM and PPM in.

use std::io::{Read, Write};

use crate::shape::Shape;

/// A picture as planes: one map for grey, three for colours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Maps, rows and columns.
    pub shape: Shape,
    /// The planes, one after the other.
    pub pixels: Vec<u8>,
}

pub(super) type Decoded = std::result::Result<Picture, String>;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Nobody trains on larger pictures, and a header may lie.
const LARGEST: usize = 1 << 14;

/// Planes from pixels of `channels` bytes, of which the first one or three are kept.
fn planes(rows: usize, columns: usize, channels: usize, pixels: &[u8]) -> Picture {
    let maps = if channels >= 3 { 3 } else { 1 };
    let plane = |map: usize| pixels.iter().skip(map).step_by(channels).copied();
    Picture { shape: Shape::new(maps, rows, columns), pixels: (0..maps).flat_map(plane).collect() }
}

/// Writes a picture of one or three maps.
///
/// ```
/// use unisono_nn::{Picture, Shape, decode_png, encode_png};
/// let picture = Picture { shape: Shape::new(3, 2, 2), pixels: (0..12).collect() };
/// assert_eq!(decode_png(&encode_png(&picture)), Ok(picture));
/// ```
pub fn encode(picture: &Picture) -> Vec<u8> {
    let Shape { maps, rows, columns } = picture.shape;
    let mut lines = Vec::with_capacity(rows * (1 + columns * maps));
    for row in 0..rows {
        lines.push(0);
        for column in 0..columns {
            lines.extend((0..maps).map(|map| picture.pixels[(map * rows + row) * columns + column]));
        }
    }
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(&lines).expect("memory can be written");
    let packed = packer.finish().expect("memory can be written");
    let mut header = Vec::new();
    header.extend_from_slice(&(columns as u32).to_be_bytes());
    header.extend_from_slice(&(rows as u32).to_be_bytes());
    header.extend_from_slice(&[8, if maps == 3 { 2 } else { 0 }, 0, 0, 0]);
    let mut file = SIGNATURE.to_vec();
    for (kind, data) in [(b"IHDR", &header), (b"IDAT", &packed), (b"IEND", &Vec::new())] {
        file.extend_from_slice(&(data.len() as u32).to_be_bytes());
        let checked = [&kind[..], data].concat();
        file.extend_from_slice(&checked);
        file.extend_from_slice(&crc32fast::hash(&checked).to_be_bytes());
    }
    file
}

/// Reads a picture of 8 bits a channel, grey, colour or palette, not interlaced; transparency is dropped.
pub fn decode(file: &[u8]) -> Decoded {
    let mut rest = file.strip_prefix(SIGNATURE).ok_or("a file that is not PNG")?;
    let (mut header, mut palette, mut packed) = (None, Vec::new(), Vec::new());
    while rest.len() >= 12 {
        let length = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let data = rest.get(8..8 + length).ok_or("a file that ends too early")?;
        match &rest[4..8] {
            b"IHDR" if length == 13 => header = Some(data.to_vec()),
            b"PLTE" => palette = data.to_vec(),
            b"IDAT" => packed.extend_from_slice(data),
            b"IEND" => break,
            _ => {}
        }
        rest = rest.get(12 + length..).ok_or("a file that ends too early")?;
    }
    let header = header.ok_or("a file without a header")?;
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (columns, rows) = (word(0) as usize, word(4) as usize);
    let channels = match (header[8], header[9], header[12]) {
        (8, 0 | 3, 0) => 1,
        (8, 4, 0) => 2,
        (8, 2, 0) => 3,
        (8, 6, 0) => 4,
        _ => return Err("a picture that is interlaced or has not 8 bits a channel".into()),
    };
    if rows == 0 || columns == 0 || rows > LARGEST || columns > LARGEST {
        return Err(format!("{columns} × {rows} pixels"));
    }
    let width = columns * channels;
    let mut lines = Vec::new();
    let limit = (rows * (width + 1)) as u64;
    let unpacked = flate2::read::ZlibDecoder::new(&packed[..]).take(limit).read_to_end(&mut lines);
    if unpacked.map_err(|error| error.to_string())? as u64 != limit {
        return Err("fewer pixels than its header says".into());
    }
    let pixels = unfilter(&lines, width, channels)?;
    if header[9] != 3 {
        return Ok(planes(rows, columns, channels, &pixels));
    }
    let colour = |index: &u8| palette.get(3 * usize::from(*index)..3 * usize::from(*index) + 3);
    let colours: Option<Vec<&[u8]>> = pixels.iter().map(colour).collect();
    Ok(planes(rows, columns, 3, &colours.ok_or("a colour that its palette lacks")?.concat()))
}

/// Undoes the filter of each line: each byte was stored as its distance from a guess.
fn unfilter(lines: &[u8], width: usize, channels: usize) -> std::result::Result<Vec<u8>, String> {
    let mut pixels: Vec<u8> = Vec::with_capacity(lines.len());
    for (row, line) in lines.chunks(width + 1).enumerate() {
        for column in 0..width {
            let at = row * width + column;
            let left = if column >= channels { pixels[at - channels] } else { 0 };
            let above = if row > 0 { pixels[at - width] } else { 0 };
            let corner = if row > 0 && column >= channels { pixels[at - width - channels] } else { 0 };
            let guess = match line[0] {
                0 => 0,
                1 => left,
                2 => above,
                3 => ((u16::from(left) + u16::from(above)) / 2) as u8,
                4 => paeth(left, above, corner),
                filter => return Err(format!("the filter {filter}")),
            };
            pixels.push(line[1 + column].wrapping_add(guess));
        }
    }
    Ok(pixels)
}

/// Which of three neighbours is nearest to left + above − corner.
fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let (a, b, c) = (i16::from(left), i16::from(above), i16::from(corner));
    let distances = [(b - c).abs(), (a - c).abs(), (a + b - 2 * c).abs()];
    if distances[0] <= distances[1] && distances[0] <= distances[2] {
        left
    } else if distances[1] <= distances[2] {
        above
    } else {
        corner
    }
}

/// Reads the binary forms of PGM and PPM.
pub(super) fn decode_portable(file: &[u8]) -> Decoded {
    let channels = match file.get(..2) {
        Some(b"P5") => 1,
        Some(b"P6") => 3,
        _ => return Err("a file that is neither binary PGM nor binary PPM".into()),
    };
    let mut at = 2;
    let mut numbers = [0_usize; 3];
    for number in &mut numbers {
        loop {
            match file.get(at).ok_or("a file that ends too early")? {
                b'#' => at += file[at..].iter().position(|byte| *byte == b'\n').ok_or("an endless remark")?,
                byte if byte.is_ascii_whitespace() => at += 1,
                _ => break,
            }
        }
        let digits = file[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&file[at..at + digits]).unwrap_or_default();
        *number = text.parse().map_err(|_| "a header without sizes")?;
        at += digits;
    }
    let [columns, rows, largest] = numbers;
    if largest != 255 || rows == 0 || columns == 0 || rows > LARGEST || columns > LARGEST {
        return Err(format!("{columns} × {rows} pixels of {largest} levels"));
    }
    let pixels = file.get(at + 1..).unwrap_or_default();
    if pixels.len() != rows * columns * channels {
        return Err(format!("{} bytes of pixels for {columns} × {rows}", pixels.len()));
    }
    Ok(planes(rows, columns, channels, pixels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_undone() {
        // One line for each filter, worked out by hand over two grey columns.
        let lines = [0, 10, 20, 1, 5, 5, 2, 1, 1, 3, 2, 2, 4, 1, 1];
        assert_eq!(unfilter(&lines, 2, 1), Ok(vec![10, 20, 5, 10, 6, 11, 5, 10, 6, 11]));
        assert!(unfilter(&[9, 0, 0], 2, 1).is_err());
    }

    #[test]
    fn damage_is_refused() {
        let picture = Picture { shape: Shape::new(1, 3, 4), pixels: (0..12).collect() };
        let file = encode(&picture);
        assert_eq!(decode(&file), Ok(picture));
        for cut in 0..file.len() - 12 {
            assert!(decode(&file[..cut]).is_err(), "{cut} bytes");
        }
        assert!(decode_portable(b"P5 2 2 255\n\x00").is_err());
        assert!(decode_portable(b"P5 99999999 2 255\n\x00").is_err());
    }
}
