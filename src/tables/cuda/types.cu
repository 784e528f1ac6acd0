// The element types of tables, and the wider type in which each is computed: as on the processor.
// ELEMENT and STATE are defined by the host.

struct Half { unsigned short bits; };
struct Brain { unsigned short bits; };

typedef unsigned int Word; // integers wrap around
typedef ELEMENT Element;
typedef STATE State;

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline Word widen(Word x) { return x; }
__device__ inline Count widen(Count x) { return x; }

__device__ inline float widen(Half x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}

__device__ inline float widen(Brain x) { return __uint_as_float((unsigned int)x.bits << 16); }

template <class T> struct Narrow { template <class S> static __device__ T from(S x) { return x; } };

template <> struct Narrow<Half> {
    static __device__ Half from(float x) {
        Half half;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
        return half;
    }
};

template <> struct Narrow<Brain> {
    static __device__ Brain from(float x) {
        unsigned int bits = __float_as_uint(x);
        Brain brain;
        if ((bits & 0x7fffffff) > 0x7f800000) brain.bits = (unsigned short)(bits >> 16 | 0x40); // NaN stays NaN
        else brain.bits = (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        return brain;
    }
};

__device__ inline Element narrow(State x) { return Narrow<Element>::from(x); }

__device__ inline bool is_nan(float x) { return x != x; }
__device__ inline bool is_nan(double x) { return x != x; }
__device__ inline bool is_nan(Word) { return false; }
__device__ inline bool is_nan(Count) { return false; }

// Elements that are read and written at once.
template <class T, int WIDTH>
struct alignas(sizeof(T) * WIDTH < 16 ? sizeof(T) * WIDTH : 16) Pack { T at[WIDTH]; };

const int WIDE = 16 / sizeof(Element);
