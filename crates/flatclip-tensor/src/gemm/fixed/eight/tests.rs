//! Every kernel against plain loops over the same integers, bit for bit; the integers against f64, within their error.

use super::super::SMALLEST;
use super::*;
use crate::gemm::epilogue::Epilogue;
use crate::gemm::fixed::SMALLEST;
use crate::gemm::tests::values;
use crate::gemm::{Activation, Linear, PRODUCT, Precision};
use crate::isa;
use proptest::prelude::*;

/// The instruction sets that run here.
fn sets() -> impl Iterator<Item = Usable> {
    isa::ALL.into_iter().filter_map(|isa| Usable::new(isa).ok())
}

fn pack(weight: &[f32], n: usize, k: usize, outliers: &[usize]) -> Panels<i8> {
    Panels::eight(n, k, outliers, |i, column| weight[column * k + i]).expect("one pass is enough")
}

fn product(isa: Usable, x: &[f32], rows: usize, panels: &Panels<i8>, epilogue: Epilogue<'_>) -> Vec<f32> {
    let (k, n) = (panels.depth(), panels.columns());
    let mut out = vec![7.0; rows * n];
    run(Job::new((x, k), rows, panels, (&mut out, n), epilogue), isa);
    out
}

/// Whole numbers up to `top`, and their scale.
fn integers(values: &[f32], top: f32) -> (Vec<i64>, f32) {
    let largest = values.iter().fold(0.0f32, |largest, x| largest.max(x.abs())).max(SMALLEST);
    (values.iter().map(|x| (x * (top / largest)).round_ties_even() as i64).collect(), largest / top)
}

/// Values over one fixed scale.
fn scaled(values: &[f32], scale: f32) -> Vec<i64> {
    values.iter().map(|x| (x / scale).round_ties_even() as i64).collect()
}

/// The definition: two parts, 64-bit sums that must fit 32, one float each. And how far it may be from the exact product.
fn oracle(x: &[f32], weight: &[f32], outliers: &[usize]) -> (f32, f64) {
    let part = |of: &[f32], is_outlier: bool| -> Vec<f32> {
        (0..of.len()).filter(|k| outliers.contains(k) == is_outlier).map(|k| of[k]).collect()
    };
    let (mut sum, mut allowed, mut size) = (0.0f32, 0.0, 0.0);
    for is_outlier in [false, true] {
        let (x, w) = (part(x, is_outlier), part(weight, is_outlier));
        if is_outlier && x.is_empty() {
            continue;
        }
        let ((x_whole, scale), w_scale) = if is_outlier {
            (integers(&x, 8191.0), column_scale(&w))
        } else {
            (integers(&x, 127.0), integers(&w, 127.0).1)
        };
        let exact: i64 = x_whole.iter().zip(scaled(&w, w_scale)).map(|(x, w)| x * w).sum();
        let term = i32::try_from(exact).expect("no overflow") as f32 * (scale * w_scale);
        sum = if is_outlier { sum + term } else { term };
        let (scale, w_scale) = (f64::from(scale), f64::from(w_scale));
        for (x, w) in x.iter().zip(&w) {
            let (x, w) = (f64::from(x.abs()), f64::from(w.abs()));
            allowed += 0.5 * (x * w_scale + w * scale) + 0.25 * scale * w_scale;
            size += x * w;
        }
    }
    // The floats: rounding of scales, inverses and sums.
    (sum, 1.001 * allowed + 1e-6 * size + 1e-30)
}

fn check(x: &[f32], rows: usize, weight: &[f32], n: usize, k: usize, outliers: &[usize]) {
    let panels = pack(weight, n, k, outliers);
    let cell = |at: usize| (&x[at / n * k..][..k], &weight[at % n * k..][..k]);
    let want: Vec<(f32, f64)> = (0..rows * n).map(|at| oracle(cell(at).0, cell(at).1, outliers)).collect();
    for isa in sets() {
        let got = product(isa, x, rows, &panels, PRODUCT);
        for (at, (got, (want, allowed))) in got.iter().zip(&want).enumerate() {
            let what = || format!("{}, {rows}x{n}x{k}, {} outliers, element {at}", isa.isa(), outliers.len());
            assert_eq!(got.to_bits(), want.to_bits(), "{}: {got}, expected {want}", what());
            let (x, w) = cell(at);
            let exact: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            assert!((f64::from(*got) - exact).abs() <= *allowed, "{}: {got}, exactly {exact} ± {allowed}", what());
        }
    }
}

const SHAPES: [(usize, usize, usize); 8] =
    [(1, 1, 1), (1, 33, 17), (5, 16, 31), (7, 17, 32), (13, 47, 384), (25, 65, 385), (6, 31, 900), (401, 9, 40)];

/// Every `apart`-th input; none if 0.
fn every(apart: usize, k: usize) -> Vec<usize> {
    if apart == 0 { Vec::new() } else { (0..k).step_by(apart).collect() }
}

#[test]
fn every_kernel_equals_the_oracle_and_keeps_its_error_on_ragged_shapes() {
    for (rows, n, k) in SHAPES {
        for apart in [0, 1, 3, 29] {
            check(&values(rows * k, 1), rows, &values(n * k, 2), n, k, &every(apart, k));
        }
    }
}

#[test]
fn an_outlier_costs_the_others_nothing() {
    let (rows, n, k) = (7, 33, 400);
    let (mut x, weight) = (values(rows * k, 3), values(n * k, 4));
    x.iter_mut().skip(17).step_by(k).for_each(|x| *x *= 1e4);
    // With the bound of `check`, which knows no error of that size.
    check(&x, rows, &weight, n, k, &[17]);
    let worst = |outliers: &[usize]| {
        let got = product(Usable::current(), &x, rows, &pack(&weight, n, k, outliers), PRODUCT);
        let exact = |at: usize| -> f64 {
            (0..k).map(|i| f64::from(x[at / n * k + i]) * f64::from(weight[at % n * k + i])).sum()
        };
        got.iter().enumerate().map(|(at, got)| (f64::from(*got) - exact(at)).abs()).fold(0.0, f64::max)
    };
    assert!(20.0 * worst(&[17]) < worst(&[]), "{} and {}", worst(&[17]), worst(&[]));
}

/// All at the largest magnitude and all signs agreeing: the largest sums there are.
#[test]
fn the_worst_case_does_not_overflow() {
    for (rows, n, k) in [(2, 3, 383), (3, 17, 768), (2, 16, 30_000)] {
        for size in [1.0f32, 1e-20, 1e20] {
            let sign = |i: usize| if i.is_multiple_of(3) { -1.0 } else { 1.0 };
            let weight: Vec<f32> =
                (0..n * k).map(|i| size * sign(i % k) * if (i / k).is_multiple_of(2) { 1.0 } else { -1.0 }).collect();
            let x: Vec<f32> = (0..rows * k).map(|i| sign(i % k)).collect();
            check(&x, rows, &weight, n, k, &every(97, k));
        }
    }
}

#[test]
fn a_row_too_long_for_one_pass_is_packed_in_16_bits() {
    let k = i8::DEPTH + 1;
    let linear = Linear::new(2, k, &vec![0.5; 2 * k], None).to_eight(&[3]);
    assert_eq!(linear.precision(), Precision::I16);
    let mut out = [0.0; 2];
    linear.forward(&vec![1.0; k], 1, Activation::Identity, &mut out);
    assert!(out.iter().all(|y| (y / (0.5 * k as f32) - 1.0).abs() < 1e-3), "{out:?}");
}

#[test]
fn a_row_or_a_column_that_is_not_finite_gives_nan_and_leaves_the_others() {
    let (rows, n, k, outliers) = (9, 21, 400, [15, 384]);
    let (clean_x, clean_weight) = (values(rows * k, 1), values(n * k, 2));
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 15, 383, 384, 399] {
            let (mut x, mut weight) = (clean_x.clone(), clean_weight.clone());
            x[4 * k + at] = bad;
            weight[7 * k + at] = bad;
            for isa in sets() {
                let want = product(isa, &clean_x, rows, &pack(&clean_weight, n, k, &outliers), PRODUCT);
                let got = product(isa, &x, rows, &pack(&weight, n, k, &outliers), PRODUCT);
                for (i, got) in got.into_iter().enumerate() {
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
    let panels = pack(&weight, n, k, &[1, 2, 700]);
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
    let outliers = [5, 77, 409];
    let linear = Linear::new(n, k, &weight, None).to_eight(&outliers);
    assert_eq!(linear.precision(), Precision::I8);
    let panels = pack(&weight, n, k, &outliers);
    let mut dx = vec![0.0; rows * k];
    linear.backward(&dy, rows, &mut dx);
    for (i, dx) in dx.iter().enumerate() {
        let want: f64 = (0..n).map(|c| f64::from(dy[i / k * n + c]) * f64::from(panels.value(i % k, c))).sum();
        assert!((f64::from(*dx) - want).abs() < 5e-3, "{dx} {want}");
        let w = weight[i % n * k + i % k];
        assert!((panels.value(i % k, i % n) - w).abs() < if outliers.contains(&(i % k)) { 2e-4 } else { 5e-3 });
    }
}

/// The tile on AVX2 alone, which `run` does not choose on a machine with VNNI.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_tile_for_avx2_equals_the_others() {
    use super::super::x86::Add;
    use super::x86::TwoVectors;
    use crate::gemm::kernels::run_avx2;
    if Usable::new(Isa::Avx2).is_err() {
        return;
    }
    for (rows, n, k) in SHAPES {
        let (x, weight) = (values(rows * k, 1), values(n * k, 2));
        let panels = pack(&weight, n, k, &every(11, k));
        let want = product(Usable::new(Isa::Plain).expect("always there"), &x, rows, &panels, PRODUCT);
        let mut got = vec![7.0; rows * n];
        // SAFETY: AVX2 was found.
        unsafe { run_avx2::<TwoVectors<Add, 6>>(Job::new((&x, k), rows, &panels, (&mut got, n), PRODUCT)) };
        assert_eq!(got, want, "{rows}x{n}x{k}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_equals_the_oracle_and_keeps_its_error(
        rows in 1usize..30, n in 1usize..50, k in 1usize..500, seed in 1u64..1000, power in 1i32..6, apart in 0usize..40,
    ) {
        let spread = |v: Vec<f32>| v.into_iter().map(|x| x.powi(power)).collect::<Vec<_>>();
        check(&spread(values(rows * k, seed)), rows, &spread(values(n * k, seed + 1)), n, k, &every(apart, k));
    }
}
