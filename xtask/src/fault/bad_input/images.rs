//! Images: every layout against Pillow's own pixels, damaged ones, and small files of many pixels.

use crate::fault::Trial;
use crate::fault::readers::{corpus, reader};
use anyhow::{Context as _, Result, ensure};
use flatclip::image::{DecodeOptions, decode};
use flatclip::rng::Stream;
use std::io::Write as _;
use std::time::Instant;

/// B5: cuts and flips; what is accepted has the size that the file says.
pub(super) fn damaged_jpeg(trial: &mut Trial) -> Result<()> {
    let (folder, jpeg) = (trial.folder.clone(), reader("jpeg")?);
    let files = corpus("jpeg")?;
    let mut draw = Stream::new(0, &["B5"]);
    let (cuts, flips) = (trial.count(350).div_ceil(files.len()), trial.count(4650).div_ceil(files.len()));
    for (name, bytes) in &files {
        let whole = decode(bytes, &DecodeOptions::default())?;
        for number in 0..cuts + flips {
            let mut copy = bytes.clone();
            if number < cuts {
                copy.truncate(draw.below(bytes.len()));
            } else {
                let place = draw.below(bytes.len());
                copy[place] ^= 1 << draw.below(8);
            }
            let mut fate = None;
            trial.case(&format!("{name} {}", if number < cuts { "cut" } else { "flipped" }), || {
                let start = Instant::now();
                fate = Some(jpeg.fate(&folder, "p.jpg", &copy, None)?);
                ensure!(start.elapsed().as_secs() < 5, "took {:?}", start.elapsed());
                if let Ok(image) = decode(&copy, &DecodeOptions::default()) {
                    let told = (image.width as u64) * (image.height as u64);
                    ensure!(told <= DecodeOptions::default().max_pixels, "{told} pixels");
                    ensure!(number >= cuts || whole.width == image.width, "a cut changed the size");
                }
                Ok(())
            });
            if let Some(fate) = fate {
                trial.add(fate.word(), 1);
            }
        }
    }
    Ok(())
}

/// B7: the largest difference to Pillow may be two levels.
pub(super) fn formats(trial: &mut Trial) -> Result<()> {
    let mut files = corpus("formats")?;
    let place = files.iter().position(|(name, _)| name == "expected.json").context("no expected.json")?;
    let expected: serde_json::Value = serde_json::from_slice(&files.remove(place).1)?;
    for (name, bytes) in &files {
        let mut largest = 0;
        trial.case(name, || {
            let image = decode(bytes, &DecodeOptions::pillow())?;
            let told = &expected[name.as_str()];
            let size = [told["size"][0].as_u64(), told["size"][1].as_u64()];
            ensure!(size == [Some(image.width as u64), Some(image.height as u64)], "another size: {size:?}");
            let hex = told["rgb"].as_str().context("no pixels to compare with")?;
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16);
            let theirs = (0..hex.len()).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>()?;
            largest = image.rgb.iter().zip(&theirs).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
            ensure!(theirs.len() == image.rgb.len() && largest <= 2, "differs from Pillow by {largest} levels");
            Ok(())
        });
        trial.most("largest difference in levels", largest.into());
    }
    Ok(())
}

/// B6: small files that claim or hold many pixels.
pub(super) fn bombs(trial: &mut Trial) -> Result<()> {
    let refused: Vec<(&str, Vec<u8>)> = vec![
        ("PNG of 30 000 squared", png(30_000, 8, 2, 0, b"", false)),
        ("GIF of 65 535 squared", gif(65_535)),
        ("JPEG of 65 500 squared", jpeg_header(65_500)),
        ("WebP of 16 383 squared", webp_header()),
        ("BMP of 2 147 483 647 squared", bmp_header()),
    ];
    for (name, bytes) in refused {
        trial.case(name, || {
            let start = Instant::now();
            let (result, taken) = taken_by(&bytes);
            ensure!(result.is_err(), "was read");
            ensure!(start.elapsed().as_millis() < 500, "took {:?}", start.elapsed());
            ensure!(taken < 4 << 20, "{} MB before it was refused", taken >> 20);
            Ok(())
        });
    }
    let (side, profile) = (5000u64, chunk(b"iCCP", &[b"x\0\0", &zeros(256 << 20)?[..]].concat()));
    // Where the peak cannot be set back, it is that of the largest bomb before.
    let most = DecodeOptions::default().max_pixels;
    let sets_back = std::fs::write(PEAK, "5").is_ok();
    let own = |pixels: u64| 3 * if sets_back { pixels } else { most } + (64 << 20);
    let mut held: Vec<(String, u64, Vec<u8>)> = vec![
        ("PNG with a profile of 256 MB".into(), own(100), png(10, 8, 2, 0, &profile, true)),
        ("GIF of 5000 squared, 35 bytes".into(), own(side * side), gif(side as u16)),
        ("PNG of 16 bits with opacity".into(), own(side * side), png(side as u32, 16, 6, 0, b"", true)),
        ("PNG of 16 bits, interlaced".into(), own(side * side), png(side as u32, 16, 6, 1, b"", true)),
    ];
    for (name, packed) in corpus("bombs")? {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut bytes)?;
        // A decoder that keeps four bytes of each pixel beside the result is bound by the largest image that is allowed.
        let largest = name.starts_with("lossless") || name.contains("88mp");
        let allowed = own(if largest { most } else { side * side });
        held.push((name.trim_end_matches(".gz").to_owned(), allowed, bytes));
    }
    let largest = held.iter().find(|(name, ..)| name == "progressive-88mp.jpg").context("no progressive-88mp.jpg")?;
    let last = largest.2.windows(2).rposition(|pair| pair == [0xff, 0xda]).context("no scan")?;
    let (body, scan) = (&largest.2[..largest.2.len() - 2], &largest.2[last..largest.2.len() - 2]);
    let many = [body, &scan.repeat(85), &[0xff, 0xd9]].concat();
    held.push(("progressive-88mp.jpg, 95 scans".into(), own(most), many));
    for (name, allowed, bytes) in held {
        let (mut taken, mut fate) = (0, "refused");
        trial.case(&name, || {
            let start = Instant::now();
            let result;
            (result, taken) = taken_by(&bytes);
            fate = if result.is_ok() { "read" } else { "refused" };
            ensure!(taken < allowed, "{} MB, allowed {} MB", taken >> 20, allowed >> 20);
            ensure!(start.elapsed().as_secs() < 20, "took {:?}", start.elapsed());
            Ok(())
        });
        trial.note(&name, format!("{fate} in {} MB", taken >> 20));
    }
    trial.case("JPEG of a thousand scans", || {
        let start = Instant::now();
        let files = corpus("jpeg")?;
        let progressive = &files.iter().find(|(name, _)| name == "progressive.jpg").context("no progressive.jpg")?.1;
        let scan = progressive.windows(2).position(|pair| pair == [0xff, 0xda]).context("no scan")?;
        let end = progressive.len() - 2;
        let body = progressive[scan..end].repeat(1000);
        let bomb = [&progressive[..scan], &body, &[0xff, 0xd9]].concat();
        let _ = decode(&bomb, &DecodeOptions::default());
        ensure!(start.elapsed().as_secs() < 5, "took {:?}", start.elapsed());
        Ok(())
    });
    Ok(())
}

/// Writing 5 to it sets a process's peak back to what is there now, so that each bomb has its own.
const PEAK: &str = "/proc/self/clear_refs";

/// Decodes, and measures the memory that it takes at its peak beside what was there before.
fn taken_by(bytes: &[u8]) -> (flatclip::Result<flatclip::Image>, u64) {
    let _ = std::fs::write(PEAK, "5");
    let before = flatclip::resident_memory().0;
    let result = decode(bytes, &DecodeOptions::default());
    (result, flatclip::resident_memory().1.saturating_sub(before))
}

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [kind, data].concat();
    [&(data.len() as u32).to_be_bytes()[..], &body, &crc32fast::hash(&body).to_be_bytes()].concat()
}

fn zeros(count: usize) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let some = vec![0; 1 << 20];
    for start in (0..count).step_by(some.len()) {
        encoder.write_all(&some[..some.len().min(count - start)])?;
    }
    Ok(encoder.finish()?)
}

fn png(side: u32, depth: u8, colour: u8, interlaced: u8, more: &[u8], whole: bool) -> Vec<u8> {
    let samples = if colour == 6 { 4 } else { 3 };
    let row = side as usize * samples * usize::from(depth) / 8;
    let header = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[depth, colour, 0, 0, interlaced]].concat();
    let data = if whole { zeros((row + 4) * side as usize).unwrap_or_default() } else { vec![0; 100] };
    [b"\x89PNG\r\n\x1a\n", &chunk(b"IHDR", &header)[..], more, &chunk(b"IDAT", &data), &chunk(b"IEND", b"")].concat()
}

pub(super) fn gif(side: u16) -> Vec<u8> {
    let side = side.to_le_bytes();
    [b"GIF89a", &side[..], &side, b"\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;"].concat()
}

fn jpeg_header(side: u16) -> Vec<u8> {
    let side = side.to_be_bytes();
    let frame = [&[0xff, 0xc0, 0, 17, 8], &side[..], &side, &[3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]].concat();
    let scan = [0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0, 0];
    [&[0xff, 0xd8], &frame[..], &scan, &[0; 20], &[0xff, 0xd9]].concat()
}

fn webp_header() -> Vec<u8> {
    // Lossless, 16 383 x 16 383: 14 bits each, less one.
    let bits: u32 = 16_382 | (16_382 << 14);
    let body = [&[0x2f], &bits.to_le_bytes()[..], &[0; 64]].concat();
    let size = (body.len() as u32).to_le_bytes();
    let riff = (body.len() as u32 + 12).to_le_bytes();
    [b"RIFF", &riff[..], b"WEBPVP8L", &size, &body].concat()
}

fn bmp_header() -> Vec<u8> {
    let side = i32::MAX.to_le_bytes();
    let info = [&40u32.to_le_bytes()[..], &side, &side, &[1, 0, 24, 0], &[0; 24]].concat();
    [b"BM", &[0; 8][..], &54u32.to_le_bytes(), &info, &[0; 64]].concat()
}
