// out[block] = the least of a block's share of the entries above a limit, and out[blocks + block] the greatest: many
// blocks, so that it runs at the memory's rate.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    extremes_above(const T* __restrict__ in, T* __restrict__ out, i64 cells, T limit) {
    __shared__ T shared[2][THREADS];
    const i64 stride = (i64)gridDim.x * THREADS;
    T low = (T)infinity(), high = -low;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < cells; i += stride) {
        T value = in[i];
        if (value > limit && value < low) low = value;
        if (value > limit && value > high) high = value;
    }
    shared[0][threadIdx.x] = low;
    shared[1][threadIdx.x] = -high;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            for (int i = 0; i < 2; i++)
                shared[i][threadIdx.x] = least(shared[i][threadIdx.x], shared[i][threadIdx.x + half]);
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = shared[0][0];
        out[gridDim.x + blockIdx.x] = -shared[1][0];
    }
}
