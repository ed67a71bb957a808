// Slices of some tables, copied in C order, all in one launch: block row y works on slice y. Results may be in the
// host's memory.

constexpr int AXES = 40;
constexpr int SLICES = 4;
constexpr int THREADS = 256;

struct Slices {
    const T* in[SLICES];
    T* out[SLICES];
    i64 cells[SLICES];
    i64 stride[SLICES][AXES];
    unsigned size[SLICES][AXES];
    int axes[SLICES];
};

extern "C" __global__ void __launch_bounds__(THREADS) gather(const __grid_constant__ Slices s) {
    const int slice = blockIdx.y;
    for (i64 cell = blockIdx.x * (i64)THREADS + threadIdx.x; cell < s.cells[slice]; cell += gridDim.x * (i64)THREADS) {
        u64 rest = cell;
        i64 at = 0;
        for (int axis = s.axes[slice] - 1; axis >= 0; axis--) {
            u64 above = rest / s.size[slice][axis];
            at += (i64)(rest - above * s.size[slice][axis]) * s.stride[slice][axis];
            rest = above;
        }
        s.out[slice][cell] = s.in[slice][at];
    }
}
