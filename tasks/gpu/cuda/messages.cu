// Both sweeps of a propagation in one launch. Blocks take items (a tile of a step's outputs, or a piece of the
// elimination of one) by ticket in an order in which tables are made before they are read, and wait for the tables
// that an item reads; so no launch and no barrier of the whole device stands between two steps.
//
// Sums of products are read as they were written, and what comes out is scaled by the maxima of what went in. The
// exponents of the largest and the least positive entry of every table prove that no product leaves the range of
// doubles; if they do not, the case is marked as failed. Minima of sums (energies, and costs as doubles) need none of
// that.

typedef unsigned u32;

constexpr bool SCALED = LAW == SUM_PRODUCT;

#define THREADS 128
#define SAFE 995  // 2^995 is e^690
#define UNROLLED_INPUTS 6
#define BLOCKS 6  // of a multiprocessor: more would leave too few registers to keep loads under way

enum { CONSTANT, FINDING, COMPUTED };

struct Head {
    u32 inputs, outputs, tile, pieces;
    u32 highs, piece_highs, lows;
    u32 lanes_out, lanes_low, out_fast;
    u32 out_axes, high_axes, low_axes;
    u32 table, first_tile;
    u32 out, scratch;         // lines from the start of a case's slab
    u32 group, case_outputs;  // cases that are computed together, the slowest axis of the outputs; outputs of each
    // words from the start of the record: its axes; what is known of the inputs; offsets of lows, of highs, and of outputs
    // if there are many inputs
    u32 axes_at, inputs_at, low_at, high_at, start_at;
};
struct Input {
    u32 kind, table, offset, need;  // offset: in lines, of findings in cells; need: tiles of its step
    int least;                      // exponent of the least positive entry, where that is known
};
// Axes of outputs, highs and lows follow, slowest first: size, magic and shift of the division by it, stride in the
// output, stride in each input.
#define AXIS 4
#define LINE 16ull  // cells that every table but a finding begins at a multiple of

struct Run {
    const uint4* items;  // record, its words, tile, piece
    const u32* records;
    const double* constants;
    double* slabs;
    u32* bounds;  // for each case and table: high word of the largest entry, complement of that of the least positive
    u32* done;     // for each group of cases and table: tiles that are ready
    u32* arrived;  // for each group of cases and tile in pieces
    u32* failed;   // for each case
    u32* next;
    u64 slab_cells;
    u32 items_count, groups, tables, tiles;
};

__device__ __forceinline__ u32 quotient(u32 n, const u32* axis) { return __umulhi(n, axis[1]) >> axis[2]; }

// The first of 64 bits: a double without most of its mantissa. No entry but 0 has the word 0.
__device__ __forceinline__ u32 high_word(double value) {
    const u32 word = (u32)((u64)__double_as_longlong(value) >> 32);
    return value > 0 && word == 0 ? 1 : word;
}
__device__ __forceinline__ double from_high_word(u32 word) { return __longlong_as_double((u64)word << 32); }
__device__ __forceinline__ int exponent_of(u32 word) { return (int)(word >> 20) - 1023; }

// Everything that this block has read and written comes before, and everything after it after (PTX 8.0, 8.7).
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

__device__ __forceinline__ u32 peek(const u32* at) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

// The record of the item that the block is at, and what it keeps beside it.
extern __shared__ __align__(16) u32 words[];

__device__ __forceinline__ const Head& head() { return *(const Head*)words; }
__device__ __forceinline__ const Input& input_of(u32 i) { return ((const Input*)(words + sizeof(Head) / 4))[i]; }
// Cases of a group; known to the compiler where there are no groups, since one case has no time to lose.
#ifdef GROUPED
__device__ __forceinline__ u32 group_size() { return head().group; }
#else
__device__ __forceinline__ constexpr u32 group_size() { return 1; }
#endif

// Kept for the inputs: the inverse of the scale in each case, where they start, the range in each case; and for each case
// the product of the inverses, and the bounds of the outputs.
__device__ __forceinline__ double& inverse_of(u32 i, u32 c) {
    return ((double*)(words + head().inputs_at))[i * group_size() + c];
}
__device__ __forceinline__ const double*& base_of(u32 i) {
    return ((const double**)(words + head().inputs_at))[head().inputs * group_size() + i];
}
__device__ __forceinline__ double& factor_at(u32 c) {
    return ((double*)(words + head().inputs_at))[head().inputs * (group_size() + 1) + c];
}
__device__ __forceinline__ int2& range_of(u32 i, u32 c) {
    const u32 before = (head().inputs + 1) * (group_size() + 1) - 1;
    return ((int2*)(words + head().inputs_at))[before + i * group_size() + c];
}
__device__ __forceinline__ u32* bounds_at(u32 c) { return words + head().low_at - 2 * group_size() + 2 * c; }

struct Item {
    u32 tile, piece, place;  // place: number of the group of cases
    __device__ __forceinline__ u32 first_high() const { return piece * head().piece_highs; }
    __device__ __forceinline__ u32 count_highs() const { return min(head().piece_highs, head().highs - first_high()); }
};

// Offsets of a cell of a group of axes in every input, and in the output.
template <int K> __device__ __forceinline__ u32 offsets(u32 n, u32 axes, u32 count, u32 (&at)[K]) {
    const u32 width = AXIS + head().inputs;
    u32 where = 0;
#pragma unroll 1
    for (u32 a = count; a-- > 0;) {
        const u32* axis = words + axes + a * width;
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
__device__ __forceinline__ u32 offset(u32 n, u32 axes, u32 count, u32 input) {
    const u32 width = AXIS + head().inputs;
    u32 at = 0;
#pragma unroll 1
    for (u32 a = count; a-- > 0;) {
        const u32* axis = words + axes + a * width;
        const u32 rest = a == 0 ? 0 : quotient(n, axis);
        at += (n - rest * axis[0]) * axis[AXIS + input];
        n = rest;
    }
    return at;
}

__device__ __forceinline__ u32 place_in_output(u32 output) {
    u32 none[1] = {};
    return offsets<1>(output, head().axes_at, head().out_axes, none);
}

__device__ __forceinline__ void fill_offsets(const Item& item) {
    const u32 width = AXIS + head().inputs;
    const u32 high_axes = head().axes_at + head().out_axes * width;
    const u32 low_axes = high_axes + head().high_axes * width;
    const u32 lows = head().lows, highs = item.count_highs(), first = item.first_high();
#pragma unroll 1
    for (u32 j = threadIdx.x; j < head().inputs * lows; j += THREADS) {
        const u32 i = j / lows;
        words[head().low_at + j] = offset(j - i * lows, low_axes, head().low_axes, i);
    }
#pragma unroll 1
    for (u32 j = threadIdx.x; j < head().inputs * highs; j += THREADS) {
        const u32 i = j / highs;
        words[head().high_at + j] = offset(first + j - i * highs, high_axes, head().high_axes, i);
    }
}

__device__ __forceinline__ double* slab_of(const Run& run, const Item& item) {
    return run.slabs + (u64)item.place * group_size() * run.slab_cells;
}

__device__ __forceinline__ u64 bounds_of(const Run& run, const Item& item, u32 table, u32 c) {
    return ((u64)item.place * group_size() + c) * run.tables + table;
}

// Wait until every input is ready. The bounds of the last input of this thread, in the first case, are on their way then.
__device__ __forceinline__ uint2 await_inputs(const Run& run, const Item& item) {
    uint2 bounds = {0, 0};
#pragma unroll 1
    for (u32 i = threadIdx.x; i < head().inputs; i += THREADS) {
        const Input& input = input_of(i);
        base_of(i) = input.kind == CONSTANT ? run.constants : slab_of(run, item);
        base_of(i) += input.kind == FINDING ? input.offset : LINE * input.offset;
        if (input.kind != COMPUTED) continue;
        while (peek(run.done + (u64)item.place * run.tables + input.table) < input.need) __nanosleep(20);
        fence();
        bounds = __ldcg((const uint2*)run.bounds + bounds_of(run, item, input.table, 0));
    }
    return bounds;
}

// The inverse of what scales each input, and its range.
__device__ __forceinline__ void scale_inputs(const Run& run, const Item& item, uint2 bounds) {
    const u32 inputs = head().inputs, all = inputs * group_size();
#pragma unroll 1
    for (u32 j = threadIdx.x; j < all; j += THREADS) {
        const u32 c = j / inputs, i = j - c * inputs;
        const Input& input = input_of(i);
        int2 range = {input.least, 0};
        double inverse = 1;
        if (input.kind == COMPUTED) {
            if (j + THREADS < all || c > 0)
                bounds = __ldcg((const uint2*)run.bounds + bounds_of(run, item, input.table, c));
            inverse = bounds.x ? 1 / from_high_word(bounds.x) : 0;
            range.x = bounds.x ? exponent_of(~bounds.y) : 0;
            range.y = bounds.x ? exponent_of(bounds.x) + 1 : 0;
        }
        inverse_of(i, c) = inverse;
        range_of(i, c) = {min(range.x, 0), max(range.y, 0)};
    }
}

// The product of all scales of a case, which is marked if the product of some entries may leave the doubles.
__device__ __forceinline__ double factor_of(const Run& run, const Item& item, u32 c, bool mark) {
    double factor = 1;
    int low = 0, high = 32 - __clz(head().highs) + 32 - __clz(head().lows);
#pragma unroll 1
    for (u32 i = 0; i < head().inputs; i++) {
        factor *= inverse_of(i, c);
        low += range_of(i, c).x;
        high += range_of(i, c).y;
    }
    if (mark && (low < -SAFE || high > SAFE)) atomicOr(run.failed + item.place * group_size() + c, 1u);
    return factor;
}

// Where an output starts in every input: in registers or, for any number of inputs, in shared memory.
template <int K> struct Start {
    u32 at[K];
    __device__ __forceinline__ u32 find(u32 output) {
#pragma unroll
        for (int i = 0; i < K; i++) at[i] = 0;
        return offsets<K>(output, head().axes_at, head().out_axes, at);
    }
};
template <> struct Start<0> {
    __device__ __forceinline__ u32 find(u32 output) {
#pragma unroll 1
        for (u32 i = 0; i < head().inputs; i++)
            words[head().start_at + i * THREADS + threadIdx.x] =
                offset(output, head().axes_at, head().out_axes, i);
        return place_in_output(output);
    }
};

// The sum of the products of a lane's share of the eliminated cells. Several loads are under way at a time.
template <int K> __device__ __forceinline__ double share(const Start<K>& start, u32 lane, u32 highs) {
    constexpr int AT_ONCE = K <= 3 ? 4 : K <= 6 ? 2 : 1;
    const u32 lows = head().lows, step = head().lanes_low;
    const u32* low = words + head().low_at;
    const u32* high = words + head().high_at;
    const double* base[K];
#pragma unroll
    for (int i = 0; i < K; i++) {
        base[i] = base_of(i);
        __builtin_assume(__isGlobal(base[i]));
    }
    double sum = zero(0);
#pragma unroll 1
    for (u32 h = 0; h < highs; h++) {
        u32 at[K];
#pragma unroll
        for (int i = 0; i < K; i++) at[i] = start.at[i] + high[i * highs + h];
#pragma unroll 1
        for (u32 l = lane; l < lows; l += AT_ONCE * step) {
            double value[AT_ONCE][K];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                const u32 cell = min(l + u * step, lows - 1);
#pragma unroll
                for (int i = 0; i < K; i++) value[u][i] = base[i][at[i] + low[i * lows + cell]];
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                double product = l + u * step < lows ? value[u][0] : zero(0);
#pragma unroll
                for (int i = 1; i < K; i++) product = times(product, value[u][i], 0);
                sum = plus(sum, product);
            }
        }
    }
    return sum;
}
template <> __device__ __forceinline__ double share<0>(const Start<0>&, u32 lane, u32 highs) {
    const u32* start = words + head().start_at + threadIdx.x;
    double sum = zero(0);
#pragma unroll 1
    for (u32 h = 0; h < highs; h++)
#pragma unroll 1
        for (u32 l = lane; l < head().lows; l += head().lanes_low) {
            double product = one();
#pragma unroll 4
            for (u32 i = 0; i < head().inputs; i++)
                product = times(product,
                                base_of(i)[start[i * THREADS] + words[head().high_at + i * highs + h] +
                                           words[head().low_at + i * head().lows + l]],
                                0);
            sum = plus(sum, product);
        }
    return sum;
}

// Add what the lanes of one output hold, always in the same order; the lane number 0 receives it.
__device__ __forceinline__ double added(double value, u32 lane, u32 lanes, u32 step, double* partial) {
    if (lanes == 1) return value;
    partial[threadIdx.x] = value;
    __syncthreads();
#pragma unroll 1
    for (u32 half = 1u << (31 - __clz(lanes - 1)); half > 0; half >>= 1) {
        if (lane < half && lane + half < lanes)
            partial[threadIdx.x] = plus(partial[threadIdx.x], partial[threadIdx.x + half * step]);
        __syncthreads();
    }
    value = partial[threadIdx.x];
    __syncthreads();
    return value;
}

__device__ __forceinline__ u32 largest_in_warp(u32 value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (int half = 16; half > 0; half >>= 1) value = max(value, __shfl_xor_sync(0xffffffffu, value, half));
    return value;
#endif
}

// What a thread found in its outputs; or, where there are several cases, the block in those of each.
struct Bounds {
    u32 top, bottom;
    __device__ __forceinline__ void take(double value, u32 c) {
        const u32 word = high_word(value);
        if (group_size() == 1) {
            top = max(top, word);
            if (word) bottom = max(bottom, ~word);
        } else if (word) {
            atomicMax(bounds_at(c), word);
            atomicMax(bounds_at(c) + 1, ~word);
        }
    }
};

struct Shared {
    double partial[THREADS];
    u32 ticket, is_last;
};

// Where a piece of the elimination for an output is kept.
__device__ __forceinline__ double* piece_at(const Run& run, const Item& item, u32 piece, u32 c, u32 output) {
    const u64 at = (u64)piece * head().case_outputs + (output - c * head().case_outputs);
    return slab_of(run, item) + c * run.slab_cells + LINE * head().scratch + at;
}

template <int K> __device__ __forceinline__ void process(const Run& run, const Item& item, Shared& shared) {
    const u32 t = threadIdx.x, lanes_out = head().lanes_out;
    const u32 first = item.tile * head().tile, count = min(head().tile, head().outputs - first);
    const bool used = t < lanes_out * head().lanes_low;
    const u32 out_lane = head().out_fast ? t % lanes_out : t / head().lanes_low;
    // threads without a lane count as one behind the last
    const u32 low_lane = !used ? head().lanes_low : head().out_fast ? t / lanes_out : t % head().lanes_low;
    const u32 step = head().out_fast ? lanes_out : 1;
    const u32 group = group_size();
    Bounds bounds = {0, 0};
    double factor = 0;
    for (u32 j = t; j < 2 * group; j += THREADS) bounds_at(0)[j] = 0;

    // what does not need the inputs comes before they are awaited
    Start<K> start;
    u32 where = 0;
    if (used && out_lane < count) where = start.find(first + out_lane);
    const uint2 input_bounds = await_inputs(run, item);
    __syncthreads();
#pragma unroll 1
    for (u32 round = 0; round < count; round += lanes_out) {
        const bool valid = used && round + out_lane < count;
        const u32 output = first + round + out_lane;
        if (round > 0 && valid) where = start.find(output);
        double sum = valid ? share<K>(start, low_lane, item.count_highs()) : zero(0);
        if (SCALED && round == 0) {
            scale_inputs(run, item, input_bounds);
            __syncthreads();
            if (group == 1) {
                factor = factor_of(run, item, 0, t == 0);
            } else {
                for (u32 c = t; c < group; c += THREADS) factor_at(c) = factor_of(run, item, c, true);
                __syncthreads();
            }
        }
        sum = added(sum, low_lane, head().lanes_low, step, shared.partial);
        if (!valid || low_lane != 0) continue;
        const u32 c = group == 1 ? 0 : output / head().case_outputs;
        if (head().pieces > 1) {
            *piece_at(run, item, item.piece, c, output) = sum;
        } else {
            if (SCALED) sum *= group == 1 ? factor : factor_at(c);
            slab_of(run, item)[LINE * head().out + where] = sum;
            if (SCALED) bounds.take(sum, c);
        }
    }
    if (head().pieces > 1) {
        __syncthreads();
        if (t == 0) {
            fence();
            u32* arrived = run.arrived + (u64)item.place * run.tiles + head().first_tile + item.tile;
            shared.is_last = atomicAdd(arrived, 1u) == head().pieces - 1;
            fence();
        }
        __syncthreads();
        // whoever comes last adds the pieces, in their order
        if (!shared.is_last) return;
#pragma unroll 1
        for (u32 round = 0; round < count; round += lanes_out) {
            const bool valid = used && round + out_lane < count;
            const u32 output = first + round + out_lane;
            const u32 c = group == 1 ? 0 : output / head().case_outputs;
            double sum = zero(0);
            if (valid)
#pragma unroll 4
                for (u32 p = low_lane; p < head().pieces; p += head().lanes_low)
                    sum = plus(sum, __ldcg(piece_at(run, item, p, c, output)));
            sum = added(sum, low_lane, head().lanes_low, step, shared.partial);
            if (!valid || low_lane != 0) continue;
            if (SCALED) sum *= group == 1 ? factor : factor_at(c);
            slab_of(run, item)[LINE * head().out + place_in_output(output)] = sum;
            if (SCALED) bounds.take(sum, c);
        }
    }
    if (SCALED && group == 1) {
        bounds.top = largest_in_warp(bounds.top);
        bounds.bottom = largest_in_warp(bounds.bottom);
        if (t % 32 == 0) {
            atomicMax(bounds_at(0), bounds.top);
            atomicMax(bounds_at(0) + 1, bounds.bottom);
        }
    }
    __syncthreads();
    for (u32 c = t; SCALED && c < group; c += THREADS) {
        u32* found = run.bounds + 2 * bounds_of(run, item, head().table, c);
        atomicMax(found, bounds_at(c)[0]);
        atomicMax(found + 1, bounds_at(c)[1]);
    }
    if (group > 1) __syncthreads();
    if (t == 0) {
        fence();
        atomicAdd(run.done + (u64)item.place * run.tables + head().table, 1u);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) propagate(const Run run) {
    __shared__ Shared shared;
    const u32 t = threadIdx.x;
    const u32 tickets = run.items_count * run.groups;
    for (;;) {
        if (t == 0) shared.ticket = atomicAdd(run.next, 1u);
        __syncthreads();
        const u32 mine = shared.ticket;
        if (mine >= tickets) return;
        const u32 number = run.groups == 1 ? mine : mine / run.groups;
        const uint4 entry = run.items[number];
        const Item item = {entry.z, entry.w, mine - number * run.groups};
        for (u32 w = t; w < entry.y; w += THREADS) words[w] = run.records[entry.x + w];
        __syncthreads();
        fill_offsets(item);
        switch (head().inputs) {
            case 1: process<1>(run, item, shared); break;
            case 2: process<2>(run, item, shared); break;
            case 3: process<3>(run, item, shared); break;
            case 4: process<4>(run, item, shared); break;
            case 5: process<5>(run, item, shared); break;
            case UNROLLED_INPUTS: process<UNROLLED_INPUTS>(run, item, shared); break;
            default: process<0>(run, item, shared);
        }
    }
}

// Bring the findings of one case from the host's memory, and set the counters of all to 0.
extern "C" __global__ void __launch_bounds__(THREADS)
    begin(const double* findings, double* slab, u32 cells, u32* control, u64 control_words) {
    const u64 first = (u64)blockIdx.x * THREADS + threadIdx.x, step = (u64)gridDim.x * THREADS;
    for (u64 j = first; j < cells; j += step) slab[j] = findings[j];
    for (u64 j = first; j < control_words; j += step) control[j] = 0;
}

struct Answers {
    const uint4* targets;  // cells from the start of the slab, number of cells, where they go, nothing
    const u32* scaled;     // tables that others were divided by
    const u32* roots;      // single cells, from the start of the slab
    const double* slabs;
    const u32* bounds;
    const u32* failed;
    double* answers;  // for each case: the beliefs, ln of the total, whether the case failed; may be in the host's memory
    u64 slab_cells, answer_cells;
    u32 targets_count, scaled_count, roots_count, cases, tables;
};

__device__ __forceinline__ double sum_in_warp(double value) {
    for (int half = 16; half > 0; half >>= 1) value += __shfl_xor_sync(0xffffffffu, value, half);
    return value;
}

// A warp for each case and target: its belief, where it is one of sums scaled to sum 1; and one for each case's total, of
// sums its logarithm.
extern "C" __global__ void __launch_bounds__(THREADS) answer(const Answers run) {
    const u64 warp = (u64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const u64 place = warp / (run.targets_count + 1);
    const u32 number = (u32)(warp - place * (run.targets_count + 1));
    if (place >= run.cases) return;
    const double* slab = run.slabs + place * run.slab_cells;
    double* answers = run.answers + place * run.answer_cells;
    if (number == run.targets_count) {
        double sum = 0;
        for (u32 j = lane; j < run.roots_count; j += 32) {
            const double root = slab[run.roots[j]];
            sum += SCALED ? log(root) : root;
        }
        for (u32 j = lane; j < run.scaled_count; j += 32)
            sum += log(from_high_word(run.bounds[2 * (place * run.tables + run.scaled[j])]));
        sum = sum_in_warp(sum);
        if (lane == 0) {
            answers[run.answer_cells - 2] = sum;
            answers[run.answer_cells - 1] = run.failed[place];
        }
        return;
    }
    const uint4 target = run.targets[number];
    const double* values = slab + target.x;
    if (!SCALED) {
        for (u32 j = lane; j < target.y; j += 32) answers[target.z + j] = values[j];
        return;
    }
    u32 word = 0;
    for (u32 j = lane; j < target.y; j += 32) word = max(word, high_word(values[j]));
    word = largest_in_warp(word);
    const double inverse = word ? 1 / from_high_word(word) : 0;
    double sum = 0;
    for (u32 j = lane; j < target.y; j += 32) sum += values[j] * inverse;
    sum = sum_in_warp(sum);
    for (u32 j = lane; j < target.y; j += 32) answers[target.z + j] = values[j] * inverse / (word ? sum : 1);
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
