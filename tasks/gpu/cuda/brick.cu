// out[o] = sum over x of the product of in_i[o_i, x], for many inputs: a block computes bricks of the join from
// slices of the inputs in shared memory (tasks/gpu/tiling: brick_cells.py and brick_shapes.py choose them,
// brick_layout.py lays them out).
//
// A thread sums ROWS x COLUMNS cells of the output, so a value that differs by rows alone or by columns alone is
// read once for all of them. By the distributive law, inputs without the inner eliminated states are multiplied
// in after the sum over these. INPUTS and KINDS (of each input, in three bits: rows, columns, inner) are fixed
// when compiling; NARROW says that values are pairs of 16 bits. So are copies: UNITS (of each input, in three bits)
// is log2 of the bytes that a thread reads at once, SPREADS has the inputs whose neighbours are not neighbours in
// shared memory, ONCE those of which a thread copies one item. AHEAD says that the next slices are copied while these
// are computed from, and lie behind them.

constexpr int OUTER = 19;
constexpr int PLACES = 16;
constexpr int COPIES = 16;
constexpr int STATES = 64;
constexpr int FAR = 256;
constexpr int THREADS = 256;
constexpr int MOST_ROWS = 9;
constexpr int MOST_COLUMNS = 8;
constexpr int LANES = COLUMNS < 3 ? COLUMNS : COLUMNS < 5 ? 4 : 8;  // columns that are no power of two have gaps
constexpr int ITEMS = 16;  // that are located at once
constexpr int PADDED = (INPUTS + 3) / 4 * 4;

__device__ constexpr bool has_rows(int i) { return KINDS >> 3 * i & 1; }
__device__ constexpr bool has_columns(int i) { return KINDS >> 3 * i & 2; }
__device__ constexpr bool is_inner(int i) { return KINDS >> 3 * i & 4; }

struct Step {
    const T* in[INPUTS];
    T* out;
    i64 bound;
    i64 outer_stride[INPUTS + 1][OUTER];  // of bricks, then of eliminated stages; the output's come last
    i64 out_place[PLACES];
    i64 out_row[MOST_ROWS];
    i64 out_column[MOST_COLUMNS];
    i64 source[INPUTS][COPIES];
    int start[INPUTS];
    int row[INPUTS];
    unsigned outer_size[OUTER];
    unsigned short place_size[PLACES];
    unsigned short target[INPUTS][COPIES];  // bytes in shared memory, as all distances there
    unsigned short place[INPUTS][PLACES];
    unsigned short copy_size[INPUTS][COPIES];
    unsigned short near[INPUTS], copies[INPUTS];  // axes of the copy: of all threads together, and all
    unsigned short first[INPUTS + 1];             // items of far_at before those of an input
    unsigned short spread[INPUTS];                // between neighbours of a table, where they are not together
    unsigned brick_axes, outer_axes;
    unsigned thread_axes, inner_axes, place_axes;  // where the axes of threads, inner and outer states end
    unsigned bricks, stages;
    unsigned run;  // bricks that a block takes one after another, before others take theirs
    int shared;  // of all slices; the next ones lie behind them
};
static_assert(sizeof(Step) == STEP && STEP <= 4096, "as it is filled, and all that a launch takes");

#ifdef FAR_APART
typedef i64 Source;
#else
typedef unsigned Source;
#endif

struct Far {
    Source source;
    int target;
};

struct alignas(16) Places {
    int v[PADDED];
};

struct alignas(LANES* SIZE < 16 ? LANES * SIZE : 16) Columns {
    T v[LANES];
};

constexpr int ROW_BYTES = ROWS % 2 || ROWS == 6 ? SIZE : ROWS * SIZE > 16 ? 16 : ROWS * SIZE;
struct alignas(ROW_BYTES) Rows {
    T v[ROWS];
};

extern __shared__ __align__(16) char room[];
__shared__ i64 item_at[2 * ITEMS][INPUTS + 1];  // where items lie: stages of bricks, as a block takes them
__shared__ unsigned changed[2 * ITEMS];          // which slices differ from those of the item before
__shared__ Places inner_at[STATES], outer_at[STATES];
__shared__ Far far_at[FAR];

// Where number `index` of the axes [first, end) lies in a table; the last axis varies fastest.
__device__ __forceinline__ i64 locate(const Step& s, int table, int first, int end, unsigned index) {
    i64 at = 0;
#pragma unroll 1
    for (int axis = end - 1; axis >= first; axis--) {
        const unsigned rest = index / s.outer_size[axis];
        at += (index - rest * s.outer_size[axis]) * s.outer_stride[table][axis];
        index = rest;
    }
    return at;
}

// Where number `index` of the places [first, end) lies in each slice; the first axis varies fastest.
__device__ __forceinline__ i64 place(const Step& s, int first, int end, unsigned index, int* at) {
    i64 out = 0;
    for (int i = 0; i < INPUTS; i++) at[i] = 0;
#pragma unroll 1
    for (int axis = first; axis < end; axis++) {
        unsigned rest = index / s.place_size[axis];
        unsigned digit = index - rest * s.place_size[axis];
        for (int i = 0; i < INPUTS; i++) at[i] += digit * s.place[i][axis];
        out += digit * s.out_place[axis];
        index = rest;
    }
    return out;
}

__device__ __forceinline__ Far item_of_copy(const Step& s, int i, int first, int end, unsigned index) {
    Far at = {0, 0};
#pragma unroll 1
    for (int axis = first; axis < end; axis++) {
        unsigned rest = index / s.copy_size[i][axis];
        unsigned digit = index - rest * s.copy_size[i][axis];
        at.source += (Source)(digit * s.source[i][axis]);
        at.target += digit * s.target[i][axis];
        index = rest;
    }
    return at;
}

__device__ __forceinline__ unsigned items_of_copy(const Step& s, int i, int first, int end) {
    unsigned n = 1;
#pragma unroll 1
    for (int axis = first; axis < end; axis++) n *= s.copy_size[i][axis];
    return n;
}

template <int BYTES>
struct alignas(BYTES) Bytes {
    char v[BYTES];
};

template <int BYTES>
__device__ __forceinline__ void fetch(char* to, const T* from) {
#if __CUDA_ARCH__ >= 800
    if (BYTES >= 4) {
        unsigned at = (unsigned)__cvta_generic_to_shared(to);
        if (BYTES == 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES) : "memory");
        return;
    }
#endif
    *reinterpret_cast<Bytes<BYTES>*>(to) = *reinterpret_cast<const Bytes<BYTES>*>(from);
}

// Puts neighbours of a table `spread` bytes apart.
template <int BYTES>
__device__ __forceinline__ void put(char* to, const Bytes<BYTES>& cells, unsigned spread) {
#pragma unroll
    for (int j = 0; j < BYTES / SIZE; j++)
        *reinterpret_cast<Bytes<SIZE>*>(to + j * spread) = reinterpret_cast<const Bytes<SIZE>*>(&cells)[j];
}

// Copies this thread's items to `to` in shared memory; far_at[k, end) says how far each is from the first.
// Not inlined: every input would have a copy of it.
template <int BYTES, bool SPREAD>
__device__ __noinline__ void copy(char* to, const T* from, unsigned k, unsigned end, unsigned spread) {
    if (BYTES < 4 || SPREAD) {  // not asynchronous: several loads are under way before the first is used
        constexpr int BATCH = SPREAD && BYTES > 8 ? 4 : 8;
        for (; k + BATCH <= end; k += BATCH) {
            Bytes<BYTES> cells[BATCH];
#pragma unroll
            for (int j = 0; j < BATCH; j++) cells[j] = *reinterpret_cast<const Bytes<BYTES>*>(from + far_at[k + j].source);
#pragma unroll
            for (int j = 0; j < BATCH; j++) put<BYTES>(to + far_at[k + j].target, cells[j], SPREAD ? spread : SIZE);
        }
    }
#pragma unroll 4
    for (; k < end; k++) {
        if (SPREAD)
            put<BYTES>(to + far_at[k].target, *reinterpret_cast<const Bytes<BYTES>*>(from + far_at[k].source), spread);
        else
            fetch<BYTES>(to + far_at[k].target, from + far_at[k].source);
    }
}

// Copies this thread's share of an input's slice; most slices are so small that it is one item.
template <int I>
__device__ __forceinline__ void copy_slice(const Step& s, char* to, const T* from) {
    constexpr int BYTES = 1 << (UNITS >> 3 * I & 7);
    constexpr bool spread = SPREADS >> I & 1;
    if (!(ONCE >> I & 1))
        copy<BYTES, spread>(to, from, s.first[I], s.first[I + 1], s.spread[I]);
    else if (spread)
        put<BYTES>(to, *reinterpret_cast<const Bytes<BYTES>*>(from), s.spread[I]);
    else
        fetch<BYTES>(to, from);
}

__device__ __forceinline__ void arrived() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

#ifdef NARROW
// Pairs of 16-bit costs: on Hopper one instruction adds two pairs and takes the minimum with a third, which is
// also how a sum is clamped to the infinity.
typedef unsigned Lane, LaneSum;
constexpr int WIDE = LANES / 2;
__device__ __forceinline__ Lane all_lanes(T value) { return (unsigned)(unsigned short)value * 0x10001u; }
__device__ __forceinline__ Lane lane(const Columns& c, int j) { return reinterpret_cast<const unsigned*>(&c)[j]; }
__device__ __forceinline__ unsigned top(i64 bound) { return (unsigned)bound * 0x10001u; }
__device__ __forceinline__ Lane joined(Lane a, Lane b, i64 bound) { return __viaddmin_s16x2(a, b, top(bound)); }
__device__ __forceinline__ LaneSum nothing(i64 bound) { return top(bound); }
__device__ __forceinline__ LaneSum summed(LaneSum sum, Lane a, i64) { return __viaddmin_s16x2(a, 0, sum); }
__device__ __forceinline__ LaneSum summed(LaneSum sum, Lane a, Lane b, i64) { return __viaddmin_s16x2(a, b, sum); }
__device__ __forceinline__ LaneSum merged(LaneSum sum, LaneSum part, Lane b, i64) {
    return __viaddmin_s16x2(part, b, sum);
}
#else
typedef Product Lane;
typedef Acc LaneSum;
constexpr int WIDE = COLUMNS;
__device__ __forceinline__ Lane all_lanes(T value) { return value; }
__device__ __forceinline__ Lane lane(const Columns& c, int j) { return c.v[j]; }
__device__ __forceinline__ Lane joined(Lane a, Lane b, i64 bound) { return times(a, b, bound); }
__device__ __forceinline__ LaneSum nothing(i64 bound) { return start(bound); }
__device__ __forceinline__ LaneSum summed(LaneSum sum, Lane a, i64) { return plus(sum, a); }
__device__ __forceinline__ LaneSum summed(LaneSum sum, Lane a, Lane b, i64 bound) {
#if LAW == MIN_PLUS
    return plus(sum, a + b);  // the sum begins at the infinity, which clamps
#else
    return plus(sum, times(a, b, bound));
#endif
}
__device__ __forceinline__ LaneSum merged(LaneSum sum, LaneSum part, Lane b, i64 bound) {
    return merge(sum, scaled(part, b, bound));
}
#endif

// The product of the inputs of one kind of states, as factors that differ by rows, by columns and by both.
template <bool INNER>
struct Factors {
    Lane row[ROWS], column[WIDE], both[ROWS][WIDE];
    bool any_row = false, any_column = false, any_both = false;  // known when compiling

    __device__ __forceinline__ void gather(const Step& s, const int* at) {
#pragma unroll
        for (int i = 0; i < INPUTS; i++) {
            if (is_inner(i) != INNER) continue;
            const char* from = room + at[i];
            if (has_rows(i) && has_columns(i)) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    Columns cells = *reinterpret_cast<const Columns*>(from + r * s.row[i]);
#pragma unroll
                    for (int j = 0; j < WIDE; j++)
                        both[r][j] = any_both ? joined(both[r][j], lane(cells, j), s.bound) : lane(cells, j);
                }
                any_both = true;
            } else if (has_columns(i)) {
                Columns cells = *reinterpret_cast<const Columns*>(from);
#pragma unroll
                for (int j = 0; j < WIDE; j++)
                    column[j] = any_column ? joined(column[j], lane(cells, j), s.bound) : lane(cells, j);
                any_column = true;
            } else {
                Rows cells;
                if (has_rows(i)) cells = *reinterpret_cast<const Rows*>(from);
                T value = *reinterpret_cast<const T*>(from);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    Lane own = all_lanes(has_rows(i) ? cells.v[r] : value);
                    row[r] = any_row ? joined(row[r], own, s.bound) : own;
                }
                any_row = true;
            }
        }
    }

    // Calls use(r, j, a, b, two): a cell of the product is a, or a times b where there are two.
    template <typename Use>
    __device__ __forceinline__ void each(const Step& s, Use use) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int j = 0; j < WIDE; j++) {
                if (any_both && any_row && any_column)
                    use(r, j, joined(row[r], column[j], s.bound), both[r][j], true);
                else if (any_both && any_row)
                    use(r, j, row[r], both[r][j], true);
                else if (any_both && any_column)
                    use(r, j, column[j], both[r][j], true);
                else if (any_both)
                    use(r, j, both[r][j], both[r][j], false);
                else if (any_row && any_column)
                    use(r, j, row[r], column[j], true);
                else if (any_row)
                    use(r, j, row[r], row[r], false);
                else
                    use(r, j, column[j], column[j], false);
            }
        }
    }
};

__device__ constexpr bool any_outer(int i = 0) { return i < INPUTS && (!is_inner(i) || any_outer(i + 1)); }

__device__ __forceinline__ void inner_sum(const Step& s, const int* at, unsigned states, LaneSum sum[ROWS][WIDE]) {
#pragma unroll 2
    for (unsigned state = 0; state < states; state++) {
        const Places& shift = inner_at[state];
        int here[INPUTS];
#pragma unroll
        for (int i = 0; i < INPUTS; i++) here[i] = is_inner(i) ? at[i] + shift.v[i] : 0;
        Factors<true> factors;
        factors.gather(s, here);
        factors.each(s, [&](int r, int j, Lane a, Lane b, bool two) {
            sum[r][j] = two ? summed(sum[r][j], a, b, s.bound) : summed(sum[r][j], a, s.bound);
        });
    }
}

__device__ __forceinline__ void brick_sum(const Step& s, const int* low, unsigned inner, unsigned outer,
                                          LaneSum sum[ROWS][WIDE]) {
    for (unsigned state = 0; state < outer; state++) {
        int at[INPUTS];
#pragma unroll
        for (int i = 0; i < INPUTS; i++) at[i] = low[i] + outer_at[state].v[i];
        if (!any_outer()) {
            inner_sum(s, at, inner, sum);
            continue;
        }
        LaneSum part[ROWS][WIDE];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int j = 0; j < WIDE; j++) part[r][j] = nothing(s.bound);
        inner_sum(s, at, inner, part);
        Factors<false> factors;
        factors.gather(s, at);
        factors.each(s, [&](int r, int j, Lane a, Lane b, bool two) {
            sum[r][j] = merged(sum[r][j], part[r][j], two ? joined(a, b, s.bound) : a, s.bound);
        });
    }
}

__device__ __forceinline__ void store(const Step& s, T* out, LaneSum sum[ROWS][WIDE]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#ifdef SCATTERED
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#ifdef NARROW
            out[s.out_row[r] + s.out_column[j]] = (T)(sum[r][j / 2] >> 16 * (j % 2));
#else
            out[s.out_row[r] + s.out_column[j]] = finish(sum[r][j], s.bound);
#endif
#else
        Columns cells;
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
#ifdef NARROW
            reinterpret_cast<unsigned*>(&cells)[j] = sum[r][j];
#else
            cells.v[j] = finish(sum[r][j], s.bound);
#endif
        }
        *reinterpret_cast<Columns*>(out + s.out_row[r]) = cells;
#endif
    }
}

// The number of a block's brick.
__device__ __forceinline__ unsigned brick_of(const Step& s, unsigned mine) {
    return (mine / s.run * gridDim.x + blockIdx.x) * s.run + mine % s.run;
}

// Locates some of a block's items, each in every table.
__device__ __forceinline__ void locate_items(const Step& s, unsigned first, unsigned end) {
    for (unsigned k = threadIdx.x; k < (end - first) * (INPUTS + 1); k += blockDim.x) {
        const unsigned item = first + k / (INPUTS + 1), table = k % (INPUTS + 1), mine = item / s.stages;
        item_at[item % (2 * ITEMS)][table] =
            locate(s, table, 0, s.brick_axes, brick_of(s, mine)) +
            (table < INPUTS ? locate(s, table, s.brick_axes, s.outer_axes, item - mine * s.stages) : 0);
    }
}

__device__ __forceinline__ void compare_items(unsigned first, unsigned end) {
    const unsigned item = first + threadIdx.x;
    if (item >= end) return;
    unsigned mask = 0;
    for (int i = 0; i < INPUTS; i++)
        if (item == 0 || item_at[item % (2 * ITEMS)][i] != item_at[(item - 1) % (2 * ITEMS)][i]) mask |= 1u << i;
    changed[item % (2 * ITEMS)] = mask;
}

// Copies those slices of an item that differ from the one before, each where that one's is not.
template <int I>
__device__ __forceinline__ void copy_slices(const Step& s, unsigned item, unsigned mask, unsigned where,
                                            const Far* near) {
    if constexpr (I < INPUTS) {
        if ((mask >> I & 1) && near[I].target >= 0)
            copy_slice<I>(s, room + s.start[I] + near[I].target + (where >> I & 1) * s.shared,
                          s.in[I] + item_at[item % (2 * ITEMS)][I] + near[I].source);
        copy_slices<I + 1>(s, item, mask, where, near);
    }
}

__device__ __forceinline__ unsigned states_of(const Step& s, int first, int end) {
    unsigned n = 1;
#pragma unroll 1
    for (int axis = first; axis < end; axis++) n *= s.place_size[axis];
    return n;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) brick(const __grid_constant__ Step s) {
    const unsigned me = threadIdx.x, threads = blockDim.x;
    const unsigned inner = states_of(s, s.thread_axes, s.inner_axes);
    const unsigned outer = states_of(s, s.inner_axes, s.place_axes);
    // bricks are a multiple of the run, and no more blocks than runs
    const unsigned items = ((s.bricks / s.run - 1 - blockIdx.x) / gridDim.x + 1) * s.run * s.stages;
#pragma unroll 1
    for (unsigned k = me; k < inner; k += threads) place(s, s.thread_axes, s.inner_axes, k, inner_at[k].v);
#pragma unroll 1
    for (unsigned k = me; k < outer; k += threads) place(s, s.inner_axes, s.place_axes, k, outer_at[k].v);
    int low[INPUTS];
    const i64 out_low = place(s, 0, s.thread_axes, me, low);
    Far near[INPUTS];  // those of threads that copy nothing lie before the slice
#pragma unroll
    for (int i = 0; i < INPUTS; i++) {
        low[i] += s.start[i];
        near[i] = item_of_copy(s, i, 0, s.near[i], me);
        if (me >= items_of_copy(s, i, 0, s.near[i])) near[i].target = -1;
#pragma unroll 1
        for (unsigned k = s.first[i] + me; k < s.first[i + 1]; k += threads)
            far_at[k] = item_of_copy(s, i, s.near[i], s.copies[i], k - s.first[i]);
    }
    locate_items(s, 0, min(2 * ITEMS, items));
    __syncthreads();
    compare_items(0, min(2 * ITEMS, items));
    __syncthreads();
    unsigned where = 0;  // of each slice, in which of the two places it is
    copy_slices<0>(s, 0, changed[0], where, near);
    LaneSum sum[ROWS][WIDE];
    for (unsigned item = 0, stage = 0; item < items; item++) {
        arrived();
        __syncthreads();
        // The next items are located where nobody reads any more, and compared after one more of these barriers.
        if (item % ITEMS == 0 && item && item + ITEMS < items) locate_items(s, item + ITEMS, min(item + 2 * ITEMS, items));
        if (item % ITEMS == 1 && item > 1) compare_items(item - 1 + ITEMS, min(item - 1 + 2 * ITEMS, items));
        const unsigned next = item + 1 < items ? changed[(item + 1) % (2 * ITEMS)] : 0;
        unsigned after = where;
#ifdef AHEAD
        after ^= next;
        copy_slices<0>(s, item + 1, next, after, near);
#endif
        if (stage == 0) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int j = 0; j < WIDE; j++) sum[r][j] = nothing(s.bound);
        }
        int at[INPUTS];
#pragma unroll
        for (int i = 0; i < INPUTS; i++) at[i] = low[i] + (where >> i & 1) * s.shared;
        brick_sum(s, at, inner, outer, sum);
        if (++stage == s.stages) {
            stage = 0;
            store(s, s.out + item_at[item % (2 * ITEMS)][INPUTS] + out_low, sum);
        }
#ifndef AHEAD
        if (next) {
            __syncthreads();
            copy_slices<0>(s, item + 1, next, after, near);
        }
#endif
        where = after;
    }
}
