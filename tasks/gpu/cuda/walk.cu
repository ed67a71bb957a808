// Walks down from the tables of a sweep: a thread takes four draws through the distribution of one variable after the
// other, each given states that were drawn before. T is the type of states.
//
// Random numbers are those of NumPy's Philox4x64-10 (Salmon et al. 2011), whose key is a seed and a variable, and whose
// counter is the number of the draw: four draws have one count.

constexpr int THREADS = 128;
constexpr int TILE = 32;

struct Conditional {
    i64 first_sum;    // where its rows begin in `sums`
    u64 stream;
    int first_given;  // its first entry in `slots` and `strides`
    int given;
    int states;
    int slot;         // where its states go
};

struct Walk {
    const double* sums;  // weights up to each state, a row for each joint state of what is given
    const Conditional* conditionals;
    const int* slots;
    const i64* strides;  // rows from a state of what is given to its next one
    const int* columns;  // slots, in the order of the answer
    T* found;            // a row of states for each slot
    T* out;              // a row of columns for each draw
    i64 draws;           // of this launch, a multiple of four
    i64 begun;           // draws before, a multiple of four
    u64 seed;
    int count;           // conditionals
    int width;           // columns
};

struct alignas(4 * sizeof(T)) Four {
    T of[4];
};

__device__ __forceinline__ void philox(u64 key, u64 key2, u64 counter, double* numbers) {
    u64 a = counter, b = 0, c = 0, d = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 m = 0xD2E7470EE14C6C93ull, m2 = 0xCA5A826395121157ull;
        const u64 high = __umul64hi(m, a), low = m * a, high2 = __umul64hi(m2, c), low2 = m2 * c;
        a = high2 ^ b ^ key, b = low2, c = high ^ d ^ key2, d = low;
        key += 0x9E3779B97F4A7C15ull, key2 += 0xBB67AE8584CAA73Bull;
    }
    const u64 words[4] = {a, b, c, d};
#pragma unroll
    for (int i = 0; i < 4; i++) numbers[i] = (double)(words[i] >> 11) * (1.0 / 9007199254740992.0);
}

// The state below which a share of the row's sum lies, found by halving; see `inverse` of the host.
__device__ __forceinline__ int inverse(const double* row, int states, double number) {
    const double total = row[states - 1];
    const double below = total > 0 ? __longlong_as_double(__double_as_longlong(total) - 1) : total;
    const double wanted = fmin(__dmul_rn(number, total), below);
    int found = 0;
    for (int step = 1 << (31 - __clz(states)); step; step >>= 1) {
        const int tried = found + step;
        if (tried <= states && row[tried - 1] <= wanted) found = tried;
    }
    return found;
}

extern "C" __global__ void __launch_bounds__(THREADS) walk(const __grid_constant__ Walk w) {
    const i64 first = 4 * (blockIdx.x * (i64)THREADS + threadIdx.x);
    if (first >= w.draws) return;
    const u64 counter = (u64)((w.begun + first) / 4) + 1;
    for (int k = 0; k < w.count; k++) {
        const Conditional c = w.conditionals[k];
        i64 row[4] = {0, 0, 0, 0};
        for (int g = c.first_given; g < c.first_given + c.given; g++) {
            const Four states = *(const Four*)(w.found + w.slots[g] * w.draws + first);
            const i64 stride = w.strides[g];
#pragma unroll
            for (int i = 0; i < 4; i++) row[i] += states.of[i] * stride;
        }
        double numbers[4];
        philox(w.seed, c.stream, counter, numbers);
        Four states;
#pragma unroll
        for (int i = 0; i < 4; i++)
            states.of[i] = (T)inverse(w.sums + c.first_sum + row[i] * c.states, c.states, numbers[i]);
        *(Four*)(w.found + c.slot * w.draws + first) = states;
    }
}

// Turn rows of slots into rows of draws, a tile at a time.
extern "C" __global__ void __launch_bounds__(THREADS) turn(const __grid_constant__ Walk w) {
    __shared__ T tile[TILE][TILE + 1];
    const i64 draw = blockIdx.x * (i64)TILE;
    const int column = blockIdx.y * TILE, x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    for (int r = y; r < TILE; r += THREADS / TILE)
        if (column + r < w.width && draw + x < w.draws) tile[r][x] = w.found[w.columns[column + r] * w.draws + draw + x];
    __syncthreads();
    for (int r = y; r < TILE; r += THREADS / TILE)
        if (draw + r < w.draws && column + x < w.width) w.out[(draw + r) * w.width + column + x] = tile[x][r];
}
