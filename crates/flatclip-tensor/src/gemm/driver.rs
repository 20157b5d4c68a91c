//! Blocking of a product: blocks of rows and panels for the threads, passes over k for the caches, tiles for the kernel.
//!
//! The order in which an element of the result is summed depends only on k: in steps inside a pass of fixed depth, and pass
//! after pass. So a result does not depend on the number of rows, on its position in the matrix, or on the threads.

use super::epilogue::{Epilogue, Target, apply};
use super::panels::{Element, PANEL, Panels, Scratch};
use crate::simd::Lanes;
use rayon::prelude::*;
use std::ops::Range;

/// A buffer for the largest tile of any kernel (32 x 32), aligned to a cache line.
#[repr(C, align(64))]
pub(crate) struct Tile(pub(crate) [f32; 1024]);

/// The operands of a tile for one pass over k.
pub(crate) struct Operands<T: Element> {
    /// `[depth / STEP][ROWS][STEP]` values of the left side.
    pub(crate) a: *const T,
    /// Additional data of each of the `ROWS` rows.
    pub(crate) rows: *const T::Row,
    /// `16 depth` values of each panel, aligned to a cache line; a kernel with one panel uses only the first.
    pub(crate) b: [*const T; 2],
    /// Additional data of the columns of each panel.
    pub(crate) columns: [*const T::Columns; 2],
    /// A multiple of the element's step, and not 0.
    pub(crate) depth: usize,
}

/// The innermost product, for one instruction set.
pub(crate) trait Kernel {
    /// Packed left and right sides.
    type Element: Element;
    /// Vectors for the epilogue.
    type Lanes: Lanes;
    /// Rows of a tile.
    const ROWS: usize;
    /// Panels (of 16 columns) of a tile: 1 or 2.
    const PANELS: usize;
    /// Rows of a block: as many packed rows as fit into the L2 cache.
    const BLOCK: usize;
    /// Maximum panels of a block: its part of the result is read and written in every pass, its rows are packed once.
    const BLOCK_PANELS: usize = 32;

    /// Prepares the hardware on this thread; dropping the kernel releases it.
    ///
    /// # Safety
    /// The machine has the kernel's instructions, and no other kernel that was started on this thread lives.
    unsafe fn start() -> Self;
    /// Packs the start of a row of the left side as row `r` of `tile`, `[depth / STEP][ROWS][STEP]`, padded with zeros.
    /// [`convert_row`] does this value by value.
    ///
    /// # Safety
    /// The machine has the kernel's instructions.
    unsafe fn pack_row(from: &[f32], tile: &mut [Self::Element], r: usize) -> <Self::Element as Element>::Row;
    /// Hints that the line at `_to` will be written soon.
    #[inline(always)]
    fn prefetch(_to: *const f32) {}
    /// `tile[ROWS][16 PANELS] = a b`.
    ///
    /// # Safety
    /// Everything that [`Operands`] says can be read.
    unsafe fn tile(&mut self, of: &Operands<Self::Element>, tile: &mut Tile);
}

/// One product: `out = epilogue(x · panels)`, with rows of `x` and `out` at a stride.
pub(crate) struct Job<'a, T: Element> {
    x: &'a [f32],
    x_stride: usize,
    rows: usize,
    panels: &'a Panels<T>,
    out: *mut f32,
    out_stride: usize,
    epilogue: Epilogue<'a>,
}

// SAFETY: `out` comes from a unique borrow that outlives the job, and the blocks of a job write disjoint parts of it.
unsafe impl<T: Element> Sync for Job<'_, T> {}

impl<'a, T: Element> Job<'a, T> {
    /// # Panics
    /// If a slice is too short for its shape.
    pub(crate) fn new(
        (x, x_stride): (&'a [f32], usize),
        rows: usize,
        panels: &'a Panels<T>,
        (out, out_stride): (&'a mut [f32], usize),
        epilogue: Epilogue<'a>,
    ) -> Self {
        let (k, n) = (panels.depth(), panels.columns());
        assert!(x_stride >= k && out_stride >= n, "strides {x_stride}, {out_stride} are narrower than {k}, {n}");
        assert!(fits(x.len(), rows, x_stride, k), "the left side is shorter than [{rows}, {k}]");
        assert!(fits(out.len(), rows, out_stride, n), "the result is shorter than [{rows}, {n}]");
        assert!(epilogue.bias.is_none_or(|bias| bias.len() == n));
        Self { x, x_stride, rows, panels, out: out.as_mut_ptr(), out_stride, epilogue }
    }

    /// Runs `block` on each block, in parallel if the product is large enough. Consumes the job: if it ran twice at the same
    /// time, both runs would write to the same result.
    pub(crate) fn run<K: Kernel<Element = T>>(self, block: impl Fn(&Self, Range<usize>, Range<usize>) + Sync) {
        let panels = self.panels.count();
        if self.rows == 0 || panels == 0 {
            return;
        }
        let work = self.rows * panels * PANEL * self.panels.padded_depth();
        let threads = if work < SEQUENTIAL_BELOW || crate::threads::alone() { 1 } else { rayon::current_num_threads() };
        let cut = Cut::new(self.rows, panels, (K::ROWS, K::PANELS), (K::BLOCK, K::BLOCK_PANELS), threads);
        let one = |index: usize| {
            let (rows, panels) = cut.block(index);
            block(&self, rows, panels);
        };
        if threads == 1 || cut.count() == 1 {
            (0..cut.count()).for_each(one);
        } else {
            (0..cut.count()).into_par_iter().with_max_len(1).for_each(one);
        }
    }
}

/// Whether `rows` rows of `width` values, `stride` apart, lie inside `len` values.
fn fits(len: usize, rows: usize, stride: usize, width: usize) -> bool {
    rows == 0 || (rows - 1).checked_mul(stride).and_then(|start| start.checked_add(width)).is_some_and(|end| end <= len)
}

/// Products with fewer multiply-adds run on one thread, because waking others would take longer (about 20 µs of one core).
const SEQUENTIAL_BELOW: usize = 1 << 20;

/// Blocks per thread, for load balancing.
const BLOCKS_PER_THREAD: usize = 4;

/// A grid of blocks over rows and panels.
struct Cut {
    rows: usize,
    panels: usize,
    block_rows: usize,
    block_panels: usize,
}

impl Cut {
    fn new(
        rows: usize,
        panels: usize,
        (tile_rows, tile_panels): (usize, usize),
        (block_rows, block_panels): (usize, usize),
        threads: usize,
    ) -> Self {
        let row_blocks = rows.div_ceil(block_rows);
        let block_rows = rows.div_ceil(row_blocks).next_multiple_of(tile_rows);
        let wanted = if threads == 1 { 1 } else { (threads * BLOCKS_PER_THREAD).div_ceil(row_blocks) };
        let block_panels = panels.div_ceil(wanted.max(panels.div_ceil(block_panels))).next_multiple_of(tile_panels);
        Self { rows, panels, block_rows, block_panels }
    }

    fn columns(&self) -> usize {
        self.panels.div_ceil(self.block_panels)
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(self.block_rows) * self.columns()
    }

    fn block(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (row, panel) = (index / self.columns() * self.block_rows, index % self.columns() * self.block_panels);
        (row..(row + self.block_rows).min(self.rows), panel..(panel + self.block_panels).min(self.panels))
    }
}

/// One block on this thread. Inlined into a function compiled for the kernel's instruction set.
///
/// # Safety
/// The machine has the kernel's instructions; blocks that run at the same time are disjoint.
#[inline(always)]
pub(crate) unsafe fn block<K: Kernel>(job: &Job<'_, K::Element>, rows: Range<usize>, panels: Range<usize>) {
    let (padded, pass_depth) = (job.panels.padded_depth(), K::Element::DEPTH);
    // SAFETY: the caller promises the instructions; the kernel ends with this block, which starts no other.
    let mut kernel = unsafe { K::start() };
    let mut tile = Tile([0.0; 1024]);
    let tiles = rows.len().div_ceil(K::ROWS);
    // Taken and put back instead of borrowed in a closure, which would be compiled without the kernel's target features.
    let mut scratch = K::Element::scratch().take();
    scratch.values.reserve(tiles * K::ROWS * pass_depth.min(padded));
    scratch.rows.resize(tiles * K::ROWS, Default::default());
    for (pass, start) in (0..padded).step_by(pass_depth).enumerate() {
        let depth = pass_depth.min(padded - start);
        // SAFETY: the caller promises the instructions.
        unsafe { pack_rows::<K>(job, rows.clone(), start, depth, &mut scratch) };
        let ends = (start == 0, start + depth == padded);
        for panel in panels.clone().step_by(K::PANELS) {
            // If fewer panels remain than the tile has, the last panel is read twice and the copy is dropped.
            let pair = [panel, if panel + 1 < panels.end { panel + 1 } else { panel }];
            let of_panel = |panel: usize| job.panels.data()[panel * job.panels.panel_len() + start * PANEL..].as_ptr();
            let (b, columns) = (pair.map(of_panel), pair.map(|panel| std::ptr::from_ref(job.panels.side(panel, pass))));
            for index in 0..tiles {
                let a = scratch.values[index * K::ROWS * depth..(index + 1) * K::ROWS * depth].as_ptr();
                let of = Operands { a, rows: scratch.rows[index * K::ROWS..].as_ptr(), b, columns, depth };
                let (row, column) = (rows.start + index * K::ROWS, panel * PANEL);
                // SAFETY: the panels end inside the data; the target is this block's part of `out`; the kernel's
                // instructions include those of its lanes.
                unsafe {
                    let target = Target {
                        out: job.out.add(row * job.out_stride + column),
                        stride: job.out_stride,
                        rows: K::ROWS.min(rows.end - row),
                        columns: (K::PANELS.min(panels.end - panel) * PANEL).min(job.panels.columns() - column),
                    };
                    // Prefetch the cache lines of the result while the tile is computed.
                    for row in 0..target.rows {
                        K::prefetch(target.out.add(row * target.stride));
                    }
                    kernel.tile(&of, &mut tile);
                    let width = K::PANELS * PANEL;
                    apply::<K::Lanes>(&tile.0, width, target, column, job.epilogue, ends.0, ends.1);
                }
            }
        }
    }
    K::Element::scratch().set(scratch);
}

/// Packs `rows` of the left side at `start..start + depth` as `[tile][depth / STEP][ROWS][STEP]`, zeros beyond the edges.
///
/// # Safety
/// The machine has the kernel's instructions.
#[inline(always)]
unsafe fn pack_rows<K: Kernel>(
    job: &Job<'_, K::Element>,
    rows: Range<usize>,
    start: usize,
    depth: usize,
    scratch: &mut Scratch<K::Element>,
) {
    let inside = job.panels.depth().saturating_sub(start).min(depth);
    let tiles = scratch.values.chunks_exact_mut(K::ROWS * depth).zip(scratch.rows.chunks_exact_mut(K::ROWS));
    for (index, (tile, sides)) in tiles.take(rows.len().div_ceil(K::ROWS)).enumerate() {
        for (r, side) in sides.iter_mut().enumerate() {
            let row = rows.start + index * K::ROWS + r;
            let from = if row < rows.end { &job.x[row * job.x_stride + start..][..inside] } else { &[] };
            // SAFETY: promised by the caller.
            *side = unsafe { K::pack_row(from, tile, r) };
        }
    }
}

/// [`Kernel::pack_row`] for values that are converted one by one.
#[inline(always)]
pub(crate) fn convert_row<K: Kernel>(
    from: &[f32],
    tile: &mut [K::Element],
    r: usize,
    convert: impl Fn(f32) -> K::Element,
) {
    let step = K::Element::STEP;
    let mut chunks = from.chunks_exact(step);
    for group in tile.chunks_exact_mut(K::ROWS * step) {
        let to = &mut group[r * step..(r + 1) * step];
        if let Some(from) = chunks.next() {
            to.iter_mut().zip(from).for_each(|(to, &x)| *to = convert(x));
        } else {
            // The incomplete step once, then only padding.
            let from = chunks.remainder();
            to.iter_mut().zip(from).for_each(|(to, &x)| *to = convert(x));
            to[from.len()..].fill(Default::default());
            chunks = [].chunks_exact(step);
        }
    }
}

/// [`Kernel::pack_row`] for values that stay as they are: whole vectors, where [`convert_row`] copies value by value.
#[inline(always)]
pub(crate) fn copy_row<K: Kernel<Element = f32>>(from: &[f32], tile: &mut [f32], r: usize) {
    const STEP: usize = f32::STEP;
    let chunks = from.chunks_exact(STEP);
    let mut end = chunks.remainder();
    let mut groups = tile.chunks_exact_mut(K::ROWS * STEP);
    for (chunk, group) in chunks.zip(groups.by_ref()) {
        group[r * STEP..][..STEP].copy_from_slice(chunk);
    }
    for group in groups {
        let to = &mut group[r * STEP..][..STEP];
        to[..end.len()].copy_from_slice(end);
        to[end.len()..].fill(0.0);
        end = &[];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_a_cut_cover_each_cell_once() {
        for (rows, panels, threads) in [(1, 1, 1), (7, 3, 2), (241, 48, 2), (4165, 5, 8), (12608, 192, 2)] {
            for tile in [(6, 1), (12, 2), (32, 2)] {
                let cut = Cut::new(rows, panels, tile, (240, 32), threads);
                let mut seen = vec![0u8; rows * panels];
                for index in 0..cut.count() {
                    let (rows, columns) = cut.block(index);
                    for row in rows {
                        for column in columns.clone() {
                            seen[row * panels + column] += 1;
                        }
                    }
                }
                assert!(seen.iter().all(|&count| count == 1), "{rows} x {panels}, {threads} threads");
            }
        }
    }
}
