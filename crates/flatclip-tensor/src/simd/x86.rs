//! Vectors of AVX2 and AVX-512.

use super::Lanes;
use std::arch::x86_64::*;

/// Eight lanes of AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256);

/// Sixteen lanes of AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

impl Avx2 {
    /// # Safety
    /// The machine has AVX2 and FMA.
    #[inline(always)]
    pub(crate) unsafe fn of(lanes: __m256) -> Self {
        Self(lanes)
    }
}

impl Avx512 {
    /// # Safety
    /// The machine has AVX-512 F, BW, DQ and VL.
    #[inline(always)]
    pub(crate) unsafe fn of(lanes: __m512) -> Self {
        Self(lanes)
    }
}

/// One method per line: the intrinsics differ, the shape does not.
macro_rules! lane_ops {
    ($lanes:ident: $($name:ident($x:ident $(, $arg:ident)*) = $value:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            let $lanes($x) = self;
            $(let $lanes($arg) = $arg;)*
            // SAFETY: a vector proves the instructions (module comment).
            $lanes(unsafe { $value })
        }
    )*};
}

impl Lanes for Avx2 {
    const WIDTH: usize = 8;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: promised by the caller.
        Avx2(unsafe { _mm256_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: promised by the caller.
        Avx2(unsafe { _mm256_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }
    lane_ops! { Avx2:
        add(x, other) = _mm256_add_ps(x, other);
        sub(x, other) = _mm256_sub_ps(x, other);
        mul(x, other) = _mm256_mul_ps(x, other);
        div(x, other) = _mm256_div_ps(x, other);
        min(x, other) = _mm256_min_ps(x, other);
        max(x, other) = _mm256_max_ps(x, other);
        mul_add(x, factor, term) = _mm256_fmadd_ps(x, factor, term);
        round(x) = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        exp2_whole(x) = {
            let n = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n))
        };
        abs(x) = _mm256_andnot_ps(_mm256_set1_ps(-0.0), x);
        copysign(x, sign) = {
            let bit = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(bit, x), _mm256_and_ps(bit, sign))
        };
        if_below(x, limit, below, other) = _mm256_blendv_ps(other, below, _mm256_cmp_ps::<_CMP_LT_OQ>(x, limit));
    }
}

impl Lanes for Avx512 {
    const WIDTH: usize = 16;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: promised by the caller.
        Avx512(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: promised by the caller.
        Avx512(unsafe { _mm512_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    lane_ops! { Avx512:
        add(x, other) = _mm512_add_ps(x, other);
        sub(x, other) = _mm512_sub_ps(x, other);
        mul(x, other) = _mm512_mul_ps(x, other);
        div(x, other) = _mm512_div_ps(x, other);
        min(x, other) = _mm512_min_ps(x, other);
        max(x, other) = _mm512_max_ps(x, other);
        mul_add(x, factor, term) = _mm512_fmadd_ps(x, factor, term);
        round(x) = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        exp2_whole(x) = {
            let n = _mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(n))
        };
        abs(x) = _mm512_abs_ps(x);
        copysign(x, sign) = _mm512_or_ps(_mm512_abs_ps(x), _mm512_and_ps(_mm512_set1_ps(-0.0), sign));
        if_below(x, limit, below, other) =
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, limit), other, below);
    }
}
