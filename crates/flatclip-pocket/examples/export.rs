//! Writes images and captions for the training scripts in `tools/pocket`:
//! `export OUTDIR WORLD DOMAIN COUNT CAPTIONS` makes `WORLD-DOMAIN.rgb` (raw bytes) and `WORLD-DOMAIN.jsonl`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

use flatclip_pocket::{Caption, Domain, World, caption, render_split, scene};

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let usage = || io::Error::other("usage: export OUTDIR train|validation|test DOMAIN COUNT CAPTIONS");
    let [out, world, domain, count, captions] = args.as_slice() else { return Err(usage()) };
    let world = World::from_name(world).ok_or_else(usage)?;
    let domain = Domain::from_name(domain).ok_or_else(usage)?;
    let count: usize = count.parse().map_err(io::Error::other)?;
    let captions: u64 = captions.parse().map_err(io::Error::other)?;
    fs::create_dir_all(out)?;
    let stem = PathBuf::from(out).join(format!("{}-{}", world.name(), domain.name()));
    fs::write(stem.with_extension("rgb"), render_split(world, domain, count).pixels)?;
    let mut lines = String::new();
    for index in 0..count as u64 {
        let scene = scene(world, domain, index);
        let captions: Vec<String> = (0..captions).map(|turn| json(&caption(&scene, turn))).collect();
        let facts = format!(
            r#""class":{},"colour":"{}","second_colour":"{}","background":"{}","domain":"{}""#,
            scene.class,
            scene.colour.name(),
            scene.second_colour.name(),
            scene.background.phrase(),
            domain.name()
        );
        let _ = writeln!(lines, r#"{{{facts},"captions":[{}]}}"#, captions.join(","));
    }
    fs::write(stem.with_extension("jsonl"), lines)
}

/// No word of a caption needs escaping.
fn json(caption: &Caption) -> String {
    let word = |value: Option<&str>| value.map_or("null".to_string(), |value| format!(r#""{value}""#));
    format!(
        r#"{{"text":"{}","class":{},"colour":{},"second_colour":{},"background":{},"style":{}}}"#,
        caption.text,
        caption.class,
        word(caption.colour.map(|colour| colour.name())),
        word(caption.second_colour.map(|colour| colour.name())),
        word(caption.background.map(|background| background.phrase())),
        word(caption.style.map(|style| style.name()))
    )
}
