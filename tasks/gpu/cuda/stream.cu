// out[o] = sum over x of the product of in_i[o_i, x]: one pass over the inputs, the join is never stored
// (Fioretto et al. 2018, section 6; Bistaffa et al. 2016, section V).
//
// The output is cut into tiles. A thread has the same positions in every tile, so where its cells lie within a
// tile is computed once and stays in registers; where the tiles of a block begin is computed by one thread a
// tile and shared. INPUTS, WIDTH (cells of a vector), UNROLLED (eliminated states, 0: any number),
// POSITIONS (vectors of a thread in a tile) are fixed when compiling; NARROW says that T has 16 bits, FAR that states
// may lie 2^32 cells apart.

constexpr int AXES = 40;
constexpr int THREADS = 256;
constexpr int DEEP = 256;
constexpr int BATCH = UNROLLED ? UNROLLED : 4;

#ifdef FAR
typedef i64 Offset;
#else
typedef unsigned Offset;
#endif
template <int COUNT> struct alignas(COUNT == 4 && sizeof(Offset) == 4 ? 16 : sizeof(Offset)) Offsets {
    Offset at[COUNT];
};

enum { SAME, VECTOR, STRIDED };

struct alignas(SIZE* WIDTH) Cells {
    T v[WIDTH];
};

struct Step {
    const T* in[INPUTS];
    T* out;
    i64 bound;
    i64 stride[INPUTS + 1][AXES];  // the output's strides come last
    i64 shift[INPUTS][4];          // of the eliminated states, where they are unrolled
    i64 lane[INPUTS];              // stride of the cells of a vector
    unsigned size[AXES];
    int mode[INPUTS];
    int segment[5];  // first axis of: tiles, positions, blocks of eliminated states, states of a block; the end
    unsigned tiles, tiles_per_block;
    unsigned cut, cut_size, cut_inner;     // the tile's first axis: its part in a tile, all of it, positions a cell
    unsigned deep_blocks, deep, deep_size, deep_inner;
};

// Where number `index` of a segment of axes lies in each table.
template <int TABLES>
__device__ __forceinline__ void locate(const Step& s, int segment, unsigned index, i64* at) {
    for (int i = 0; i < TABLES; i++) at[i] = 0;
    for (int axis = s.segment[segment + 1] - 1; axis >= s.segment[segment]; axis--) {
        unsigned rest = index / s.size[axis];
        unsigned digit = index - rest * s.size[axis];
        for (int i = 0; i < TABLES; i++) at[i] += digit * s.stride[i][axis];
        index = rest;
    }
}

// How many items of a block are there: the last block of an axis that was cut may be short.
__device__ __forceinline__ unsigned present(const Step& s, int segment, unsigned index, unsigned cut, unsigned size,
                                            unsigned inner) {
    unsigned digit = s.segment[segment + 1] > s.segment[segment] ? index % s.size[s.segment[segment + 1] - 1] : 0;
    return (cut < size ? min(cut, size - digit * cut) : cut) * inner;
}

template <int COUNT, typename Shift>
__device__ __forceinline__ void load(const Step& s, int i, const T* table, const Shift* shift, Cells* cells) {
    if (WIDTH == 1 || s.mode[i] == VECTOR) {
        for (int k = 0; k < COUNT; k++) cells[k] = *reinterpret_cast<const Cells*>(table + shift[k]);
    } else if (s.mode[i] == SAME) {
        for (int k = 0; k < COUNT; k++) {
            T value = table[shift[k]];
            for (int j = 0; j < WIDTH; j++) cells[k].v[j] = value;
        }
    } else {
        for (int k = 0; k < COUNT; k++)
            for (int j = 0; j < WIDTH; j++) cells[k].v[j] = table[shift[k] + j * s.lane[i]];
    }
}

#if LAW == MIN_PLUS && defined(NARROW) && WIDTH > 1

// Pairs of 16-bit costs: on Hopper one instruction adds two pairs and takes the minimum with a third, which is
// also how a sum is clamped to the infinity.
typedef unsigned Sums[WIDTH / 2];

__device__ __forceinline__ void begin(Sums& sums, i64 bound) {
    for (int j = 0; j < WIDTH / 2; j++) sums[j] = (unsigned)bound * 0x10001u;
}

template <int COUNT>
__device__ __forceinline__ void combine(const Step& s, Cells cells[INPUTS][COUNT], Sums& sums) {
    const unsigned top = (unsigned)s.bound * 0x10001u;
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
#pragma unroll
        for (int j = 0; j < WIDTH / 2; j++) {
            unsigned value = INPUTS > 1 ? reinterpret_cast<const unsigned*>(&cells[0][k])[j] : 0;
#pragma unroll
            for (int i = 1; i + 1 < INPUTS; i++)
                value = __viaddmin_s16x2(value, reinterpret_cast<const unsigned*>(&cells[i][k])[j], top);
            sums[j] = __viaddmin_s16x2(value, reinterpret_cast<const unsigned*>(&cells[INPUTS - 1][k])[j], sums[j]);
        }
    }
}

__device__ __forceinline__ void store(const Step& s, i64 at, const Sums& sums) {
    Cells cells;
    for (int j = 0; j < WIDTH / 2; j++) reinterpret_cast<unsigned*>(&cells)[j] = sums[j];
    *reinterpret_cast<Cells*>(s.out + at) = cells;
}

#else

typedef Acc Sums[WIDTH];

__device__ __forceinline__ void begin(Sums& sums, i64 bound) {
    for (int j = 0; j < WIDTH; j++) sums[j] = start(bound);
}

template <int COUNT>
__device__ __forceinline__ void combine(const Step& s, Cells cells[INPUTS][COUNT], Sums& sums) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            Product value = cells[0][k].v[j];
#pragma unroll
            for (int i = 1; i < INPUTS; i++) value = times(value, cells[i][k].v[j], s.bound);
            sums[j] = plus(sums[j], value);
        }
    }
}

__device__ __forceinline__ void store(const Step& s, i64 at, const Sums& sums) {
    Cells cells;
    for (int j = 0; j < WIDTH; j++) cells.v[j] = finish(sums[j], s.bound);
    *reinterpret_cast<Cells*>(s.out + at) = cells;
}

#endif

template <int COUNT>
__device__ __forceinline__ void deep_step(const Step& s, const i64* at, const Offset table[INPUTS][DEEP],
                                          unsigned k, Sums& sums) {
    Cells cells[INPUTS][COUNT];
#pragma unroll
    for (int i = 0; i < INPUTS; i++) {
        const Offsets<COUNT> shift = *reinterpret_cast<const Offsets<COUNT>*>(&table[i][k]);
        load<COUNT>(s, i, s.in[i] + at[i], shift.at, cells[i]);
    }
    combine<COUNT>(s, cells, sums);
}

// Any number of eliminated states: blocks of them, with a shared table of where each lies.
__device__ __forceinline__ void deep_sum(const Step& s, const i64* at, const Offset table[INPUTS][DEEP], Sums& sums) {
    for (unsigned block = 0; block < s.deep_blocks; block++) {
        i64 here[INPUTS];
        locate<INPUTS>(s, 2, block, here);
        for (int i = 0; i < INPUTS; i++) here[i] += at[i];
        unsigned n = present(s, 2, block, s.deep, s.deep_size, s.deep_inner), k = 0;
        for (; k + BATCH <= n; k += BATCH) deep_step<BATCH>(s, here, table, k, sums);
        for (; k < n; k++) deep_step<1>(s, here, table, k, sums);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) stream(const __grid_constant__ Step s) {
    __shared__ i64 base[THREADS][INPUTS + 1];
    __shared__ unsigned counts[THREADS];
    const unsigned first = blockIdx.x * s.tiles_per_block;
    const unsigned tiles = min(s.tiles_per_block, s.tiles - first);
    if (threadIdx.x < tiles) {
        locate<INPUTS + 1>(s, 0, first + threadIdx.x, base[threadIdx.x]);
        counts[threadIdx.x] = present(s, 0, first + threadIdx.x, s.cut, s.cut_size, s.cut_inner);
    }
#if UNROLLED == 0
    __shared__ __align__(16) Offset table[INPUTS][DEEP];
    for (unsigned k = threadIdx.x; k < s.deep * s.deep_inner; k += THREADS) {
        i64 at[INPUTS];
        locate<INPUTS>(s, 3, k, at);
        for (int i = 0; i < INPUTS; i++) table[i][k] = (Offset)at[i];
    }
#endif
    i64 low[POSITIONS][INPUTS + 1];
#pragma unroll
    for (int c = 0; c < POSITIONS; c++) locate<INPUTS + 1>(s, 1, threadIdx.x + c * THREADS, low[c]);
    __syncthreads();
    for (unsigned tile = 0; tile < tiles; tile++) {
#if UNROLLED == 0
#pragma unroll
        for (int c = 0; c < POSITIONS; c++) {
            if (threadIdx.x + c * THREADS >= counts[tile]) continue;
            i64 at[INPUTS];
            for (int i = 0; i < INPUTS; i++) at[i] = base[tile][i] + low[c][i];
            Sums sums;
            begin(sums, s.bound);
            deep_sum(s, at, table, sums);
            store(s, base[tile][INPUTS] + low[c][INPUTS], sums);
        }
#else
        // All loads of a tile are under way before the first is used.
        Cells cells[POSITIONS][INPUTS][BATCH];
#pragma unroll
        for (int c = 0; c < POSITIONS; c++) {
            if (threadIdx.x + c * THREADS >= counts[tile]) continue;
#pragma unroll
            for (int i = 0; i < INPUTS; i++)
                load<BATCH>(s, i, s.in[i] + base[tile][i] + low[c][i], s.shift[i], cells[c][i]);
        }
#pragma unroll
        for (int c = 0; c < POSITIONS; c++) {
            if (threadIdx.x + c * THREADS >= counts[tile]) continue;
            Sums sums;
            begin(sums, s.bound);
            combine<BATCH>(s, cells[c], sums);
            store(s, base[tile][INPUTS] + low[c][INPUTS], sums);
        }
#endif
    }
}
