// Both sweeps of a propagation in one launch. Blocks take items (a tile of a step's outputs, or a piece of the
// elimination of one) by ticket in an order in which tables are made before they are read, and wait for the tables
// that an item reads; so no launch and no barrier of the whole device stands between two steps.
//
// Tables are read as they were written, and what comes out is scaled by the maxima of what went in. The exponents
// of the largest and the least positive entry of every table prove that no product leaves the range of doubles; if
// they do not, the case is marked as failed.

typedef unsigned u32;

#define THREADS 128
#define SAFE 995  // 2^995 is e^690

enum { CONSTANT, FINDING, COMPUTED };

struct Head {
    u32 inputs, outputs, tile, pieces;
    u32 highs, piece_highs, lows, unused;
    u32 lanes_out, lanes_low, out_fast, table;
    u32 out_axes, high_axes, low_axes, first_tile;
    u32 out, scratch;  // cells from the start of the case's slab
    u32 low_at, tail;  // words from the start of the record: offsets of lows, and what follows the record
};
struct Input {
    u32 kind, table, offset, need;  // need: tiles of its step
    int least;                      // exponent of the least positive entry, where that is known
};
// Axes of outputs, highs and lows follow, slowest first: size, magic and shift of the division by it, stride in the
// output, stride in each input.
#define AXIS 4

struct Run {
    const uint4* items;  // record, its words, tile, piece
    const u32* records;
    const double* constants;
    double* slabs;
    u64* bounds;  // for each case and table: bits of the largest entry, complement of those of the least positive
    u32* done;    // for each case and table: tiles that are ready
    u32* arrived;  // for each case and tile in pieces
    u32* failed;   // for each case
    u32* next;
    u64 slab_cells;
    u32 items_count, cases, tables, tiles;
};

__device__ __forceinline__ u32 quotient(u32 n, const u32* axis) { return __umulhi(n, axis[1]) >> axis[2]; }

__device__ __forceinline__ int exponent_of(u64 bits) { return (int)(bits >> 52) - 1023; }

// A block's view of its item.
struct Item {
    const Head* head;
    const Input* inputs;
    const u32* axes;
    u32 width, tile, piece, first_high, count_highs;
    double* slab;
    double* inverse;
    int* range;
    const double** base;
    u32* low;
    u32* high;
    u32* at;
};

// Offsets of a cell of one group of axes in every input, and in the output.
template <int K>
__device__ __forceinline__ u32 offsets(u32 n, const u32* axes, u32 count, u32 width, u32 (&at)[K]) {
    u32 where = 0;
    for (u32 a = count; a-- > 0;) {
        const u32* axis = axes + a * width;
        const u32 rest = a == 0 ? 0 : quotient(n, axis);
        const u32 digit = n - rest * axis[0];
        where += digit * axis[3];
#pragma unroll
        for (int i = 0; i < K; i++) at[i] += digit * axis[AXIS + i];
        n = rest;
    }
    return where;
}

// The same for a single input.
__device__ __forceinline__ u32 offset(u32 n, const u32* axes, u32 count, u32 width, u32 input) {
    u32 at = 0;
    for (u32 a = count; a-- > 0;) {
        const u32* axis = axes + a * width;
        const u32 rest = a == 0 ? 0 : quotient(n, axis);
        at += (n - rest * axis[0]) * axis[AXIS + input];
        n = rest;
    }
    return at;
}

__device__ __forceinline__ void fill_offsets(const Item& item) {
    const Head& head = *item.head;
    const u32* high_axes = item.axes + head.out_axes * item.width;
    const u32* low_axes = high_axes + head.high_axes * item.width;
    for (u32 j = threadIdx.x; j < head.inputs * head.lows; j += THREADS) {
        const u32 i = j / head.lows;
        item.low[j] = offset(j - i * head.lows, low_axes, head.low_axes, item.width, i);
    }
    for (u32 j = threadIdx.x; j < head.inputs * item.count_highs; j += THREADS) {
        const u32 i = j / item.count_highs;
        item.high[j] = offset(item.first_high + j - i * item.count_highs, high_axes, head.high_axes, item.width, i);
    }
}

// Wait until every input is ready, and read its bounds.
__device__ __forceinline__ void await_inputs(const Run& run, const Item& item, u32 place) {
    for (u32 i = threadIdx.x; i < item.head->inputs; i += THREADS) {
        const Input& input = item.inputs[i];
        int least = input.least, largest = 0;
        double inverse = 1;
        if (input.kind == COMPUTED) {
            const u64 at = (u64)place * run.tables + input.table;
            const volatile u32* done = run.done + at;
            while (*done < input.need) __nanosleep(32);
            __threadfence();
            const u64 top = __ldcg(run.bounds + 2 * at), bottom = ~__ldcg(run.bounds + 2 * at + 1);
            if (top) {
                inverse = 1 / __longlong_as_double(top);
                least = exponent_of(bottom);
                largest = exponent_of(top) + 1;
            } else {
                inverse = least = 0;
            }
        }
        item.inverse[i] = inverse;
        item.range[2 * i] = min(least, 0);
        item.range[2 * i + 1] = max(largest, 0);
        item.base[i] = (input.kind == CONSTANT ? run.constants : item.slab) + input.offset;
    }
}

// The product of a thread's share of the eliminated cells, summed, for output number `output`; `where` receives its
// offset in the output.
template <int K>
__device__ __forceinline__ double share(const Item& item, u32 output, u32 lane, u32& where) {
    const Head& head = *item.head;
    u32 start[K] = {};
    where = offsets<K>(output, item.axes, head.out_axes, item.width, start);
    const double* base[K];
#pragma unroll
    for (int i = 0; i < K; i++) base[i] = item.base[i];
    double sum = 0;
    for (u32 h = 0; h < item.count_highs; h++) {
        u32 at[K];
#pragma unroll
        for (int i = 0; i < K; i++) at[i] = start[i] + item.high[i * item.count_highs + h];
#pragma unroll 4
        for (u32 l = lane; l < head.lows; l += head.lanes_low) {
            double product = base[0][at[0] + item.low[l]];
#pragma unroll
            for (int i = 1; i < K; i++) product *= base[i][at[i] + item.low[i * head.lows + l]];
            sum += product;
        }
    }
    return sum;
}

// The same for any number of inputs.
template <>
__device__ __forceinline__ double share<0>(const Item& item, u32 output, u32 lane, u32& where) {
    const Head& head = *item.head;
    u32 none[1] = {};
    where = offsets<1>(output, item.axes, head.out_axes, item.width, none);
    u32* start = item.at + threadIdx.x;
    for (u32 i = 0; i < head.inputs; i++)
        start[i * THREADS] = offset(output, item.axes, head.out_axes, item.width, i);
    double sum = 0;
    for (u32 h = 0; h < item.count_highs; h++)
        for (u32 l = lane; l < head.lows; l += head.lanes_low) {
            double product = 1;
            for (u32 i = 0; i < head.inputs; i++)
                product *= item.base[i][start[i * THREADS] + item.high[i * item.count_highs + h] +
                                        item.low[i * head.lows + l]];
            sum += product;
        }
    return sum;
}

__device__ __forceinline__ double share_of(const Item& item, u32 output, u32 lane, u32& where) {
    switch (item.head->inputs) {
        case 1: return share<1>(item, output, lane, where);
        case 2: return share<2>(item, output, lane, where);
        case 3: return share<3>(item, output, lane, where);
        case 4: return share<4>(item, output, lane, where);
        case 5: return share<5>(item, output, lane, where);
        case 6: return share<6>(item, output, lane, where);
        default: return share<0>(item, output, lane, where);
    }
}

// Add what the lanes of one output hold, always in the same order; the lane number 0 receives it.
__device__ __forceinline__ double added(double value, u32 lane, u32 lanes, u32 step, double* partial) {
    if (lanes == 1) return value;
    partial[threadIdx.x] = value;
    __syncthreads();
    for (u32 half = 1u << (31 - __clz(lanes - 1)); half > 0; half >>= 1) {
        if (lane < half && lane + half < lanes) partial[threadIdx.x] += partial[threadIdx.x + half * step];
        __syncthreads();
    }
    value = partial[threadIdx.x];
    __syncthreads();
    return value;
}

__device__ __forceinline__ u64 largest_in_warp(u64 value) {
    for (int half = 16; half > 0; half >>= 1) {
        const u64 other = __shfl_xor_sync(0xffffffffu, value, half);
        value = other > value ? other : value;
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS, 8) propagate(const Run run) {
    extern __shared__ uint4 dynamic[];
    __shared__ double partial[THREADS];
    __shared__ u64 found[2][THREADS / 32];
    __shared__ u32 ticket, is_last;
    u32* shared = (u32*)dynamic;
    const u32 t = threadIdx.x;
    const u32 tickets = run.items_count * run.cases;
    for (;;) {
        if (t == 0) ticket = atomicAdd(run.next, 1u);
        __syncthreads();
        const u32 mine = ticket;
        if (mine >= tickets) return;
        const u32 number = run.cases == 1 ? mine : mine / run.cases;
        const u32 place = mine - number * run.cases;
        const uint4 entry = run.items[number];
        for (u32 w = t; w < entry.y; w += THREADS) shared[w] = run.records[entry.x + w];
        __syncthreads();

        const Head& head = *(const Head*)shared;
        Item item;
        item.head = &head;
        item.inputs = (const Input*)(&head + 1);
        item.axes = (const u32*)(item.inputs + head.inputs);
        item.width = AXIS + head.inputs;
        item.tile = entry.z;
        item.piece = entry.w;
        item.first_high = item.piece * head.piece_highs;
        item.count_highs = min(head.piece_highs, head.highs - item.first_high);
        item.slab = run.slabs + place * run.slab_cells;
        item.inverse = (double*)(shared + head.tail);
        item.base = (const double**)(item.inverse + head.inputs);
        item.range = (int*)(item.base + head.inputs);
        item.low = shared + head.low_at;
        item.high = item.low + head.inputs * head.lows;
        item.at = item.high + head.inputs * head.piece_highs;
        fill_offsets(item);
        await_inputs(run, item, place);
        __syncthreads();

        double factor = 1;
        int low = 0, high = 32 - __clz(head.highs) + 32 - __clz(head.lows);
        for (u32 i = 0; i < head.inputs; i++) {
            factor *= item.inverse[i];
            low += item.range[2 * i];
            high += item.range[2 * i + 1];
        }
        if (t == 0 && (low < -SAFE || high > SAFE)) atomicOr(run.failed + place, 1u);

        const u32 first = item.tile * head.tile, count = min(head.tile, head.outputs - first);
        const u32 out_lane = head.out_fast ? t % head.lanes_out : t / head.lanes_low;
        const bool used = t < head.lanes_out * head.lanes_low;
        // threads without a lane count as one behind the last
        const u32 low_lane = !used ? head.lanes_low : head.out_fast ? t / head.lanes_out : t % head.lanes_low;
        const u32 step = head.out_fast ? head.lanes_out : 1;
        double* scratch = item.slab + head.scratch;
        double* out = item.slab + head.out;
        u64 top = 0, bottom = 0;
        for (u32 round = 0; round < count; round += head.lanes_out) {
            const bool valid = used && round + out_lane < count;
            const u32 output = first + round + out_lane;
            u32 where = 0;
            double sum = valid ? share_of(item, output, low_lane, where) : 0;
            sum = added(sum, low_lane, head.lanes_low, step, partial);
            if (!valid || low_lane != 0) continue;
            if (head.pieces > 1) {
                scratch[(u64)item.piece * head.outputs + output] = sum;
                continue;
            }
            const double value = sum * factor;
            out[where] = value;
            const u64 bits = __double_as_longlong(value);
            top = max(top, bits);
            if (bits) bottom = max(bottom, ~bits);
        }
        if (head.pieces > 1) {
            __syncthreads();
            if (t == 0) {
                __threadfence();
                is_last = atomicAdd(run.arrived + (u64)place * run.tiles + head.first_tile + item.tile, 1u) ==
                          head.pieces - 1;
                __threadfence();
            }
            __syncthreads();
            // whoever comes last adds the pieces, in their order
            if (!is_last) continue;
            for (u32 round = 0; round < count; round += head.lanes_out) {
                const bool valid = used && round + out_lane < count;
                const u32 output = first + round + out_lane;
                double sum = 0;
                if (valid)
                    for (u32 p = low_lane; p < head.pieces; p += head.lanes_low)
                        sum += __ldcg(scratch + (u64)p * head.outputs + output);
                sum = added(sum, low_lane, head.lanes_low, step, partial);
                if (!valid || low_lane != 0) continue;
                u32 none[1] = {};
                const double value = sum * factor;
                out[offsets<1>(output, item.axes, head.out_axes, item.width, none)] = value;
                const u64 bits = __double_as_longlong(value);
                top = max(top, bits);
                if (bits) bottom = max(bottom, ~bits);
            }
        }
        top = largest_in_warp(top);
        bottom = largest_in_warp(bottom);
        if (t % 32 == 0) {
            found[0][t / 32] = top;
            found[1][t / 32] = bottom;
        }
        __syncthreads();
        if (t == 0) {
            const u64 at = (u64)place * run.tables + head.table;
            for (u32 w = 1; w < THREADS / 32; w++) {
                top = max(top, found[0][w]);
                bottom = max(bottom, found[1][w]);
            }
            atomicMax(run.bounds + 2 * at, top);
            atomicMax(run.bounds + 2 * at + 1, bottom);
            __threadfence();
            atomicAdd(run.done + at, 1u);
        }
    }
}

struct Answers {
    const uint4* targets;  // cells from the start of the slab, number of cells, where they go, nothing
    const u32* logs;       // tables whose maxima make up the total
    const double* slabs;
    const u64* bounds;
    const u32* failed;
    double* answers;  // for each case: the beliefs, ln of the total, whether the case failed
    u64 slab_cells, answer_cells;
    u32 targets_count, logs_count, cases, tables;
};

__device__ __forceinline__ double sum_in_warp(double value) {
    for (int half = 16; half > 0; half >>= 1) value += __shfl_xor_sync(0xffffffffu, value, half);
    return value;
}

// A warp for each case and target: its belief, scaled to sum 1; and one for each case's total.
extern "C" __global__ void __launch_bounds__(THREADS) answer(const Answers run) {
    const u64 warp = (u64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const u64 place = warp / (run.targets_count + 1);
    const u32 number = (u32)(warp - place * (run.targets_count + 1));
    if (place >= run.cases) return;
    double* answers = run.answers + place * run.answer_cells;
    if (number == run.targets_count) {
        double sum = 0;
        for (u32 j = lane; j < run.logs_count; j += 32)
            sum += log(__longlong_as_double(run.bounds[2 * (place * run.tables + run.logs[j])]));
        sum = sum_in_warp(sum);
        if (lane == 0) {
            answers[run.answer_cells - 2] = sum;
            answers[run.answer_cells - 1] = run.failed[place];
        }
        return;
    }
    const uint4 target = run.targets[number];
    const double* values = run.slabs + place * run.slab_cells + target.x;
    u64 bits = 0;
    for (u32 j = lane; j < target.y; j += 32) bits = max(bits, (u64)__double_as_longlong(values[j]));
    bits = largest_in_warp(bits);
    const double top = bits ? __longlong_as_double(bits) : 1;
    double sum = 0;
    for (u32 j = lane; j < target.y; j += 32) sum += values[j] / top;
    sum = sum_in_warp(sum);
    for (u32 j = lane; j < target.y; j += 32) answers[target.z + j] = values[j] / top / (bits ? sum : 1);
}

// Findings of many cases: a state, or -1 where nothing is observed, becomes an indicator over the states.
extern "C" __global__ void __launch_bounds__(THREADS)
    observe(const u32* columns, const double* common, const int* states, double* slabs, u64 slab_cells, u32 cells,
            u32 cases) {
    const u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    const u64 place = at / cells;
    const u32 cell = (u32)(at - place * cells);
    if (place >= cases) return;
    double value = common[cell];
    const u32 column = columns[2 * cell];
    if (column) {
        const int state = states[(u64)(column - 1) * cases + place];
        value = state == -1 || state == (int)columns[2 * cell + 1];
    }
    slabs[place * slab_cells + cell] = value;
}
