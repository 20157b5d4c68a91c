//! The methods on features that another model made (open_clip, SigLIP, a GPU): no tower of ours runs here.
#![allow(missing_docs, unreachable_pub, clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use flatclip::methods::bank::TextBank;
use flatclip::{Classifier, Matrix, TextFeatures, ViewFeatures, adapt};

const CLASSES: [&str; 3] = ["cat", "dog", "car"];
const WIDTH: usize = 16;

/// Stands for what your own encoder gives: rows that lie near one of three directions.
fn rows(seeds: &[usize]) -> Matrix {
    let entry = |&seed: &usize, i: usize| if i % 3 == seed % 3 { 1.0 } else { 0.1 * ((seed + i) as f32).sin() };
    let data = seeds.iter().flat_map(|seed| (0..WIDTH).map(move |i| entry(seed, i))).collect();
    Matrix::from_vec(seeds.len(), WIDTH, data)
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let views = ViewFeatures::new(rows(&[1, 4, 7, 11, 10, 13, 16, 19]))?; // [V, D], row 0 is the image itself
    let text = TextFeatures::new(rows(&[0, 1, 2]), 100.0)?.named(CLASSES)?; // [K, D] and the factor on cosines

    println!("ZERO: {}", adapt("zero", &views, &text)?.label());

    // Options, and a stream for a method that learns from what it sees.
    let tda = Classifier::from_text_features(text).method("tda").build()?;
    let mut stream = tda.stream()?;
    for _ in 0..3 {
        println!("TDA: {}", stream.answer(&views)?.label());
    }

    // STSS needs text features around the prompt: [1 + R, K, D], one block per perturbed prompt.
    let bank = TextBank::from_rows(&rows(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), CLASSES.len(), 2).ok_or("sizes do not fit")?;
    let stss = Classifier::from_text_bank(bank, 100.0)?.classes(CLASSES).method("stss").set("fraction", 0.25)?;
    let answer = stss.build()?.answer(&views)?;
    println!("STSS: {}, kept {:?}", answer.label(), answer.explanation().selected);

    // What a method needs beyond features is said when the classifier is built.
    let text = TextFeatures::new(rows(&[0, 1, 2]), 100.0)?;
    let error = Classifier::from_text_features(text).method("tpt").build().err().ok_or("tpt runs a tower")?;
    println!("{error} ({})", error.code());
    Ok(())
}
