// Folds several buffers into one, in the given order, and writes the result to several places: every rank gets the bits of
// the host's reduction. Half types are summed in single precision and rounded once; integers wrap around.
//
// Macros: TYPE, OPERATION, VECTOR (bytes per load), SOURCES (0 if they are too many to unroll), UNROLL, MOST.

typedef float f32;
typedef double f64;
typedef signed char i8;
typedef unsigned char u8;
typedef int i32;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

// How a type is widened for the sum and narrowed after it.
template <class T> struct Stored {
    typedef T Wide;
    static Wide widen(T value) { return value; }
    static T narrow(Wide wide) { return wide; }
};

// Half types, which halves.cu converts.
template <class T> struct Half {
    typedef f32 Wide;
    static f32 widen(T value) { return widen_half(value); }
    static T narrow(f32 wide) { return narrow_half<T>(wide); }
};
template <> struct Stored<f16> : Half<f16> {};
template <> struct Stored<bf16> : Half<bf16> {};

// Integers wrap around; in C++ only unsigned ones do.
template <class W> W add(W a, W b) { return a + b; }
template <> i32 add(i32 a, i32 b) { return i32(u32(a) + u32(b)); }
template <> i64 add(i64 a, i64 b) { return i64(u64(a) + u64(b)); }
template <class W> W multiply(W a, W b) { return a * b; }
template <> i32 multiply(i32 a, i32 b) { return i32(u32(a) * u32(b)); }
template <> i64 multiply(i64 a, i64 b) { return i64(u64(a) * u64(b)); }

struct sum {
    template <class W> static W combine(W a, W b) { return add(a, b); }
    template <class W> static W finish(W value, u32) { return value; }
};
struct avg : sum {
    template <class W> static W finish(W value, u32 sources) { return value / W(sources); }
};
struct prod {
    template <class W> static W combine(W a, W b) { return multiply(a, b); }
    template <class W> static W finish(W value, u32) { return value; }
};
// NaN propagates from either operand.
struct min {
    template <class W> static W combine(W a, W b) { return b < a || b != b ? b : a; }
    template <class W> static W finish(W value, u32) { return value; }
};
struct max {
    template <class W> static W combine(W a, W b) { return b > a || b != b ? b : a; }
    template <class W> static W finish(W value, u32) { return value; }
};

template <int BYTES> struct Raw;
template <> struct Raw<16> { typedef uint4 type; };
template <> struct Raw<8> { typedef uint2 type; };
template <> struct Raw<4> { typedef u32 type; };
template <> struct Raw<2> { typedef unsigned short type; };
template <> struct Raw<1> { typedef u8 type; };

typedef Stored<TYPE> S;
typedef S::Wide Wide;
constexpr int LANES = VECTOR / sizeof(TYPE);

// The elements of one load.
union Pack {
    Raw<VECTOR>::type raw;
    TYPE lane[LANES];
    Pack() {}
};

struct Buffers {
    const void *from[MOST];
    void *to[MOST];
};

Pack load(const void *from, u64 index) {
    Pack pack;
    pack.raw = static_cast<const Raw<VECTOR>::type *>(from)[index];
    return pack;
}

void widen(const Pack &pack, Wide *wide) {
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) wide[lane] = S::widen(pack.lane[lane]);
}

void combine(Wide *wide, const Pack &pack) {
#pragma unroll
    for (int lane = 0; lane < LANES; lane++)
        wide[lane] = OPERATION::combine<Wide>(wide[lane], S::widen(pack.lane[lane]));
}

void store(const Buffers &buffers, u32 destinations, u64 index, const Wide *wide, u32 sources) {
    Pack pack;
#pragma unroll
    for (int lane = 0; lane < LANES; lane++)
        pack.lane[lane] = S::narrow(OPERATION::finish<Wide>(wide[lane], sources));
    for (u32 d = 0; d < destinations; d++)
        static_cast<Raw<VECTOR>::type *>(buffers.to[d])[index] = pack.raw;
}

extern "C" __global__ void __launch_bounds__(256)
fold(const __grid_constant__ Buffers buffers, u32 sources, u32 destinations, u64 count) {
    const u64 packs = count / LANES;
    const u64 first = u64(blockIdx.x) * (256 * UNROLL) + threadIdx.x;
#if SOURCES
    // All loads of this thread are issued before any result is used.
    Pack loaded[SOURCES][UNROLL];
#pragma unroll
    for (int s = 0; s < SOURCES; s++)
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (first + u * 256 < packs) loaded[s][u] = load(buffers.from[s], first + u * 256);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (first + u * 256 >= packs) break;
        Wide wide[LANES];
        widen(loaded[0][u], wide);
#pragma unroll
        for (int s = 1; s < SOURCES; s++) combine(wide, loaded[s][u]);
        store(buffers, destinations, first + u * 256, wide, sources);
    }
#else
    if (first < packs) {
        Wide wide[LANES];
        widen(load(buffers.from[0], first), wide);
#pragma unroll 4
        for (u32 s = 1; s < sources; s++) combine(wide, load(buffers.from[s], first));
        store(buffers, destinations, first, wide, sources);
    }
#endif
    // The remaining elements, fewer than one pack.
    const u64 rest = packs * LANES + threadIdx.x;
    if (blockIdx.x == 0 && rest < count) {
        Wide wide = S::widen(static_cast<const TYPE *>(buffers.from[0])[rest]);
        for (u32 s = 1; s < sources; s++)
            wide = OPERATION::combine<Wide>(wide, S::widen(static_cast<const TYPE *>(buffers.from[s])[rest]));
        TYPE value = S::narrow(OPERATION::finish<Wide>(wide, sources));
        for (u32 d = 0; d < destinations; d++) static_cast<TYPE *>(buffers.to[d])[rest] = value;
    }
}
