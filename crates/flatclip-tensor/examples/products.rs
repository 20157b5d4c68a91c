//! The rate of products in `i16` beside those in `f32`, over the four shapes of a ViT-B/16 block at 16 images, sides
//! alternating, in CPU time, so that other work on the machine counts less. `cargo run --release -p flatclip-tensor --example products [THREADS] [TURNS]`

#![allow(clippy::print_stdout)]

use flatclip_tensor::{Activation, Linear, Precision};

const ROWS: usize = 3152;
const SHAPES: [(usize, usize); 4] = [(768, 2304), (768, 768), (768, 3072), (3072, 768)];

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse().unwrap_or(1));
    let (threads, turns) = (arguments.next().unwrap_or(1), arguments.next().unwrap_or(9));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
    println!("{threads} threads, {turns} turns, {ROWS} rows; GFLOP/s median (best)");
    let mut ratios = Vec::new();
    for (k, n) in SHAPES {
        let (x, weight, bias) = (values(ROWS * k, 1), values(n * k, 2), values(n, 3));
        let [floats, fixed] = [Precision::F32, Precision::I16]
            .map(|precision| Linear::with_precision(n, k, &weight, Some(&bias), precision));
        let mut out = vec![0.0; ROWS * n];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..turns + 1 {
            for (linear, times) in [&floats, &fixed].into_iter().zip(&mut times) {
                let start = cpu_seconds();
                pool.install(|| linear.forward(&x, ROWS, Activation::Identity, &mut out));
                times.push((cpu_seconds() - start) / threads as f64);
            }
        }
        // The first turn warms up.
        let mut pairs: Vec<f64> = times[0].iter().zip(&times[1]).skip(1).map(|(f32, i16)| f32 / i16).collect();
        let [f32, i16] = times.map(|mut times| rate(&mut times[1..], 2.0 * (ROWS * k * n) as f64));
        ratios.push(median(&mut pairs));
        println!(
            "{k:>5} x {n:<5} f32 {:.0} ({:.0})  i16 {:.0} ({:.0})  ratio {:.2}, of the best {:.2}",
            f32.0,
            f32.1,
            i16.0,
            i16.1,
            ratios[ratios.len() - 1],
            i16.1 / f32.1,
        );
    }
    println!("median over the shapes {:.2}", median(&mut ratios));
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
