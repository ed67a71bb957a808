// Several products of small tables in one launch, each over the variables of any of its tables and in row-major
// order: a block of threads belongs to one of them, a thread computes one cell.

constexpr int TABLES = 96;
constexpr int ENTRIES = 288;
constexpr int JOINS = 8;
constexpr int AXES = 96;
constexpr int AXES_EACH = 24;
constexpr int THREADS = 256;
constexpr int UNROLLED = 4;

struct alignas(16) Step {
    const T* in[TABLES];  // by join
    T* out[JOINS];
    i64 bound;
    int stride[ENTRIES];  // strides of the inputs that are not zero, input by input
    unsigned size[AXES];  // by join
    unsigned cells[JOINS];
    unsigned block[JOINS + 1];  // the first block of each join
    unsigned short entry[TABLES + 1];
    unsigned char axis[ENTRIES];  // numbered from the join's first
    unsigned char member[JOINS + 1], first[JOINS + 1];
};
static_assert(sizeof(Step) == STEP && STEP <= 4096, "as it is filled, and all that a launch takes");

extern "C" __global__ void __launch_bounds__(THREADS) join(const __grid_constant__ Step s) {
    __shared__ unsigned digits[AXES_EACH][THREADS];
    const unsigned thread = threadIdx.x;
    int join = 0;
    while (blockIdx.x >= s.block[join + 1]) join++;
    const unsigned cell = (blockIdx.x - s.block[join]) * THREADS + thread;
    if (cell >= s.cells[join]) return;
    unsigned rest = cell;
    for (int axis = s.first[join + 1] - 1; axis >= s.first[join]; axis--) {
        const unsigned above = rest / s.size[axis];
        digits[axis - s.first[join]][thread] = rest - above * s.size[axis];
        rest = above;
    }
    Product value = one();
    const int end = s.member[join + 1];
    for (int i = s.member[join]; i < end; i += UNROLLED) {
        T loaded[UNROLLED];
#pragma unroll
        for (int m = 0; m < UNROLLED; m++) {
            loaded[m] = (T)one();
            if (i + m >= end) continue;
            unsigned at = 0;
            for (int e = s.entry[i + m]; e < s.entry[i + m + 1]; e++) at += digits[s.axis[e]][thread] * s.stride[e];
            loaded[m] = s.in[i + m][at];
        }
#pragma unroll
        for (int m = 0; m < UNROLLED; m++) value = times(value, loaded[m], s.bound);
    }
    s.out[join][cell] = (T)value;
}
