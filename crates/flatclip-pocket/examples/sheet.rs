//! Writes the contact sheet: `sheet OUT.png [WORLD]`.

use std::{env, fs, io};

use flatclip_pocket::World;

fn main() -> io::Result<()> {
    let out = env::args().nth(1).ok_or_else(|| io::Error::other("usage: sheet OUT.png [WORLD]"))?;
    let world = env::args().nth(2).and_then(|name| World::from_name(&name)).unwrap_or(World::Validation);
    fs::write(out, flatclip_pocket::sheet(world))
}
