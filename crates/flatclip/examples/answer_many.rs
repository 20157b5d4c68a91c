//! Answers features of many images and prints the seconds: METHOD IMAGES VIEWS CLASSES WIDTH [OPTIONS as JSON]. The same
//! work that `tools/python/crossing.py` gives the Python package.
#![allow(missing_docs, unreachable_pub, clippy::print_stdout, reason = "a program that prints")]

use flatclip::{Classifier, Matrix, Result, TextFeatures, ViewFeatures, rng::Stream};

/// Smooth random numbers, the same every time.
fn numbers(name: &str, count: usize) -> Vec<f32> {
    let mut stream = Stream::new(0, &["answer_many", name]);
    (0..count).map(|_| stream.normal() as f32).collect()
}

pub fn run(words: &[String]) -> Result<f64> {
    let number = |at: usize, default| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let method = words.first().map_or("zero", String::as_str);
    let (images, views, classes, width) = (number(1, 4), number(2, 8), number(3, 10), number(4, 16));
    let json = words.get(5).map_or("{}", String::as_str);
    let options: toml::Table = serde_json::from_str(json).unwrap_or_default();
    let text = numbers("text", classes * width);
    let mut all = numbers("views", images * views * width);
    // Every view lies near a class, as views of images do.
    for (index, row) in all.chunks_mut(width).enumerate() {
        let class = (index / views * 7919) % classes;
        row.iter_mut().zip(&text[class * width..]).for_each(|(x, t)| *x = 1.2 * *x + t);
    }
    let text = TextFeatures::new(Matrix::from_vec(classes, width, text), 100.0)?;
    let classifier = Classifier::from_text_features(text).method(method).options(options).build()?;
    let one = |at: usize| {
        let rows = all[at * views * width..(at + 1) * views * width].to_vec();
        ViewFeatures::new(Matrix::from_vec(views, width, rows))
    };
    let mut best = f64::INFINITY;
    for _ in 0..2 {
        let start = std::time::Instant::now();
        assert_eq!(classifier.answer_many(images, one, &())?.len(), images);
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn main() -> Result<()> {
    println!("{}", run(&std::env::args().skip(1).collect::<Vec<_>>())?);
    Ok(())
}
