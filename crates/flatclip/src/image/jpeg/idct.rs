//! The accurate integer inverse DCT of libjpeg ("islow"): Loeffler, Ligtenberg and Moschytz, 13-bit constants, two
//! bits kept between the passes.

const CONST_BITS: i32 = 13;
const PASS_BITS: i32 = 2;

/// `round(x * 2^13)` of the constants of the flow graph.
const C0_298: i32 = 2446;
const C0_390: i32 = 3196;
const C0_541: i32 = 4433;
const C0_765: i32 = 6270;
const C0_899: i32 = 7373;
const C1_175: i32 = 9633;
const C1_501: i32 = 12299;
const C1_847: i32 = 15137;
const C1_961: i32 = 16069;
const C2_053: i32 = 16819;
const C2_562: i32 = 20995;
const C3_072: i32 = 25172;

/// The samples of a row of blocks, eight rows of `blocks.len() * 8`.
pub(super) fn samples(blocks: &[[i16; 64]], quantization: &[u16; 64], out: &mut [u8]) {
    let stride = blocks.len() * 8;
    for (column, block) in blocks.iter().enumerate() {
        inverse(block, quantization, &mut out[column * 8..], stride);
    }
}

/// Dequantised values and sums of two of them have 16 bits and wrap around; what the first pass gives is clamped to 16 bits.
/// Only damaged files get there, and libjpeg-turbo's vector code does so.
fn inverse(block: &[i16; 64], quantization: &[u16; 64], out: &mut [u8], stride: usize) {
    let value = |at: usize| block[at].wrapping_mul(quantization[at] as i16);
    let mut middle = [0i16; 64];
    if block[8..].iter().all(|&c| c == 0) {
        let row: [i16; 8] = std::array::from_fn(|x| value(x) << PASS_BITS);
        if row[1..].iter().all(|&v| v == 0) {
            // Only the mean: all samples are equal.
            let value = sample(i32::from(row[0]) << CONST_BITS);
            (0..8).for_each(|y| out[y * stride..][..8].fill(value));
            return;
        }
        middle.as_chunks_mut::<8>().0.fill(row);
    } else {
        let shift = CONST_BITS - PASS_BITS;
        for x in 0..8 {
            let column = pass(std::array::from_fn(|y| value(y * 8 + x)));
            for (y, v) in column.into_iter().enumerate() {
                let v = v.wrapping_add(1 << (shift - 1)) >> shift;
                middle[y * 8 + x] = v.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
            }
        }
    }
    for (y, row) in middle.as_chunks::<8>().0.iter().enumerate() {
        let out = &mut out[y * stride..][..8];
        out.iter_mut().zip(pass(*row)).for_each(|(o, v)| *o = sample(v));
    }
}

/// Removes the scale of both passes and of the transform (8), and puts zero at grey.
fn sample(value: i32) -> u8 {
    let shift = CONST_BITS + PASS_BITS + 3;
    ((value.wrapping_add(1 << (shift - 1)) >> shift) + 128).clamp(0, 255) as u8
}

/// One dimension; the result is scaled by `2^13 * sqrt(8)`.
#[inline(always)]
fn pass(input: [i16; 8]) -> [i32; 8] {
    let wide = |v: i16| i32::from(v);
    let short = |a: usize, b: usize| wide(input[a].wrapping_add(input[b]));
    let difference = wide(input[0].wrapping_sub(input[4]));
    let [_, i1, i2, i3, _, i5, i6, i7] = input.map(wide);
    let times = |a: i32, b: i32| a.wrapping_mul(b);
    let add = |a: i32, b: i32| a.wrapping_add(b);
    let sub = |a: i32, b: i32| a.wrapping_sub(b);
    // Even part.
    let turn = times(add(i2, i6), C0_541);
    let (t2, t3) = (sub(turn, times(i6, C1_847)), add(turn, times(i2, C0_765)));
    let (t0, t1) = (short(0, 4) << CONST_BITS, difference << CONST_BITS);
    let (e0, e3, e1, e2) = (add(t0, t3), sub(t0, t3), add(t1, t2), sub(t1, t2));
    // Odd part.
    let (z1, z2, z3, z4) = (add(i7, i1), add(i5, i3), short(7, 3), short(5, 1));
    let z5 = times(add(z3, z4), C1_175);
    let (z1, z2) = (times(z1, -C0_899), times(z2, -C2_562));
    let (z3, z4) = (add(times(z3, -C1_961), z5), add(times(z4, -C0_390), z5));
    let o0 = add(times(i7, C0_298), add(z1, z3));
    let o1 = add(times(i5, C2_053), add(z2, z4));
    let o2 = add(times(i3, C3_072), add(z2, z3));
    let o3 = add(times(i1, C1_501), add(z1, z4));
    [add(e0, o3), add(e1, o2), add(e2, o1), add(e3, o0), sub(e3, o0), sub(e2, o1), sub(e1, o2), sub(e0, o3)]
}
