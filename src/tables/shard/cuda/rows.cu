// Operations on row ids: check, gather, sort. Independent of the element type; memory is copied in units.

// Records the position of the first id that is no row.
extern "C" __global__ void check_rows(const long long* ids, Count count, Count rows, Faults* faults) {
    Count position = thread_number();
    if (position < count && (Count)ids[position] >= rows) atomicMin(&faults->row, position);
}

// A group of `lanes` copies FLIGHT rows of `units` each. Adjacent groups write adjacent rows of the result.
template <class Unit>
__device__ void gather(
    const Unit* values, const long long* ids, Count count, unsigned int units, unsigned int lanes, Unit* out,
    const Faults* faults) {
    if (has_faults(faults)) return;
    Count group = thread_number() / lanes, groups = ((Count)gridDim.x * blockDim.x) / lanes;
    unsigned int lane = threadIdx.x % lanes;
    for (Count first = group; first < count; first += groups * FLIGHT) {
        Count row[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            Count position = first + k * groups;
            row[k] = position < count ? (Count)ids[position] : 0;
        }
        for (unsigned int unit = lane; unit < units; unit += lanes) {
            Unit copy[FLIGHT];
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) {
                if (first + k * groups < count) copy[k] = values[row[k] * units + unit];
            }
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) {
                Count position = first + k * groups;
                if (position < count) out[position * units + unit] = copy[k];
            }
        }
    }
}

#define GATHER(NAME, UNIT)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) NAME(                                                    \
        const UNIT* values, const long long* ids, Count count, unsigned int units, unsigned int lanes,         \
        UNIT* out, const Faults* faults) {                                                                     \
        gather(values, ids, count, units, lanes, out, faults);                                                 \
    }

GATHER(gather_16, uint4)
GATHER(gather_8, uint2)
GATHER(gather_4, unsigned int)
GATHER(gather_2, unsigned short)

// Stable LSD radix sort of (row, position) by row: each pass counts the digits of every tile, computes prefix sums of the counts,
// and scatters the entries to their new positions.

const int DIGITS = 256, WARPS = 8, ROUNDS = 16, TILE = WARPS * 32 * ROUNDS;

extern "C" __global__ void sort_begin(const long long* ids, Count count, unsigned int* rows, unsigned int* positions) {
    Count position = thread_number();
    if (position >= count) return;
    rows[position] = (unsigned int)ids[position];
    positions[position] = (unsigned int)position;
}

// counts[digit * tiles + tile]
extern "C" __global__ void sort_count(const unsigned int* rows, Count count, int shift, unsigned int* counts) {
    __shared__ unsigned int found[DIGITS];
    found[threadIdx.x] = 0;
    __syncthreads();
    Count start = (Count)blockIdx.x * TILE;
    for (int round = 0; round < ROUNDS; round++) {
        Count at = start + round * DIGITS + threadIdx.x;
        if (at < count) atomicAdd(&found[rows[at] >> shift & 255], 1);
    }
    __syncthreads();
    counts[(Count)threadIdx.x * gridDim.x + blockIdx.x] = found[threadIdx.x];
}

// One block per digit: replaces its counts by their exclusive prefix sums over the tiles; totals[digit] is their sum.
extern "C" __global__ void sort_add_up(unsigned int* counts, unsigned int tiles, unsigned int* totals) {
    __shared__ unsigned int sums[32];
    counts += (Count)blockIdx.x * tiles;
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32, carried = 0;
    for (unsigned int first = 0; first < tiles; first += blockDim.x) {
        unsigned int tile = first + threadIdx.x;
        unsigned int mine = tile < tiles ? counts[tile] : 0, sum = mine;
        for (int step = 1; step < 32; step *= 2) {
            unsigned int other = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        unsigned int before = carried, all = 0;
        for (unsigned int other = 0; other < blockDim.x / 32; other++) {
            if (other < warp) before += sums[other];
            all += sums[other];
        }
        if (tile < tiles) counts[tile] = before + sum - mine;
        carried += all;
        __syncthreads();
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = carried;
}

extern "C" __global__ void __launch_bounds__(256) sort_move(
    const unsigned int* rows, const unsigned int* positions, Count count, int shift, const unsigned int* counts,
    const unsigned int* totals, unsigned int* sorted_rows, unsigned int* sorted_positions) {
    __shared__ unsigned int places[WARPS][DIGITS];
    __shared__ unsigned int starts[DIGITS];
    unsigned int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    for (int other = 0; other < WARPS; other++) places[other][thread] = 0;
    starts[thread] = totals[thread];
    __syncthreads();
    // Prefix sums of the totals: the start of each digit.
    for (int step = 1; step < DIGITS; step *= 2) {
        unsigned int below = thread >= step ? starts[thread - step] : 0;
        __syncthreads();
        starts[thread] += below;
        __syncthreads();
    }
    // Each warp has a contiguous part of the tile; it counts its digits, which gives the offsets of the warps behind it.
    Count start = (Count)blockIdx.x * TILE + warp * 32 * ROUNDS + lane;
    for (int round = 0; round < ROUNDS; round++) {
        Count at = start + round * 32;
        unsigned int digit = at < count ? rows[at] >> shift & 255 : DIGITS;
        unsigned int equal = __match_any_sync(~0u, digit);
        if (digit < DIGITS && lane == __ffs(equal) - 1) places[warp][digit] += __popc(equal);
        __syncwarp();
    }
    __syncthreads();
    unsigned int place = starts[thread] - totals[thread] + counts[(Count)thread * gridDim.x + blockIdx.x];
    for (int other = 0; other < WARPS; other++) {
        unsigned int found = places[other][thread];
        places[other][thread] = place;
        place += found;
    }
    __syncthreads();
    for (int round = 0; round < ROUNDS; round++) {
        Count at = start + round * 32;
        unsigned int row = at < count ? rows[at] : 0;
        unsigned int digit = at < count ? row >> shift & 255 : DIGITS;
        unsigned int equal = __match_any_sync(~0u, digit);
        unsigned int before = __popc(equal & ((1u << lane) - 1));
        if (digit < DIGITS) {
            unsigned int target = places[warp][digit] + before;
            sorted_rows[target] = row;
            sorted_positions[target] = positions[at];
        }
        __syncwarp();
        if (digit < DIGITS && before == 0) places[warp][digit] += __popc(equal);
        __syncwarp();
    }
}
