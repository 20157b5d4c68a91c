//! CPython's `random`: the Mersenne Twister, `random.seed(int)` and `random.sample`, so that few-shot sets drawn by
//! Python programs replay exactly.

const N: usize = 624;
const M: usize = 397;

/// The state of CPython's `random.Random(seed)`.
#[derive(Clone)]
pub(crate) struct MersenneTwister {
    state: [u32; N],
    index: usize,
}

impl MersenneTwister {
    /// `random.seed(seed)` for a non-negative integer.
    pub(crate) fn new(seed: u64) -> Self {
        let mut key = vec![seed as u32];
        if seed > u64::from(u32::MAX) {
            key.push((seed >> 32) as u32);
        }
        Self::from_key(&key)
    }

    fn from_word(seed: u32) -> Self {
        let mut state = [0u32; N];
        state[0] = seed;
        for i in 1..N {
            let last = state[i - 1];
            state[i] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Self { state, index: N }
    }

    /// The reference `init_by_array`.
    fn from_key(key: &[u32]) -> Self {
        let mut twister = Self::from_word(19_650_218);
        let state = &mut twister.state;
        let (mut i, mut j) = (1, 0);
        for _ in 0..N.max(key.len()) {
            let last = state[i - 1];
            state[i] =
                (state[i] ^ (last ^ (last >> 30)).wrapping_mul(1_664_525)).wrapping_add(key[j]).wrapping_add(j as u32);
            (i, j) = (i + 1, (j + 1) % key.len());
            if i == N {
                state[0] = state[N - 1];
                i = 1;
            }
        }
        for _ in 0..N - 1 {
            let last = state[i - 1];
            state[i] = (state[i] ^ (last ^ (last >> 30)).wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
            i += 1;
            if i == N {
                state[0] = state[N - 1];
                i = 1;
            }
        }
        state[0] = 0x8000_0000;
        twister
    }

    pub(crate) fn word(&mut self) -> u32 {
        if self.index == N {
            self.refill();
        }
        let mut y = self.state[self.index];
        self.index += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn refill(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.index = 0;
    }

    /// `_randbelow`: rejection on the bit length of `n`. 0 for `n = 0`.
    fn below(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        if bits == 0 {
            return 0;
        }
        loop {
            let draw = (self.word() >> (32 - bits.min(32))) as usize;
            if draw < n {
                return draw;
            }
        }
    }

    /// The positions that `random.sample(range(n), k)` picks, in its order; all of them, in order, if `k >= n` is asked
    /// for more than there are.
    pub(crate) fn sample(&mut self, n: usize, k: usize) -> Vec<usize> {
        if k > n {
            return (0..n).collect();
        }
        if n <= pool_limit(k) { self.sample_pool(n, k) } else { self.sample_set(n, k) }
    }

    fn sample_pool(&mut self, n: usize, k: usize) -> Vec<usize> {
        let mut pool: Vec<usize> = (0..n).collect();
        (0..k)
            .map(|i| {
                let j = self.below(n - i);
                let picked = pool[j];
                pool[j] = pool[n - i - 1];
                picked
            })
            .collect()
    }

    fn sample_set(&mut self, n: usize, k: usize) -> Vec<usize> {
        let mut picked: Vec<usize> = Vec::with_capacity(k);
        while picked.len() < k {
            let j = self.below(n);
            if !picked.contains(&j) {
                picked.push(j);
            }
        }
        picked
    }
}

/// Up to this population CPython copies a pool; above it, it keeps a set: 21, plus 4^ceil(log4(3k)) for k > 5.
fn pool_limit(k: usize) -> usize {
    if k <= 5 {
        return 21;
    }
    let mut power = 1;
    while power < 3 * k {
        power *= 4;
    }
    21 + power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_reference() {
        // Matsumoto and Nishimura's published output for the key {0x123, 0x234, 0x345, 0x456}.
        let mut twister = MersenneTwister::from_key(&[0x123, 0x234, 0x345, 0x456]);
        assert_eq!(twister.word(), 1_067_595_299);
        assert_eq!(twister.word(), 955_945_823);
        for _ in 0..997 {
            twister.word();
        }
        assert_eq!(twister.word(), 3_460_025_646);
    }

    #[test]
    fn samples_are_those_of_python() {
        let mut python = MersenneTwister::new(1);
        assert_eq!(python.sample(50, 16), [8, 36, 4, 16, 7, 31, 28, 30, 41, 24, 13, 6, 44, 1, 40, 27]);
        assert_eq!(python.sample(200, 16), [155, 195, 196, 0, 178, 114, 68, 184, 58, 151, 26, 81, 7, 5, 6, 166]);
        assert_eq!(python.sample(21, 5), [17, 0, 12, 6, 13]);
        assert_eq!(python.sample(22, 5), [0, 16, 7, 14, 15]);
        assert_eq!(python.sample(3, 3), [2, 0, 1]);
        let mut python = MersenneTwister::new(1_099_511_627_779);
        assert_eq!(
            python.sample(1300, 16),
            [450, 124, 1125, 193, 1159, 622, 872, 479, 965, 1140, 1146, 675, 530, 1207, 637, 525]
        );
        assert_eq!(python.sample(10, 1), [7]);
    }
}
