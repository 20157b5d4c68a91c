//! Every kernel must be bitwise equal to plain loops over the same integers; these are compared with f64 within their error.

use super::super::epilogue::Epilogue;
use super::super::tests::values;
use super::super::{Activation, Linear, PRODUCT, Precision};
use super::*;
use crate::isa;
use proptest::prelude::*;

/// The instruction sets that run here.
fn sets() -> impl Iterator<Item = Usable> {
    isa::ALL.into_iter().filter_map(|isa| Usable::new(isa).ok())
}

fn product(isa: Usable, x: &[f32], rows: usize, panels: &Panels<i16>, epilogue: Epilogue<'_>) -> Vec<f32> {
    let (k, n) = (panels.depth(), panels.columns());
    let mut out = vec![7.0; rows * n];
    run(Job::new((x, k), rows, panels, (&mut out, n), epilogue), isa);
    out
}

/// The definition: integers, 64-bit sums that must fit 32, one float per pass. And how far it may be from the exact product.
fn oracle(x: &[f32], rows: usize, weight: &[f32], n: usize, k: usize) -> Vec<(f32, f64)> {
    let mut out = Vec::with_capacity(rows * n);
    for row in x.chunks_exact(k).take(rows) {
        for column in weight.chunks_exact(k) {
            let (mut sum, mut allowed, mut size) = (0.0f32, 0.0, 0.0);
            for (pass, (x, w)) in row.chunks(i16::DEPTH).zip(column.chunks(i16::DEPTH)).enumerate() {
                let top = x.iter().fold(0.0f32, |top, x| top.max(x.abs())).max(SMALLEST);
                let (scale, inverse) = (top / 8191.0, 8191.0 / top);
                let weight_scale = column_scale(w);
                let exact: i64 = x
                    .iter()
                    .zip(w)
                    .map(|(x, w)| (x * inverse).round_ties_even() as i64 * (w / weight_scale).round_ties_even() as i64)
                    .sum();
                let term = i32::try_from(exact).expect("no overflow") as f32 * (scale * weight_scale);
                sum = if pass == 0 { term } else { term + sum };
                let (scale, weight_scale) = (f64::from(scale), f64::from(weight_scale));
                for (x, w) in x.iter().zip(w) {
                    let (x, w) = (f64::from(x.abs()), f64::from(w.abs()));
                    allowed += 0.5 * (x * weight_scale + w * scale) + 0.25 * scale * weight_scale;
                    size += x * w;
                }
            }
            // The floats: rounding of scales, inverses and sums.
            out.push((sum, 1.001 * allowed + 1e-6 * size + 1e-30));
        }
    }
    out
}

fn check(x: &[f32], rows: usize, weight: &[f32], n: usize, k: usize) {
    let panels = Panels::fixed(n, k, |i, column| weight[column * k + i]);
    let want = oracle(x, rows, weight, n, k);
    for isa in sets() {
        let got = product(isa, x, rows, &panels, PRODUCT);
        for (at, (got, (want, allowed))) in got.iter().zip(&want).enumerate() {
            let what = || format!("{}, {rows}x{n}x{k}, element {at}", isa.isa());
            assert_eq!(got.to_bits(), want.to_bits(), "{}: {got}, expected {want}", what());
            let exact: f64 = (0..k).map(|i| f64::from(x[at / n * k + i]) * f64::from(weight[at % n * k + i])).sum();
            assert!((f64::from(*got) - exact).abs() <= *allowed, "{}: {got}, exactly {exact} ± {allowed}", what());
        }
    }
}

const SHAPES: [(usize, usize, usize); 8] =
    [(1, 1, 1), (1, 33, 17), (5, 16, 15), (7, 17, 383), (13, 47, 384), (25, 65, 385), (6, 31, 900), (401, 9, 40)];

#[test]
fn every_kernel_equals_the_oracle_and_keeps_its_error_on_ragged_shapes() {
    for (rows, n, k) in SHAPES {
        check(&values(rows * k, 1), rows, &values(n * k, 2), n, k);
    }
}

#[test]
fn one_large_value_in_a_row_or_a_column_costs_only_its_own_pass() {
    for (rows, n, k) in SHAPES {
        let (mut x, mut weight) = (values(rows * k, 3), values(n * k, 4));
        x.iter_mut().step_by(k).for_each(|x| *x *= 1e4);
        weight.iter_mut().skip(k / 2).step_by(k).for_each(|w| *w *= 1e3);
        check(&x, rows, &weight, n, k);
    }
}

/// All values of the largest magnitude with equal signs, which gives the largest possible sums.
#[test]
fn the_worst_case_does_not_overflow() {
    for (rows, n, k) in [(2, 3, 383), (3, 17, 384), (2, 2, 768), (2, 16, 3000)] {
        for size in [1.0f32, 1e-20, 1e20] {
            let sign = |i: usize| if i.is_multiple_of(3) { -1.0 } else { 1.0 };
            let weight: Vec<f32> =
                (0..n * k).map(|i| size * sign(i % k) * if (i / k).is_multiple_of(2) { 1.0 } else { -1.0 }).collect();
            let x: Vec<f32> = (0..rows * k).map(|i| sign(i % k)).collect();
            check(&x, rows, &weight, n, k);
        }
    }
}

#[test]
fn a_column_keeps_both_limits_whatever_its_shape() {
    let spread = |power: i32| values(384, 9).iter().map(|w| w.powi(power)).collect::<Vec<_>>();
    for weights in [vec![1.0; 384], vec![-0.3; 383], vec![1e-38; 384], vec![0.0; 5], spread(1), spread(3), spread(15)] {
        let panels = Panels::fixed(1, weights.len(), |k, _| weights[k]);
        let integers = (0..weights.len()).map(|k| i64::from(panels.at(k, 0).unsigned_abs()));
        assert!(integers.clone().max() <= Some(i64::from(WEIGHT_TOP)));
        assert!(integers.sum::<i64>() * i64::from(ROW_TOP) <= i64::from(i32::MAX));
    }
}

#[test]
fn a_row_or_a_column_that_is_not_finite_gives_nan_and_leaves_the_others() {
    let (rows, n, k) = (9, 21, 400);
    let (clean_x, clean_weight) = (values(rows * k, 1), values(n * k, 2));
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 15, 383, 384, 399] {
            let (mut x, mut weight) = (clean_x.clone(), clean_weight.clone());
            x[4 * k + at] = bad;
            weight[7 * k + at] = bad;
            for isa in sets() {
                let clean = Panels::fixed(n, k, |i, c| clean_weight[c * k + i]);
                let panels = Panels::fixed(n, k, |i, c| weight[c * k + i]);
                let want = product(isa, &clean_x, rows, &clean, PRODUCT);
                for (i, got) in product(isa, &x, rows, &panels, PRODUCT).into_iter().enumerate() {
                    let spoiled = i / n == 4 || i % n == 7;
                    assert!(if spoiled { got.is_nan() } else { got == want[i] }, "{} {i}: {got}", isa.isa());
                }
            }
        }
    }
}

#[test]
fn bias_activation_and_residual_follow_the_product() {
    let (rows, n, k) = (19, 35, 800);
    let (x, weight, bias) = (values(rows * k, 1), values(n * k, 2), values(n, 3));
    let panels = Panels::fixed(n, k, |i, column| weight[column * k + i]);
    for isa in sets() {
        let bare = product(isa, &x, rows, &panels, PRODUCT);
        let relu = Epilogue { bias: Some(&bias), activation: Activation::Relu, add: false };
        let added = Epilogue { bias: Some(&bias), activation: Activation::Identity, add: true };
        let (relu, added) = (product(isa, &x, rows, &panels, relu), product(isa, &x, rows, &panels, added));
        for (i, bare) in bare.iter().enumerate() {
            assert_eq!(relu[i], (bare + bias[i % n]).max(0.0));
            assert!((added[i] - (7.0 + bare + bias[i % n])).abs() < 1e-4);
        }
    }
}

#[test]
fn the_gradient_is_that_of_the_weights_in_use() {
    let (rows, n, k) = (11, 50, 410);
    let (weight, dy) = (values(n * k, 2), values(rows * n, 4));
    let linear = Linear::with_precision(n, k, &weight, None, Precision::I16);
    assert_eq!(linear.precision(), Precision::I16);
    let mut dx = vec![0.0; rows * k];
    linear.backward(&dy, rows, &mut dx);
    for (i, dx) in dx.iter().enumerate() {
        let want: f64 = (0..n).map(|c| f64::from(dy[i / k * n + c]) * f64::from(weight[c * k + i % k])).sum();
        assert!((f64::from(*dx) - want).abs() < 5e-3, "{dx} {want}");
    }
}

#[test]
fn weights_take_half_the_memory_of_floats() {
    let (fixed, floats) = (Panels::fixed(64, 768, |_, _| 1.0), Panels::<f32>::pack(64, 768, |_, _| 1.0));
    assert_eq!(2 * size_of_val(fixed.data()), size_of_val(floats.data()));
}

/// The tile of the VNNI kernels with two AVX2 instructions instead of the VNNI one, so that it runs on more machines.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_tile_of_the_vnni_kernels_equals_the_others() {
    use super::super::kernels::run_avx2;
    use super::x86::{Add, TwoVectors};
    if Usable::new(Isa::Avx2).is_err() {
        return;
    }
    for (rows, n, k) in SHAPES {
        let (x, weight) = (values(rows * k, 1), values(n * k, 2));
        let panels = Panels::fixed(n, k, |i, column| weight[column * k + i]);
        let want = product(Usable::new(Isa::Plain).expect("always there"), &x, rows, &panels, PRODUCT);
        let mut got = vec![7.0; rows * n];
        // SAFETY: AVX2 was found.
        unsafe { run_avx2::<TwoVectors<Add, 6>>(Job::new((&x, k), rows, &panels, (&mut got, n), PRODUCT)) };
        assert_eq!(got, want, "{rows}x{n}x{k}");
    }
}

/// The check that a VNNI kernel must pass before it is used: correct kernels pass, wrong ones do not.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_trial_of_a_kernel_finds_a_wrong_one() {
    use super::super::kernels::run_avx2;
    use super::x86::{Add, TwoVectors, agrees};
    if Usable::new(Isa::Avx2).is_err() {
        return;
    }
    // SAFETY: AVX2 was found.
    assert!(agrees(|job| unsafe { run_avx2::<TwoVectors<Add, 6>>(job) }));
    assert!(!agrees(|_| ()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_equals_the_oracle_and_keeps_its_error(
        rows in 1usize..40, n in 1usize..60, k in 1usize..900, seed in 1u64..1000, power in 1i32..6,
    ) {
        let spread = |v: Vec<f32>| v.into_iter().map(|x| x.powi(power)).collect::<Vec<_>>();
        check(&spread(values(rows * k, seed)), rows, &spread(values(n * k, seed + 1)), n, k);
    }
}

#[test]
fn whole_numbers_are_the_nearest_and_ties_are_even() {
    let near = |x: f32| [x, x.next_up(), x.next_down()];
    for half in -2 * (ROW_TOP + 1)..=2 * (ROW_TOP + 1) {
        for x in near(half as f32 / 2.0) {
            assert_eq!(to_fixed(x), x.round_ties_even() as i16, "{x}");
        }
    }
    assert_eq!([f32::NAN, -f32::NAN, f32::from_bits(0x7f80_1234)].map(to_fixed), [0; 3]);
}
