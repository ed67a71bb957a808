// States of several axes in fields of one number, of as many bits as they need, found once for all tables: an array of
// them would be memory of its own for each thread that the device can hold.

// The bits below the field of each axis, by one thread each; `size` is known to all.
__device__ __forceinline__ void fill_shifts(int* shift, const int* size, int many) {
    if (threadIdx.x < many) {
        int bits = 0;
        for (int l = threadIdx.x + 1; l < many; l++) bits += 32 - __clz(size[l] - 1);
        shift[threadIdx.x] = bits;
    }
}

// The states of axes from `first` to `many` at a cell of these, the last one's varying fastest.
__device__ __forceinline__ u64 fields(unsigned cell, const int* size, const int* shift, int many, int first = 0) {
    u64 found = 0;
    for (int l = many - 1; l >= first; l--) {
        const unsigned above = cell / size[l];
        found |= (u64)(cell - above * size[l]) << shift[l];
        cell = above;
    }
    return found;
}

// How far the cell of a table at some states is from that of their first ones.
template <typename S>
__device__ __forceinline__ i64 distance(const S* strides, u64 states, const int* shift, int many) {
    i64 at = 0;
    for (int l = 0; l < many; l++) {
        const u64 below = l ? (1ull << (shift[l - 1] - shift[l])) - 1 : ~0ull;
        at += (i64)(states >> shift[l] & below) * strides[l];
    }
    return at;
}
