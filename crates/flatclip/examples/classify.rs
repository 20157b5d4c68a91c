//! Answers a folder of images as CSV: `cargo run --release --example classify -- FOLDER cat dog fish`.
//! Without arguments it draws three images and answers those.
#![allow(missing_docs, unreachable_pub, clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use flatclip::{Classifier, Model};
use std::path::PathBuf;

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(std::env::args().skip(1))
}

pub fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn std::error::Error>> {
    let drawn = tempfile::tempdir()?;
    let folder = arguments.next().map_or_else(|| draw(drawn.path()), |folder| Ok(PathBuf::from(folder)))?;
    let mut classes: Vec<String> = arguments.collect();
    if classes.is_empty() {
        classes = ["apple", "cat", "fish", "lamp"].map(String::from).to_vec();
    }
    let model = Model::load("pocket")?;
    let classifier = Classifier::builder(&model).classes(classes).method("stss").build()?;
    println!("image,class,probability");
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match classifier.answer(&path) {
            Ok(answer) => println!("{},{},{:.4}", path.display(), answer.label(), answer.confidence()),
            Err(error) => eprintln!("{error} ({})", error.code()),
        }
    }
    Ok(())
}

/// Some images of the pocket dataset, for a start without photos.
fn draw(folder: &std::path::Path) -> std::io::Result<PathBuf> {
    use flatclip_pocket::{Domain, SIDE, World, draw, png, scene};
    for index in 0..3 {
        let rgb = draw(&scene(World::Test, Domain::Photo, index));
        std::fs::write(folder.join(format!("{index}.png")), png(&rgb, SIDE as u32, SIDE as u32))?;
    }
    Ok(folder.to_path_buf())
}
