//! Memory of the command line: flat in the number of images, and not as large as a file says it is.

use super::images::gif;
use crate::fault::Trial;
use crate::fault::program::{Program, finish_within, peak_of_children};
use anyhow::{Result, ensure};
use flatclip::Image;
use flatclip::image::DecodeOptions;
use flatclip::image::sheet::encode_png;
use std::time::Duration;

/// As a telephone takes them.
const SIZE: (usize, usize) = (4000, 3000);
/// What a second image may add to the first: buffers of the allocator.
const ROOM: u64 = 24 << 20;

/// B12-memory.
pub(super) fn images(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    let folder = trial.folder.join("photos");
    std::fs::create_dir(&folder)?;
    let rgb = (0..3 * SIZE.0 * SIZE.1).map(|place| (place / 997) as u8).collect();
    let photo = encode_png(&Image { width: SIZE.0, height: SIZE.1, rgb })?;
    let predict = ["predict", "photos", "--classes", "cat,dog", "--format", "csv"];
    std::fs::write(trial.folder.join("small.gif"), gif(10))?;
    program.works(&["predict", "small.gif", "--classes", "cat,dog"])?;
    let least = peak_of_children();
    let mut peaks = Vec::new();
    for count in [1, trial.count(30).max(4)] {
        for number in 0..count {
            std::fs::write(folder.join(format!("{number:04}.png")), &photo)?;
        }
        trial.case(&format!("{count} photos of 12 megapixels"), || {
            let ended = finish_within(program.command(&predict), Duration::from_secs(300))?;
            ensure!(ended.status.success(), "exit {}: {}", ended.status, ended.stderr.trim());
            let rows = ended.stdout.iter().filter(|byte| **byte == b'\n').count();
            ensure!(rows > count, "{rows} lines for {count} photos");
            peaks.push(peak_of_children());
            ensure!(peaks.iter().all(|peak| *peak < peaks[0] + ROOM), "peaks of {peaks:?} bytes");
            Ok(())
        });
    }
    let (before, folder) = (peak_of_children(), trial.folder.clone());
    for (name, start) in
        [("nothing.jpg", &b""[..]), ("header.jpg", b"\xff\xd8\xff\xe0"), ("png.png", b"\x89PNG\r\n\x1a\n")]
    {
        trial.case(&format!("a sparse file of 3 GB, {name}"), || {
            let path = folder.join(name);
            std::fs::write(&path, start)?;
            std::fs::OpenOptions::new().write(true).open(&path)?.set_len(3 << 30)?;
            program.refuses(&["predict", name, "--classes", "cat,dog"], "bytes")?;
            ensure!(peak_of_children() < before + ROOM, "{} MB", peak_of_children() >> 20);
            Ok(())
        });
    }
    trial.case("a file of 200 MB that is no image", || {
        let path = folder.join("zeros.jpg");
        std::fs::File::create(&path)?.set_len(200 << 20)?;
        program.refuses(&["predict", "zeros.jpg", "--classes", "cat,dog"], "not a JPEG")?;
        ensure!(peak_of_children() < before + ROOM, "{} MB", peak_of_children() >> 20);
        Ok(())
    });
    let side = DecodeOptions::default().max_pixels.isqrt();
    let allowed = least + 3 * side * side + (64 << 20);
    let mut peak = 0;
    trial.case("the largest image, 35 bytes", || {
        std::fs::write(folder.join("largest.gif"), gif(side as u16))?;
        program.works(&["predict", "largest.gif", "--classes", "cat,dog", "--method", "zero"])?;
        peak = peak_of_children();
        ensure!(peak < allowed, "{} MB, allowed {} MB", peak >> 20, allowed >> 20);
        Ok(())
    });
    trial.most("peak MB with 10 x 10 pixels", least >> 20);
    trial.most("peak MB with 89 million pixels", peak >> 20);
    for (peak, what) in peaks.iter().zip(["peak MB with one photo", "peak MB with all photos"]) {
        trial.most(what, peak >> 20);
    }
    Ok(())
}
