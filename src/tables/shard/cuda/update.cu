// Adds: to all rows, to rows in the order of a sorted list, and, for rules without state, to rows in any order. The host defines
// RULE, and STEPS and ATOMIC for the rules that need them.

typedef RULE Rule;

static_assert(Rule::PLANES <= MAX_PLANES, "a rule has at most PLANES, of formula.rs");
#ifdef STEPS
static_assert(Rule::COUNTS_STEPS, "formula.rs counts steps for this rule: it needs at_step, scale and rescale");
#else
static_assert(!Rule::COUNTS_STEPS, "formula.rs does not count steps for this rule: its factors would never change");
#endif
const int PLANES = Rule::PLANES ? Rule::PLANES : 1; // no arrays of nothing

struct Memory {
    Element* values;
    State* planes[MAX_PLANES];
};

// Records the position of the first NaN of a delta.
extern "C" __global__ void check_nan(const Element* delta, Count count, Faults* faults) {
    Count at = thread_number();
    if (at < count && is_nan(widen(delta[at]))) atomicMin(&faults->nan, at);
}

// Some adjacent elements with their state, in registers while they are updated.
template <int WIDTH> struct Piece {
    Pack<Element, WIDTH> values;
    Pack<State, WIDTH> planes[PLANES];

    __device__ Piece(const Memory& memory, Count at) {
        values = *(const Pack<Element, WIDTH>*)(memory.values + at);
#pragma unroll
        for (int plane = 0; plane < Rule::PLANES; plane++) {
            planes[plane] = *(const Pack<State, WIDTH>*)(memory.planes[plane] + at);
        }
    }

    // Applies one add. Values are rounded to the table's type after each add, as if they had been stored.
    __device__ void change(const Element* place, const Rule& rule) {
        change(*(const Pack<Element, WIDTH>*)place, rule);
    }

    __device__ void change(const Pack<Element, WIDTH>& delta, const Rule& rule) {
#pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            State state[PLANES];
#pragma unroll
            for (int plane = 0; plane < Rule::PLANES; plane++) state[plane] = planes[plane].at[k];
            values.at[k] = narrow(rule.update(widen(values.at[k]), state, widen(delta.at[k])));
#pragma unroll
            for (int plane = 0; plane < Rule::PLANES; plane++) planes[plane].at[k] = state[plane];
        }
    }

    __device__ void store(const Memory& memory, Count at) const {
        *(Pack<Element, WIDTH>*)(memory.values + at) = values;
#pragma unroll
        for (int plane = 0; plane < Rule::PLANES; plane++) {
            *(Pack<State, WIDTH>*)(memory.planes[plane] + at) = planes[plane];
        }
    }
};

// Counts an add to every row, and stores the scale derived from each count.
extern "C" __global__ void count_all(Count* steps, void* scales, Count rows, Numbers numbers, const Faults* faults) {
    Count row = thread_number();
    if (row >= rows || has_faults(faults)) return;
    Count step = ++steps[row];
#ifdef STEPS
    Rule rule(numbers);
    rule.at_step(step);
    ((Scale*)scales)[row] = rule.scale();
#endif
}

template <int WIDTH>
__device__ void change_all(const Memory& memory, const Element* delta, Count at, const Rule& rule) {
    Piece<WIDTH> piece(memory, at);
    piece.change(delta + at, rule);
    piece.store(memory, at);
}

// `cols`: the number of elements per row, the unit for which adds are counted; a pack never spans two rows.
template <int WIDTH>
__device__ void all(
    const Memory& memory, const Element* delta, Count count, Count cols, const void* scales, const Numbers& numbers,
    const Faults* faults) {
    Count at = thread_number() * WIDTH;
    if (at >= count || has_faults(faults)) return;
    Rule rule(numbers);
#ifdef STEPS
    rule.rescale(((const Scale*)scales)[at / cols]);
#endif
    if (at + WIDTH <= count) return change_all<WIDTH>(memory, delta, at, rule);
    for (; at < count; at++) change_all<1>(memory, delta, at, rule);
}

extern "C" __global__ void __launch_bounds__(256) update_all_wide(
    Memory memory, const Element* delta, Count count, Count cols, const void* scales, Numbers numbers,
    const Faults* faults) {
    all<WIDE>(memory, delta, count, cols, scales, numbers, faults);
}

extern "C" __global__ void __launch_bounds__(256) update_all(
    Memory memory, const Element* delta, Count count, Count cols, const void* scales, Numbers numbers,
    const Faults* faults) {
    all<1>(memory, delta, count, cols, scales, numbers, faults);
}

// The sum of the deltas at these positions, in their order, rounded once.
template <int WIDTH>
__device__ Pack<Element, WIDTH> sum_of(const Element* delta, const unsigned int* positions, Count count, Count cols) {
    Pack<Element, WIDTH> pack = *(const Pack<Element, WIDTH>*)(delta + positions[0] * cols);
    if (count == 1) return pack;
    State sums[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++) sums[k] = widen(pack.at[k]);
    for (Count index = 1; index < count; index++) {
        pack = *(const Pack<Element, WIDTH>*)(delta + positions[index] * cols);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) sums[k] += widen(pack.at[k]);
    }
#pragma unroll
    for (int k = 0; k < WIDTH; k++) pack.at[k] = narrow(sums[k]);
    return pack;
}

// A group of `lanes` updates one row: by the sum of its deltas if `summed`, otherwise once for each time the sorted list contains
// it, in the list's order.
template <int WIDTH>
__device__ void rows(
    const Memory& memory, Count* steps, const Element* delta, const unsigned int* sorted, const unsigned int* positions,
    Count count, Count cols, unsigned int lanes, unsigned int summed, const Numbers& numbers, const Faults* faults) {
    Count first = thread_number() / lanes;
    if (first >= count || has_faults(faults)) return;
    unsigned int row = sorted[first], lane = threadIdx.x % lanes;
    if (first > 0 && sorted[first - 1] == row) return; // another group's
    Count end = first + 1;
    while (end < count && sorted[end] == row) end++;
    Rule rule(numbers);
    Count step = Rule::PLANES ? steps[row] : 0, changes = summed ? 1 : end - first;
    // All lanes must have read the counter before one of them writes it.
    __syncwarp((lanes == 32 ? ~0u : (1u << lanes) - 1) << (threadIdx.x % 32 / lanes * lanes));
    for (Count at = lane * WIDTH; at < cols; at += lanes * WIDTH) {
        Count place = row * cols + at;
        Piece<WIDTH> piece(memory, place);
        if (summed) {
            rule.at_step(step + 1);
            piece.change(sum_of<WIDTH>(delta + at, positions + first, end - first, cols), rule);
        }
        for (Count index = first; !summed && index < end; index++) {
            rule.at_step(step + (index - first) + 1);
            piece.change(delta + positions[index] * cols + at, rule);
        }
        piece.store(memory, place);
    }
    if (Rule::PLANES && lane == 0) steps[row] = step + changes;
}

extern "C" __global__ void __launch_bounds__(256) update_rows_wide(
    Memory memory, Count* steps, const Element* delta, const unsigned int* sorted, const unsigned int* positions,
    Count count, Count cols, unsigned int lanes, unsigned int summed, Numbers numbers, const Faults* faults) {
    rows<WIDE>(memory, steps, delta, sorted, positions, count, cols, lanes, summed, numbers, faults);
}

extern "C" __global__ void __launch_bounds__(256) update_rows(
    Memory memory, Count* steps, const Element* delta, const unsigned int* sorted, const unsigned int* positions,
    Count count, Count cols, unsigned int lanes, unsigned int summed, Numbers numbers, const Faults* faults) {
    rows<1>(memory, steps, delta, sorted, positions, count, cols, lanes, summed, numbers, faults);
}

#ifdef ATOMIC
// Atomic adds to memory that other threads add to concurrently: the order of the sum is unspecified.

__device__ inline void put(float* place, float x) { atomicAdd(place, x); }
__device__ inline void put(Word* place, Word x) { atomicAdd(place, x); }
__device__ inline void put(Count* place, Count x) { atomicAdd(place, x); }

__device__ inline void put(double* place, double x) {
#if __CUDA_ARCH__ >= 600
    atomicAdd(place, x);
#else
    Count* bits = (Count*)place;
    for (Count seen = *bits, before;; seen = before) {
        before = atomicCAS(bits, seen, __double_as_longlong(__longlong_as_double(seen) + x));
        if (before == seen) break;
    }
#endif
}

template <class T, int WIDTH> __device__ inline void put_pack(T* place, const Pack<T, WIDTH>& pack) {
#pragma unroll
    for (int k = 0; k < WIDTH; k++) put(place + k, Rule::SIGN < 0 ? (T)0 - pack.at[k] : pack.at[k]);
}

#if __CUDA_ARCH__ >= 900
template <> __device__ inline void put_pack<float, 4>(float* place, const Pack<float, 4>& pack) {
    const float sign = Rule::SIGN;
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(place), "f"(sign * pack.at[0]),
                 "f"(sign * pack.at[1]), "f"(sign * pack.at[2]), "f"(sign * pack.at[3])
                 : "memory");
}
#endif

template <int WIDTH>
__device__ void scatter(
    Element* values, const Element* delta, const long long* ids, Count count, Count cols, unsigned int lanes,
    const Faults* faults) {
    if (has_faults(faults)) return;
    Count group = thread_number() / lanes, groups = ((Count)gridDim.x * blockDim.x) / lanes;
    unsigned int lane = threadIdx.x % lanes;
    for (Count first = group; first < count; first += groups * FLIGHT) {
        for (Count at = lane * WIDTH; at < cols; at += lanes * WIDTH) {
            Count row[FLIGHT];
            Pack<Element, WIDTH> packs[FLIGHT];
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) {
                Count position = first + k * groups;
                if (position >= count) continue;
                row[k] = (Count)ids[position];
                packs[k] = *(const Pack<Element, WIDTH>*)(delta + position * cols + at);
            }
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) {
                if (first + k * groups < count) put_pack<Element, WIDTH>(values + row[k] * cols + at, packs[k]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scatter_wide(
    Element* values, const Element* delta, const long long* ids, Count count, Count cols, unsigned int lanes,
    const Faults* faults) {
    scatter<WIDE>(values, delta, ids, count, cols, lanes, faults);
}

extern "C" __global__ void __launch_bounds__(256) scatter_narrow(
    Element* values, const Element* delta, const long long* ids, Count count, Count cols, unsigned int lanes,
    const Faults* faults) {
    scatter<1>(values, delta, ids, count, cols, lanes, faults);
}
#endif
