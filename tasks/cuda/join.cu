// The product of many small tables over the variables of any of them, in row-major order: one thread a cell.

constexpr int AXES = 24;
constexpr int TABLES = 16;
constexpr int THREADS = 256;

struct Step {
    const T* in[TABLES];
    T* out;
    i64 bound;
    int stride[TABLES][AXES];
    unsigned size[AXES];
    int axes, tables;
    unsigned cells;
};

extern "C" __global__ void __launch_bounds__(THREADS) join(const __grid_constant__ Step s) {
    for (unsigned cell = blockIdx.x * THREADS + threadIdx.x; cell < s.cells; cell += gridDim.x * THREADS) {
        unsigned digit[AXES], rest = cell;
#pragma unroll
        for (int axis = AXES - 1; axis >= 0; axis--) {
            digit[axis] = 0;
            if (axis < s.axes) {
                unsigned above = rest / s.size[axis];
                digit[axis] = rest - above * s.size[axis];
                rest = above;
            }
        }
        Product value = one();
        for (int i = 0; i < s.tables; i++) {
            int at = 0;
#pragma unroll
            for (int axis = 0; axis < AXES; axis++) at += digit[axis] * s.stride[i][axis];
            value = times(value, s.in[i][at], s.bound);
        }
        s.out[cell] = (T)value;
    }
}
