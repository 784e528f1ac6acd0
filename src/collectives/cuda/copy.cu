// Copies many pieces of memory in one launch: row y of the grid copies piece y. MOST is the maximum number of pieces.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Copies {
    u64 from[MOST];
    u64 to[MOST];
    u64 bytes[MOST];
};

// Copies in steps of one type, and the remainder byte by byte.
template <class Step> void copy_by(const char *from, char *to, u64 bytes) {
    const u64 steps = bytes / sizeof(Step), stride = u64(gridDim.x) * blockDim.x;
    const u64 me = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const Step *source = reinterpret_cast<const Step *>(from);
    Step *target = reinterpret_cast<Step *>(to);
    u64 at = me;
    for (; at + 3 * stride < steps; at += 4 * stride) {
        Step a = source[at], b = source[at + stride], c = source[at + 2 * stride], d = source[at + 3 * stride];
        target[at] = a;
        target[at + stride] = b;
        target[at + 2 * stride] = c;
        target[at + 3 * stride] = d;
    }
    for (; at < steps; at += stride) target[at] = source[at];
    if (steps * sizeof(Step) + me < bytes) to[steps * sizeof(Step) + me] = from[steps * sizeof(Step) + me];
}

extern "C" __global__ void __launch_bounds__(256) copy(const __grid_constant__ Copies copies) {
    const u64 from = copies.from[blockIdx.y], to = copies.to[blockIdx.y], bytes = copies.bytes[blockIdx.y];
    const char *source = reinterpret_cast<const char *>(from);
    char *target = reinterpret_cast<char *>(to);
    const u64 both = from | to;
    if (both % 16 == 0) copy_by<uint4>(source, target, bytes);
    else if (both % 8 == 0) copy_by<uint2>(source, target, bytes);
    else if (both % 4 == 0) copy_by<u32>(source, target, bytes);
    else if (both % 2 == 0) copy_by<unsigned short>(source, target, bytes);
    else copy_by<char>(source, target, bytes);
}
