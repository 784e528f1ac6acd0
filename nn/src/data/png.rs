//! Images with 8 bits per channel: reads and writes PNG, reads PGM and PPM.

use crate::shape::Shape;

/// An image as planes: one map for greyscale, three for colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Maps, rows and columns.
    pub shape: Shape,
    /// The planes, consecutively.
    pub pixels: Vec<u8>,
}

pub(super) type Decoded = std::result::Result<Picture, String>;

/// An upper bound on rows and columns: larger images are not realistic training data, and a header may contain any number.
const LARGEST: usize = 1 << 14;

/// Planes from interleaved pixels of `channels` bytes, of which the first one or three are kept.
fn planes(rows: usize, columns: usize, channels: usize, pixels: &[u8]) -> Picture {
    let maps = if channels >= 3 { 3 } else { 1 };
    let plane = |map: usize| pixels.iter().skip(map).step_by(channels).copied();
    Picture { shape: Shape::new(maps, rows, columns), pixels: (0..maps).flat_map(plane).collect() }
}

/// Encodes an image as a PNG file.
pub fn encode(picture: &Picture) -> Vec<u8> {
    let Shape { maps, rows, columns } = picture.shape;
    let mut pixels = Vec::with_capacity(picture.pixels.len());
    for place in 0..rows * columns {
        pixels.extend((0..maps).map(|map| picture.pixels[map * rows * columns + place]));
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, columns as u32, rows as u32);
    encoder.set_color(if maps == 3 { png::ColorType::Rgb } else { png::ColorType::Grayscale });
    encoder.set_depth(png::BitDepth::Eight);
    // The images are small and noisy: PNG row filters gain nothing and only make the rows harder to read.
    encoder.set_filter(png::Filter::NoFilter);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&pixels)?;
        writer.finish()
    });
    written.expect("memory can be written");
    file
}

/// Decodes a PNG file of up to 8 bits per channel; the alpha channel is dropped.
pub fn decode(file: &[u8]) -> Decoded {
    let wrong = |error: png::DecodingError| error.to_string();
    let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(wrong)?;
    let (columns, rows) = (reader.info().width as usize, reader.info().height as usize);
    if rows > LARGEST || columns > LARGEST {
        return Err(format!("{columns} × {rows} pixels"));
    }
    let (colour, depth) = reader.output_color_type();
    if depth != png::BitDepth::Eight {
        return Err("an image with more than 8 bits per channel".into());
    }
    let mut pixels = vec![0; rows * columns * colour.samples()];
    reader.next_frame(&mut pixels).map_err(wrong)?;
    // Reads to the end, to verify the checksums of the last chunks.
    reader.finish().map_err(wrong)?;
    Ok(planes(rows, columns, colour.samples(), &pixels))
}

/// Decodes the binary variants of PGM and PPM.
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
            match file.get(at).ok_or("a truncated file")? {
                b'#' => {
                    at +=
                        file[at..].iter().position(|byte| *byte == b'\n').ok_or("a comment without an end")?
                }
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
    fn damage_is_rejected() {
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
