// The element types of tables, and the wider type in which each is computed, as on the CPU. ELEMENT and STATE are defined by the
// host; halves.cu is included before this file.

typedef unsigned int Word; // integers wrap around
typedef ELEMENT Element;
typedef STATE State;

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline Word widen(Word x) { return x; }
__device__ inline Count widen(Count x) { return x; }

__device__ inline float widen(f16 x) { return widen_half(x); }
__device__ inline float widen(bf16 x) { return widen_half(x); }

template <class T> struct Narrow { template <class S> static __device__ T from(S x) { return x; } };

template <> struct Narrow<f16> { static __device__ f16 from(float x) { return narrow_half<f16>(x); } };
template <> struct Narrow<bf16> { static __device__ bf16 from(float x) { return narrow_half<bf16>(x); } };

__device__ inline Element narrow(State x) { return Narrow<Element>::from(x); }

__device__ inline bool is_nan(float x) { return x != x; }
__device__ inline bool is_nan(double x) { return x != x; }
__device__ inline bool is_nan(Word) { return false; }
__device__ inline bool is_nan(Count) { return false; }

// Elements that are loaded and stored together.
template <class T, int WIDTH>
struct alignas(sizeof(T) * WIDTH < 16 ? sizeof(T) * WIDTH : 16) Pack { T at[WIDTH]; };

const int WIDE = 16 / sizeof(Element);
