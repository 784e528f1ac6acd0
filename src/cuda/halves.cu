// The two half types: bits in memory, single precision in registers. Rounds to nearest, ties to even; a NaN stays a quiet
// NaN.

struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

static __device__ __forceinline__ float widen_half(f16 value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}

static __device__ __forceinline__ float widen_half(bf16 value) {
    return __uint_as_float((unsigned int)value.bits << 16);
}

template <class T> static __device__ __forceinline__ T narrow_half(float wide);

template <> __device__ __forceinline__ f16 narrow_half<f16>(float wide) {
    f16 value;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value.bits) : "f"(wide));
    return value;
}

template <> __device__ __forceinline__ bf16 narrow_half<bf16>(float wide) {
    unsigned int bits = __float_as_uint(wide);
    unsigned int rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    bf16 value;
    value.bits = (unsigned short)(wide != wide ? (bits >> 16) | 0x40 : rounded);
    return value;
}
