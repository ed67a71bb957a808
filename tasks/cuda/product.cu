// out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n] over a semiring, tiled for registers; b, m, k and n
// are groups of axes with any strides. On Hopper one DPX instruction does min(a + b, c), for pairs of 16-bit
// costs too. ROWS x COLUMNS words are a block's tile, TALL x BROAD a thread's; each factor is loaded in vectors of
// LEFT_VECTOR or RIGHT_VECTOR cells, along the depth where LEFT_DEEP or RIGHT_DEEP says so.

constexpr int AXES = 40;
constexpr int DEPTH = 8;
constexpr int WINDOW = 256;
constexpr int PAD = 4;

// A word of the tile holds two neighbouring columns of 16-bit costs, otherwise one value.
constexpr int LANES = is_short ? 2 : 1;
template <bool narrow> struct Words { typedef T type; };
template <> struct Words<true> { typedef unsigned type; };
typedef Words<is_short>::type Word;

constexpr int WIDE = COLUMNS * LANES;
constexpr int CHUNK = 16 / sizeof(Word);
constexpr int ACROSS = COLUMNS / BROAD;
constexpr int DOWN = ROWS / TALL;
constexpr int THREADS = ACROSS * DOWN;

struct alignas(16) Chunk {
    Word v[CHUNK];
};

enum { LEFT, RIGHT, OUT };
enum { BATCH, ROW, COLUMN, DEEP };

struct Step {
    const T* in[2];
    T* out;
    i64 bound;
    i64 stride[3][AXES];
    unsigned size[AXES];
    int segment[5];
    unsigned rows, columns, depth, row_tiles, column_tiles;
    int whole;  // whether the output is written in whole chunks
};

__device__ __forceinline__ i64 offset(const Step& s, int group, int table, unsigned index) {
    i64 at = 0;
    for (int axis = s.segment[group + 1] - 1; axis >= s.segment[group]; axis--) {
        unsigned rest = index / s.size[axis];
        at += (index - rest * s.size[axis]) * s.stride[table][axis];
        index = rest;
    }
    return at;
}

__device__ __forceinline__ Word doubled(T value) {
    return is_short ? (Word)((unsigned)(unsigned short)value * 0x10001u) : (Word)value;
}

__device__ __forceinline__ void add_product(Word& acc, Word a, Word b, i64 bound) {
#if LAW == MIN_PLUS
    if constexpr (is_short)
        acc = __viaddmin_s16x2(a, b, acc);
    else if constexpr (Same<T, int>::value)
        acc = __viaddmin_s32(a, b, acc);
    else
        acc = least((Word)(a + b), acc);
#elif LAW == SUM_PRODUCT
    acc += a * b;
#elif LAW == RESIDUES
    acc += (i64)((u64)a * (u64)b % (u64)bound);
#endif
}

__device__ __forceinline__ Word finished(Word acc, i64 bound) {
#if LAW == RESIDUES
    return (i64)((u64)acc % (u64)bound);
#else
    return acc;
#endif
}

struct Tiles {
    Word left[2][DEPTH][ROWS + PAD];
    Word right[2][DEPTH][COLUMNS + PAD];
    i64 row[ROWS];  // in the left factor; -1 beyond the end
    i64 column[WIDE];
    i64 deep[2][WINDOW];
};

// One factor's share of a block: LINES rows or columns by DEPTH, in vectors of VEC cells along one of the two.
template <int SIDE, int LINES, int VEC, bool ALONG_DEPTH>
struct Loader {
    static constexpr int ACROSS_DEPTH = ALONG_DEPTH ? DEPTH / VEC : DEPTH;
    static constexpr int ACROSS_LINES = ALONG_DEPTH ? LINES : LINES / VEC;
    static constexpr int COUNT = ACROSS_DEPTH * ACROSS_LINES;
    static constexpr int LOADS = (COUNT + THREADS - 1) / THREADS;
    struct alignas(VEC * SIZE) Cells {
        T v[VEC];
    };
    Cells cells[LOADS];

    __device__ __forceinline__ static void place(int i, int& line, int& k) {
        const int e = threadIdx.x + i * THREADS;
        line = ALONG_DEPTH ? e / ACROSS_DEPTH : e % ACROSS_LINES * VEC;
        k = ALONG_DEPTH ? e % ACROSS_DEPTH * VEC : e / ACROSS_LINES;
    }

    __device__ __forceinline__ void fetch(const Step& s, const i64* lines, const i64* deep, const T* table,
                                          unsigned k0) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int line, k;
            place(i, line, k);
            const bool inside = COUNT % THREADS == 0 || threadIdx.x + i * THREADS < COUNT;
            if (inside && k0 + k < s.depth && lines[line] >= 0)
                cells[i] = *reinterpret_cast<const Cells*>(table + lines[line] + deep[(k0 + k) % WINDOW]);
            else
                for (int j = 0; j < VEC; j++) cells[i].v[j] = zero(s.bound);
        }
    }

    __device__ __forceinline__ void keep(Tiles& tiles, int buffer) const {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int line, k;
            place(i, line, k);
            if (COUNT % THREADS != 0 && threadIdx.x + i * THREADS >= COUNT) continue;
#pragma unroll
            for (int j = 0; j < VEC; j++) {
                const int row = ALONG_DEPTH ? k + j : k, at = ALONG_DEPTH ? line : line + j;
                if (SIDE == LEFT)
                    tiles.left[buffer][row][at] = doubled(cells[i].v[j]);
                else
                    reinterpret_cast<T*>(tiles.right[buffer][row])[at] = cells[i].v[j];
            }
        }
    }
};

template <int COUNT, int GROUPS>
__device__ __forceinline__ void fragment(const Word* line, int group, Word* out) {
#pragma unroll
    for (int c = 0; c < COUNT / CHUNK; c++) {
        Chunk chunk = *reinterpret_cast<const Chunk*>(line + (c * GROUPS + group) * CHUNK);
#pragma unroll
        for (int j = 0; j < CHUNK; j++) out[c * CHUNK + j] = chunk.v[j];
    }
}

__device__ __forceinline__ void multiply(const Step& s, const Tiles& tiles, int buffer, Word acc[TALL][BROAD]) {
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        Word a[TALL], b[BROAD];
        fragment<TALL, DOWN>(tiles.left[buffer][k], down, a);
        fragment<BROAD, ACROSS>(tiles.right[buffer][k], across, b);
#pragma unroll
        for (int i = 0; i < TALL; i++)
#pragma unroll
            for (int j = 0; j < BROAD; j++) add_product(acc[i][j], a[i], b[j], s.bound);
    }
}

__device__ __forceinline__ void write(const Step& s, T* out, const i64* columns, const Word* acc) {
    Chunk chunk;
#pragma unroll
    for (int j = 0; j < CHUNK; j++) chunk.v[j] = finished(acc[j], s.bound);
    if (s.whole) {
        if (columns[0] >= 0) *reinterpret_cast<Chunk*>(out + columns[0]) = chunk;
        return;
    }
    const T* values = reinterpret_cast<const T*>(&chunk);
#pragma unroll
    for (int j = 0; j < CHUNK * LANES; j++)
        if (columns[j] >= 0) out[columns[j]] = values[j];
}

// Where the rows and columns of a block lie in a factor or in the output; -1 beyond the end.
__device__ __forceinline__ void lines(const Step& s, Tiles& tiles, unsigned row0, unsigned column0, int of_rows,
                                      int of_columns) {
    for (int i = threadIdx.x; i < ROWS; i += THREADS)
        tiles.row[i] = row0 + i < s.rows ? offset(s, ROW, of_rows, row0 + i) : -1;
    for (int i = threadIdx.x; i < WIDE; i += THREADS)
        tiles.column[i] = column0 + i < s.columns ? offset(s, COLUMN, of_columns, column0 + i) : -1;
}

__device__ __forceinline__ void windows(const Step& s, Tiles& tiles, unsigned k0) {
    const int count = min((unsigned)WINDOW, s.depth - k0);
    for (int k = threadIdx.x; k < count; k += THREADS)
        for (int side = 0; side < 2; side++) tiles.deep[side][k] = offset(s, DEEP, side, k0 + k);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) product(const __grid_constant__ Step s) {
    __shared__ Tiles tiles;
    const unsigned column_tile = blockIdx.x % s.column_tiles, rest = blockIdx.x / s.column_tiles;
    const unsigned row0 = rest % s.row_tiles * ROWS, column0 = column_tile * WIDE, batch = rest / s.row_tiles;
    lines(s, tiles, row0, column0, LEFT, RIGHT);
    windows(s, tiles, 0);
    const T* table[2] = {s.in[LEFT] + offset(s, BATCH, LEFT, batch), s.in[RIGHT] + offset(s, BATCH, RIGHT, batch)};
    Word acc[TALL][BROAD];
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < BROAD; j++) acc[i][j] = doubled(zero(s.bound));
    Loader<LEFT, ROWS, LEFT_VECTOR, LEFT_DEEP> left;
    Loader<RIGHT, WIDE, RIGHT_VECTOR, RIGHT_DEEP> right;
    __syncthreads();
    left.fetch(s, tiles.row, tiles.deep[LEFT], table[LEFT], 0);
    right.fetch(s, tiles.column, tiles.deep[RIGHT], table[RIGHT], 0);
    int buffer = 0;
    for (unsigned k0 = 0; k0 < s.depth; k0 += DEPTH) {
        left.keep(tiles, buffer);
        right.keep(tiles, buffer);
        __syncthreads();
        const unsigned next = k0 + DEPTH;
        if (next < s.depth) {
            if (next % WINDOW == 0) {
                windows(s, tiles, next);
                __syncthreads();
            }
            left.fetch(s, tiles.row, tiles.deep[LEFT], table[LEFT], next);
            right.fetch(s, tiles.column, tiles.deep[RIGHT], table[RIGHT], next);
        }
        multiply(s, tiles, buffer, acc);
        buffer ^= 1;
    }
    __syncthreads();
    lines(s, tiles, row0, column0, OUT, OUT);
    __syncthreads();
    T* out = s.out + offset(s, BATCH, OUT, batch);
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
#pragma unroll
    for (int i = 0; i < TALL; i++) {
        const i64 row = tiles.row[(i / CHUNK * DOWN + down) * CHUNK + i % CHUNK];
        if (row < 0) continue;
#pragma unroll
        for (int c = 0; c < BROAD / CHUNK; c++)
            write(s, out + row, tiles.column + (c * ACROSS + across) * CHUNK * LANES, acc[i] + c * CHUNK);
    }
}
