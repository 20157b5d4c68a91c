//! Matrix products: [`Linear`] for frozen weights (packed once), [`product_nt`] and [`product_nn`] for two activations.
//!
//! On one instruction set a result is bitwise the same for any number of threads and any other rows in the batch. Between
//! instruction sets it differs only in rounding; products in `i16` do not differ at all.
//!
//! A precision is an `Element` (the memory layout of values, the additional data of a row and a column), a function
//! that packs weights, and a `Kernel` per instruction set (how a row is packed, how a tile is
//! multiplied). Blocks, threads and epilogues are the same for all: `fixed.rs` shows one.

mod amx;
mod driver;
mod epilogue;
mod fixed;
mod kernels;
mod panels;
#[cfg(test)]
mod tests;

use crate::isa::{self, Isa, Usable};
use driver::Job;
use epilogue::Epilogue;
use kernels::{PlainKernel, run_plain};
use panels::{Panels, bf16_bits, bf16_round};
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
pub(crate) use amx::works as amx_works;

/// The activation fused into a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// No activation.
    Identity,
    /// `max(0, x)`.
    Relu,
    /// `x * sigmoid(1.702 x)`: OpenAI's CLIP.
    QuickGelu,
    /// The exact GELU, `x * Phi(x)`.
    Gelu,
    /// GELU with `tanh` for the distribution: SigLIP in transformers.
    GeluTanh,
}

/// Precision of products with weights. Norms, softmax and the residual stream are always `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// `f32` throughout: the reference.
    #[default]
    F32,
    /// Weights and inputs of products rounded to bfloat16. Fast on AMX tiles; elsewhere the same rounding at `f32` speed.
    Bf16,
    /// Weights and inputs of products in 16-bit fixed point with a scale per 384 values, and exact sums. Closer to `f32` than
    /// [`Precision::Bf16`], half the memory of `f32`, and faster than `f32` on CPUs with AVX2 or VNNI.
    I16,
}

impl Precision {
    /// Every precision, the reference first.
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::I16];

    /// The fastest precision that has been measured on the instruction set in use: `bf16` on AMX tiles, `i16` on AVX2 and on
    /// AVX-512 with VNNI (1.6 to 1.9 times `f32`, and closer to it than `bf16`), `f32` elsewhere.
    pub fn auto() -> Self {
        match isa::current() {
            Isa::Amx => Precision::Bf16,
            other if fixed::is_fast(other) => Precision::I16,
            _ => Precision::F32,
        }
    }

    /// The precision for prompt tuning: `i16` if its products are fast, else `f32`. Never `bf16`, whose gradients are less
    /// accurate.
    pub fn auto_for_gradients() -> Self {
        if fixed::is_fast(isa::current()) { Precision::I16 } else { Precision::F32 }
    }

    /// The name used in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::I16 => "i16",
        }
    }

    /// Finds a precision by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.name() == name)
    }
}

/// Weights, packed for their precision and machine.
#[derive(Debug)]
enum Weights {
    /// Rounded to bfloat16 on machines without tiles, if that is wanted.
    Floats {
        panels: Panels<f32>,
        rounded: bool,
    },
    Tiles(Panels<u16>),
    Fixed(Panels<i16>),
}

impl Weights {
    /// Packs `weight` (`[n, k]`, row-major). `native` selects the layout for instructions of this precision, if there are two.
    fn pack(n: usize, k: usize, precision: Precision, native: bool, weight: &[f32]) -> Self {
        let entry = |i: usize, column: usize| weight[column * k + i];
        match precision {
            Precision::F32 => Weights::Floats { panels: Panels::pack(n, k, entry), rounded: false },
            Precision::Bf16 if native => Weights::Tiles(Panels::pack(n, k, |k, c| bf16_bits(entry(k, c)))),
            Precision::I16 => {
                let column = |at: usize, values: &mut [f32]| values.copy_from_slice(&weight[at * k..][..k]);
                Weights::Fixed(Panels::fixed_columns(n, k, column))
            }
            Precision::Bf16 => {
                let panels = Panels::pack(n, k, |k, c| bf16_round(entry(k, c)));
                Weights::Floats { panels, rounded: true }
            }
        }
    }

    fn transposed(&self) -> Self {
        match self {
            &Weights::Floats { ref panels, rounded } => Weights::Floats { panels: panels.transposed(), rounded },
            Weights::Tiles(panels) => Weights::Tiles(panels.transposed()),
            Weights::Fixed(panels) => Weights::Fixed(panels.fixed_transposed()),
        }
    }

    /// `out = epilogue(x · self)` with rows at the given strides.
    fn product(&self, x: (&[f32], usize), rows: usize, out: (&mut [f32], usize), epilogue: Epilogue<'_>) {
        let isa = Usable::current();
        match self {
            Weights::Floats { panels, rounded } => {
                let run = if *rounded { run_f32::<true> } else { run_f32::<false> };
                run(Job::new(x, rows, panels, out, epilogue), isa);
            }
            Weights::Fixed(panels) => fixed::run(Job::new(x, rows, panels, out, epilogue), isa),
            Weights::Tiles(panels) => {
                let tiles = if isa.isa() == Isa::Amx { amx::permitted() } else { None };
                run_bf16(Job::new(x, rows, panels, out, epilogue), tiles);
            }
        }
    }
}

/// Runs a job in `f32`, on inputs rounded to bfloat16 if `ROUNDED`.
fn run_f32<const ROUNDED: bool>(job: Job<'_, f32>, isa: Usable) {
    match isa.isa() {
        // SAFETY: a `Usable` instruction set was detected.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { kernels::run_avx2::<kernels::Avx2Kernel<ROUNDED>>(job) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx => unsafe { kernels::run_avx512::<kernels::Avx512Kernel<ROUNDED>>(job) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { kernels::run_neon::<kernels::NeonKernel<ROUNDED>>(job) },
        _ => run_plain::<PlainKernel<ROUNDED>>(job),
    }
}

/// `tiles` `None` runs the emulation.
fn run_bf16(job: Job<'_, u16>, tiles: Option<amx::Permitted>) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if tiles.is_some() {
        // SAFETY: the proof covers tiles and, with them, AVX-512.
        return unsafe { kernels::run_avx512::<amx::TileKernel<amx::Hardware, crate::simd::Avx512>>(job) };
    }
    let _ = tiles;
    run_plain::<amx::TileKernel<amx::Emulated, f32>>(job);
}

const PRODUCT: Epilogue<'static> = Epilogue { bias: None, activation: Activation::Identity, add: false };

/// A frozen affine map `y = x Wᵀ + b` with `W` of shape `[outputs, inputs]`, as `nn.Linear` stores it.
#[derive(Debug)]
pub struct Linear {
    outputs: usize,
    inputs: usize,
    weights: Weights,
    /// For input gradients; packed when first asked for.
    transposed: OnceLock<Weights>,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// Packs `weight` (`[outputs, inputs]`, row-major) in `f32`.
    ///
    /// # Panics
    /// If the slices do not have these sizes: shapes are checked where weights are read.
    pub fn new(outputs: usize, inputs: usize, weight: &[f32], bias: Option<&[f32]>) -> Self {
        Self::with_precision(outputs, inputs, weight, bias, Precision::F32)
    }

    /// Packs `weight` (`[outputs, inputs]`, row-major) for products in `precision`.
    ///
    /// # Panics
    /// As [`Linear::new`].
    pub fn with_precision(
        outputs: usize,
        inputs: usize,
        weight: &[f32],
        bias: Option<&[f32]>,
        precision: Precision,
    ) -> Self {
        let native = precision != Precision::Bf16 || isa::current() == Isa::Amx;
        Self::packed(outputs, inputs, weight, bias, precision, native)
    }

    fn packed(
        outputs: usize,
        inputs: usize,
        weight: &[f32],
        bias: Option<&[f32]>,
        precision: Precision,
        native: bool,
    ) -> Self {
        assert_eq!(Some(weight.len()), outputs.checked_mul(inputs));
        assert!(bias.is_none_or(|b| b.len() == outputs));
        let weights = Weights::pack(outputs, inputs, precision, native, weight);
        Self { outputs, inputs, weights, transposed: OnceLock::new(), bias: bias.map(<[f32]>::to_vec) }
    }

    /// Width of the result.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Width of the input.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Precision of products with these weights.
    pub fn precision(&self) -> Precision {
        match self.weights {
            Weights::Floats { rounded: false, .. } => Precision::F32,
            Weights::Floats { .. } | Weights::Tiles(_) => Precision::Bf16,
            Weights::Fixed(_) => Precision::I16,
        }
    }

    /// `out[rows, outputs] = act(x Wᵀ + b)`.
    pub fn forward(&self, x: &[f32], rows: usize, activation: Activation, out: &mut [f32]) {
        let epilogue = Epilogue { bias: self.bias.as_deref(), activation, add: false };
        self.weights.product((x, self.inputs), rows, (out, self.outputs), epilogue);
    }

    /// `out[rows, outputs] += x Wᵀ + b`: the residual form.
    pub fn forward_add(&self, x: &[f32], rows: usize, out: &mut [f32]) {
        self.forward_onto(x, rows, Activation::Identity, out);
    }

    /// `out[rows, outputs] = act(out + x Wᵀ + b)`: the residual form of networks that activate the sum.
    pub fn forward_onto(&self, x: &[f32], rows: usize, activation: Activation, out: &mut [f32]) {
        let epilogue = Epilogue { bias: self.bias.as_deref(), activation, add: true };
        self.weights.product((x, self.inputs), rows, (out, self.outputs), epilogue);
    }

    /// The input gradient, `dx[rows, inputs] = dy W` (no bias, no activation).
    pub fn backward(&self, dy: &[f32], rows: usize, dx: &mut [f32]) {
        self.transposed().product((dy, self.outputs), rows, (dx, self.inputs), PRODUCT);
    }

    fn transposed(&self) -> &Weights {
        self.transposed.get_or_init(|| self.weights.transposed())
    }
}

/// `out[m, n] = a[m, k] · b[n, k]ᵀ` for two activations.
pub fn product_nt(a: &[f32], m: usize, b: &[f32], n: usize, k: usize, out: &mut [f32]) {
    let panels = Panels::pack(n, k, |i, column| b[column * k + i]);
    run_f32::<false>(Job::new((a, k), m, &panels, (out, n), PRODUCT), Usable::current());
}

/// `out[m, n] = a[m, k] · b[k, n]` for two activations.
pub fn product_nn(a: &[f32], m: usize, b: &[f32], n: usize, k: usize, out: &mut [f32]) {
    let panels = Panels::pack(n, k, |i, column| b[i * n + column]);
    run_f32::<false>(Job::new((a, k), m, &panels, (out, n), PRODUCT), Usable::current());
}
