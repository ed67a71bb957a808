// One layer of a bounded search: rows, in the order of what stays of their keys, get every state of a variable, costs
// are added, of equal new keys the cheapest is kept, and what is below the cut-off is written densely and in order.
//
// A block takes the next TILE cells (position in the order, state) that no other took. WORDS and NEW_WORDS are the
// 64-bit words of a key before and after.

// `program` holds the bits that stay (WORDS), then records of moves (word, mask, right, word of the new key, left),
// parts (word, shift, mask, stride) and tables (address, first part, last part, whether subtracted).
// `progress` holds the number of blocks that began, then for each what it counted: zeros before.
struct Layer {
    const u64* keys;
    const double* costs;
    const i64* order;        // or none, where rows are in order
    const unsigned* groups;  // or none: the number of each row's group
    const u64* program;
    i64 rows, first, cells;
    double constant, upper;
    u64* out_keys;
    double* out_costs;
    unsigned* out_origin;
    u64* progress;
    i64 moves, parts, tables;
    i64 states, stays, merging;
};

__device__ __forceinline__ i64 row_at(const Layer& s, i64 position) { return s.order ? s.order[position] : position; }

__device__ __forceinline__ bool alike(const Layer& s, i64 row, i64 other) {
    u64 differ = 0;
#pragma unroll
    for (int w = 0; w < WORDS; w++) differ |= (s.keys[row * WORDS + w] ^ s.keys[other * WORDS + w]) & s.program[w];
    return differ == 0;
}

__device__ __forceinline__ u64 word_of(const u64* key, u64 word) {
    u64 found = key[0];
#pragma unroll
    for (int w = 1; w < WORDS; w++) found = word == w ? key[w] : found;
    return found;
}

__device__ __forceinline__ double cost_of(const Layer& s, i64 row, unsigned state) {
    u64 key[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) key[w] = s.keys[row * WORDS + w];
    double sum = s.costs[row] - s.constant;
    const u64* parts = s.program + WORDS + 5 * s.moves;
    const u64* table = parts + 4 * s.parts;
    for (int t = 0; t < s.tables; t++, table += 4) {
        u64 offset = 0;
        for (u64 k = table[1]; k < table[2]; k++) {
            const u64* part = parts + 4 * k;
            offset += (word_of(key, part[0]) >> part[1] & part[2]) * part[3];
        }
        const double* cells = (const double*)table[0];
        sum = table[3] ? sum - cells[offset] : sum + cells[offset + state];
    }
    return sum;
}

__device__ __forceinline__ void repacked(const Layer& s, i64 row, u64* out) {
#pragma unroll
    for (int w = 0; w < NEW_WORDS; w++) out[w] = 0;
    u64 key[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) key[w] = s.keys[row * WORDS + w];
    const u64* move = s.program + WORDS;
    for (int k = 0; k < s.moves; k++, move += 5) {
        const u64 bits = (word_of(key, move[0]) & move[1]) >> move[2] << move[4];
#pragma unroll
        for (int w = 0; w < NEW_WORDS; w++) out[w] |= move[3] == w ? bits : 0;
    }
}

__device__ __forceinline__ void write_key(const Layer& s, unsigned origin, u64 at) {
    u64 key[NEW_WORDS];
    repacked(s, origin / (unsigned)s.states, key);
    if (s.stays) key[NEW_WORDS - 1] |= origin % (unsigned)s.states;
#pragma unroll
    for (int w = 0; w < NEW_WORDS; w++) s.out_keys[at * NEW_WORDS + w] = key[w];
}

extern "C" __global__ void __launch_bounds__(THREADS) advance(const __grid_constant__ Layer s) {
    __shared__ i64 taken;
    __shared__ double best[TILE];
    __shared__ unsigned owner[TILE], kept[ITEMS * WARPS], counts[ITEMS * WARPS];
    __shared__ u64 begin;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) taken = (i64)atomicAdd(s.progress, 1ull);
    __syncthreads();
    const unsigned width = s.stays ? (unsigned)s.states : 1;
    const i64 start = taken * TILE, left = s.cells - start;
    const i64 position = s.first + start / width;
    const unsigned within = (unsigned)(start % width);

    // one copy of the loop: unrolled it takes seconds to compile
#pragma unroll 1
    for (int i = 0; i < ITEMS; i++) {
        double least = infinity();
        unsigned origin = 0;
        const unsigned cell = i * THREADS + threadIdx.x;
        if (cell < left) {
            const i64 p = position + (within + cell) / width;
            const unsigned from = s.stays ? (within + cell) % width : 0;
            const unsigned to = s.stays ? from + 1 : (unsigned)s.states;
            i64 row = row_at(s, p);
            if (!s.merging || p == 0 || !alike(s, row, row_at(s, p - 1))) {
                for (i64 q = p + 1;; q++) {
                    for (unsigned a = from; a < to; a++) {
                        const double cost = cost_of(s, row, a);
                        const unsigned own = (unsigned)(row * s.states + a);
                        if (cost < least || (cost == least && own < origin)) least = cost, origin = own;
                    }
                    if (!s.merging || q == s.rows) break;
                    const i64 next = row_at(s, q);
                    if (!alike(s, row, next)) break;
                    row = next;
                }
            }
        }
        best[cell] = least;
        owner[cell] = origin;
        const unsigned written = __ballot_sync(ALL, least < s.upper);
        if (lane == 0) {
            kept[i * WARPS + warp] = written;
            counts[i * WARPS + warp] = __popc(written);
        }
    }
    __syncthreads();
    if (warp == 0) {
        const u64 before = places_of(counts, s.progress + 1, taken, lane);
        if (lane == 0) begin = before;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < ITEMS; i++) {
        const unsigned cell = i * THREADS + threadIdx.x, written = kept[i * WARPS + warp];
        if (!(written >> lane & 1)) continue;
        const u64 at = begin + counts[i * WARPS + warp] + __popc(written & ((1u << lane) - 1));
        write_key(s, owner[cell], at);
        s.out_costs[at] = best[cell];
        s.out_origin[at] = owner[cell];
    }
}

// Bits of a cost that compare like it.
__device__ __forceinline__ u64 ordered(double cost) {
    const u64 bits = (u64)__double_as_longlong(cost);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// For rows in any order, and cells that are new keys, or groups and states: out_keys[cell] becomes the least cost below
// the cut-off, as ordered bits, then out_origin[cell] the least origin of that cost.
template <bool owners> __device__ void scatter(const Layer& s) {
    const unsigned width = s.stays ? (unsigned)s.states : 1;
    const i64 start = (i64)blockIdx.x * THREADS;
    if (start + threadIdx.x >= s.cells) return;
    const unsigned within = (unsigned)(start % width) + threadIdx.x;
    const i64 row = start / width + within / width;
    const unsigned from = s.stays ? within % width : 0, to = s.stays ? from + 1 : (unsigned)s.states;
    double best = infinity();
    unsigned state = from;
    for (unsigned a = from; a < to; a++) {
        const double cost = cost_of(s, row, a);
        if (cost < best) best = cost, state = a;
    }
    if (!(best < s.upper)) return;
    u64 cell;
    if (s.groups) {
        cell = (u64)s.groups[row] * width + (s.stays ? state : 0);
    } else {
        u64 key[NEW_WORDS];
        repacked(s, row, key);
        cell = key[NEW_WORDS - 1] | (s.stays ? state : 0);
    }
    const u64 bits = ordered(best);
    const unsigned origin = (unsigned)(row * s.states + state);
    if (owners) {
        if (s.out_keys[cell] == bits && origin < *(volatile unsigned*)(s.out_origin + cell))
            atomicMin(s.out_origin + cell, origin);
    } else if (bits < *(volatile u64*)(s.out_keys + cell)) {
        atomicMin(s.out_keys + cell, bits);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) least(const __grid_constant__ Layer s) { scatter<false>(s); }

extern "C" __global__ void __launch_bounds__(THREADS) owners(const __grid_constant__ Layer s) { scatter<true>(s); }

// out_keys (NEW_WORDS, rows) = what stays of every key, without the new variable.
extern "C" __global__ void __launch_bounds__(THREADS) repack(const __grid_constant__ Layer s) {
    const i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row >= s.rows) return;
    u64 key[NEW_WORDS];
    repacked(s, row, key);
#pragma unroll
    for (int w = 0; w < NEW_WORDS; w++) s.out_keys[w * s.rows + row] = key[w];
}

// out_keys (cells, NEW_WORDS) = the new keys of origins.
extern "C" __global__ void __launch_bounds__(THREADS) rekey(const __grid_constant__ Layer s) {
    const i64 at = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (at < s.cells) write_key(s, s.out_origin[at], at);
}

// out_origin[p] = whether a group begins at position p of the order.
extern "C" __global__ void __launch_bounds__(THREADS) heads(const __grid_constant__ Layer s) {
    const i64 p = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (p < s.rows) s.out_origin[p] = p == 0 || !alike(s, row_at(s, p), row_at(s, p - 1));
}
