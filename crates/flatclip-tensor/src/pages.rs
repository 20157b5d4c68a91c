//! Buffers for packed weights and scratch space: aligned to cache lines, and on Linux backed by huge pages if large, since a
//! product accesses far more memory than the TLB covers with 4 KB pages.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// A number whose all-zero bytes mean zero and that needs no drop.
pub(crate) trait Number: Copy + Default + Send + Sync + 'static {}
impl Number for f32 {}
impl Number for u16 {}
impl Number for i16 {}

/// A fixed-size, zero-initialised, aligned array.
pub(crate) struct Buffer<T: Number> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: a `Buffer` owns its memory as a `Vec` does, and `Number`s are plain values.
unsafe impl<T: Number> Send for Buffer<T> {}
// SAFETY: shared access gives shared slices of plain values only.
unsafe impl<T: Number> Sync for Buffer<T> {}

impl<T: Number> Buffer<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// If they would not fit into the address space.
    pub(crate) fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self { start: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout has a size, since `len > 0` and no `Number` is zero-sized.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // Before the first touch, so that the pages are huge when they are made.
        advise_huge(start.as_ptr(), layout);
        // SAFETY: the block has `layout.size()` bytes; zero bytes are a valid `Number`.
        unsafe { start.as_ptr().write_bytes(0, layout.size()) };
        Self { start: start.cast(), len }
    }

    /// At least `len` values, keeping the block when it is large enough. The contents are unspecified (but initialised).
    pub(crate) fn reserve(&mut self, len: usize) -> &mut [T] {
        if self.len < len {
            *self = Self::zeroed(len);
        }
        &mut self[..len]
    }

    fn layout(len: usize) -> Layout {
        let size = || {
            let bytes = len.checked_mul(size_of::<T>())?;
            let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { LINE };
            let bytes = if bytes >= HUGE_PAGE { bytes.checked_next_multiple_of(HUGE_PAGE)? } else { bytes };
            Layout::from_size_align(bytes, align).ok()
        };
        size().expect("a buffer is smaller than the address space")
    }
}

#[cfg(target_os = "linux")]
fn advise_huge(start: *mut u8, layout: Layout) {
    if layout.align() == HUGE_PAGE {
        // SAFETY: the range is ours, page-aligned and of whole pages. A refusal only means ordinary pages.
        unsafe { libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_start: *mut u8, _layout: Layout) {}

/// Returns freed memory to the system. For use between two large stages with buffers of different sizes, since the allocator
/// would keep the memory of the first during the second.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes no pointer and may be called from any thread; it only touches memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

impl<T: Number> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `zeroed` with this same layout.
            unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) };
        }
    }
}

impl<T: Number> Default for Buffer<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Number> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised values, dangling only when `len` is 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Number> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Number> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} values)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_size_are_zero_and_aligned() {
        for len in [0, 1, 17, 4096, HUGE_PAGE / 4, HUGE_PAGE / 4 + 1] {
            let buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&x| x == 0.0));
            assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(LINE));
        }
    }

    #[test]
    fn a_buffer_beyond_the_address_space_is_refused() {
        for len in [usize::MAX, usize::MAX / 4, usize::MAX / 8, usize::MAX / 4 - HUGE_PAGE / 8] {
            assert!(std::panic::catch_unwind(|| Buffer::<f32>::zeroed(len)).is_err(), "{len} values");
        }
    }

    #[test]
    fn reserve_keeps_a_block_that_is_large_enough() {
        let mut buffer = Buffer::<u16>::zeroed(100);
        let before = buffer.as_ptr();
        assert_eq!(buffer.reserve(40).len(), 40);
        assert_eq!(buffer.as_ptr(), before);
        assert_eq!(buffer.reserve(400).len(), 400);
    }
}
