// out[o] = sum of row o of a table (rows, length): one block a row, in a fixed order.

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    rows(const T* __restrict__ in, T* __restrict__ out, i64 length, i64 bound) {
    __shared__ Acc shared[THREADS];
    const T* row = in + blockIdx.x * length;
    Acc acc = start(bound);
    for (i64 i = threadIdx.x; i < length; i += THREADS) acc = plus(acc, (Product)row[i]);
    shared[threadIdx.x] = acc;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] = merge(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) out[blockIdx.x] = finish(shared[0], bound);
}
