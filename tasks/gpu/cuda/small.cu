// Small steps that read nothing of each other, of any axes, all in one launch: a few lanes for each cell of an output.
//
// A block has an item: as many cells of a step's output as it has groups of lanes.

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr int AXES = 32;
constexpr int STRIDES = 2048;

struct Shape {
    int table;         // its first entry in `tables`: inputs, then the output
    int inputs;
    int axis;          // its first entry in `sizes`
    int axes, summed;  // all, of which the first ones are eliminated
    int stride;        // its first entry in `strides`: of an input after another, then of the output
    int lanes;         // of each cell of the output, a power of two
    int item;          // its first
    int cells;         // of the output
    int depth;         // cells of what is eliminated
};

struct Steps {
    const u64* tables;
    const Shape* shapes;
    const int* sizes;
    const int* strides;
    const int* steps;  // of each item
    i64 bound;
    int first;         // item of this launch
};

__device__ __forceinline__ Acc merged_lanes(Acc total, int lanes) {
    __shared__ Acc warps[THREADS / WARP];
    for (int away = min(lanes, WARP) / 2; away; away /= 2) total = merge(total, __shfl_down_sync(~0u, total, away));
    if (lanes <= WARP) return total;
    const int warp = threadIdx.x / WARP;
    if (threadIdx.x % WARP == 0) warps[warp] = total;
    __syncthreads();
    if (threadIdx.x % lanes == 0)
        for (int other = 1; other < lanes / WARP; other++) total = merge(total, warps[warp + other]);
    return total;
}

extern "C" __global__ void __launch_bounds__(THREADS) small(const __grid_constant__ Steps s) {
    __shared__ int size[AXES], shift[AXES], near[STRIDES];
    const int item = s.first + blockIdx.x;
    const Shape d = s.shapes[s.steps[item]];
    const int count = (d.inputs + 1) * d.axes;
    if (threadIdx.x < d.axes) size[threadIdx.x] = s.sizes[d.axis + threadIdx.x];
    if (count <= STRIDES)
        for (int k = threadIdx.x; k < count; k += THREADS) near[k] = s.strides[d.stride + k];
    __syncthreads();
    fill_shifts(shift, size, d.axes);
    __syncthreads();
    const int* const strides = count <= STRIDES ? near : s.strides + d.stride;
    const u64* const tables = s.tables + d.table;
    const int cell = (item - d.item) * (THREADS / d.lanes) + threadIdx.x / d.lanes;
    const bool there = cell < d.cells;
    const u64 kept = there ? fields(cell, size, shift, d.axes, d.summed) : 0;
    Acc total = start(s.bound);
    if (there)
        for (int inner = threadIdx.x % d.lanes; inner < d.depth; inner += d.lanes) {
            const u64 states = kept | fields(inner, size, shift, d.summed);
            Product value = ((const T*)tables[0])[distance(strides, states, shift, d.axes)];
            for (int i = 1; i < d.inputs; i++)
                value = times(value, ((const T*)tables[i])[distance(strides + i * d.axes, states, shift, d.axes)], s.bound);
            total = plus(total, value);
        }
    total = merged_lanes(total, d.lanes);
    if (there && threadIdx.x % d.lanes == 0)
        ((T*)tables[d.inputs])[distance(strides + d.inputs * d.axes, kept, shift, d.axes)] = finish(total, s.bound);
}
