// Sorting of keys with a payload by 8 bits at a time, the lowest first; each row is read and written once for these
// (Adinets & Merrill, Onesweep: a faster least significant digit radix sort for GPUs, 2022).

constexpr int THREADS = 256, DIGITS = 256, WARPS = THREADS / 32, ITEMS = 12, SORTED = THREADS * ITEMS;
constexpr unsigned ALL = 0xffffffffu;
constexpr u64 COUNTED = 1ull << 62, ADDED = 1ull << 63, COUNT = COUNTED - 1;

__device__ __forceinline__ unsigned digit_of(u64 key, i64 shift, u64 ones) { return (unsigned)(key >> shift & ones); }

// Collect the bits in which keys differ from the first, out[0], and count warps that found a key below that before.
extern "C" __global__ void __launch_bounds__(THREADS) differing(const u64* keys, i64 rows, u64* out) {
    const u64 origin = keys[0];
    u64 found = 0;
    bool down = false;
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < rows; i += gridDim.x * (i64)THREADS) {
        const u64 key = keys[i];
        found |= key ^ origin;
        down |= i && key < keys[i - 1];
    }
    for (int step = 16; step; step /= 2) found |= __shfl_down_sync(ALL, found, step);
    const unsigned falls = __ballot_sync(ALL, down);
    if (threadIdx.x % 32 == 0) {
        if (found) atomicOr(out, found);
        if (falls) atomicAdd(out + 1, 1ull);
    }
}

// Count the digits of all passes: counts[pass][digit].
extern "C" __global__ void __launch_bounds__(THREADS)
    digits(const u64* keys, i64 rows, i64 shift, i64 passes, u64 last_ones, u64* counts) {
    __shared__ unsigned found[8][DIGITS];
    for (int p = 0; p < passes; p++) found[p][threadIdx.x] = 0;
    __syncthreads();
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < rows; i += gridDim.x * (i64)THREADS) {
        const u64 key = keys[i];
        for (int p = 0; p < passes; p++)
            atomicAdd(&found[p][digit_of(key, shift + 8 * p, p + 1 < passes ? DIGITS - 1 : last_ones)], 1u);
    }
    __syncthreads();
    for (int p = 0; p < passes; p++)
        if (found[p][threadIdx.x]) atomicAdd(counts + p * DIGITS + threadIdx.x, (u64)found[p][threadIdx.x]);
}

// The sum of what threads before this one have.
__device__ __forceinline__ unsigned before_thread(unsigned mine, unsigned* sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned sum = mine;
    for (int step = 1; step < 32; step *= 2) {
        const unsigned other = __shfl_up_sync(ALL, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++) sum += sums[w];
    return sum - mine;
}

// How many rows of a digit the blocks before have: from their counts, while they still work.
__device__ __forceinline__ u64 before_block(volatile u64* states, i64 block, int digit, u64 mine) {
    if (block) states[block * DIGITS + digit] = COUNTED | mine;
    u64 sum = 0;
    for (i64 other = block - 1; other >= 0;) {
        const u64 state = states[other * DIGITS + digit];
        if (!state) continue;
        sum += state & COUNT;
        if (state & ADDED) break;
        other--;
    }
    states[block * DIGITS + digit] = ADDED | (sum + mine);
    return sum;
}

// The lanes that have the same digit.
__device__ __forceinline__ unsigned lanes_of(unsigned digit) {
    unsigned peers = ALL;
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const bool set = digit >> bit & 1;
        const unsigned lanes = __ballot_sync(ALL, set);
        peers &= set ? lanes : ~lanes;
    }
    return peers;
}

// Move rows to the places of one digit, equal ones in their order. Rows of digit d begin at firsts[d]; `states` holds
// what blocks have counted and `ticket` how many began: zeros before.
extern "C" __global__ void __launch_bounds__(THREADS, 3)
    scatter(const u64* keys, const T* payload, i64 rows, i64 shift, u64 ones, const u64* firsts, u64* states,
            unsigned* ticket, u64* out_keys, T* out_payload) {
    __shared__ u64 moved[SORTED];
    __shared__ unsigned counts[WARPS][DIGITS], starts[DIGITS], sums[WARPS], number;
    __shared__ u64 bases[DIGITS];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    if (t == 0) number = atomicAdd(ticket, 1u);
    for (int w = 0; w < WARPS; w++) counts[w][t] = 0;
    __syncthreads();
    const i64 block = number, first = block * SORTED;
    const int size = (int)min((i64)SORTED, rows - first);
    u64 key[ITEMS];
    unsigned place[ITEMS];
    T held[ITEMS];
    // what is read is asked for before it is waited for: all keys before the first is placed, the payload before the
    // blocks before; places behind the last row have the last digit, and come after all rows
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int at = warp * 32 * ITEMS + j * 32 + lane;
        key[j] = at < size ? keys[first + at] : ~0ull;
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const unsigned digit = digit_of(key[j], shift, ones);
        const unsigned peers = lanes_of(digit);
        const unsigned before = counts[warp][digit];
        __syncwarp();
        if (lane == __ffs(peers) - 1) counts[warp][digit] = before + __popc(peers);
        __syncwarp();
        place[j] = before + __popc(peers & ((1u << lane) - 1));
    }
    __syncthreads();
    unsigned total = 0;
    for (int w = 0; w < WARPS; w++) {
        const unsigned count = counts[w][t];
        counts[w][t] = total;
        total += count;
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int at = warp * 32 * ITEMS + j * 32 + lane;
        if (at < size) held[j] = payload[first + at];
    }
    starts[t] = before_thread(total, sums);
    const u64 mine = total - (t == (int)ones ? SORTED - size : 0);
    bases[t] = firsts[t] + before_block(states, block, t, mine) - starts[t];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const unsigned digit = digit_of(key[j], shift, ones);
        place[j] += starts[digit] + counts[warp][digit];
        moved[place[j]] = key[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int at = j * THREADS + t;
        const u64 here = moved[at];
        key[j] = bases[digit_of(here, shift, ones)] + at;
        if (at < size) out_keys[key[j]] = here;
    }
    __syncthreads();
    T* carried = (T*)moved;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int at = warp * 32 * ITEMS + j * 32 + lane;
        if (at < size) carried[place[j]] = held[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int at = j * THREADS + t;
        if (at < size) out_payload[key[j]] = carried[at];
    }
}
