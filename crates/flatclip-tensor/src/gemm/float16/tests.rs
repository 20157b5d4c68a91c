//! Every form against plain loops over the same rounded values, bit for bit; the values against those of another crate.

use super::super::panels::Panels;
use super::super::tests::values;
use super::super::{Activation, Linear, PRODUCT, Precision, plain, run_rounded};
use super::*;
use crate::isa;
use proptest::prelude::*;

/// Every value of 16 bits, the midpoints to the next, and the `f32` on either side of both.
#[test]
fn rounding_is_that_of_the_type() {
    let mut edges = 0;
    for bits in 0..=u16::MAX {
        let value = f16::from_bits(bits).to_f32();
        let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
        for x in [value, (value + next) / 2.0] {
            for x in [x, f32::from_bits(x.to_bits().wrapping_add(1)), f32::from_bits(x.to_bits().wrapping_sub(1))] {
                let (got, want) = (ToF16::round(x), f16::from_f32(x).to_f32());
                assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x:e}: {got:e}, {want:e}");
                edges += usize::from(got != x);
            }
        }
    }
    assert!(edges > 100_000, "{edges} values were rounded at all");
    for (x, want) in [(65519.9, 65504.0), (65520.0, f32::INFINITY), (-1e30, f32::NEG_INFINITY), (2.9e-8, 0.0)] {
        assert_eq!(ToF16::round(x), want, "{x}");
    }
}

/// The definition: rounded values, products in order, passes of 256.
fn oracle(x: &[f32], rows: usize, weight: &[f32], n: usize, k: usize) -> Vec<f32> {
    let wide = |x: f32| f16::from_f32(x).to_f32();
    let mut out = Vec::with_capacity(rows * n);
    for row in x.chunks_exact(k).take(rows) {
        for column in weight.chunks_exact(k) {
            let mut sum = 0.0;
            for (pass, (x, w)) in row.chunks(256).zip(column.chunks(256)).enumerate() {
                let part = x.iter().zip(w).fold(0.0f32, |part, (&x, &w)| part + wide(x) * wide(w));
                sum = if pass == 0 { part } else { part + sum };
            }
            out.push(sum);
        }
    }
    out
}

fn check(x: &[f32], rows: usize, weight: &[f32], n: usize, k: usize) {
    let want = oracle(x, rows, weight, n, k);
    let halves = Panels::<f16>::pack(n, k, |i, column| f16::from_f32(weight[column * k + i]));
    let floats = Panels::<f32>::pack(n, k, |i, column| ToF16::round(weight[column * k + i]));
    for isa in isa::ALL.into_iter().filter_map(|isa| Usable::new(isa).ok()) {
        let mut got = [vec![7.0; rows * n], vec![7.0; rows * n]];
        run(Job::new((x, k), rows, &halves, (&mut got[0], n), PRODUCT), isa);
        run_rounded::<ToF16>(Job::new((x, k), rows, &floats, (&mut got[1], n), PRODUCT), isa);
        for (form, got) in ["f16", "rounded"].iter().zip(&got) {
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                let isa = isa.isa();
                assert!(same, "{isa}, {form}, {rows}x{n}x{k}, element {at}: {got}, expected {want}");
            }
        }
    }
}

const SHAPES: [(usize, usize, usize); 9] = [
    (1, 1, 1),
    (1, 33, 17),
    (5, 16, 7),
    (6, 16, 8),
    (7, 17, 255),
    (13, 47, 256),
    (25, 65, 257),
    (6, 31, 900),
    (401, 9, 40),
];

#[test]
fn every_form_equals_the_oracle_on_ragged_shapes() {
    for (rows, n, k) in SHAPES {
        check(&values(rows * k, 1), rows, &values(n * k, 2), n, k);
    }
}

/// From below the smallest subnormal to beyond the largest value: zeros, subnormals, infinities and the NaN they make.
#[test]
fn every_form_equals_the_oracle_over_the_whole_range() {
    for (rows, n, k) in SHAPES {
        let spread = |v: Vec<f32>, by: i32| -> Vec<f32> {
            v.into_iter().enumerate().map(|(i, x)| x * 2f32.powi((i as i32 * 7 + by) % 43 - 26)).collect()
        };
        check(&spread(values(rows * k, 3), 1), rows, &spread(values(n * k, 4), 5), n, k);
    }
    let (rows, n, k) = (9, 21, 400);
    let (mut x, mut weight) = (values(rows * k, 1), values(n * k, 2));
    (x[4 * k + 399], x[5 * k + 1], weight[7 * k + 256]) = (f32::NAN, 1e6, f32::NEG_INFINITY);
    check(&x, rows, &weight, n, k);
    assert!(oracle(&x, rows, &weight, n, k).iter().filter(|y| !y.is_finite()).count() == 2 * n + (rows - 2));
}

#[test]
fn products_are_nearer_to_the_exact_ones_than_those_of_bf16() {
    let (rows, n, k) = (33, 47, 900);
    let (x, weight) = (values(rows * k, 1), values(n * k, 2));
    let want = plain::linear(&x, rows, &weight, n, k, None, Activation::Identity);
    let [half, bf16] = [Precision::F16, Precision::Bf16].map(|precision| {
        let mut got = vec![0.0; rows * n];
        Linear::with_precision(n, k, &weight, None, precision).forward(&x, rows, Activation::Identity, &mut got);
        got.iter().zip(&want).map(|(got, want)| (f64::from(*got) - want).abs()).fold(0.0, f64::max)
    });
    // Three bits more.
    assert!(0.0 < half && 4.0 * half < bf16, "f16 is {half} off, bf16 {bf16}");
}

#[test]
fn weights_take_half_the_memory_of_floats() {
    let (halves, floats) = (Panels::<f16>::pack(64, 768, |_, _| f16::ONE), Panels::<f32>::pack(64, 768, |_, _| 1.0));
    assert_eq!(2 * size_of_val(halves.data()), size_of_val(floats.data()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_equals_the_oracle(rows in 1usize..40, n in 1usize..60, k in 1usize..900, seed in 1u64..1000) {
        check(&values(rows * k, seed), rows, &values(n * k, seed + 1), n, k);
    }
}
