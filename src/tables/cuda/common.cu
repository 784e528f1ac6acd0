// What all kernels of tables share.

typedef unsigned long long Count;

// What a call's checks found: the position of the first wrong row id, and of the first NaN. All ones: nothing. Kernels that write
// look here first.
struct Faults { Count row, nan; };

__device__ inline bool refused(const Faults* faults) {
    return faults && (faults->row != ~0ull || faults->nan != ~0ull);
}

__device__ inline Count thread_number() { return (Count)blockIdx.x * blockDim.x + threadIdx.x; }

// How many rows a group of lanes has in flight: enough to hide the way to memory.
const int FLIGHT = 4;
