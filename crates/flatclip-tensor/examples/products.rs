//! The rate of products in `f32`, `i16` and `i8` (with 16 outlier inputs), over the four shapes of a ViT-B/16 block at 16 images,
//! sides alternating, in CPU time, so that other work on the machine counts less.
//! `cargo run --release -p flatclip-tensor --example products [THREADS] [TURNS]`

#![allow(clippy::print_stdout)]

use flatclip_tensor::{Activation, Linear, Precision};

const ROWS: usize = 3152;
const SHAPES: [(usize, usize); 4] = [(768, 2304), (768, 768), (768, 3072), (3072, 768)];
const OUTLIERS: usize = 16;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse().unwrap_or(1));
    let (threads, turns) = (arguments.next().unwrap_or(1), arguments.next().unwrap_or(9));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
    println!(
        "{threads} threads, {turns} turns, {ROWS} rows; GFLOP/s median (best), and ratios of times in one turn, median"
    );
    let (mut to_floats, mut to_fixed) = (Vec::new(), Vec::new());
    for (k, n) in SHAPES {
        let (x, weight, bias) = (values(ROWS * k, 1), values(n * k, 2), values(n, 3));
        let [floats, fixed] = [Precision::F32, Precision::I16]
            .map(|precision| Linear::with_precision(n, k, &weight, Some(&bias), precision));
        let eight = fixed.to_eight(&(0..k).step_by(k / OUTLIERS).collect::<Vec<_>>());
        let mut out = vec![0.0; ROWS * n];
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..turns + 1 {
            for (linear, times) in [&floats, &fixed, &eight].into_iter().zip(&mut times) {
                let start = cpu_seconds();
                pool.install(|| linear.forward(&x, ROWS, Activation::Identity, &mut out));
                times.push((cpu_seconds() - start) / threads as f64);
            }
        }
        // The first turn warms up.
        let ratio = |over: &[f64], under: &[f64]| {
            median(&mut over.iter().zip(under).skip(1).map(|(over, under)| over / under).collect::<Vec<_>>())
        };
        to_floats.push(ratio(&times[0], &times[1]));
        to_fixed.push(ratio(&times[1], &times[2]));
        let [f32, i16, i8] = times.map(|mut times| rate(&mut times[1..], 2.0 * (ROWS * k * n) as f64));
        println!(
            "{k:>5} x {n:<5} f32 {:.0} ({:.0})  i16 {:.0} ({:.0})  i8 {:.0} ({:.0})  f32 / i16 {:.2}  i16 / i8 {:.2}",
            f32.0,
            f32.1,
            i16.0,
            i16.1,
            i8.0,
            i8.1,
            to_floats[to_floats.len() - 1],
            to_fixed[to_fixed.len() - 1],
        );
    }
    println!("median over the shapes: f32 / i16 {:.2}, i16 / i8 {:.2}", median(&mut to_floats), median(&mut to_fixed));
}

/// CPU time of this process.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn rate(times: &mut [f64], operations: f64) -> (f64, f64) {
    let median = median(times);
    (operations / median * 1e-9, operations / times[0] * 1e-9)
}

/// The median, with `values` sorted.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// Roughly normal values: sums of uniform ones.
fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| (0..4).map(|_| uniform()).sum()).collect()
}
