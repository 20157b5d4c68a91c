//! JPEG, bit for bit as libjpeg-turbo decodes it with its default settings: accurate integer IDCT, "fancy" (triangle)
//! chroma upsampling, 16-bit colour tables. Why it is our own: `docs/adr/0003-jpeg-decoder.md`.
//!
//! Baseline and progressive Huffman files with 8 bits, one, three or four components. A data segment that ends too
//! early is filled up with grey, as libjpeg does; a file that ends inside its image is an error, as in PIL.
//!
//! A file of one scan goes from bits to pixels row by row, and only the pixels stay. Where an image comes in several scans
//! (always if it is progressive), coefficients are kept until the last of them, of a large image band by band.

mod coefficients;
mod colour;
mod entropy;
mod headers;
mod huffman;
mod idct;
#[cfg(test)]
mod mutants;

use super::{Mode, Source};
use coefficients::{Bands, Coefficients};
use colour::{Colours, Painter};
use entropy::{Decoder, Member, Scan};
use headers::File;
use std::ops::Range;

/// Coefficients of a block are stored in zigzag order; this is where each belongs.
const NATURAL_ORDER: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// Each scan visits every block. Encoders write some ten; a file with more than this is made to take time.
const MAX_SCANS: usize = 100;
/// Blocks that all scans of an image in bands may visit: ten scans of the largest one visit 20 million.
const MAX_VISITS: usize = 30_000_000;
/// Bytes that libjpeg reads ahead.
const LOOKAHEAD: usize = 8;
/// Coefficients that libjpeg would estimate from the neighbours if scans are missing.
const SMOOTHED: usize = 10;

/// What the headers say, before anything large is allocated.
pub(super) struct Header<'a> {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Bytes of coefficients that are kept while scans are read.
    pub(super) kept: u64,
    pub(super) exif: Option<&'a [u8]>,
}

/// Reads up to the first scan.
pub(super) fn inspect(bytes: &[u8]) -> Result<Header<'_>, String> {
    let (mut file, mut frame) = File::open(bytes)?;
    let (_, members) = file.read_scan(&mut frame)?;
    let kept = if frame.is_buffered(&members) { Bands::of(&frame).bytes } else { 0 };
    Ok(Header { width: frame.width, height: frame.height, kept, exif: file.exif })
}

/// All pixels, in the file's own colour mode (YCbCr as RGB, YCCK as CMYK), or inks as RGB, too.
pub(super) fn decode(bytes: &[u8], as_rgb: bool) -> Result<Source, String> {
    let (mut file, mut frame) = File::open(bytes)?;
    // A block takes at least one bit of the file, so a small file cannot ask for much memory.
    if frame.blocks() / 8 > bytes.len() {
        return Err(format!("{} x {} pixels in {} bytes", frame.width, frame.height, bytes.len()));
    }
    let (scan, members) = file.read_scan(&mut frame)?;
    let painter = Painter::new(&frame, file.colours(&frame), as_rgb)?;
    let painter = if frame.is_buffered(&members) {
        read_bands(bytes, Bands::of(&frame), painter)?
    } else {
        read_rows(&mut file, &frame, scan, &members, painter)?
    };
    let (mode, samples) = painter.finish()?;
    Ok(Source::new(frame.width, frame.height, mode, samples))
}

struct Component {
    id: u8,
    /// Sampling factors.
    across: usize,
    down: usize,
    quantization: usize,
    /// Samples that mean something.
    width: usize,
    height: usize,
    /// Blocks, filled up to whole units of the scan.
    block_columns: usize,
    block_rows: usize,
    /// The quantization table, once a scan has been met.
    table: Option<[u16; 64]>,
    /// The lowest bit that is known of each coefficient (zigzag); -1 if nothing is.
    known: [i8; 64],
}

impl Component {
    fn blocks(&self) -> usize {
        self.block_columns * self.block_rows
    }
}

struct Frame {
    width: usize,
    height: usize,
    progressive: bool,
    most_across: usize,
    most_down: usize,
    components: Vec<Component>,
}

impl Frame {
    fn blocks(&self) -> usize {
        self.components.iter().map(Component::blocks).sum()
    }

    /// The rows of a scan's units that lie in a band. The units of a scan of one component are its blocks.
    fn rows_of(&self, members: &[Member], band: &Range<usize>) -> Range<usize> {
        let each = if let &[(index, ..)] = members { self.components[index].down } else { 1 };
        let (_, rows) = Decoder::units(self, members);
        (band.start * each).min(rows)..(band.end * each).min(rows)
    }

    /// Whether more scans than the one with these components make the image.
    fn is_buffered(&self, members: &[Member]) -> bool {
        self.progressive || members.len() < self.components.len()
    }
}

impl File<'_> {
    fn colours(&self, frame: &Frame) -> Colours {
        let ids: Vec<u8> = frame.components.iter().map(|c| c.id).collect();
        match (ids.as_slice(), self.adobe) {
            ([_], _) => Colours::Grey,
            ([_, _, _], _) if self.jfif => Colours::Luma,
            ([_, _, _], Some(0)) | ([b'R', b'G', b'B'], None) => Colours::Rgb,
            ([_, _, _], _) => Colours::Luma,
            (_, Some(1..)) => Colours::LumaBlack,
            _ => Colours::Cmyk,
        }
    }
}

/// One scan that holds everything: each row of units becomes pixels at once.
fn read_rows(
    file: &mut File<'_>,
    frame: &Frame,
    scan: Scan,
    members: &[Member],
    mut painter: Painter,
) -> Result<Painter, String> {
    let mut decoder = Decoder::new(file.rest(), scan, &file.direct, &file.alternating);
    let (_, rows) = Decoder::units(frame, members);
    let block_rows = |component: &Component| if members.len() > 1 { component.down } else { 1 };
    let mut blocks: Vec<Coefficients> =
        frame.components.iter().map(|c| Coefficients::new(c, 0..block_rows(c), 0)).collect();
    for _ in 0..rows {
        blocks.iter_mut().for_each(Coefficients::clear);
        decoder.row(frame, members, &mut blocks, 0)?;
        painter.paint(frame, &blocks, |component| 0..block_rows(component))?;
    }
    let used = decoder.used();
    file.pass(used);
    let left = file.rest().len();
    // The end marker may be missing, if so much follows that libjpeg does not reach for more. What follows must not be wrong.
    loop {
        match file.marker() {
            Ok(0xd9) => return Ok(painter),
            Ok(0xda) => return Err("a second scan of an image that is complete".into()),
            Ok(code) => file.read_segment(code)?,
            Err(_) if left >= LOOKAHEAD => return Ok(painter),
            Err(reason) => return Err(reason),
        }
    }
}

/// A scan, and its decoder at the first row of each band.
type Starts<'a> = (Vec<Member>, Vec<Decoder<'a>>);

/// The pixels of one band after another.
fn read_bands(bytes: &[u8], bands: Bands, mut painter: Painter) -> Result<Painter, String> {
    let (mut file, mut frame) = File::open(bytes)?;
    let rows: Vec<Range<usize>> = bands.rows(&frame).collect();
    let (mut blocks, scans) = read_scans(&mut file, &mut frame, &rows)?;
    for (number, band) in rows.iter().enumerate() {
        if number > 0 {
            // The band before is gone when the next is made.
            blocks.clear();
            blocks = read_band(&frame, &scans, number, band)?;
        }
        for unit in band.clone() {
            painter.paint(&frame, &blocks, |component| unit * component.down..(unit + 1) * component.down)?;
        }
    }
    Ok(painter)
}

/// All scans up to the end of the image: the coefficients of the first band, and where the others begin.
fn read_scans<'a>(
    file: &mut File<'a>,
    frame: &mut Frame,
    bands: &[Range<usize>],
) -> Result<(Vec<Coefficients>, Vec<Starts<'a>>), String> {
    let first = bands.first().cloned().unwrap_or_default();
    let kept = |c: &Component| Coefficients::new(c, first.start * c.down..first.end * c.down, c.block_rows);
    let mut blocks: Vec<Coefficients> = frame.components.iter().map(kept).collect();
    let mut scans = Vec::new();
    let mut visits = 0;
    let mut next = Some(file.read_scan(frame)?);
    for _ in 0..MAX_SCANS {
        let Some((scan, members)) = next.take() else { break };
        visits += members.iter().map(|&(index, ..)| frame.components[index].blocks()).sum::<usize>();
        if bands.len() > 1 && visits > MAX_VISITS {
            return Err(format!("scans over more than {MAX_VISITS} blocks"));
        }
        let mut decoder = Decoder::new(file.rest(), scan, &file.direct, &file.alternating);
        let mut starts = Vec::with_capacity(bands.len());
        for band in bands {
            starts.push(decoder.clone());
            for y in frame.rows_of(&members, band) {
                decoder.row(frame, &members, &mut blocks, y)?;
            }
        }
        scans.push((members, starts));
        let used = decoder.used();
        file.pass(used);
        next = loop {
            match file.marker()? {
                0xd9 => break None,
                0xda => break Some(file.read_scan(frame)?),
                code => file.read_segment(code)?,
            }
        };
    }
    if next.is_some() {
        return Err(format!("more than {MAX_SCANS} scans"));
    }
    let known = if frame.progressive { SMOOTHED } else { 1 };
    if frame.components.iter().any(|c| c.table.is_none() || c.known[..known].iter().any(|&bit| bit != 0)) {
        return Err("the file ends before all scans of its image have come".into());
    }
    Ok((blocks, scans))
}

/// The coefficients of a later band.
fn read_band(
    frame: &Frame,
    scans: &[Starts<'_>],
    number: usize,
    band: &Range<usize>,
) -> Result<Vec<Coefficients>, String> {
    let kept = |c: &Component| Coefficients::new(c, band.start * c.down..band.end * c.down, 0);
    let mut blocks: Vec<Coefficients> = frame.components.iter().map(kept).collect();
    for (members, starts) in scans {
        let mut decoder = starts[number].clone();
        for y in frame.rows_of(members, band) {
            decoder.row(frame, members, &mut blocks, y)?;
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that libjpeg's encoder wrote, with the checksum of the RGB bytes that PIL decodes them to.
    pub(super) const FILES: &[(&str, &[u8], u32)] = &[
        ("baseline-444", include_bytes!("testdata/baseline-444.jpg"), 0x4ac46c4c),
        ("baseline-422", include_bytes!("testdata/baseline-422.jpg"), 0xdecb646a),
        ("baseline-420", include_bytes!("testdata/baseline-420.jpg"), 0xea3d93be),
        ("baseline-440", include_bytes!("testdata/baseline-440.jpg"), 0xf1490bc4),
        ("baseline-411", include_bytes!("testdata/baseline-411.jpg"), 0x68fef3da),
        ("progressive-420", include_bytes!("testdata/progressive-420.jpg"), 0x615391de),
        ("progressive-444", include_bytes!("testdata/progressive-444.jpg"), 0xb6791188),
        ("restarts", include_bytes!("testdata/restarts.jpg"), 0x01a104ee),
        ("grey", include_bytes!("testdata/grey.jpg"), 0x97260a21),
        ("cmyk", include_bytes!("testdata/cmyk.jpg"), 0xfac1d2dd),
        ("rgb", include_bytes!("testdata/rgb.jpg"), 0xfac1d2dd),
        ("narrow", include_bytes!("testdata/narrow.jpg"), 0x7a093c35),
    ];

    #[test]
    fn every_kind_of_file_decodes_to_the_bytes_of_libjpeg_turbo() {
        for (name, bytes, sum) in FILES {
            let image = decode(bytes, false).unwrap().to_image();
            let header = inspect(bytes).unwrap();
            assert_eq!((header.width, header.height), (image.width, image.height), "{name}");
            assert_eq!(decode(bytes, true).unwrap().to_image(), image, "{name}");
            assert_eq!(crc32fast::hash(&image.rgb), *sum, "{name}");
        }
    }

    /// Pixels and refusals do not depend on the number of bands, in damaged files neither.
    #[test]
    fn bands_give_the_pixels_of_the_whole() {
        let in_bands = |bytes: &[u8], count: usize| -> Option<Vec<u8>> {
            let (mut file, mut frame) = File::open(bytes).ok()?;
            file.read_scan(&mut frame).ok()?;
            let painter = Painter::new(&frame, file.colours(&frame), false).ok()?;
            Some(read_bands(bytes, Bands { count, bytes: 0 }, painter).ok()?.finish().ok()?.1)
        };
        let mut stream = crate::rng::Stream::new(2, &["bands"]);
        for name in ["progressive-420", "progressive-444"] {
            let whole = FILES.iter().find(|(file, ..)| *file == name).unwrap().1;
            let mut read = 0;
            for turn in 0..100 {
                let mut bytes = whole.to_vec();
                if turn > 0 {
                    let at = bytes.len() / 4 + stream.below(bytes.len() * 3 / 4);
                    bytes[at] = stream.bits() as u8;
                }
                let expected = in_bands(&bytes, 1);
                read += usize::from(expected.is_some());
                for count in [2, 3, 1000] {
                    assert!(in_bands(&bytes, count) == expected, "{name}, change {turn}, {count} bands");
                }
            }
            assert!(read > 20, "{name}: {read} of 100 were read");
        }
    }

    #[test]
    fn a_file_that_ends_inside_its_image_is_an_error() {
        for (name, bytes, _) in FILES {
            let data = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
            for end in [2, data / 2, data + 1, data + 14] {
                assert!(decode(&bytes[..end], false).is_err(), "{name} cut at {end}");
            }
        }
    }

    #[test]
    fn flipped_bytes_never_panic() {
        let mut stream = crate::rng::Stream::new(1, &["damage"]);
        for (_, bytes, _) in FILES {
            for _ in 0..300 {
                let mut damaged = bytes.to_vec();
                for _ in 0..1 + stream.below(4) {
                    let at = stream.below(damaged.len());
                    damaged[at] = stream.bits() as u8;
                }
                if inspect(&damaged).is_ok_and(|header| header.width * header.height < 1 << 20) {
                    let _ = decode(&damaged, false);
                }
            }
        }
    }

    #[test]
    fn a_image_of_a_thousand_scans_is_refused() {
        let bytes = FILES.iter().find(|(name, _, _)| *name == "progressive-420").unwrap().1;
        let last = bytes.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
        let (body, scan) = (&bytes[..bytes.len() - 2], &bytes[last..bytes.len() - 2]);
        let many = [body, &scan.repeat(1000), &[0xff, 0xd9]].concat();
        assert!(decode(&many, false).err().unwrap().contains("more than 100 scans"));
    }

    #[test]
    fn a_small_file_cannot_ask_for_much_memory() {
        let mut bytes = FILES[0].1.to_vec();
        let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        bytes[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
        assert!(decode(&bytes, false).err().unwrap().contains("65535 x 65535"));
    }
}
