//! Compares every path with the reference, on shapes that are not multiples of the tile size.

use super::*;
use crate::ops::activation::tests::value;
use proptest::prelude::*;

/// Pseudo-random values in -1..1, the same on every machine.
pub(super) fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The reference for every path: `act(x Wᵀ + b)` by plain loops, summed in f64.
fn plain_linear(x: &[f32], weight: &[f32], (rows, n, k): Shape, bias: Option<&[f32]>, act: Activation) -> Vec<f64> {
    let mut out = Vec::with_capacity(rows * n);
    for row in 0..rows {
        for column in 0..n {
            let sum: f64 = (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(weight[column * k + i])).sum();
            out.push(value(act, sum + bias.map_or(0.0, |bias| f64::from(bias[column]))));
        }
    }
    out
}

/// Rows, outputs and inputs.
type Shape = (usize, usize, usize);

/// The `f32` paths that run here. Each job is given its path, since tests share the process-wide choice.
fn paths() -> Vec<Isa> {
    isa::ALL.into_iter().filter(|&isa| isa != Isa::Amx && isa::supports(isa)).collect()
}

/// The largest difference of `got` from the reference, relative to the rounding error of a sum of `k` terms.
fn check(got: &[f32], want: &[f64], k: usize, what: &str) {
    assert_eq!(got.len(), want.len());
    let allowed = 2e-7 * (k as f64).sqrt().max(1.0) * 4.0;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        assert!(error <= allowed * want.abs().max(1.0), "{what}, element {i}: {got}, expected {want}");
    }
}

fn forward_on(isa: Isa, x: &[f32], weight: &[f32], (rows, n, k): Shape, epilogue: Epilogue<'_>) -> Vec<f32> {
    let panels = Panels::pack(n, k, |i, column| weight[column * k + i]);
    let mut out = vec![7.0; rows * n];
    let isa = Usable::new(isa).expect("listed by `paths`");
    run_f32::<false>(Job::new((x, k), rows, &panels, (&mut out, n), epilogue), isa);
    out
}

#[test]
fn every_f32_path_agrees_with_the_oracle_on_ragged_shapes() {
    let shapes = [
        (1, 1, 1),
        (1, 768, 512),
        (15, 17, 31),
        (17, 33, 257),
        (31, 16, 8),
        (33, 47, 300),
        (197, 65, 520),
        (4165, 5, 9),
    ];
    for isa in paths() {
        for (rows, n, k) in shapes {
            let (x, weight, bias) = (values(rows * k, 1), values(n * k, 2), values(n, 3));
            use Activation::{Gelu, GeluTanh, Identity, QuickGelu, Relu};
            for activation in [Identity, Relu, QuickGelu, Gelu, GeluTanh] {
                let epilogue = Epilogue { bias: Some(&bias), activation, add: false };
                let got = forward_on(isa, &x, &weight, (rows, n, k), epilogue);
                let want = plain_linear(&x, &weight, (rows, n, k), Some(&bias), activation);
                check(&got, &want, k, &format!("{isa} {rows}x{n}x{k} {activation:?}"));
            }
        }
    }
}

#[test]
fn adding_to_a_residual_keeps_what_was_there() {
    let (rows, n, k) = (19, 35, 600);
    let (x, weight, bias) = (values(rows * k, 1), values(n * k, 2), values(n, 3));
    for isa in paths() {
        let epilogue = Epilogue { bias: Some(&bias), activation: Activation::Identity, add: true };
        let got = forward_on(isa, &x, &weight, (rows, n, k), epilogue);
        let want = plain_linear(&x, &weight, (rows, n, k), Some(&bias), Activation::Identity);
        check(&got, &want.iter().map(|y| y + 7.0).collect::<Vec<_>>(), k, isa.name());
    }
}

#[test]
fn gradients_use_the_transpose() {
    for (rows, n, k) in [(1, 5, 3), (33, 70, 41), (197, 31, 300)] {
        for precision in [Precision::F32, Precision::Bf16] {
            // Values that both have.
            let weight: Vec<f32> = values(n * k, 2).iter().map(|&w| bf16_round(w)).collect();
            let dy: Vec<f32> = values(rows * n, 4).iter().map(|&w| bf16_round(w)).collect();
            let linear = Linear::with_precision(n, k, &weight, None, precision);
            let turned: Vec<f32> = (0..k * n).map(|i| weight[i % n * k + i / n]).collect();
            let want = plain_linear(&dy, &turned, (rows, k, n), None, Activation::Identity);
            let mut dx = vec![0.0; rows * k];
            linear.backward(&dy, rows, &mut dx);
            check(&dx, &want, n, "backward");
        }
    }
}

#[test]
fn products_of_activations_agree_with_the_oracle() {
    let (m, n, k) = (37, 29, 65);
    let (a, b) = (values(m * k, 5), values(n * k, 6));
    let want = plain_linear(&a, &b, (m, n, k), None, Activation::Identity);
    let mut out = vec![0.0; m * n];
    product_nt(&a, m, &b, n, k, &mut out);
    check(&out, &want, k, "nt");
    let turned: Vec<f32> = (0..k * n).map(|i| b[i % n * k + i / n]).collect();
    product_nn(&a, m, &turned, n, k, &mut out);
    check(&out, &want, k, "nn");
}

#[test]
fn bf16_agrees_with_the_oracle_on_rounded_inputs() {
    for (rows, n, k) in [(1, 1, 1), (15, 17, 31), (33, 47, 900), (197, 33, 64), (600, 20, 40)] {
        let (x, weight, bias) = (values(rows * k, 1), values(n * k, 2), values(n, 3));
        let round = |v: &[f32]| v.iter().map(|&x| bf16_round(x)).collect::<Vec<_>>();
        let want = plain_linear(&round(&x), &round(&weight), (rows, n, k), Some(&bias), Activation::QuickGelu);
        for native in [false, true] {
            let linear = Linear::packed(n, k, &weight, Some(&bias), Precision::Bf16, native);
            assert_eq!(linear.precision(), Precision::Bf16);
            let mut got = vec![0.0; rows * n];
            linear.forward(&x, rows, Activation::QuickGelu, &mut got);
            check(&got, &want, k, &format!("native {native}, {rows}x{n}x{k}"));
        }
    }
}

/// Results do not depend on batches, chunks or the number of threads.
#[test]
fn a_row_has_the_same_bytes_in_any_batch_and_on_any_number_of_threads() {
    let (rows, n, k) = (500, 300, 700);
    let (x, weight, bias) = (values(rows * k, 1), values(n * k, 2), values(n, 3));
    let forward = |linear: &Linear, x: &[f32], rows: usize| {
        let mut out = vec![0.5; rows * n];
        linear.forward(x, rows, Activation::QuickGelu, &mut out);
        linear.forward_add(x, rows, &mut out);
        out
    };
    let forms = [(Precision::F32, false), (Precision::Bf16, false), (Precision::Bf16, true), (Precision::I16, false)];
    for (precision, native) in forms {
        // The emulation is slow: use fewer rows.
        let rows = if native { 70 } else { rows };
        let linear = Linear::packed(n, k, &weight, Some(&bias), precision, native);
        let whole = forward(&linear, &x[..rows * k], rows);
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            assert_eq!(pool.install(|| forward(&linear, &x[..rows * k], rows)), whole, "{threads} threads");
        }
        assert_eq!(crate::threads::on_this_thread(|| forward(&linear, &x[..rows * k], rows)), whole);
        for (start, count) in [(0, 1), (3, 1), (7, 5), (33, 33), (69, 1)] {
            let part = forward(&linear, &x[start * k..(start + count) * k], count);
            assert_eq!(part, whole[start * n..(start + count) * n], "rows {start}..{}", start + count);
        }
    }
}

#[test]
fn avx2_and_avx512_give_the_same_bytes() {
    if !isa::supports(Isa::Avx512) {
        return;
    }
    let (rows, n, k) = (77, 130, 523);
    let (x, weight, bias) = (values(rows * k, 1), values(n * k, 2), values(n, 3));
    let epilogue = Epilogue { bias: Some(&bias), activation: Activation::Gelu, add: false };
    let [a, b] = [Isa::Avx2, Isa::Avx512].map(|isa| forward_on(isa, &x, &weight, (rows, n, k), epilogue));
    assert_eq!(a, b);
}

/// No machine has both NEON and AVX, so both are compared with recorded results of AVX2.
#[test]
fn avx_and_neon_give_the_same_bytes() {
    let (rows, n, k) = (77, 130, 523);
    let (x, weight, bias) = (values(rows * k, 1), values(n * k, 2), values(n, 3));
    for isa in paths().into_iter().filter(|&isa| isa != Isa::Plain) {
        let digests = [Activation::Identity, Activation::QuickGelu, Activation::Gelu].map(|activation| {
            let epilogue = Epilogue { bias: Some(&bias), activation, add: false };
            let bytes = forward_on(isa, &x, &weight, (rows, n, k), epilogue).into_iter().flat_map(f32::to_le_bytes);
            // FNV-1a.
            bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        });
        assert_eq!(digests, [0x9e62_8c81_7ef6_6eb0, 0x15ab_b9cb_8da0_9eb4, 0x5b69_af88_aaa6_2f81], "{isa}");
    }
}

#[test]
fn strided_rows_leave_what_lies_between_them() {
    let (rows, n, k) = (9, 20, 12);
    let (x, weight) = (values(rows * 30, 1), values(n * k, 2));
    let panels = Panels::pack(n, k, |i, column| weight[column * k + i]);
    for isa in paths() {
        let mut out = vec![7.0; rows * 50];
        let usable = Usable::new(isa).expect("listed by `paths`");
        run_f32::<false>(Job::new((&x, 30), rows, &panels, (&mut out, 50), PRODUCT), usable);
        for row in 0..rows {
            let want = plain_linear(&x[row * 30..row * 30 + k], &weight, (1, n, k), None, Activation::Identity);
            check(&out[row * 50..row * 50 + n], &want, k, isa.name());
            assert!(out[row * 50 + n..(row + 1) * 50].iter().all(|&x| x == 7.0));
        }
    }
}

#[test]
fn precisions_are_found_by_their_names() {
    for precision in Precision::ALL {
        assert_eq!(Precision::from_name(precision.name()), Some(precision));
    }
    assert_eq!(Precision::from_name("i16"), Some(Precision::I16));
    assert_eq!(Precision::from_name("f64"), None);
}

#[test]
fn empty_products_do_nothing() {
    for precision in Precision::ALL {
        Linear::with_precision(3, 2, &[1.0; 6], None, precision).forward(&[], 0, Activation::Relu, &mut []);
        let mut out = [5.0; 3];
        Linear::with_precision(3, 0, &[], None, precision).forward(&[], 1, Activation::Identity, &mut out);
        assert_eq!(out, [0.0; 3]);
    }
    product_nt(&[], 0, &[1.0; 4], 2, 2, &mut []);
    let mut out = [5.0; 2];
    product_nn(&[], 2, &[], 1, 0, &mut out);
    assert_eq!(out, [0.0; 2]);
}

/// Sizes whose product overflows must not be accepted as small.
#[test]
fn shapes_beyond_the_address_space_are_refused() {
    let half = 1usize << (usize::BITS / 2);
    let linear = Linear::new(4, 4, &[1.0; 16], None);
    let calls: [&(dyn Fn() + std::panic::RefUnwindSafe); 4] = [
        &|| linear.forward(&[0.0; 8], usize::MAX / 4 + 2, Activation::Identity, &mut [0.0; 8]),
        &|| linear.backward(&[0.0; 8], usize::MAX / 4 + 2, &mut [0.0; 8]),
        &|| drop(Linear::new(half, half, &[], None)),
        &|| product_nt(&[], 1, &[], half, half, &mut []),
    ];
    for (index, call) in calls.into_iter().enumerate() {
        assert!(std::panic::catch_unwind(call).is_err(), "call {index}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_agrees_with_the_oracle(rows in 1usize..70, n in 1usize..90, k in 1usize..600, seed in 1u64..1000) {
        let (x, weight, bias) = (values(rows * k, seed), values(n * k, seed + 1), values(n, seed + 2));
        let want = plain_linear(&x, &weight, (rows, n, k), Some(&bias), Activation::Identity);
        let epilogue = Epilogue { bias: Some(&bias), activation: Activation::Identity, add: false };
        for isa in paths() {
            check(&forward_on(isa, &x, &weight, (rows, n, k), epilogue), &want, k, isa.name());
        }
    }
}
