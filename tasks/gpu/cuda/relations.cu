// Tables of rows: keys of WORDS 64-bit words in ascending order, and a value of type T for each.

constexpr int NEIGHBOURS = 32;

__device__ __forceinline__ i64 thread_number() { return blockIdx.x * (i64)blockDim.x + threadIdx.x; }

// Move fields of a key to another layout: moves are (word, mask, right, word of the new key, left).
__device__ __forceinline__ void move(const u64* key, const u64* moves, i64 n_moves, u64* out) {
    u64 found[NEW_WORDS] = {};
    for (i64 k = 0; k < n_moves; k++) {
        const u64* one = moves + 5 * k;
        const u64 bits = (key[one[0]] & one[1]) >> one[2] << one[4];
#pragma unroll
        for (int w = 0; w < NEW_WORDS; w++) found[w] |= one[3] == w ? bits : 0;
    }
#pragma unroll
    for (int w = 0; w < NEW_WORDS; w++) out[w] = found[w];
}

// Move fields of all keys to another layout.
extern "C" __global__ void repack(const u64* words, const u64* moves, i64 n_moves, i64 rows, u64* out) {
    const i64 row = thread_number();
    if (row < rows) move(words + row * WORDS, moves, n_moves, out + row * NEW_WORDS);
}

// Mark rows whose states are within ranges: fields are (word, shift, mask, first state, the one behind the last).
extern "C" __global__ void inside(const u64* words, const u64* fields, i64 n_fields, i64 rows, bool* out) {
    const i64 row = thread_number();
    if (row >= rows) return;
    bool found = true;
    for (i64 k = 0; k < n_fields; k++) {
        const u64* field = fields + 5 * k;
        const u64 state = words[row * WORDS + field[0]] >> field[1] & field[2];
        found &= state >= field[3] && state < field[4];
    }
    out[row] = found;
}

// Mark rows whose key differs from that before in the bits of a mask.
extern "C" __global__ void heads(const u64* words, const u64* mask, i64 rows, bool* out) {
    const i64 row = thread_number();
    if (row >= rows) return;
    u64 differ = row == 0;
#pragma unroll
    for (int w = 0; w < WORDS; w++)
        if (row) differ |= (words[row * WORDS + w] ^ words[(row - 1) * WORDS + w]) & mask[w];
    out[row] = differ != 0;
}

// -1, 0 or 1 as one key is below another, equal or above.
__device__ __forceinline__ int compared(const u64* a, const u64* b) {
    int found = 0;
#pragma unroll
    for (int w = WORDS - 1; w >= 0; w--) found = a[w] == b[w] ? found : a[w] < b[w] ? -1 : 1;
    return found;
}

// Count rows whose key is below that before.
extern "C" __global__ void descents(const u64* words, i64 rows, u64* count) {
    const i64 row = thread_number() + 1;
    const bool down = row < rows && compared(words + row * WORDS, words + (row - 1) * WORDS) < 0;
    if (__syncthreads_or(down) && threadIdx.x == 0) atomicAdd(count, 1ull);
}

// The first of `rows` keys that is not below one, nor equal to it where `behind`.
__device__ __forceinline__ i64 bound_of(const u64* words, i64 low, i64 high, const u64* key, bool behind) {
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (compared(words + middle * WORDS, key) < (behind ? 1 : 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// How many of the first `at` rows of two ascending runs together are of the first run, whose rows come before equal ones
// of the second: where the merge path meets a diagonal (Green, McColl & Bader 2012, section 3).
__device__ __forceinline__ i64 diagonal(const u64* a, i64 low, i64 high, const u64* b, i64 at) {
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (compared(b + (at - 1 - middle) * WORDS, a + middle * WORDS) < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// Merge two ascending runs, TILE rows in a block; of equal keys those of the first run come first.
extern "C" __global__ void __launch_bounds__(THREADS)
    merge(const u64* a, const T* a_values, i64 n_a, const u64* b, const T* b_values, i64 n_b, u64* out, T* values) {
    __shared__ i64 ends[2];
    __shared__ int sources[TILE];
    const i64 start = blockIdx.x * (i64)TILE, stop = min(start + TILE, n_a + n_b);
    if (threadIdx.x < 64 && threadIdx.x % 32 == 0) {
        const i64 at = threadIdx.x ? stop : start;
        ends[threadIdx.x / 32] = diagonal(a, max((i64)0, at - n_b), min(at, n_a), b, at);
    }
    __syncthreads();
    const i64 a_low = ends[0], a_high = ends[1], b_low = start - a_low, b_high = stop - a_high;
    const i64 mine = start + threadIdx.x * (TILE / THREADS), last = min(mine + TILE / THREADS, stop);
    if (mine < stop) {
        i64 i = diagonal(a, max(a_low, mine - b_high), min(mine - b_low, a_high), b, mine), j = mine - i;
        for (i64 at = mine; at < last; at++) {
            const bool second = j < b_high && (i >= a_high || compared(b + j * WORDS, a + i * WORDS) < 0);
            sources[at - start] = second ? ~(int)(j++ - b_low) : (int)(i++ - a_low);
        }
    }
    __syncthreads();
    for (i64 at = start + threadIdx.x; at < stop; at += THREADS) {
        const int source = sources[at - start];
        const u64* key = source < 0 ? b + (b_low + ~source) * WORDS : a + (a_low + source) * WORDS;
        values[at] = source < 0 ? b_values[b_low + ~source] : a_values[a_low + source];
#pragma unroll
        for (int w = 0; w < WORDS; w++) out[at * WORDS + w] = key[w];
    }
}

// Find keys among ascending ones: where they begin and how many there are.
extern "C" __global__ void find(const u64* words, i64 rows, const u64* among, i64 n, i64* first, i64* count) {
    const i64 row = thread_number();
    if (row >= rows) return;
    u64 key[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) key[w] = words[row * WORDS + w];
    const i64 low = bound_of(among, 0, n, key, false);
    i64 step = 1, high = low;
    while (high + step <= n && compared(among + (high + step - 1) * WORDS, key) == 0) high += step, step *= 2;
    high = bound_of(among, high, min(high + step, n), key, true);
    first[row] = low;
    count[row] = high - low;
}

// Find keys of few bits: rows of key k are ends[k] to ends[k + 1].
extern "C" __global__ void look_up(const u64* words, i64 rows, const i64* ends, i64* first, i64* count) {
    const i64 row = thread_number();
    if (row >= rows) return;
    const i64 low = ends[words[row]];
    first[row] = low;
    count[row] = ends[words[row] + 1] - low;
}

// The first of ascending numbers that is above another.
__device__ __forceinline__ i64 above(const i64* numbers, i64 low, i64 high, i64 at) {
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (numbers[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Outputs `start` to `stop` of a join, a thread for each: row i of the left meets rows of the right from first[i] on,
// its outputs end before ends[i]. Counts blocks that made a product of zero.
extern "C" __global__ void __launch_bounds__(THREADS)
    expand(const i64* first, const i64* ends, i64 rows, i64 start, i64 stop, const u64* left, const u64* right,
           const T* left_values, const T* right_values, i64 bound, u64* out, T* values, u64* zeros) {
    __shared__ i64 limits[TILE], low, high;
    const i64 from = start + blockIdx.x * (i64)TILE, to = min(from + TILE, stop);
    if (threadIdx.x == 0) low = above(ends, 0, rows, from);
    if (threadIdx.x == 32) high = above(ends, 0, rows, to - 1) + 1;
    __syncthreads();
    const i64 count = high - low;
    const bool near = count <= TILE;
    for (i64 i = threadIdx.x; near && i < count; i += THREADS) limits[i] = ends[low + i];
    __syncthreads();
    bool none = false;
    for (i64 at = from + threadIdx.x; at < to; at += THREADS) {
        const i64 row = near ? low + above(limits, 0, count, at) : above(ends, low, high, at);
        const i64 begin = row == low ? (row ? ends[row - 1] : 0) : near ? limits[row - low - 1] : ends[row - 1];
        const i64 other = first[row] + at - begin;
        const T product = (T)times((Product)left_values[row], (Product)right_values[other], bound);
        values[at - start] = product;
        none |= product == zero(bound);
#pragma unroll
        for (int w = 0; w < WORDS; w++) out[(at - start) * WORDS + w] = left[row * WORDS + w] | right[other * WORDS + w];
    }
    if (__syncthreads_or(none) && threadIdx.x == 0) atomicAdd(zeros, 1ull);
}

// Rows as they are summed: their values, and where runs of equal keys begin.
struct Rows {
    const u64* words;
    const T* values;
    __device__ __forceinline__ T value(i64 row) const { return values[row]; }
    __device__ __forceinline__ bool begins(i64 row) const {
        return row == 0 || compared(words + row * WORDS, words + (row - 1) * WORDS) != 0;
    }
    __device__ __forceinline__ void write(i64 row, u64* out) const {
#pragma unroll
        for (int w = 0; w < WORDS; w++) out[w] = words[row * WORDS + w];
    }
};

// The cell of a dense table that a key reads: parts are (word, right, mask, cells from one state to the next).
__device__ __forceinline__ u64 cell_of(const u64* key, const u64* parts, i64 n_parts) {
    u64 at = 0;
    for (i64 k = 0; k < n_parts; k++) {
        const u64* part = parts + 4 * k;
        at += (key[part[0]] >> part[1] & part[2]) * part[3];
    }
    return at;
}

// Rows that are multiplied with entries of a dense table while they are summed over variables outside of a mask, which
// come last. Keys are written in another layout, see `repack`.
struct Products {
    const u64 *words, *mask, *moves, *parts;
    const T *values, *table;
    i64 n_moves, n_parts, bound;
    __device__ __forceinline__ T value(i64 row) const {
        if (!n_parts) return values[row];
        return (T)times((Product)values[row], (Product)table[cell_of(words + row * WORDS, parts, n_parts)], bound);
    }
    __device__ __forceinline__ bool begins(i64 row) const {
        u64 differ = row == 0;
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            if (row) differ |= (words[row * WORDS + w] ^ words[(row - 1) * WORDS + w]) & mask[w];
        return differ != 0;
    }
    __device__ __forceinline__ void write(i64 row, u64* out) const { move(words + row * WORDS, moves, n_moves, out); }
};

// Multiply rows with entries of a dense table, see `cell_of`. Counts blocks that made a product of zero.
extern "C" __global__ void multiply(const u64* words, const T* values, i64 rows, const u64* parts, i64 n_parts,
                                    const T* table, i64 bound, T* out, u64* zeros) {
    const i64 row = thread_number();
    bool none = false;
    if (row < rows) {
        const u64 at = cell_of(words + row * WORDS, parts, n_parts);
        const T product = (T)times((Product)values[row], (Product)table[at], bound);
        out[row] = product;
        none = product == zero(bound);
    }
    if (__syncthreads_or(none) && threadIdx.x == 0) atomicAdd(zeros, 1ull);
}

// Set the cells of a dense table that keys read.
extern "C" __global__ void scatter(const u64* words, const T* values, i64 rows, const u64* parts, i64 n_parts, T* out) {
    const i64 row = thread_number();
    if (row < rows) out[cell_of(words + row * WORDS, parts, n_parts)] = values[row];
}

// Sum tiles of runs, a thread for each, in order. Run r begins at starts[r]; its tiles are numbered from tiles[r] on,
// or it is tile r alone where there is no such array.
extern "C" __global__ void fold(const T* values, i64 rows, const i64* starts, i64 runs, const i64* tiles, i64 n_tiles,
                                i64 bound, T* out) {
    const i64 tile = thread_number();
    if (tile >= n_tiles) return;
    const i64 run = tiles ? above(tiles, 0, runs, tile) - 1 : tile;
    const i64 begin = starts[run] + (tiles ? NEIGHBOURS * (tile - tiles[run]) : 0);
    const i64 end = min(begin + NEIGHBOURS, run + 1 < runs ? starts[run + 1] : rows);
    Acc total = start(bound);
    for (i64 i = begin; i < end; i++) total = plus(total, (Product)values[i]);
    out[tile] = finish(total, bound);
}

// What `reduce` found in a tile: of each cell the sum from there to the end of its run or of its 32 cells, of each 32
// cells which begin runs, and whether the sum of their first run is part of one before.
struct Tile {
    T found[TILE];
    unsigned heads[ITEMS * WARPS];
};

// The sum of the run that begins at a row, rows one after the other, NEIGHBOURS at a time; `to` becomes its end.
template <class R> __device__ __forceinline__ Acc in_turn(const R& given, i64 row, i64 rows, i64 bound, i64& to) {
    Acc tiles = start(bound), total = start(bound);
    const i64 end = min(row + NEIGHBOURS * NEIGHBOURS, rows);
    for (to = row; to < end && (to == row || !given.begins(to)); to++) {
        if (to > row && (to - row) % NEIGHBOURS == 0) {
            tiles = plus(tiles, (Product)finish(total, bound));
            total = start(bound);
        }
        total = plus(total, (Product)given.value(to));
    }
    return to - row > NEIGHBOURS ? plus(tiles, (Product)finish(total, bound)) : total;
}

// Where the order of sums does not matter, lanes add up what they have of one run.
__device__ __forceinline__ T among_lanes(T mine, unsigned heads, int lane, i64 bound) {
    const unsigned after = lane < 31 ? heads >> (lane + 1) : 0;
    const int left = after ? __ffs(after) : 32 - lane;
    for (int far = 1; far < 32; far *= 2) {
        const T other = (T)__shfl_down_sync(ALL, mine, far);
        if (far < left) mine = finish(plus(plus(start(bound), (Product)mine), (Product)other), bound);
    }
    return mine;
}

// The sum of the run that begins in a cell, from the sums of lanes; `to` becomes its end, if it is behind the tile.
template <class R>
__device__ __forceinline__ T joined(const Tile& tile, int cell, const R& given, i64 first, i64 rows, i64 bound,
                                    i64& to) {
    Acc total = plus(start(bound), (Product)tile.found[cell]);
    int chunk = cell / 32;
    if (cell % 32 < 31 && tile.heads[chunk] >> (cell % 32 + 1)) return tile.found[cell];
    for (chunk++; chunk < ITEMS * WARPS; chunk++) {
        if (!(tile.heads[chunk] & 1)) total = plus(total, (Product)tile.found[chunk * 32]);
        if (tile.heads[chunk]) return finish(total, bound);
    }
    const i64 end = min(first + TILE + NEIGHBOURS * NEIGHBOURS, rows);
    for (to = first + TILE; to < end && !given.begins(to); to++) total = plus(total, (Product)given.value(to));
    return finish(total, bound);
}

// Sum runs of equal keys, and write those sums that are not zero with their keys, densely and in order. Runs of more
// than NEIGHBOURS * NEIGHBOURS rows, or as many behind a tile, are only counted. `progress` holds the number of blocks
// that began, what each counted, and how many runs were too long: zeros before.
template <class R, int width>
__device__ __forceinline__ void sum_runs(const R& given, i64 rows, i64 bound, u64* progress, u64* out, T* sums) {
    constexpr bool in_order = is_float && LAW != MIN_PLUS;
    __shared__ i64 taken;
    __shared__ Tile tile;
    __shared__ unsigned kept[ITEMS * WARPS], counts[ITEMS * WARPS];
    __shared__ u64 before;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) taken = (i64)atomicAdd(progress, 1ull);
    __syncthreads();
    const i64 first = taken * TILE;
#pragma unroll 1
    for (int i = 0; i < ITEMS; i++) {
        const int cell = i * THREADS + threadIdx.x;
        const i64 row = first + cell;
        // rows that are not there begin runs of zero
        const unsigned heads = __ballot_sync(ALL, row >= rows || given.begins(row));
        if (lane == 0) tile.heads[i * WARPS + warp] = heads;
        if (!in_order) tile.found[cell] = among_lanes(row < rows ? given.value(row) : zero(bound), heads, lane, bound);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < ITEMS; i++) {
        const int cell = i * THREADS + threadIdx.x;
        const i64 row = first + cell;
        const bool head = row < rows && (tile.heads[i * WARPS + warp] >> lane & 1);
        T total = zero(bound);
        if (head) {
            i64 to = row;
            total = in_order ? finish(in_turn(given, row, rows, bound, to), bound)
                             : joined(tile, cell, given, first, rows, bound, to);
            const i64 most = in_order ? row + NEIGHBOURS * NEIGHBOURS : first + TILE + NEIGHBOURS * NEIGHBOURS;
            if (to == most && to < rows && !given.begins(to)) atomicAdd(progress + gridDim.x + 1, 1ull);
        }
        const unsigned which = __ballot_sync(ALL, head && total != zero(bound));
        if (lane == 0) {
            kept[i * WARPS + warp] = which;
            counts[i * WARPS + warp] = __popc(which);
        }
        // only this thread's cell, which no other run reads: it is the beginning of one
        if (head) tile.found[cell] = total;
    }
    __syncthreads();
    if (warp == 0) {
        const u64 found = places_of(counts, progress + 1, taken, lane);
        if (lane == 0) before = found;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < ITEMS; i++) {
        const unsigned which = kept[i * WARPS + warp];
        if (!(which >> lane & 1)) continue;
        const int cell = i * THREADS + threadIdx.x;
        const u64 at = before + counts[i * WARPS + warp] + __popc(which & ((1u << lane) - 1));
        given.write(first + cell, out + at * width);
        sums[at] = tile.found[cell];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce(const u64* words, const T* values, i64 rows, i64 bound, u64* progress, u64* out, T* sums) {
    sum_runs<Rows, WORDS>({words, values}, rows, bound, progress, out, sums);
}

// What `reduce` does with products of rows, before there are any: for sums in any order.
extern "C" __global__ void __launch_bounds__(THREADS)
    product_sums(const u64* words, const T* values, i64 rows, const u64* parts, i64 n_parts, const T* table,
                 const u64* mask, const u64* moves, i64 n_moves, i64 bound, u64* progress, u64* out, T* sums) {
    sum_runs<Products, NEW_WORDS>({words, mask, moves, parts, values, table, n_moves, n_parts, bound}, rows, bound,
                                  progress, out, sums);
}

// The row of the left that the last output before each tile comes from, and that of the last one.
extern "C" __global__ void tile_rows(const i64* ends, i64 rows, i64 start_at, i64 stop, i64 tiles, i64* out) {
    const i64 tile = thread_number();
    if (tile <= tiles) out[tile] = above(ends, 0, rows, max(min(start_at + tile * TILE, stop) - 1, start_at));
}

// What lanes have until the first of them, from each on, in which a run begins.
__device__ __forceinline__ T until_head(T mine, unsigned heads, int lane, i64 bound) {
    const unsigned from = heads >> lane;
    const int far = from ? __ffs(from) - 1 : 31 - lane;
    for (int step = 1; step < 32; step *= 2) {
        const T other = (T)__shfl_down_sync(ALL, mine, step);
        // what a lane has covers 2 * step lanes by then, unless its run begins sooner
        if (step <= far) mine = finish(plus(plus(start(bound), (Product)mine), (Product)other), bound);
    }
    return mine;
}

// Outputs `start` to `stop` of a join as `expand` makes them, with neighbours of equal keys summed in any order: runs
// that begin in a tile are written densely and in order. What a tile has of a run that began before is its part, for
// the sum at a place; -1 where there is none. `progress` holds the number of blocks that began, what each counted, and
// how many wrote a sum of zero: zeros before.
extern "C" __global__ void __launch_bounds__(THREADS, WORDS == 1 ? 4 : 2)
    expand_reduce(const i64* first, const i64* ends, const i64* tile_rows, i64 start_at, i64 stop, const u64* left,
                  const u64* right, const T* left_values, const T* right_values, i64 bound, u64* progress, u64* out,
                  T* sums, T* parts, i64* places) {
    __shared__ i64 shifts[TILE + 1];
    __shared__ int limits[TILE + 1];
    __shared__ i64 taken;
    __shared__ unsigned before_warp[WARPS], headed;
    __shared__ T tails[WARPS];
    __shared__ u64 before;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) taken = (i64)atomicAdd(progress, 1ull);
    __syncthreads();
    const i64 from = start_at + taken * TILE;
    const int size = (int)min((i64)TILE, stop - from);
    const i64 low = tile_rows[taken], count = tile_rows[taken + 1] + 1 - low;
    const bool near = count <= TILE + 1;
    // what of the right an output meets is as far from its number as what its row meets first from that of its first
    auto end_of = [&](i64 row) { return (int)min(ends[low + row] - from, (i64)TILE); };
    auto shift_of = [&](i64 row) { return first[low + row] - (low + row ? ends[low + row - 1] : 0) + from; };
    for (int i = threadIdx.x; near && i < count; i += THREADS) {
        limits[i] = end_of(i);
        shifts[i] = shift_of(i);
    }
    __syncthreads();

    int at = threadIdx.x * ITEMS;
    u64 key[ITEMS][WORDS], last[WORDS], own_key[WORDS];
    T product[ITEMS];
    unsigned heads = 0;
    if (at < size) {
        const int look = from == start_at && at == 0 ? 0 : at - 1;
        i64 row = 0, past = count;
        while (row < past) {
            const i64 middle = (row + past) / 2;
            if ((near ? limits[middle] : end_of(middle)) <= look)
                row = middle + 1;
            else
                past = middle;
        }
        int end = near ? limits[row] : end_of(row);
        i64 shift = near ? shifts[row] : shift_of(row);
        Product factor = (Product)left_values[low + row];
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            own_key[w] = left[(low + row) * WORDS + w];
            last[w] = own_key[w] | right[(shift + look) * WORDS + w];
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++, at++) {
            if (at >= size) {
                heads |= 1u << j;
                product[j] = zero(bound);
                continue;
            }
            if (at >= end) {
                do {
                    row++;
                    end = near ? limits[row] : end_of(row);
                } while (at >= end);
                shift = near ? shifts[row] : shift_of(row);
                factor = (Product)left_values[low + row];
#pragma unroll
                for (int w = 0; w < WORDS; w++) own_key[w] = left[(low + row) * WORDS + w];
            }
            const i64 other = shift + at;
            product[j] = (T)times(factor, (Product)right_values[other], bound);
            bool begins_here = from + at == start_at;
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                key[j][w] = own_key[w] | right[other * WORDS + w];
                begins_here |= key[j][w] != last[w];
                last[w] = key[j][w];
            }
            heads |= (unsigned)begins_here << j;
        }
    } else {
        heads = (1u << ITEMS) - 1;
#pragma unroll
        for (int j = 0; j < ITEMS; j++) product[j] = zero(bound);
    }
    const unsigned own = heads & ((1u << max(0, min(ITEMS, size - (int)threadIdx.x * ITEMS))) - 1);

    // what comes before the first head of a thread belongs to a run of those before it
    Acc lead_sum = start(bound);
#pragma unroll
    for (int j = 0; j < ITEMS; j++)
        if (!(heads & ((2u << j) - 1))) lead_sum = plus(lead_sum, (Product)product[j]);
    const unsigned with_heads = __ballot_sync(ALL, heads != 0);
    const T lead = until_head(finish(lead_sum, bound), with_heads, lane, bound);
    if (lane == 0) tails[warp] = lead;

    unsigned mine = __popc(own), sum = mine;
    for (int far = 1; far < 32; far *= 2) {
        const unsigned other = __shfl_up_sync(ALL, sum, far);
        if (lane >= far) sum += other;
    }
    if (lane == 31) before_warp[warp] = sum;
    if (threadIdx.x == 0) headed = 0;
    __syncthreads();
    if (lane == 0 && with_heads) atomicOr(&headed, 1u << warp);
    unsigned block_before = 0, total_heads = 0;
    for (int w = 0; w < WARPS; w++) {
        block_before += w < warp ? before_warp[w] : 0;
        total_heads += before_warp[w];
    }
    __syncthreads();
    if (warp == 0) {
        const u64 found = written_before(progress + 1, taken, total_heads, lane);
        if (lane == 0) before = found;
    }
    // of the warps behind, until one in which a run begins
    Acc behind_sum = start(bound);
    for (int w = warp + 1; w < WARPS; w++) {
        behind_sum = plus(behind_sum, (Product)tails[w]);
        if (headed >> w & 1) break;
    }
    const T behind = finish(behind_sum, bound);
    T after = (T)__shfl_down_sync(ALL, lead, 1);
    const bool ends_here = lane < 31 && with_heads >> (lane + 1);
    if (lane == 31) after = behind;
    else if (!ends_here) after = finish(plus(plus(start(bound), (Product)after), (Product)behind), bound);
    __syncthreads();

    u64 place = before + block_before + sum - mine;
    bool none = false;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        if (!(own >> j & 1)) continue;
        Acc total = plus(start(bound), (Product)product[j]);
        bool open = true;
#pragma unroll
        for (int k = j + 1; k < ITEMS; k++) {
            open &= !(heads >> k & 1);
            if (open) total = plus(total, (Product)product[k]);
        }
        if (open) total = plus(total, (Product)after);
        const T found = finish(total, bound);
        none |= found == zero(bound);
#pragma unroll
        for (int w = 0; w < WORDS; w++) out[place * WORDS + w] = key[j][w];
        sums[place++] = found;
    }
    if (threadIdx.x == 0) {
        const bool part = !(heads & 1);
        places[taken] = part ? (i64)before - 1 : -1;
        const T whole = with_heads ? lead : finish(plus(plus(start(bound), (Product)lead), (Product)behind), bound);
        parts[taken] = whole;
    }
    if (__syncthreads_or(none) && threadIdx.x == 0) atomicAdd(progress + gridDim.x + 1, 1ull);
}

// Add what later tiles have of runs to their sums, a warp for each run.
extern "C" __global__ void add_parts(const T* parts, const i64* places, i64 tiles, i64 bound, T* sums) {
    const i64 tile = thread_number() / 32;
    const int lane = threadIdx.x % 32;
    if (tile >= tiles || places[tile] < 0 || (tile && places[tile - 1] == places[tile])) return;
    const i64 place = places[tile];
    Acc total = start(bound);
    if (lane == 0) total = plus(total, (Product)sums[place]);
    for (i64 i = tile + lane; i < tiles && places[i] == place; i += 32) total = plus(total, (Product)parts[i]);
    const T found = until_head(finish(total, bound), 0, lane, bound);
    if (lane == 0) sums[place] = found;
}
