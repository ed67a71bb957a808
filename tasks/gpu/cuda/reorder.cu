// A copy of a table with its axes in another order: tiles that have long runs of both tables go through shared memory,
// so that whole lines are read and whole lines are written.
//
// An item is BYTES long, one or several cells that are neighbours in both tables. ITEMS (of a thread) are fixed when
// compiling; FAR says that the items of a tile may lie 2^32 apart. A thread has the same items in every tile: where
// they lie in it is the sum of two short tables' entries and stays in registers. The next tile is loaded while this one
// is stored.

constexpr int AXES = 40;
constexpr int THREADS = 256;
// Rows of all banks are a word further each: neighbours of one table, rows apart in the other, are in different banks.
constexpr int ROW = 128 / BYTES;
constexpr int GAP = BYTES < 4 ? 4 / BYTES : 1;

#ifdef FAR
typedef i64 Offset;
#else
typedef unsigned Offset;
#endif

template <int bytes> struct Word {};
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };
typedef Word<BYTES>::type Item;

enum { FROM, TO };
// Axes of: tiles, items as they are read and as they are written; of either the slow ones and the fast ones.
enum { TILES, READ, READ_FAST, WRITTEN, WRITTEN_FAST, SEGMENTS };

struct Step {
    const Item* in[1];
    Item* out;
    i64 stride[2][AXES];
    unsigned size[AXES];
    int segment[SEGMENTS + 1];
    unsigned items, tiles, tiles_per_block;
    unsigned parts[SEGMENTS];  // cells of the segments
};

template <typename Place>
__device__ __forceinline__ Place locate(const Step& s, int segment, int table, unsigned index) {
    Place at = 0;
    for (int axis = s.segment[segment + 1] - 1; axis >= s.segment[segment]; axis--) {
        unsigned rest = index / s.size[axis];
        at += (Place)(index - rest * s.size[axis]) * (Place)s.stride[table][axis];
        index = rest;
    }
    return at;
}

__device__ __forceinline__ unsigned held_at(unsigned place) { return place + place / ROW * GAP; }

extern "C" __global__ void __launch_bounds__(THREADS) reorder(const __grid_constant__ Step s) {
    __shared__ Item held[(ITEMS * THREADS / ROW + 1) * (ROW + GAP)];
    __shared__ i64 base[2][THREADS];
    __shared__ Offset where[2][2][THREADS];  // as they are read and as they are written, slow and fast axes
    __shared__ unsigned short place[2][THREADS];
    const unsigned first = blockIdx.x * s.tiles_per_block;
    const unsigned tiles = min(s.tiles_per_block, s.tiles - first);
    if (threadIdx.x < tiles)
        for (int table = FROM; table <= TO; table++)
            base[table][threadIdx.x] = locate<i64>(s, TILES, table, first + threadIdx.x);
    for (int fast = 0; fast < 2; fast++) {
        if (threadIdx.x < s.parts[READ + fast]) {
            where[FROM][fast][threadIdx.x] = locate<Offset>(s, READ + fast, FROM, threadIdx.x);
            place[fast][threadIdx.x] = (unsigned short)locate<unsigned>(s, READ + fast, TO, threadIdx.x);
        }
        if (threadIdx.x < s.parts[WRITTEN + fast])
            where[TO][fast][threadIdx.x] = locate<Offset>(s, WRITTEN + fast, TO, threadIdx.x);
    }
    __syncthreads();
    Offset from[ITEMS], to[ITEMS];
    unsigned read[ITEMS];
#pragma unroll
    for (int c = 0; c < ITEMS; c++) {
        const unsigned item = min(threadIdx.x + c * THREADS, s.items - 1);
        unsigned slow = item / s.parts[READ_FAST], fast = item - slow * s.parts[READ_FAST];
        from[c] = where[FROM][0][slow] + where[FROM][1][fast];
        read[c] = held_at(place[0][slow] + place[1][fast]);
        slow = item / s.parts[WRITTEN_FAST], fast = item - slow * s.parts[WRITTEN_FAST];
        to[c] = where[TO][0][slow] + where[TO][1][fast];
    }
    Item items[ITEMS];
    auto load = [&](unsigned tile) {
        const Item* in = s.in[0] + base[FROM][tile];
#pragma unroll
        for (int c = 0; c < ITEMS; c++)
            if (threadIdx.x + c * THREADS < s.items) items[c] = in[from[c]];
    };
    load(0);
    for (unsigned tile = 0; tile < tiles; tile++) {
        __syncthreads();
#pragma unroll
        for (int c = 0; c < ITEMS; c++)
            if (threadIdx.x + c * THREADS < s.items) held[read[c]] = items[c];
        __syncthreads();
        if (tile + 1 < tiles) load(tile + 1);
        Item* out = s.out + base[TO][tile];
#pragma unroll
        for (int c = 0; c < ITEMS; c++)
            if (threadIdx.x + c * THREADS < s.items) out[to[c]] = held[held_at(threadIdx.x + c * THREADS)];
    }
}
