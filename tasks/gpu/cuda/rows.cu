// out[o] = sum of row o of a table (rows, length): one block a row, in a fixed order.

constexpr int THREADS = 256;

struct Step {
    const T* in;
    T* out;
    i64 length, bound;
};

extern "C" __global__ void __launch_bounds__(THREADS) rows(const __grid_constant__ Step s) {
    __shared__ Acc shared[THREADS];
    const T* row = s.in + blockIdx.x * s.length;
    Acc acc = start(s.bound);
    for (i64 i = threadIdx.x; i < s.length; i += THREADS) acc = plus(acc, (Product)row[i]);
    shared[threadIdx.x] = acc;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] = merge(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) s.out[blockIdx.x] = finish(shared[0], s.bound);
}
