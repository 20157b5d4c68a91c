//! The image tower in 8 bits.

use super::super::eight::outliers;
use super::super::{Clip, Features, LoadOptions, Precision};
use super::{draws, tiny_config};
use crate::weights::random_of;

#[test]
fn outliers_are_the_channels_with_the_largest_values_in_any_row() {
    let (rows, width) = (5, 100);
    let mut x = draws("rows", rows * width);
    for (channel, size) in [(93, 50.0), (7, -40.0), (50, 30.0)] {
        x[channel % rows * width + channel] = size;
    }
    let found = outliers(&x, width);
    assert!([7, 50, 93].iter().all(|channel| found.contains(channel)), "{found:?}");
    assert!(found.is_sorted() && found.len() == 16);
    assert_eq!(outliers(&[1.0; 12], 4), [0, 1, 2, 3], "no more than there are");
    assert!(outliers(&[], 0).is_empty());
}

#[test]
fn eight_bits_are_near_f32_and_sixteen_nearer() {
    let config = tiny_config();
    let pixels = draws("pixels", 6 * 3 * config.image_size * config.image_size);
    let features = |precision| {
        let clip = Clip::load(&random_of(&config, 5), LoadOptions { precision, ..LoadOptions::default() }).unwrap();
        assert_eq!(clip.precision(), precision.name());
        Features::unit(clip.encode_images(&pixels, 6).unwrap()).0
    };
    let exact = features(Precision::F32);
    let farthest = |precision| {
        let other = features(precision);
        let cosine =
            |(a, b): (&[f32], &[f32])| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        exact.iter_rows().zip(other.iter_rows()).map(|rows| 1.0 - cosine(rows)).fold(0.0, f64::max)
    };
    let (eight, fixed) = (farthest(Precision::I8), farthest(Precision::I16));
    assert!(fixed < eight && eight < 1e-3, "i8 {eight}, i16 {fixed}");
}

#[test]
fn the_same_weights_have_the_same_outliers_on_any_number_of_threads() {
    let config = tiny_config();
    let pixels = draws("pixels", 3 * config.image_size * config.image_size);
    let load =
        || Clip::load(&random_of(&config, 5), LoadOptions { precision: Precision::I8, ..LoadOptions::default() });
    let features = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| load().unwrap().encode_images(&pixels, 1).unwrap().into_vec())
    });
    assert_eq!(features[0], features[1]);
}

#[test]
fn a_text_tower_in_8_bits_is_refused() {
    let options = LoadOptions { text_precision: Precision::I8, ..LoadOptions::default() };
    let error = Clip::load(&random_of(&tiny_config(), 5), options).unwrap_err().to_string();
    assert!(error.contains("text_precision") && error.contains("i16"), "{error}");
}
