//! The AMX tile instructions, and the check whether they can be used.

use super::{TILE_ROW, TILE_ROWS, TileUnit, bf16_bits};
use crate::gemm::panels::Panels;
use crate::gemm::{Job, PRODUCT, run_bf16};
use crate::isa::{self, Isa};
use std::arch::asm;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Tile registers of the hardware. Not `Send`: the configuration belongs to one thread.
pub(in crate::gemm) struct Hardware(PhantomData<*const ()>);

/// Operand of `ldtilecfg`.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: TileConfig = {
    let mut config = TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    let mut tile = 0;
    while tile < 8 {
        config.row_bytes[tile] = TILE_ROW as u16;
        config.rows[tile] = TILE_ROWS as u8;
        tile += 1;
    }
    config
};

impl TileUnit for Hardware {
    #[inline(always)]
    unsafe fn start() -> Self {
        // SAFETY: promised by the caller.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
        Self(PhantomData)
    }
    #[inline(always)]
    fn zero<const T: usize>(&mut self) {
        // SAFETY: the registers are configured as long as `self` lives, and nothing else on this thread uses them.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, nomem)) };
    }
    #[inline(always)]
    unsafe fn load<const T: usize>(&mut self, from: *const u16) {
        // SAFETY: as `zero`, and the caller promises the bytes.
        unsafe {
            asm!("tileloadd tmm{t}, [{from} + {stride}*1]", t = const T, from = in(reg) from,
                stride = in(reg) TILE_ROW, options(nostack, readonly));
        }
    }
    #[inline(always)]
    fn dot<const SUM: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: as `zero`.
        unsafe {
            asm!("tdpbf16ps tmm{sum}, tmm{a}, tmm{b}", sum = const SUM, a = const A, b = const B,
                options(nostack, nomem));
        }
    }
    #[inline(always)]
    unsafe fn store<const T: usize>(&mut self, to: *mut f32, stride: usize) {
        // SAFETY: as `zero`, and the caller promises the room.
        unsafe {
            asm!("tilestored [{to} + {stride}*1], tmm{t}", t = const T, to = in(reg) to,
                stride = in(reg) stride * 4, options(nostack));
        }
    }
}

impl Drop for Hardware {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: as `zero`.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// A proof that tile instructions, and AVX-512 around them, run in this process.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct Permitted(());

/// The proof, where the CPU has tiles, the system saves their state and gives its permission. With these three no
/// tile instruction faults; CPUID leaf 0x1D is not read, since some hypervisors leave it zero.
pub(in crate::gemm) fn permitted() -> Option<Permitted> {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    let yes = *PERMITTED.get_or_init(|| isa::supports(Isa::Avx512) && Features::read().tiles() && request());
    yes.then_some(Permitted(()))
}

/// Whether tiles are permitted and a product on them agrees with the emulation.
pub(super) fn works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| permitted().is_some_and(agrees))
}

/// What CPUID leaf 7 and XCR0 say.
#[derive(Clone, Copy, Default)]
struct Features {
    leaf_7_edx: u32,
    xcr0: u32,
}

impl Features {
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    /// Tile configuration and tile data.
    const TILE_STATES: u32 = 0b11 << 17;

    fn read() -> Self {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let osxsave = __cpuid(1).ecx & (1 << 27) != 0;
        if !osxsave || __cpuid(0).eax < 7 {
            return Self::default();
        }
        let xcr0: u32;
        // SAFETY: XGETBV exists when OSXSAVE is set; it reads XCR0 into edx:eax.
        unsafe { asm!("xgetbv", in("ecx") 0, out("eax") xcr0, out("edx") _, options(nostack, nomem)) };
        Self { leaf_7_edx: __cpuid_count(7, 0).edx, xcr0 }
    }

    /// The instructions exist and the system saves their state.
    fn tiles(self) -> bool {
        let instructions = Self::AMX_BF16 | Self::AMX_TILE;
        self.leaf_7_edx & instructions == instructions && self.xcr0 & Self::TILE_STATES == Self::TILE_STATES
    }
}

/// Requests the tile data state (18) from the kernel, for this process and its threads.
fn request() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: a request that changes nothing but this process's permissions.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// A product with ragged edges on the hardware, against the emulation.
fn agrees(tiles: Permitted) -> bool {
    let (rows, n, k) = (35, 37, 100);
    let value = |i: usize| ((i * 2_654_435_761) % 1999) as f32 / 1000.0 - 1.0;
    let x: Vec<f32> = (0..rows * k).map(value).collect();
    let panels = Panels::<u16>::pack(n, k, |i, c| bf16_bits(value(i * n + c + 7)));
    let results = [Some(tiles), None].map(|tiles| {
        let mut out = vec![0.0; rows * n];
        run_bf16(Job::new((&x, k), rows, &panels, (&mut out, n), PRODUCT), tiles);
        out
    });
    // By the manual the results are bitwise equal, but a difference in the last bit must not disable the fast path.
    results[0].iter().zip(&results[1]).all(|(a, b)| (a - b).abs() <= 1e-4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_need_both_instructions_and_both_states() {
        let all = Features { leaf_7_edx: Features::AMX_BF16 | Features::AMX_TILE, xcr0: 0xe7 | Features::TILE_STATES };
        assert!(all.tiles());
        assert!(!Features::default().tiles());
        assert!(!Features { leaf_7_edx: Features::AMX_TILE, ..all }.tiles());
        assert!(!Features { leaf_7_edx: Features::AMX_BF16, ..all }.tiles());
        for state in [17, 18] {
            assert!(!Features { xcr0: all.xcr0 & !(1 << state), ..all }.tiles());
        }
    }

    #[test]
    fn what_is_used_is_what_is_permitted() {
        assert!(!works() || permitted().is_some());
        assert!(permitted().is_none() || (isa::supports(Isa::Avx512) && Features::read().tiles()));
    }

    /// A library must not start processes: servers and notebooks may wait for child processes and expect only their own.
    #[test]
    fn no_process_is_started_to_find_out() {
        let source = include_str!("hardware.rs");
        for call in [concat!("libc::fo", "rk"), concat!("libc::wait", "pid"), concat!("process::Com", "mand")] {
            assert!(!source.contains(call), "{call}");
        }
    }
}
