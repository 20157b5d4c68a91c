//! `flatclip pocket`: images of the pocket dataset, to look at and to play with.

use crate::prelude::*;
use flatclip::Progress as _;
use flatclip_pocket::{CLASS_NAMES, Domain, SIDE, World, draw, png, scene, sheet};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(clap::Subcommand)]
pub(crate) enum What {
    /// Write a contact sheet: every class in every domain, as one PNG
    Sheet {
        /// The PNG to write
        out: PathBuf,
        /// The world to draw from
        #[arg(long, value_parser = parse_world, default_value = "validation")]
        world: World,
    },
    /// Write images as DIR/CLASS/NUMBER.png, for `--data folder:DIR`
    Export {
        /// The folder to write to; it must be empty or absent
        dir: PathBuf,
        /// How the scenes are drawn: photo, sketch, cartoon, painting, noise, rendition or hard
        #[arg(long, value_parser = parse_domain, default_value = "photo")]
        domain: Domain,
        /// How many images; a multiple of 32 has all classes equally often
        #[arg(long, default_value_t = 320, value_name = "N")]
        count: usize,
        /// The world to draw from: models learn from train, choices are made on validation, test is read once
        #[arg(long, value_parser = parse_world, default_value = "test")]
        world: World,
    },
}

fn parse_world(name: &str) -> Result<World, String> {
    World::from_name(name).ok_or_else(|| format!("expected one of {}", World::ALL.map(World::name).join(", ")))
}

fn parse_domain(name: &str) -> Result<Domain, String> {
    Domain::from_name(name).ok_or_else(|| format!("expected one of {}", Domain::ALL.map(Domain::name).join(", ")))
}

pub(crate) fn run(what: What, out: &Output) -> Result<()> {
    match what {
        What::Sheet { out: path, world } => {
            write_atomic(&path, &sheet(world))?;
            out.say(&json!({ "sheet": path, "world": world.name() }), path.display())
        }
        What::Export { dir, domain, count, world } => export(&dir, domain, count, world, out),
    }
}

fn export(dir: &Path, domain: Domain, count: usize, world: World, out: &Output) -> Result<()> {
    let filled = dir.exists() && dir.read_dir().with_context(|| dir.display().to_string())?.next().is_some();
    ensure!(!filled, "{}: expected an empty or absent folder, found files in it; name another", dir.display());
    // Only classes that get an image: an empty class folder would be a class without images.
    for index in 0..count as u64 {
        let folder = dir.join(CLASS_NAMES[scene(world, domain, index).class]);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let done = AtomicU64::new(0);
    out.start("images", Some(count as u64));
    (0..count as u64).into_par_iter().try_for_each(|index| -> Result<()> {
        let scene = scene(world, domain, index);
        let path = dir.join(CLASS_NAMES[scene.class]).join(format!("{index:06}.png"));
        write_atomic(&path, &png(&draw(&scene), SIDE as u32, SIDE as u32))?;
        out.advance(1 + done.fetch_add(1, Ordering::Relaxed), "");
        Ok(())
    })?;
    out.finish();
    let (domain, world) = (domain.name(), world.name());
    out.say(
        &json!({ "dir": dir, "domain": domain, "world": world, "count": count }),
        format_args!("{}: {count} images of {domain} ({world})", dir.display()),
    )
}
