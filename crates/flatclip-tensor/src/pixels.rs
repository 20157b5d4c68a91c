//! Integer kernels for images: the weighted sum of byte rows, which resampling needs, and a byte transpose.
//!
//! All arithmetic is on integers, so every path gives identical results.

/// Fraction bits of a weight: 8 bits of pixel, 2 bits of head room for overshooting filters, the rest of 32.
pub const WEIGHT_BITS: u32 = 22;

/// `dst[j] = clamp(round(sum_k src[k * stride + j] * weights[k] / 2^22))`, rounded half up.
///
/// # Panics
/// If `src` has fewer rows than there are weights.
pub fn blend_rows(dst: &mut [u8], src: &[u8], stride: usize, weights: &[i32]) {
    assert!(
        weights.is_empty() || src.len() >= (weights.len() - 1) * stride + dst.len(),
        "blend_rows: {} rows of {} at stride {stride} do not fit into {} bytes",
        weights.len(),
        dst.len(),
        src.len()
    );
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, which is all that the function's target feature asks for.
        return unsafe { blend_rows_avx2(dst, src, stride, weights) };
    }
    blend_rows_plain(dst, src, stride, weights);
}

/// The same loop, compiled for AVX2: the compiler turns it into eight 32-bit lanes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn blend_rows_avx2(dst: &mut [u8], src: &[u8], stride: usize, weights: &[i32]) {
    blend_rows_plain(dst, src, stride, weights);
}

/// The plain loop, which is also the reference.
#[inline(always)]
fn blend_rows_plain(dst: &mut [u8], src: &[u8], stride: usize, weights: &[i32]) {
    const LANES: usize = 32;
    let len = dst.len();
    let mut at = 0;
    while at + LANES <= len {
        blend_lanes::<LANES>(dst, src, stride, weights, at);
        at += LANES;
    }
    if at < len && len >= LANES {
        // The last lanes overlap those before: the same bytes are written again.
        blend_lanes::<LANES>(dst, src, stride, weights, len - LANES);
        return;
    }
    while at + 8 <= len {
        blend_lanes::<8>(dst, src, stride, weights, at);
        at += 8;
    }
    while at < len {
        blend_lanes::<1>(dst, src, stride, weights, at);
        at += 1;
    }
}

#[inline(always)]
fn blend_lanes<const N: usize>(dst: &mut [u8], src: &[u8], stride: usize, weights: &[i32], at: usize) {
    let mut sums = [1i32 << (WEIGHT_BITS - 1); N];
    for (k, &weight) in weights.iter().enumerate() {
        let row = &src[k * stride + at..][..N];
        for lane in 0..N {
            sums[lane] = sums[lane].wrapping_add(i32::from(row[lane]).wrapping_mul(weight));
        }
    }
    let out = &mut dst[at..][..N];
    for lane in 0..N {
        out[lane] = (sums[lane] >> WEIGHT_BITS).clamp(0, 255) as u8;
    }
}

/// Writes the `rows x columns` bytes of `src` (row stride `src_stride`) as columns: `dst[x * dst_stride + y]`.
pub fn transpose(dst: &mut [u8], dst_stride: usize, src: &[u8], src_stride: usize, rows: usize, columns: usize) {
    const TILE: usize = 16;
    for y in (0..rows).step_by(TILE) {
        let high = TILE.min(rows - y);
        for x in (0..columns).step_by(TILE) {
            let wide = TILE.min(columns - x);
            if high == TILE && wide == TILE {
                transpose_tile(dst, dst_stride, src, src_stride, y, x);
            } else {
                for (j, i) in (0..high).flat_map(|j| (0..wide).map(move |i| (j, i))) {
                    dst[(x + i) * dst_stride + y + j] = src[(y + j) * src_stride + x + i];
                }
            }
        }
    }
}

/// A 16 x 16 tile in four rounds of interleaving halves, which compile to byte unpacks.
#[inline]
fn transpose_tile(dst: &mut [u8], dst_stride: usize, src: &[u8], src_stride: usize, y: usize, x: usize) {
    let mut tile = [[0u8; 16]; 16];
    for (j, row) in tile.iter_mut().enumerate() {
        row.copy_from_slice(&src[(y + j) * src_stride + x..][..16]);
    }
    for _ in 0..4 {
        let mut next = [[0u8; 16]; 16];
        for j in 0..8 {
            for i in 0..8 {
                next[2 * j][2 * i] = tile[j][i];
                next[2 * j][2 * i + 1] = tile[j + 8][i];
                next[2 * j + 1][2 * i] = tile[j][i + 8];
                next[2 * j + 1][2 * i + 1] = tile[j + 8][i + 8];
            }
        }
        tile = next;
    }
    for (i, row) in tile.iter().enumerate() {
        dst[(x + i) * dst_stride + y..][..16].copy_from_slice(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n as u32).map(|i| (i.wrapping_mul(2654435761) >> 21) as u8).collect()
    }

    #[test]
    fn the_vector_path_equals_the_plain_one_and_the_formula() {
        let weights = [-300_000, 1_900_000, 2_800_000, -205_696];
        for len in [1, 7, 8, 15, 31, 32, 33, 63, 64, 100, 224] {
            let src = bytes(3 * 240 + len);
            let (mut fast, mut plain) = (vec![0; len], vec![0; len]);
            blend_rows(&mut fast, &src, 240, &weights);
            blend_rows_plain(&mut plain, &src, 240, &weights);
            assert_eq!(fast, plain);
            for j in 0..len {
                let sum: i64 = (0..4).map(|k| i64::from(src[k * 240 + j]) * i64::from(weights[k])).sum();
                assert_eq!(i64::from(fast[j]), ((sum + (1 << 21)) >> 22).clamp(0, 255), "lane {j} of {len}");
            }
        }
    }

    #[test]
    fn a_transpose_moves_every_byte() {
        for (rows, columns) in [(1, 1), (16, 16), (17, 33), (32, 15), (50, 64)] {
            let src = bytes(rows * (columns + 3));
            let mut dst = vec![0; columns * (rows + 5)];
            transpose(&mut dst, rows + 5, &src, columns + 3, rows, columns);
            for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
                assert_eq!(dst[x * (rows + 5) + y], src[y * (columns + 3) + x]);
            }
        }
    }
}
