//! The instruction set of the kernels: detected once at run time, or forced by the caller.

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that kernels are written for; those of one architecture from the simplest to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// Portable Rust: runs on every machine, and is the reference for the others.
    Plain = 1,
    /// x86-64 with AVX2 and FMA.
    Avx2 = 2,
    /// x86-64 with AVX-512 (F, BW, DQ, VL).
    Avx512 = 3,
    /// AVX-512 for `f32`, and AMX tiles for `bf16`.
    Amx = 4,
    /// aarch64 with NEON.
    Neon = 5,
}

/// Every instruction set in the order of their numbers, the simplest of an architecture first.
pub const ALL: [Isa; 5] = [Isa::Plain, Isa::Avx2, Isa::Avx512, Isa::Amx, Isa::Neon];

/// This machine cannot run the instruction set that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// What was asked for.
    pub asked: Isa,
    /// The best that this machine has.
    pub best: Isa,
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this machine cannot run `{}`; the best it has is `{}`", self.asked.name(), self.best.name())
    }
}

impl std::error::Error for Unsupported {}

impl Isa {
    /// The name used in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Plain => "plain",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
            Isa::Neon => "neon",
        }
    }

    /// Finds an instruction set by its name.
    pub fn from_name(name: &str) -> Option<Isa> {
        ALL.into_iter().find(|isa| isa.name() == name)
    }
}

/// An instruction set that was detected on this machine, so that safe functions can run its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usable(Isa);

impl Usable {
    /// `isa`, if this machine has it.
    pub(crate) fn new(isa: Isa) -> Result<Self, Unsupported> {
        if supports(isa) { Ok(Self(isa)) } else { Err(Unsupported { asked: isa, best: detect() }) }
    }

    pub(crate) fn current() -> Self {
        // The current set is always supported: it comes from `force`, which checks it, or from detection.
        Self(current())
    }

    pub(crate) fn isa(self) -> Isa {
        self.0
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Compiles a kernel that is generic over [`Lanes`](crate::simd::Lanes) for each instruction set, and picks one at run
/// time: `per_isa! { fn name(x: &[f32], ...) = kernel; }` with `#[inline(always)]
/// fn kernel<L: Lanes>(lanes: Available<L>, x: &[f32], ...)`.
macro_rules! per_isa {
    ($(#[$attribute:meta])* $visible:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $kernel:ident;) => {
        $(#[$attribute])*
        $visible fn $name($($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) {
                // SAFETY: this function is only called where its instructions were found.
                let lanes = unsafe { crate::simd::Available::<crate::simd::Avx2>::detected() };
                $kernel(lanes, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $type),*) {
                // SAFETY: this function is only called where its instructions were found.
                let lanes = unsafe { crate::simd::Available::<crate::simd::Avx512>::detected() };
                $kernel(lanes, $($arg),*)
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            fn neon($($arg: $type),*) {
                // SAFETY: this function is only called where its instructions were found.
                let lanes = unsafe { crate::simd::Available::<crate::simd::Neon>::detected() };
                $kernel(lanes, $($arg),*)
            }
            match crate::isa::current() {
                // SAFETY: an instruction set becomes current only after detection.
                #[cfg(target_arch = "x86_64")]
                crate::isa::Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                crate::isa::Isa::Avx512 | crate::isa::Isa::Amx => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "aarch64")]
                crate::isa::Isa::Neon => unsafe { neon($($arg),*) },
                _ => $kernel(crate::simd::Available::plain(), $($arg),*),
            }
        }
    };
}
pub(crate) use per_isa;

/// 0 until the first call of `current` or `force`.
static CURRENT: AtomicU8 = AtomicU8::new(0);

/// The instruction set in use: the best of this machine unless [`force`] chose another.
pub fn current() -> Isa {
    let stored = usize::from(CURRENT.load(Ordering::Relaxed));
    if let Some(isa) = stored.checked_sub(1).and_then(|place| ALL.get(place)) {
        return *isa;
    }
    let found = detect();
    // A concurrent `force` takes precedence.
    let _ = CURRENT.compare_exchange(0, found as u8, Ordering::Relaxed, Ordering::Relaxed);
    current()
}

/// Uses `isa` from now on. Meant to be called once, before weights are packed; results of different sets differ in
/// rounding only.
pub fn force(isa: Isa) -> Result<(), Unsupported> {
    let usable = Usable::new(isa)?;
    CURRENT.store(usable.isa() as u8, Ordering::Relaxed);
    Ok(())
}

/// Whether this machine can run `isa`.
pub fn supports(isa: Isa) -> bool {
    match isa {
        Isa::Plain => true,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => has_avx2(),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => has_avx512(),
        #[cfg(target_arch = "x86_64")]
        Isa::Amx => has_avx512() && crate::gemm::amx_works(),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        // Instruction sets of other architectures.
        _ => false,
    }
}

/// The best instruction set of this machine.
pub fn detect() -> Isa {
    ALL.into_iter().rev().find(|&isa| supports(isa)).unwrap_or(Isa::Plain)
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_plain_always_runs() {
        for isa in ALL {
            assert_eq!(Isa::from_name(isa.name()), Some(isa));
        }
        assert_eq!(Isa::from_name("sse"), None);
        assert!(supports(Isa::Plain));
        assert!(supports(detect()));
        #[cfg(target_arch = "aarch64")]
        assert_eq!(detect(), Isa::Neon, "every aarch64 machine with a standard library has it");
    }

    #[test]
    fn an_instruction_set_that_is_missing_is_refused() {
        for isa in ALL.into_iter().filter(|&isa| !supports(isa)) {
            let before = current();
            let refused = force(isa).expect_err("not supported");
            assert_eq!(refused, Unsupported { asked: isa, best: detect() });
            assert!(refused.to_string().contains(isa.name()));
            assert_eq!(Usable::new(isa), Err(refused));
            assert_eq!(current(), before, "a refused instruction set must not come into use");
        }
    }
}
