//! Times the renderer: `speed [COUNT]` images of each domain on all threads. Writes nothing.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use flatclip_pocket::{Domain, World, render_split};

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(500);
    for domain in Domain::ALL {
        let start = Instant::now();
        let split = render_split(World::Train, domain, count);
        let seconds = start.elapsed().as_secs_f64();
        println!("{:10} {:6.0} images/s, {} images", domain.name(), split.labels.len() as f64 / seconds, count);
    }
}
