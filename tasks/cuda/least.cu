// out[block] = the least of a block's share of the entries above a limit: many blocks, so that it runs at the
// memory's rate.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    least_above(const T* __restrict__ in, T* __restrict__ out, i64 cells, T limit) {
    __shared__ T shared[THREADS];
    const i64 stride = (i64)gridDim.x * THREADS;
    T low = (T)infinity();
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < cells; i += stride) {
        T value = in[i];
        if (value > limit && value < low) low = value;
    }
    shared[threadIdx.x] = low;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] = least(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) out[blockIdx.x] = shared[0];
}
