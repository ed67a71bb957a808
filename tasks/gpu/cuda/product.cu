// out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n] over a semiring; b, m, k and n are groups of axes with
// any strides. A block of threads computes a tile of rows and columns for several batches, one after another, and
// loads the cells of later steps while it multiplies: straight into shared memory where cells are of 4 bytes or more.
//
// ROWS x COLUMNS words are a tile, TALL x BROAD a thread's share of it. Sums of doubles (TENSOR) use tensor cores,
// a warp with WARP_ROWS rows; on Hopper one DPX instruction does min(a + b, c), for pairs of 16-bit costs too. Each
// factor is loaded in vectors of LEFT_VECTOR or RIGHT_VECTOR cells, first along the depth where LEFT_DEEP or
// RIGHT_DEEP says so, and by way of registers where LEFT_STAGED or RIGHT_STAGED does. DEPTH states are a step.

constexpr int AXES = 40;
constexpr int WINDOW = 128 / DEPTH * DEPTH;
constexpr int PAD = 4;
constexpr int SPAN = 16;
constexpr int WIDEST = 512;

#if defined(TENSOR) && __CUDA_ARCH__ >= 800
#define MATRIX_UNIT
#endif

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
    unsigned batches, rows, columns, depth, row_tiles, column_tiles, span;
    int whole;                    // whether the output is written in whole chunks
    unsigned short order[WIDEST];  // the columns of a tile as the right factor has them
};

struct Stage {
    Word left[DEPTH][ROWS + PAD];
    Word right[DEPTH][COLUMNS + PAD];
};

struct Tables {
    i64 base[3][SPAN];
    i64 deep[2][WINDOW];
    i64 row[2][ROWS];  // in the left factor, and in the output; -1 beyond the end
    i64 column[2][WIDE];
    unsigned short order[WIDE];
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

template <int BYTES> struct alignas(BYTES) Bytes {
    unsigned char v[BYTES];
};

// Copy an aligned vector into shared memory, without waiting where the device can do that.
template <int BYTES>
__device__ __forceinline__ void copy(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else if constexpr (BYTES >= 4)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES) : "memory");
    else
#endif
        *reinterpret_cast<Bytes<BYTES>*>(to) = *reinterpret_cast<const Bytes<BYTES>*>(from);
}

__device__ __forceinline__ void close_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait until all but the last few groups of copies have arrived.
template <int GROUPS>
__device__ __forceinline__ void await_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
#endif
}

// One factor's share of a step: ALL rows or columns by DEPTH, in vectors of VEC cells along one of the two.
template <int SIDE, int ALL, int VEC, bool ALONG_DEPTH, bool STAGED>
struct Loader {
    static constexpr int ACROSS_DEPTH = ALONG_DEPTH ? DEPTH / (STAGED ? VEC : 1) : DEPTH;
    static constexpr int ACROSS_LINES = ALONG_DEPTH ? ALL : ALL / VEC;
    static constexpr int COUNT = ACROSS_DEPTH * ACROSS_LINES;
    static constexpr int LOADS = (COUNT + THREADS - 1) / THREADS;
    static constexpr int CELLS = ALONG_DEPTH && !STAGED ? 1 : VEC;
    // The loads of a thread are of so many lines, or of any.
    static constexpr int LINES = ALONG_DEPTH || LOADS * THREADS != COUNT ? 0
                                 : ACROSS_LINES < THREADS                ? THREADS % ACROSS_LINES == 0
                                 : ACROSS_LINES % THREADS == 0           ? ACROSS_LINES / THREADS
                                                                         : 0;
    struct alignas(CELLS * SIZE) Cells {
        T v[CELLS];
    };
    Cells cells[STAGED ? LOADS : 1];
    i64 offsets[LINES + 1];
    int places[LINES + 1];

    // The lines of the right factor are numbered as they follow each other there, which they may not in a tile.
    __device__ __forceinline__ static int in_tile(const Tables& tables, int line) {
        return SIDE == RIGHT ? tables.order[line] : line;
    }

    __device__ __forceinline__ static void place(int i, int& line, int& k) {
        const int e = threadIdx.x + i * THREADS;
        line = ALONG_DEPTH ? e / ACROSS_DEPTH : e % ACROSS_LINES * CELLS;
        k = ALONG_DEPTH ? e % ACROSS_DEPTH * CELLS : e / ACROSS_LINES;
    }

    __device__ __forceinline__ void prepare(const Tables& tables) {
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            int line, k;
            place(i, line, k);
            places[i] = in_tile(tables, line);
            offsets[i] = (SIDE == LEFT ? tables.row[0] : tables.column[0])[places[i]];
        }
    }

    __device__ __forceinline__ void put(Stage& stage, int k, int at, T value) const {
        if (SIDE == LEFT)
            stage.left[k][at] = doubled(value);
        else
            reinterpret_cast<T*>(stage.right[k])[at] = value;
    }

    __device__ __forceinline__ void fetch(const Step& s, const Tables& tables, Stage& stage, const T* table,
                                          unsigned k0) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int line, k;
            place(i, line, k);
            if (COUNT % THREADS != 0 && threadIdx.x + i * THREADS >= COUNT) continue;
            const int at = LINES ? places[i % (LINES + !LINES)] : in_tile(tables, line);
            const i64 where = LINES ? offsets[i % (LINES + !LINES)] : (SIDE == LEFT ? tables.row[0] : tables.column[0])[at];
            const bool inside = k0 + k < s.depth;
            const T* from = table + where + tables.deep[SIDE][(k0 + k) % WINDOW];
            if constexpr (STAGED) {
                if (inside && where >= 0)
                    cells[i] = *reinterpret_cast<const Cells*>(from);
                else
                    for (int j = 0; j < CELLS; j++) cells[i].v[j] = zero(s.bound);
            } else if (!inside) {
                for (int j = 0; j < CELLS; j++) put(stage, k, at + j, zero(s.bound));
            } else if (where >= 0) {
                T* to = SIDE == LEFT ? reinterpret_cast<T*>(stage.left[k]) : reinterpret_cast<T*>(stage.right[k]);
                copy<CELLS * SIZE>(to + at, from);
            }
        }
    }

    __device__ __forceinline__ void keep(const Tables& tables, Stage& stage) const {
        if constexpr (!STAGED) return;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int line, k;
            place(i, line, k);
            if (COUNT % THREADS != 0 && threadIdx.x + i * THREADS >= COUNT) continue;
#pragma unroll
            for (int j = 0; j < CELLS; j++)
                put(stage, ALONG_DEPTH ? k + j : k, in_tile(tables, ALONG_DEPTH ? line : line + j), cells[i].v[j]);
        }
    }
};

// Write some neighbouring columns of a row.
template <int COUNT>
__device__ __forceinline__ void write(const Step& s, T* out, const i64* columns, const Word* acc) {
    struct alignas(COUNT * sizeof(Word)) Part {
        Word v[COUNT];
    } part;
#pragma unroll
    for (int j = 0; j < COUNT; j++) part.v[j] = finished(acc[j], s.bound);
    if (s.whole) {
        if (columns[0] >= 0) *reinterpret_cast<Part*>(out + columns[0]) = part;
        return;
    }
    const T* values = reinterpret_cast<const T*>(&part);
#pragma unroll
    for (int j = 0; j < COUNT * LANES; j++)
        if (columns[j] >= 0) out[columns[j]] = values[j];
}

#ifdef MATRIX_UNIT

constexpr int WARP_COLUMNS = TALL * BROAD * 32 / WARP_ROWS;

__device__ __forceinline__ void multiply_add(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
    for (int k = 0; k < 2; k++)
        for (int h = 0; h < 2; h++)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"
                : "+d"(c[2 * h]), "+d"(c[2 * h + 1])
                : "d"(a[2 * k + h]), "d"(b[k]));
#endif
}

// A warp's share of a tile, in blocks of 16 rows and 8 columns.
struct Sums {
    static constexpr int HIGH = WARP_ROWS / 16, LONG = WARP_COLUMNS / 8;
    double acc[HIGH][LONG][4];
    int row0, column0, third, quarter;

    __device__ __forceinline__ Sums() {
        const int warp = threadIdx.x / 32;
        row0 = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS;
        column0 = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS;
        third = threadIdx.x % 32 / 4;
        quarter = threadIdx.x % 4;
    }

    __device__ __forceinline__ void clear(const Step& s) {
#pragma unroll
        for (int i = 0; i < HIGH; i++)
#pragma unroll
            for (int j = 0; j < LONG; j++)
#pragma unroll
                for (int c = 0; c < 4; c++) acc[i][j][c] = 0;
    }

    __device__ __forceinline__ void multiply(const Step& s, const Stage& stage) {
        double a[HIGH][4];
#pragma unroll
        for (int i = 0; i < HIGH; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) a[i][c] = stage.left[quarter + c / 2 * 4][row0 + 16 * i + c % 2 * 8 + third];
#pragma unroll
        for (int j = 0; j < LONG; j++) {
            double b[2];
#pragma unroll
            for (int c = 0; c < 2; c++) b[c] = stage.right[quarter + 4 * c][column0 + 8 * j + third];
#pragma unroll
            for (int i = 0; i < HIGH; i++) multiply_add(acc[i][j], a[i], b);
        }
    }

    __device__ __forceinline__ void store(const Step& s, const Tables& tables, T* out) const {
#pragma unroll
        for (int i = 0; i < HIGH; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const i64 row = tables.row[1][row0 + 16 * i + 8 * h + third];
                if (row < 0) continue;
#pragma unroll
                for (int j = 0; j < LONG; j++)
                    write<2>(s, out + row, tables.column[1] + column0 + 8 * j + 2 * quarter, acc[i][j] + 2 * h);
            }
    }
};

#else

template <int COUNT, int GROUPS>
__device__ __forceinline__ void fragment(const Word* line, int group, Word* out) {
#pragma unroll
    for (int c = 0; c < COUNT / CHUNK; c++) {
        Chunk chunk = *reinterpret_cast<const Chunk*>(line + (c * GROUPS + group) * CHUNK);
#pragma unroll
        for (int j = 0; j < CHUNK; j++) out[c * CHUNK + j] = chunk.v[j];
    }
}

// A thread's share of a tile.
struct Sums {
    Word acc[TALL][BROAD];
    int across, down;

    __device__ __forceinline__ Sums() {
        across = threadIdx.x % ACROSS;
        down = threadIdx.x / ACROSS;
    }

    __device__ __forceinline__ void clear(const Step& s) {
#pragma unroll
        for (int i = 0; i < TALL; i++)
#pragma unroll
            for (int j = 0; j < BROAD; j++) acc[i][j] = doubled(zero(s.bound));
    }

    __device__ __forceinline__ void multiply(const Step& s, const Stage& stage) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            Word a[TALL], b[BROAD];
            fragment<TALL, DOWN>(stage.left[k], down, a);
            fragment<BROAD, ACROSS>(stage.right[k], across, b);
#pragma unroll
            for (int i = 0; i < TALL; i++)
#pragma unroll
                for (int j = 0; j < BROAD; j++) add_product(acc[i][j], a[i], b[j], s.bound);
        }
    }

    __device__ __forceinline__ void store(const Step& s, const Tables& tables, T* out) const {
#pragma unroll
        for (int i = 0; i < TALL; i++) {
            const i64 row = tables.row[1][(i / CHUNK * DOWN + down) * CHUNK + i % CHUNK];
            if (row < 0) continue;
#pragma unroll
            for (int c = 0; c < BROAD / CHUNK; c++)
                write<CHUNK>(s, out + row, tables.column[1] + (c * ACROSS + across) * CHUNK * LANES,
                             acc[i] + c * CHUNK);
        }
    }
};

#endif

__device__ __forceinline__ void windows(const Step& s, Tables& tables, unsigned k0) {
    const int count = min((unsigned)WINDOW, s.depth - k0);
    for (int k = threadIdx.x; k < count; k += THREADS)
        for (int side = 0; side < 2; side++) tables.deep[side][k] = offset(s, DEEP, side, k0 + k);
}

// Where the batches, rows and columns of a block lie in the factors and in the output; -1 beyond the end.
__device__ __forceinline__ void locate(const Step& s, Tables& tables, unsigned first, int count, unsigned row0,
                                       unsigned column0) {
    for (int i = threadIdx.x; i < 3 * count; i += THREADS)
        tables.base[i / count][i % count] = offset(s, BATCH, i / count, first + i % count);
    for (int i = threadIdx.x; i < 2 * ROWS; i += THREADS) {
        const unsigned row = row0 + i % ROWS;
        tables.row[i / ROWS][i % ROWS] = row < s.rows ? offset(s, ROW, i / ROWS ? OUT : LEFT, row) : -1;
    }
    for (int i = threadIdx.x; i < 2 * WIDE; i += THREADS) {
        const unsigned column = column0 + i % WIDE;
        tables.column[i / WIDE][i % WIDE] =
            column < s.columns ? offset(s, COLUMN, i / WIDE ? OUT : RIGHT, column) : -1;
    }
    for (int i = threadIdx.x; i < WIDE; i += THREADS) tables.order[i] = s.order[i];
    windows(s, tables, 0);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) product(const __grid_constant__ Step s) {
    extern __shared__ uint4 memory[];
    __shared__ Tables tables;
    Stage* stages = reinterpret_cast<Stage*>(memory);
    const unsigned row_tile = blockIdx.x % s.row_tiles, rest = blockIdx.x / s.row_tiles;
    const unsigned column_tile = rest % s.column_tiles, first = rest / s.column_tiles * s.span;
    const unsigned count = min(s.span, s.batches - first);
    locate(s, tables, first, count, row_tile * ROWS, column_tile * WIDE);
    __syncthreads();
    Loader<LEFT, ROWS, LEFT_VECTOR, LEFT_DEEP, LEFT_STAGED> left;
    Loader<RIGHT, WIDE, RIGHT_VECTOR, RIGHT_DEEP, RIGHT_STAGED> right;
    left.prepare(tables);
    right.prepare(tables);
    unsigned batch = 0, k0 = 0;
    auto fetch = [&](int at) {
        if (batch < count) {
            if (s.depth > WINDOW && k0 % WINDOW == 0) {
                __syncthreads();
                windows(s, tables, k0);
                __syncthreads();
            }
            left.fetch(s, tables, stages[at], s.in[LEFT] + tables.base[LEFT][batch], k0);
            right.fetch(s, tables, stages[at], s.in[RIGHT] + tables.base[RIGHT][batch], k0);
            k0 += DEPTH;
            if (k0 >= s.depth) {
                k0 = 0;
                batch++;
            }
        }
        close_copies();
    };
    for (int i = 0; i < STAGES - 1; i++) fetch(i);
    left.keep(tables, stages[0]);
    right.keep(tables, stages[0]);
    Sums sums;
    int at = 0, ahead = STAGES - 1;
    for (unsigned done = 0; done < count; done++) {
        sums.clear(s);
        for (unsigned k = 0; k < s.depth; k += DEPTH) {
            await_copies<STAGES - 2>();
            __syncthreads();
            fetch(ahead);
            sums.multiply(s, stages[at]);
            at = at + 1 == STAGES ? 0 : at + 1;
            ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
            left.keep(tables, stages[at]);
            right.keep(tables, stages[at]);
        }
        sums.store(s, tables, s.out + tables.base[OUT][done]);
    }
}
