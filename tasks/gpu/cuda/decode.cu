// Value assignment of the steps of a sweep, from the roots down, all in one launch: for every step the joint state of
// least cost of what it eliminated, the first of equals, at the states that are known by then.
//
// Blocks take items one after another: joint states of a step. What an item reads of other steps are states of
// variables, which are below zero until they are known, so that it waits for those alone: items before it, which have
// been taken. Of several items of a step the last to end compares what all of them found.

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr int FOUND = 32;
constexpr int ROW = 4;
constexpr int VALUES = 1024;
constexpr int LINES = 2048;

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
    const int* item_step;    // of each item
    const int* first_item;   // of each step
    int* states;             // of all variables, below zero where they are not known
    i64* offsets;            // of each block, a line for each input of a step, where these are not in shared memory
    Best* parts;             // of each item
    unsigned* ended;         // of each step, its items that have ended
    unsigned* taken;         // items of this launch that blocks have taken
    i64 line;                // most entries of all lines of a step
    i64 bound;
    int first, last;         // items of this launch
};

__device__ __forceinline__ Best better(Best a, Best b) {
    const bool second = b.state >= 0 && (a.state < 0 || b.cost < a.cost || (b.cost == a.cost && b.state < a.state));
    return second ? b : a;
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

__device__ __forceinline__ void know_state(int* states, int v, int state) {
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(states + v), "r"(state) : "memory");
}

// The state of a variable, once some block knows it.
__device__ __forceinline__ int state_of(const int* states, int v) {
    for (;;) {
        int state;
        asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(state) : "l"(states + v) : "memory");
        if (state >= 0) return state;
        __nanosleep(20);
    }
}

// Where an input lies at the known states, and how far apart the states to be found are; by a warp, an axis a lane.
__device__ void fill_line(const Decoding& d, int input, const int* size, i64* line, int width) {
    const int lane = threadIdx.x % WARP, begin = d.first_axis[input];
    i64 stride = 1, at = 0;
    for (int k = lane; k < width; k += WARP) line[k] = 0;
    __syncwarp();
    for (int end = d.first_axis[input + 1]; end > begin; end -= WARP) {
        const int axis = end - 1 - lane;
        int v = 0, states = 1;
        if (axis >= begin) {
            v = d.axes[axis];
            states = v < 0 ? size[~v] : d.sizes[v];
        }
        i64 behind = states;  // the product of what this lane and those before it have
        for (int away = 1; away < WARP; away *= 2) {
            const i64 other = __shfl_up_sync(~0u, behind, away);
            if (lane >= away) behind *= other;
        }
        const i64 all = __shfl_sync(~0u, behind, WARP - 1);
        behind = __shfl_up_sync(~0u, behind, 1);
        const i64 own = stride * (lane ? behind : 1);
        if (v < 0) line[1 + ~v] = own;
        else if (states > 1) at += own * state_of(d.states, v);
        __syncwarp();
        stride *= all;
    }
    for (int away = WARP / 2; away; away /= 2) at += __shfl_down_sync(~0u, at, away);
    if (lane == 0) line[0] = at;
}

extern "C" __global__ void __launch_bounds__(THREADS) decode(const __grid_constant__ Decoding d) {
    __shared__ int size[FOUND], shift[FOUND];
    __shared__ Product values[VALUES];
    __shared__ i64 near[LINES];
    __shared__ int mine;
    __shared__ bool ends;
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) mine = d.first + (int)atomicAdd(d.taken, 1u);
        __syncthreads();
        const int item = mine;
        if (item >= d.last) return;
        const int step = d.item_step[item];
        const int first = d.first_input[step], inputs = d.first_input[step + 1] - first;
        const int* const found = d.found + d.first_found[step];
        const int many = d.first_found[step + 1] - d.first_found[step];
        const int width = many + 1;
        if (threadIdx.x < many) size[threadIdx.x] = d.sizes[found[threadIdx.x]];
        __syncthreads();
        fill_shifts(shift, size, many);
        i64* const lines = inputs * width <= LINES ? near : d.offsets + blockIdx.x * d.line;
        for (int i = threadIdx.x / WARP; i < inputs; i += THREADS / WARP)
            fill_line(d, first + i, size, lines + (i64)i * width, width);
        __syncthreads();
        const i64 joint = d.joint[step];
        const int items = d.first_item[step + 1] - d.first_item[step];
        const int row = many ? size[many - 1] : 1;  // joint states that differ in the last variable alone
        const i64 each = ((joint + items - 1) / items + row - 1) / row * row;
        const i64 begin = each * (item - d.first_item[step]);
        const i64 end = begin + each < joint ? begin + each : joint;
        const int cells = (int)(end > begin ? end - begin : 0);
        const bool few = (i64)cells * inputs <= VALUES;
        if (few) {
            for (int k = threadIdx.x; k < cells * inputs; k += THREADS) {
                const int i = k / cells;
                const u64 states = fields((unsigned)(begin + k % cells), size, shift, many);
                const i64* const line = lines + (i64)i * width;
                values[k] = ((const T*)d.tables[first + i])[line[0] + distance(line + 1, states, shift, many)];
            }
            __syncthreads();
        }
        Best best = {0, -1};
        if (few)
            for (int k = threadIdx.x; k < cells; k += THREADS) {
                Product sum = 0;
                for (int i = 0; i < inputs; i++) sum = times(sum, values[i * cells + k], d.bound);
                best = better(best, {sum, begin + k});
            }
        else
            for (int k = threadIdx.x * row; k < cells; k += THREADS * row) {
                const u64 states = fields((unsigned)(begin + k), size, shift, many);
                for (int part = 0; part < row; part += ROW) {
                    Product sum[ROW] = {};
                    for (int i = 0; i < inputs; i++) {
                        const i64* const line = lines + (i64)i * width;
                        const i64 apart = line[many];
                        const T* const cell = (const T*)d.tables[first + i] + line[0] + part * apart +
                                              distance(line + 1, states, shift, many);
#pragma unroll
                        for (int r = 0; r < ROW; r++)
                            if (part + r < row) sum[r] = times(sum[r], cell[r * apart], d.bound);
                    }
#pragma unroll
                    for (int r = 0; r < ROW; r++)
                        if (part + r < row) best = better(best, {sum[r], begin + k + part + r});
                }
            }
        best = best_of_block(best);
        if (items > 1) {
            if (threadIdx.x == 0) {
                d.parts[item] = best;
                __threadfence();
                ends = atomicAdd(d.ended + step, 1u) == items - 1;
            }
            __syncthreads();
            if (!ends) continue;
            __threadfence();
            best = {0, -1};
            for (int k = d.first_item[step] + threadIdx.x; k < d.first_item[step + 1]; k += THREADS)
                best = better(best, d.parts[k]);
            best = best_of_block(best);
        }
        if (threadIdx.x == 0) {
            i64 rest = best.state;
            for (int l = many - 1; l >= 0; l--) {
                know_state(d.states, found[l], (int)(rest % size[l]));
                rest /= size[l];
            }
        }
    }
}
