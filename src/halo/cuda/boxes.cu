// Copies and fills boxes of strided memory or, with a TYPE, sums them. The structs have the layout of those in job.rs.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define OUTER 7
#define REPEATS 4
#define ARRAYS 34

// Units of a long row per warp.
#define CHUNK 1024u
// Units of short rows per block.
#define FLAT 2048u
// Units that each thread reads before it writes the first.
#define AHEAD 4
#define FAR_AHEAD 8

#define FILLS 1u
#define SHORT 2u
#define WIDE 4u

struct BoxAddress {
    u64 address; // an offset in the array, or an address if there is none
    u64 flip;    // distance to the second of two buffers
    i64 step;    // bytes from one unit of a row to the next
    i64 strides[OUTER]; // bytes from row to row, the fastest dimension first
    u32 array;   // 0 for none, else one plus its number
    u32 unused;
};

struct Frame {
    u32 extents[OUTER]; // of the row dimensions, the fastest first
    u32 outer;          // the number of row dimensions
    u32 rows;
    u32 length;         // units in a row
    u32 first;          // index of the first block
    u32 chunks;         // chunks per long row
    u32 turns;          // chunks per warp
    u32 unit;           // bytes
    u32 flags;
    u32 unused;
};

struct CopyJob {
    BoxAddress from;
    BoxAddress to;
    Frame frame;
    uint4 pattern;
};

struct SumJob {
    BoxAddress to;
    Frame frame;
    u32 source; // index of the first in the list
    u32 sources;
};

struct SumSource {
    BoxAddress from;
    i64 strides[REPEATS]; // bytes between elements that are summed in sequence, the slowest first
    u32 repeats[REPEATS];
    u32 flags;
    u32 unused;
};

struct Arrays {
    u64 address[ARRAYS];
};

static __device__ __forceinline__ u8* start(const BoxAddress& place, const Arrays& arrays, u32 parity) {
    u64 base = place.array ? arrays.address[place.array - 1] : (parity ? place.flip : 0);
    return (u8*)(base + place.address);
}

// The offsets of a row from the first one, on two sides.
static __device__ __forceinline__ void row_offsets(
    const Frame& frame, u32 row, const i64* a, const i64* b, i64& in_a, i64& in_b
) {
    in_a = 0;
    in_b = 0;
#pragma unroll 1
    for (u32 d = 0; d < OUTER; d++) {
        if (d + 1 >= frame.outer) {
            if (frame.outer) {
                in_a += a[d] * (i64)row;
                in_b += b[d] * (i64)row;
            }
            return;
        }
        u32 rest = row / frame.extents[d];
        u32 index = row - rest * frame.extents[d];
        in_a += a[d] * (i64)index;
        in_b += b[d] * (i64)index;
        row = rest;
    }
}

// The job that a block works on.
template <typename Job>
static __device__ __forceinline__ const Job& job_of(const Job* jobs, u32 count, u32 block) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (jobs[middle].frame.first <= block) low = middle;
        else high = middle;
    }
    return jobs[low];
}

#ifndef TYPE

template <typename Unit>
static __device__ __forceinline__ void copy_long(const CopyJob& job, const u8* from, u8* to, u32 block) {
    const Frame& frame = job.frame;
    u32 lane = threadIdx.x & 31;
    u32 item = (block * (blockDim.x >> 5) + (threadIdx.x >> 5)) * frame.turns;
    u32 items = frame.rows * frame.chunks;
    u32 end = item + frame.turns < items ? item + frame.turns : items;
    bool fills = frame.flags & FILLS;
    Unit value = *(const Unit*)&job.pattern;
    for (; item < end; item++) {
        u32 row = item / frame.chunks;
        u32 begin = (item - row * frame.chunks) * CHUNK;
        u32 count = frame.length - begin < CHUNK ? frame.length - begin : CHUNK;
        i64 in_from, in_to;
        row_offsets(frame, row, job.from.strides, job.to.strides, in_from, in_to);
        const Unit* source = (const Unit*)(from + in_from) + begin;
        Unit* target = (Unit*)(to + in_to) + begin;
        if (fills) {
            for (u32 at = lane; at < count; at += 32) target[at] = value;
            continue;
        }
        const u32 ahead = sizeof(Unit) > 8 ? AHEAD : FAR_AHEAD;
        u32 at = lane;
        for (; at + 32 * (ahead - 1) < count; at += 32 * ahead) {
            Unit held[ahead];
#pragma unroll
            for (u32 k = 0; k < ahead; k++) held[k] = source[at + 32 * k];
#pragma unroll
            for (u32 k = 0; k < ahead; k++) target[at + 32 * k] = held[k];
        }
        for (; at < count; at += 32) target[at] = source[at];
    }
}

template <typename Unit>
static __device__ __forceinline__ void copy_short(const CopyJob& job, const u8* from, u8* to, u32 block) {
    const Frame& frame = job.frame;
    u32 units = frame.rows * frame.length;
    bool fills = frame.flags & FILLS;
    Unit value = *(const Unit*)&job.pattern;
    u32 end = block * FLAT + FLAT < units ? block * FLAT + FLAT : units;
    for (u32 first = block * FLAT + threadIdx.x; first < end; first += AHEAD * blockDim.x) {
        Unit held[AHEAD];
        u8* targets[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) {
            u32 unit = first + k * blockDim.x;
            targets[k] = 0;
            if (unit < end) {
                u32 row = unit / frame.length;
                i64 within = unit - row * frame.length;
                i64 in_from, in_to;
                row_offsets(frame, row, job.from.strides, job.to.strides, in_from, in_to);
                targets[k] = to + in_to + within * job.to.step;
                held[k] = fills ? value : *(const Unit*)(from + in_from + within * job.from.step);
            }
        }
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) {
            if (targets[k]) *(Unit*)targets[k] = held[k];
        }
    }
}

template <typename Unit>
static __device__ __forceinline__ void copy_box(const CopyJob& job, const Arrays& arrays, u32 parity, u32 block) {
    const u8* from = start(job.from, arrays, parity);
    u8* to = start(job.to, arrays, parity);
    if (job.frame.flags & SHORT) copy_short<Unit>(job, from, to, block);
    else copy_long<Unit>(job, from, to, block);
}

extern "C" __global__ void __launch_bounds__(256)
copy_boxes(const CopyJob* __restrict__ jobs, u32 count, u32 parity, Arrays arrays) {
    const CopyJob& job = job_of(jobs, count, blockIdx.x);
    u32 block = blockIdx.x - job.frame.first;
    switch (job.frame.unit) {
    case 16: return copy_box<uint4>(job, arrays, parity, block);
    case 8: return copy_box<u64>(job, arrays, parity, block);
    case 4: return copy_box<u32>(job, arrays, parity, block);
    case 2: return copy_box<u16>(job, arrays, parity, block);
    default: return copy_box<u8>(job, arrays, parity, block);
    }
}

#else

// Types as stored and as summed: half types in single precision, rounded once; integers wrap.
template <typename Type>
struct Plain {
    typedef Type Stored;
    typedef Type Wide;
    static __device__ Wide widen(Stored x) { return x; }
    static __device__ Stored narrow(Wide x) { return x; }
};

// Half types, which halves.cu converts.
template <typename Type>
struct Half {
    typedef Type Stored;
    typedef float Wide;
    static __device__ Wide widen(Stored x) { return widen_half(x); }
    static __device__ Stored narrow(Wide x) { return narrow_half<Type>(x); }
};

// For each element of a box, the sum of its sources, in order.
template <typename Type>
static __device__ __forceinline__ void sum_box(
    const SumJob* jobs, u32 count, const SumSource* sources, u32 parity, const Arrays& arrays
) {
    const SumJob& job = job_of(jobs, count, blockIdx.x);
    const Frame& frame = job.frame;
    u32 units = frame.rows * frame.length;
    u8* to = start(job.to, arrays, parity);
    u32 begin = (blockIdx.x - frame.first) * FLAT;
    u32 end = begin + FLAT < units ? begin + FLAT : units;
    for (u32 unit = begin + threadIdx.x; unit < end; unit += blockDim.x) {
        u32 row = unit / frame.length;
        i64 within = unit - row * frame.length;
        typename Type::Wide sum = 0;
        i64 in_from, in_to;
        for (u32 s = 0; s < job.sources; s++) {
            const SumSource& source = sources[job.source + s];
            row_offsets(frame, row, source.from.strides, job.to.strides, in_from, in_to);
            const u8* from = start(source.from, arrays, parity) + in_from + within * source.from.step;
            for (u32 a = 0; a < source.repeats[0]; a++)
                for (u32 b = 0; b < source.repeats[1]; b++)
                    for (u32 c = 0; c < source.repeats[2]; c++)
                        for (u32 d = 0; d < source.repeats[3]; d++) {
                            i64 at = a * source.strides[0] + b * source.strides[1] + c * source.strides[2]
                                + d * source.strides[3];
                            typename Type::Wide next = source.flags & WIDE
                                ? *(const typename Type::Wide*)(from + at)
                                : Type::widen(*(const typename Type::Stored*)(from + at));
                            sum = s + a + b + c + d == 0 ? next : (typename Type::Wide)(sum + next);
                        }
        }
        row_offsets(frame, row, job.to.strides, job.to.strides, in_from, in_to);
        u8* target = to + in_to + within * job.to.step;
        if (frame.flags & WIDE) *(typename Type::Wide*)target = sum;
        else *(typename Type::Stored*)target = Type::narrow(sum);
    }
}

extern "C" __global__ void __launch_bounds__(256) sum_boxes(
    const SumJob* __restrict__ jobs, u32 count, const SumSource* __restrict__ sources, u32 parity, Arrays arrays
) {
    sum_box<TYPE>(jobs, count, sources, parity, arrays);
}

#endif
