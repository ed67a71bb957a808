// Value assignment of the steps of a sweep, from the roots down, all in one launch: for every step the joint state of
// least cost of what it eliminated, the first of equals, at the states that are known by then.
//
// A launch of one block takes a run of steps; one of several blocks takes a single step with many joint states, and
// the last block to end compares what they found.

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr int FOUND = 24;
constexpr int VALUES = 1024;

struct Best {
    Product cost;
    i64 state;
};

struct Decoding {
    const u64* tables;       // of each input, where it lies
    const i64* joint;        // of each step, its joint states
    const int* first_axis;   // of each input, its first entry in `axes`
    const int* axes;         // a variable, or ~(its place among those that the step finds)
    const int* first_input;  // of each step
    const int* first_found;  // of each step, its first entry in `found`
    const int* found;        // variables
    const int* sizes;        // of all variables
    int* states;             // of all variables
    i64* offsets;            // of each block, a line for each input of a step
    Best* parts;             // of each block
    unsigned* ended;         // blocks
    i64 line;                // entries of a block in `offsets`
    i64 bound;
    int first, last;         // steps of this launch
};

__device__ __forceinline__ Best better(Best a, Best b) {
    const bool second = b.state >= 0 && (a.state < 0 || b.cost < a.cost || (b.cost == a.cost && b.state < a.state));
    return second ? b : a;
}

// The states of a joint state in fields of as many bits as they need, found once for all inputs: an array of them would
// be memory of its own for each thread that the device can hold. Joint states of a launch have far fewer than 64 bits.
__device__ __forceinline__ u64 fields(unsigned cell, const int* size, const int* shift, int many) {
    u64 found = 0;
    for (int l = many - 1; l >= 0; l--) {
        const unsigned above = cell / size[l];
        found |= (u64)(cell - above * size[l]) << shift[l];
        cell = above;
    }
    return found;
}

// Where the cell of an input lies at a joint state.
__device__ __forceinline__ i64 place(const i64* line, u64 states, const int* shift, int many) {
    i64 at = line[0];
    for (int l = 0; l < many; l++) {
        const i64 stride = line[1 + l];
        const u64 below = l ? (1ull << (shift[l - 1] - shift[l])) - 1 : ~0ull;
        at += (i64)(states >> shift[l] & below) * stride;
    }
    return at;
}

// The best of all threads' bests, in thread 0.
__device__ Best best_of_block(Best mine) {
    __shared__ Best warps[THREADS / WARP];
    for (int away = WARP / 2; away; away /= 2)
        mine = better(mine, {__shfl_down_sync(~0u, mine.cost, away), __shfl_down_sync(~0u, mine.state, away)});
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = mine;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int warp = 1; warp < THREADS / WARP; warp++) mine = better(mine, warps[warp]);
    __syncthreads();
    return mine;
}

extern "C" __global__ void __launch_bounds__(THREADS) decode(const __grid_constant__ Decoding d) {
    __shared__ int size[FOUND], shift[FOUND];
    __shared__ Product values[VALUES];
    __shared__ bool ends;
    i64* const offsets = d.offsets + blockIdx.x * d.line;
    for (int step = d.first; step < d.last; step++) {
        const int first = d.first_input[step], inputs = d.first_input[step + 1] - first;
        const int* const found = d.found + d.first_found[step];
        const int many = d.first_found[step + 1] - d.first_found[step];
        const int width = many + 1;
        if (threadIdx.x < many) size[threadIdx.x] = d.sizes[found[threadIdx.x]];
        __syncthreads();
        if (threadIdx.x < many) {
            int bits = 0;
            for (int l = threadIdx.x + 1; l < many; l++) bits += 32 - __clz(size[l] - 1);
            shift[threadIdx.x] = bits;
        }
        // where each input lies at the known states, and how far apart the states to be found are
        for (int i = threadIdx.x; i < inputs; i += THREADS) {
            i64* const line = offsets + (i64)i * width;
            for (int k = 0; k < width; k++) line[k] = 0;
            i64 stride = 1, at = 0;
            for (int axis = d.first_axis[first + i + 1] - 1; axis >= d.first_axis[first + i]; axis--) {
                const int v = d.axes[axis];
                if (v < 0) {
                    line[1 + ~v] = stride;
                    stride *= size[~v];
                } else if (d.sizes[v] > 1) {
                    at += d.states[v] * stride;
                    stride *= d.sizes[v];
                }
            }
            line[0] = at;
        }
        __syncthreads();
        const i64 joint = d.joint[step];
        const bool few = joint * inputs <= VALUES;
        if (few) {
            for (int k = threadIdx.x; k < joint * inputs; k += THREADS) {
                const int i = k / (int)joint;
                const u64 states = fields(k % (int)joint, size, shift, many);
                const i64 at = place(offsets + (i64)i * width, states, shift, many);
                values[k] = ((const T*)d.tables[first + i])[at];
            }
            __syncthreads();
        }
        Best best = {0, -1};
        for (i64 cell = blockIdx.x * (i64)THREADS + threadIdx.x; cell < joint; cell += gridDim.x * (i64)THREADS) {
            Product sum = 0;
            if (few) {
                for (int i = 0; i < inputs; i++) sum = times(sum, values[i * (int)joint + (int)cell], d.bound);
            } else {
                const u64 states = fields((unsigned)cell, size, shift, many);
#pragma unroll 4
                for (int i = 0; i < inputs; i++) {
                    const i64 at = place(offsets + (i64)i * width, states, shift, many);
                    sum = times(sum, ((const T*)d.tables[first + i])[at], d.bound);
                }
            }
            best = better(best, {sum, cell});
        }
        best = best_of_block(best);
        if (gridDim.x > 1) {
            if (threadIdx.x == 0) {
                d.parts[blockIdx.x] = best;
                __threadfence();
                ends = atomicAdd(d.ended, 1u) == gridDim.x - 1;
            }
            __syncthreads();
            if (!ends) return;
            __threadfence();
            best = {0, -1};
            for (int block = threadIdx.x; block < gridDim.x; block += THREADS) best = better(best, d.parts[block]);
            best = best_of_block(best);
            if (threadIdx.x == 0) *d.ended = 0;
        }
        if (threadIdx.x == 0) {
            i64 rest = best.state;
            for (int l = many - 1; l >= 0; l--) {
                d.states[found[l]] = (int)(rest % size[l]);
                rest /= size[l];
            }
        }
        __syncthreads();
    }
}
