// out[o] = sum over x of the product of in_i[o_i, x] for many small inputs, in one launch: no join reaches memory.
//
// A block computes some cells of the output. Of every input it needs only the part over its local axes; those parts
// are joined into a few tables in shared memory, and threads add up the products of these over the eliminated
// states. Eliminated axes that are too many for one round are walked through in steps, or shared between blocks,
// whose partial sums another launch adds up. WIDTH eliminated states are taken at once. Loops of few rounds are not
// unrolled: that would double the time of compilation.

constexpr int AXES = 36;
constexpr int TABLES = 96;
constexpr int ENTRIES = 288;
constexpr int GROUPS = 8;
constexpr int PAIRS = GROUPS / 2;
constexpr int THREADS = 256;
constexpr int TURNS = 64;
constexpr int STATES = 128;
constexpr int UNROLLED = 4;
constexpr int BRANCHES = 8;

// Segments of axes: blocks of outputs, partial sums, steps of a block; then local ones: outputs of a thread one
// after another, its eliminated states one after another, both across threads, and states of a vector.
enum { BLOCKS, PARTS, STEPS, LOCAL, OUTPUTS = LOCAL, DEEP, OUTPUT_LANES, DEEP_LANES, VECTOR, END };

struct alignas(SIZE* WIDTH) Cells {
    T v[WIDTH];
};

struct Axis {
    i64 place;              // stride of the output
    unsigned inner[PAIRS];  // strides of the shared tables in cells, in pairs of 16 bits
    unsigned size;
    unsigned inverse;  // of a local axis, see quotient(); of others, the cells below it in the grid or the steps
};

struct alignas(16) Step {
    Axis axes[AXES];
    const T* in[TABLES];  // by group
    T* out;
    i64 bound;
    int stride[ENTRIES];  // strides of the inputs, input by input: first those of axes before the local ones, then
                          // those of runs of local axes that follow each other in the input and in the shared table
    unsigned steps, outputs, states;
    int across, along;  // threads by output and by eliminated state
    unsigned short first[GROUPS], cells[GROUPS];
    unsigned short entry[TABLES + 1];
    unsigned short room;  // bytes of shared memory for tables
    unsigned char axis[ENTRIES], top[ENTRIES];  // the last axis and the first of each run
    unsigned char outer[TABLES];  // entries of axes before the local ones
    unsigned char member[GROUPS + 1];
    unsigned char segment[END + 1];
    unsigned char groups, wide, changing, copied, deep_first;
};
static_assert(sizeof(Step) == STEP && STEP <= 4096, "as it is filled, and all that a launch takes");

// Where a run of axes lies in a table's numbering of its cells.
struct Part {
    unsigned below, whole;  // see quotient(): by the cells below the run, by those times its size
    unsigned size;
    int stride;
};

struct Place {
    unsigned at[PAIRS];  // bytes, in pairs of 16 bits
    i64 out;
};

// A little more than 2^31 / divisor: by so little that quotient() is exact.
__device__ __forceinline__ unsigned inverse_of(unsigned divisor) {
    return (unsigned)__fdividef(2147485696.0f, (float)divisor) + 1;
}

// number / divisor, exactly, where both are below 2^15.
__device__ __forceinline__ unsigned quotient(unsigned number, unsigned inverse) {
    return __umulhi(2 * number + 1, inverse);
}

__device__ __forceinline__ void write_digits(const Step& s, int first, int end, unsigned number, unsigned* digit) {
    const int axis = s.segment[first] + threadIdx.x;
    if (axis < s.segment[end]) digit[axis] = number / s.axes[axis].inverse % s.axes[axis].size;
}

// Where number `index` of a local segment lies in the shared tables and in the output.
__device__ __forceinline__ void locate(const Step& s, int segment, unsigned index, Place& place) {
#pragma unroll 1
    for (int i = s.segment[segment + 1] - 1; i >= s.segment[segment]; i--) {
        const Axis axis = s.axes[i];
        const unsigned above = quotient(index, axis.inverse);
        const unsigned digit = index - above * axis.size;
#pragma unroll
        for (int p = 0; p < PAIRS; p++) place.at[p] += digit * SIZE * axis.inner[p];
        place.out += digit * axis.place;
        index = above;
    }
}

// Where COUNT cells of a shared table lie in an input.
template <int COUNT>
__device__ __forceinline__ void reach(const Step& s, const Part* part, int input, unsigned first, unsigned apart,
                                      unsigned* at) {
#pragma unroll
    for (int c = 0; c < COUNT; c++) at[c] = 0;
#pragma unroll 1
    for (int e = s.entry[input] + s.outer[input]; e < s.entry[input + 1]; e++) {
        const Part p = part[e];
#pragma unroll
        for (int c = 0; c < COUNT; c++) {
            const unsigned cell = first + c * apart;
            at[c] += (quotient(cell, p.below) - p.size * quotient(cell, p.whole)) * p.stride;
        }
    }
}

// Joins the members of a group over its local axes: CELLS cells of a thread and MEMBERS inputs are under way at once.
template <int CELLS, int MEMBERS>
__device__ __forceinline__ void join(const Step& s, int group, const T* const* base, const Part* part, T* table,
                                     unsigned thread) {
    const unsigned cells = s.cells[group];
    const int end = s.member[group + 1];
    for (unsigned first = thread; first < cells; first += CELLS * THREADS) {
        Product value[CELLS];
        for (int c = 0; c < CELLS; c++) value[c] = one();
        for (int i = s.member[group]; i < end; i += MEMBERS) {
            T loaded[MEMBERS][CELLS];
#pragma unroll
            for (int m = 0; m < MEMBERS; m++) {
#pragma unroll
                for (int c = 0; c < CELLS; c++) loaded[m][c] = (T)one();
                if (i + m >= end) continue;
                unsigned at[CELLS];
                reach<CELLS>(s, part, i + m, first, THREADS, at);
#pragma unroll
                for (int c = 0; c < CELLS; c++)
                    if (first + c * THREADS < cells) loaded[m][c] = base[i + m][at[c]];
            }
#pragma unroll
            for (int m = 0; m < MEMBERS; m++)
#pragma unroll
                for (int c = 0; c < CELLS; c++) value[c] = times(value[c], loaded[m][c], s.bound);
        }
#pragma unroll
        for (int c = 0; c < CELLS; c++)
            if (first + c * THREADS < cells) table[first + c * THREADS] = (T)value[c];
    }
}

// Copies the local part of a group's only member, in vectors.
template <int COUNT>
__device__ __forceinline__ void copy(const Step& s, int group, const T* const* base, const Part* part, T* table,
                                     unsigned thread) {
    const unsigned vectors = s.cells[group] / WIDTH;
    const int input = s.member[group];
    for (unsigned first = thread; first < vectors; first += COUNT * THREADS) {
        unsigned at[COUNT];
        Cells loaded[COUNT];
        reach<COUNT>(s, part, input, first * WIDTH, THREADS * WIDTH, at);
#pragma unroll
        for (int c = 0; c < COUNT; c++)
            if (first + c * THREADS < vectors) loaded[c] = *reinterpret_cast<const Cells*>(base[input] + at[c]);
#pragma unroll
        for (int c = 0; c < COUNT; c++)
            if (first + c * THREADS < vectors)
                *reinterpret_cast<Cells*>(table + (first + c * THREADS) * WIDTH) = loaded[c];
    }
}

// Multiplies COUNT vectors of a shared table into the products.
template <int COUNT>
__device__ __forceinline__ void multiply(const Step& s, const unsigned char* memory, int group, const unsigned* at,
                                         Product value[COUNT][WIDTH]) {
    Cells cells[COUNT];
    if (WIDTH == 1 || s.wide >> group & 1) {
#pragma unroll
        for (int c = 0; c < COUNT; c++) cells[c] = *reinterpret_cast<const Cells*>(memory + at[c]);
    } else {
#pragma unroll
        for (int c = 0; c < COUNT; c++) {
            const T same = *reinterpret_cast<const T*>(memory + at[c]);
            for (int j = 0; j < WIDTH; j++) cells[c].v[j] = same;
        }
    }
#pragma unroll
    for (int c = 0; c < COUNT; c++)
        for (int j = 0; j < WIDTH; j++)
            value[c][j] = group ? times(value[c][j], cells[c].v[j], s.bound) : (Product)cells[c].v[j];
}

template <int COUNT> struct Offsets {
    unsigned at[COUNT];
};
template <> struct alignas(16) Offsets<UNROLLED> {
    unsigned at[UNROLLED];
};

// Adds the products of COUNT vectors of states.
template <int COUNT>
__device__ __forceinline__ void add(const Step& s, const unsigned char* memory, const unsigned (*own)[THREADS],
                                    const unsigned (*states)[STATES], const Place& turn, unsigned k, Acc* acc) {
    Product value[COUNT][WIDTH];
#pragma unroll 1
    for (int group = 0; group < s.groups; group += 2) {
        const int pair = group / 2;
        const unsigned base = own[pair][threadIdx.x] + turn.at[pair];
        const Offsets<COUNT> both = *reinterpret_cast<const Offsets<COUNT>*>(&states[pair][k]);
        unsigned low[COUNT], high[COUNT];
#pragma unroll
        for (int c = 0; c < COUNT; c++) {
            low[c] = (base + both.at[c]) & 0xffff;
            high[c] = (base + both.at[c]) >> 16;
        }
        multiply<COUNT>(s, memory, group, low, value);
        if (group + 1 < s.groups) multiply<COUNT>(s, memory, group + 1, high, value);
    }
#pragma unroll
    for (int c = 0; c < COUNT; c++)
        for (int j = 0; j < WIDTH; j++) acc[j] = plus(acc[j], value[c][j]);
}

__device__ __forceinline__ void clear(const Step& s, Acc* acc) {
    for (int j = 0; j < WIDTH; j++) acc[j] = start(s.bound);
}

__device__ __forceinline__ Acc total(const Acc* acc) {
    Acc sum = acc[0];
    for (int j = 1; j < WIDTH; j++) sum = merge(sum, acc[j]);
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, 3) bucket(const __grid_constant__ Step s) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ __align__(16) int4 copied[sizeof(Step) / sizeof(int4)];
    __shared__ __align__(16) unsigned states[PAIRS][STATES];
    __shared__ unsigned own[PAIRS][THREADS];
    __shared__ Place turns[TURNS];
    __shared__ const T* base[TABLES];
    __shared__ unsigned digit[AXES];
    __shared__ Acc sums[THREADS];
    T* const table = reinterpret_cast<T*>(memory);
    Part* const part = reinterpret_cast<Part*>(memory + s.room);
    const unsigned thread = threadIdx.x;
    const int inputs = s.member[s.groups], local = s.segment[LOCAL];

    // What each thread reads at another place is copied first, in whole lines: the bank of constants serves one
    // place at a time.
    const int4* argument = reinterpret_cast<const int4*>(&s);
    asm volatile("" : "+l"(argument));
    if (thread < sizeof(Step) / sizeof(int4)) copied[thread] = argument[thread];
    const Step& mine = *reinterpret_cast<const Step*>(copied);
    __syncthreads();
    write_digits(mine, BLOCKS, STEPS, blockIdx.x, digit);
#pragma unroll 1
    for (int e = thread; e < s.entry[inputs]; e += THREADS) {
        const int i = mine.axis[e];
        if (i < local) continue;
        int group = 0;
#pragma unroll
        for (int g = 1; g < GROUPS; g++) group += e >= s.entry[s.member[g]];
        const Axis& top = mine.axes[mine.top[e]];
        const unsigned below = inverse_of(mine.axes[i].inner[group / 2] >> group % 2 * 16 & 0xffff);
        const unsigned whole = (top.inner[group / 2] >> group % 2 * 16 & 0xffff) * top.size;
        part[e] = {below, inverse_of(whole), quotient(whole, below), mine.stride[e]};
    }
    if (thread < s.outputs) {
        Place place = {};
        locate(mine, OUTPUTS, thread, place);
        turns[thread] = place;
    }
    if (thread < s.states) {
        Place place = {};
        locate(mine, DEEP, thread, place);
#pragma unroll
        for (int p = 0; p < PAIRS; p++) states[p][thread] = place.at[p];
    }
    const unsigned output = s.deep_first ? thread / s.along : thread % s.across;
    const unsigned state = s.deep_first ? thread % s.along : thread / s.across;
    const bool idle = thread >= s.across * s.along;
    Place lane = {};
    locate(mine, OUTPUT_LANES, output, lane);
    locate(mine, DEEP_LANES, state, lane);
#pragma unroll
    for (int p = 0; p < PAIRS; p++) own[p][thread] = lane.at[p] + SIZE * (s.first[2 * p] | s.first[2 * p + 1] << 16);

    Acc acc[WIDTH];
    clear(s, acc);
    for (unsigned step = 0; step < s.steps; step++) {
        if (s.steps > 1) write_digits(mine, STEPS, LOCAL, step, digit);
        __syncthreads();
        if (thread < inputs) {
            i64 at = 0;
            const int end = mine.entry[thread] + mine.outer[thread];
#pragma unroll 1
            for (int e = mine.entry[thread]; e < end; e++) at += (i64)digit[mine.axis[e]] * mine.stride[e];
            base[thread] = mine.in[thread] + at;
        }
        __syncthreads();
        unsigned begin = 0;  // small groups go to different warps
        for (int g = 0; g < s.groups; g++) {
            const unsigned turn = (thread - begin) % THREADS;
            begin += s.cells[g];
            if (step && !(s.changing >> g & 1)) continue;
            if (s.copied >> g & 1) {
                copy<UNROLLED>(s, g, base, part, table + s.first[g], turn);
            } else if (s.cells[g] > 2 * THREADS) {
                join<UNROLLED, 1>(s, g, base, part, table + s.first[g], turn);
            } else {
                join<1, UNROLLED>(s, g, base, part, table + s.first[g], turn);
            }
        }
        __syncthreads();
        for (unsigned turn = 0; turn < s.outputs && !idle; turn++) {
            const Place& there = turns[turn];
            if (turn) clear(s, acc);
            unsigned k = 0;
            for (; k + UNROLLED <= s.states; k += UNROLLED) add<UNROLLED>(s, memory, own, states, there, k, acc);
            for (; k < s.states; k++) add<1>(s, memory, own, states, there, k, acc);
            if (s.along == 1 && step + 1 == s.steps) {
                i64 place = lane.out + there.out;
#pragma unroll 1
                for (int i = 0; i < s.segment[STEPS]; i++) place += digit[i] * s.axes[i].place;
                s.out[place] = finish(total(acc), s.bound);
            }
        }
        if (s.steps > 1) __syncthreads();
    }
    if (s.along == 1) return;
    const unsigned place = state * s.across + output;
    if (!idle) sums[place] = total(acc);
    for (int left = s.along; left > 1;) {
        const int share = (left + BRANCHES - 1) / BRANCHES;
        __syncthreads();
        if (!idle && state < share) {
            Acc sum = sums[place];
            for (int other = state + share; other < left; other += share)
                sum = merge(sum, sums[other * s.across + output]);
            sums[place] = sum;
        }
        left = share;
    }
    if (idle || state) return;
#pragma unroll 1
    for (int i = 0; i < s.segment[STEPS]; i++) lane.out += digit[i] * s.axes[i].place;
    s.out[lane.out] = finish(sums[place], s.bound);
}
