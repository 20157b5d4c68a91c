//! Products on AMX tiles: bfloat16 in, `f32` sums. The blocking is written over [`TileUnit`], which has two forms: the
//! instructions, and an emulation with exactly their arithmetic, which runs everywhere and stands in for them in the tests.

use super::driver::{Kernel, Tile};
use super::panels::{PANEL, bf16_bits};
use crate::simd::Lanes;
use std::marker::PhantomData;

/// Rows of a tile register.
const TILE_ROWS: usize = 16;
/// Bytes of a row of a tile register.
const TILE_ROW: usize = 64;
/// bfloat16 values of a tile register.
const TILE_VALUES: usize = TILE_ROWS * TILE_ROW / 2;

/// Eight tile registers of 16 rows x 64 bytes, and the four things done with them.
pub(crate) trait TileUnit {
    /// Configures the registers on this thread; dropping the unit releases them.
    fn start() -> Self;
    fn zero<const T: usize>(&mut self);
    /// # Safety
    /// 1024 bytes can be read at `from`.
    unsafe fn load<const T: usize>(&mut self, from: *const u16);
    /// `sum += a · b`, where `a` holds rows of 32 values and `b` rows of 16 pairs.
    fn dot<const SUM: usize, const A: usize, const B: usize>(&mut self);
    /// # Safety
    /// 16 rows of 16 values, `stride` values apart, can be written at `to`.
    unsafe fn store<const T: usize>(&mut self, to: *mut f32, stride: usize);
}

/// 32 x 32 sums in four tiles, two tiles of each side: every load is used twice.
pub(crate) struct TileKernel<U, L>(U, PhantomData<L>);

impl<U: TileUnit, L: Lanes> Kernel for TileKernel<U, L> {
    type Element = u16;
    type Lanes = L;
    const ROWS: usize = 2 * TILE_ROWS;
    const PANELS: usize = 2;
    const DEPTH: usize = 768;
    const BLOCK: usize = 512;

    #[inline(always)]
    fn start() -> Self {
        Self(U::start(), PhantomData)
    }
    #[inline(always)]
    fn convert(x: f32) -> u16 {
        bf16_bits(x)
    }
    #[inline(always)]
    unsafe fn tile(&mut self, a: *const u16, b: [*const u16; 2], depth: usize, tile: &mut Tile) {
        let unit = &mut self.0;
        unit.zero::<0>();
        unit.zero::<1>();
        unit.zero::<2>();
        unit.zero::<3>();
        for step in 0..depth / (TILE_VALUES / TILE_ROWS) {
            // SAFETY: the trait promises `depth / 32` steps of two tiles of `a` and one of each panel.
            unsafe {
                unit.load::<4>(a.add(step * 2 * TILE_VALUES));
                unit.load::<6>(b[0].add(step * TILE_VALUES));
                unit.dot::<0, 4, 6>();
                unit.load::<7>(b[1].add(step * TILE_VALUES));
                unit.dot::<1, 4, 7>();
                unit.load::<5>(a.add(step * 2 * TILE_VALUES + TILE_VALUES));
                unit.dot::<2, 5, 6>();
                unit.dot::<3, 5, 7>();
            }
        }
        let (to, stride) = (tile.0.as_mut_ptr(), 2 * PANEL);
        // SAFETY: the tile has 32 rows of 32 values.
        unsafe {
            unit.store::<0>(to, stride);
            unit.store::<1>(to.add(PANEL), stride);
            unit.store::<2>(to.add(TILE_ROWS * stride), stride);
            unit.store::<3>(to.add(TILE_ROWS * stride + PANEL), stride);
        }
    }
}

/// Tile registers in memory, with the arithmetic of `tdpbf16ps`: per element two chains of fused multiply-adds, one over
/// the even and one over the odd k, from zero; their sum is added to the register. Subnormals count as zero throughout.
pub(crate) struct Emulated {
    tiles: Box<[[u32; 256]; 8]>,
}

impl TileUnit for Emulated {
    fn start() -> Self {
        Self { tiles: Box::new([[0; 256]; 8]) }
    }
    fn zero<const T: usize>(&mut self) {
        self.tiles[T] = [0; 256];
    }
    unsafe fn load<const T: usize>(&mut self, from: *const u16) {
        // SAFETY: promised by the caller; `u16` may lie at any even address.
        self.tiles[T] = unsafe { from.cast::<[u32; 256]>().read_unaligned() };
    }
    fn dot<const SUM: usize, const A: usize, const B: usize>(&mut self) {
        let (a, b) = (self.tiles[A], self.tiles[B]);
        for row in 0..16 {
            for column in 0..16 {
                let (mut even, mut odd) = (0.0f32, 0.0f32);
                for k in 0..16 {
                    let (x, y) = (a[row * 16 + k], b[k * 16 + column]);
                    even = flush(flush(f32::from_bits(x << 16)).mul_add(flush(f32::from_bits(y << 16)), even));
                    odd = flush(flush(high(x)).mul_add(flush(high(y)), odd));
                }
                let sum = &mut self.tiles[SUM][row * 16 + column];
                *sum = flush(flush(f32::from_bits(*sum)) + flush(even + odd)).to_bits();
            }
        }
    }
    unsafe fn store<const T: usize>(&mut self, to: *mut f32, stride: usize) {
        for (row, values) in self.tiles[T].chunks_exact(16).enumerate() {
            for (column, &bits) in values.iter().enumerate() {
                // SAFETY: promised by the caller.
                unsafe { *to.add(row * stride + column) = f32::from_bits(bits) };
            }
        }
    }
}

/// The second value of a pair: its bits are the upper half.
fn high(pair: u32) -> f32 {
    f32::from_bits(pair & 0xffff_0000)
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use hardware::{Hardware, works};

/// Tiles need the kernel's permission, which only the Linux code asks for.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) fn works() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod hardware {
    use super::{TILE_ROW, TILE_ROWS, TileUnit};
    use std::arch::asm;
    use std::sync::OnceLock;

    /// The instructions themselves.
    pub(crate) struct Hardware(());

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
        fn start() -> Self {
            // SAFETY: only reached where `works` (or its trial, which expects a fault) has shown that tiles run.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
            Self(())
        }
        #[inline(always)]
        fn zero<const T: usize>(&mut self) {
            // SAFETY: the registers are configured as long as `self` lives; nothing else in the program uses them.
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

    /// Whether tiles compute right results on this machine: the state is enabled, the kernel gives its permission, an
    /// instruction runs, and a product agrees with the emulation. CPUID leaf 0x1D is not asked: some hypervisors hide it.
    pub(crate) fn works() -> bool {
        static WORKS: OnceLock<bool> = OnceLock::new();
        *WORKS.get_or_init(|| {
            is_x86_feature_detected!("avx512bw")
                && tile_state_enabled()
                && permitted()
                && trial::survives(exercise)
                && agrees()
        })
    }

    /// AMX-TILE and AMX-BF16 in CPUID leaf 7, and both tile states in XCR0.
    fn tile_state_enabled() -> bool {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let osxsave = __cpuid(1).ecx & (1 << 27) != 0;
        let leaf = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).edx } else { 0 };
        if !osxsave || leaf & (1 << 22) == 0 || leaf & (1 << 24) == 0 {
            return false;
        }
        let low: u32;
        // SAFETY: XGETBV exists when OSXSAVE is set; it reads XCR0 into edx:eax.
        unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nostack, nomem)) };
        low & (0b11 << 17) == 0b11 << 17
    }

    /// Asks the kernel for the tile data state (ARCH_REQ_XCOMP_PERM, 18), for this process and its threads.
    fn permitted() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: a request that changes nothing but this process's permissions.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    /// One of each instruction.
    extern "C" fn exercise() {
        let zeros = [0u16; 512];
        let mut sums = [0.0f32; 256];
        let mut unit = Hardware::start();
        unit.zero::<0>();
        // SAFETY: 1024 bytes each.
        unsafe {
            unit.load::<4>(zeros.as_ptr());
            unit.load::<6>(zeros.as_ptr());
            unit.dot::<0, 4, 6>();
            unit.store::<0>(sums.as_mut_ptr(), 16);
        }
    }

    /// A product with ragged edges on the hardware, against the emulation.
    fn agrees() -> bool {
        let (rows, n, k) = (35, 37, 100);
        let value = |i: usize| ((i * 2_654_435_761) % 1999) as f32 / 1000.0 - 1.0;
        let x: Vec<f32> = (0..rows * k).map(value).collect();
        let panels = super::super::panels::Panels::<u16>::pack(n, k, |i, c| super::bf16_bits(value(i * n + c + 7)));
        let results = [true, false].map(|hardware| {
            let mut out = vec![0.0; rows * n];
            super::super::run_tiles(&x, rows, &panels, &mut out, hardware);
            out
        });
        // Bit for bit would be right by the manual; a last-bit difference must not cost the fast path.
        results[0].iter().zip(&results[1]).all(|(a, b)| (a - b).abs() <= 1e-4)
    }

    /// Runs instructions that may fault, in a child process, so that a fault tells instead of killing.
    mod trial {
        /// Whether `body` returns in a forked child.
        pub(super) fn survives(body: extern "C" fn()) -> bool {
            // SAFETY: the child runs only `body` (no allocation, no locks) and leaves by `_exit`; the parent waits for it.
            unsafe {
                match libc::fork() {
                    -1 => false,
                    0 => {
                        for signal in [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS, libc::SIGTRAP] {
                            libc::signal(signal, libc::SIG_DFL);
                        }
                        body();
                        libc::_exit(0)
                    }
                    child => {
                        let mut status = 0;
                        while libc::waitpid(child, &mut status, 0) == -1 {
                            if *libc::__errno_location() != libc::EINTR {
                                return false;
                            }
                        }
                        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
                    }
                }
            }
        }
    }
}
