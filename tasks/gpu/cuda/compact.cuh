// Writing densely and in order what blocks of TILE cells keep. How many rows the blocks before it write a block learns
// from their counts, while they still work (Merrill & Garland, Single-pass parallel prefix scan with decoupled
// look-back, 2016).

constexpr int THREADS = 256, WARPS = THREADS / 32, ITEMS = 8, TILE = THREADS * ITEMS;
constexpr unsigned ALL = 0xffffffffu;
constexpr u64 COUNTED = 1ull << 62, SUMMED = 1ull << 63, VALUE = COUNTED - 1;

// How many rows the blocks before write; published with the block's own number.
__device__ u64 written_before(u64* counts, i64 block, u64 own, int lane) {
    volatile u64* shown = counts;
    if (lane == 0) shown[block] = own | (block ? COUNTED : SUMMED);
    u64 before = 0;
    for (i64 last = block - 1; last >= 0; last -= 32) {
        u64 state = SUMMED;
        if (last >= lane) do state = shown[last - lane]; while (!(state >> 62));
        const unsigned summed = __ballot_sync(ALL, (state & SUMMED) != 0);
        const int end = summed ? __ffs(summed) - 1 : 31;
        u64 part = lane <= end ? state & VALUE : 0;
        for (int far = 16; far; far /= 2) part += __shfl_xor_sync(ALL, part, far);
        before += part;
        if (summed) break;
    }
    if (lane == 0 && block) shown[block] = (before + own) | SUMMED;
    return before;
}

// Replace the counts of all items and warps by what comes before them in the block, and return what comes before it.
__device__ u64 places_of(unsigned* counts, u64* states, i64 block, int lane) {
    const unsigned a = counts[2 * lane], b = counts[2 * lane + 1];
    unsigned sum = a + b;
    for (int far = 1; far < 32; far *= 2) {
        const unsigned other = __shfl_up_sync(ALL, sum, far);
        if (lane >= far) sum += other;
    }
    counts[2 * lane] = sum - a - b;
    counts[2 * lane + 1] = sum - b;
    return written_before(states, block, __shfl_sync(ALL, sum, 31), lane);
}
