// Definitions shared by all table kernels.

typedef unsigned long long Count;

// Results of a call's checks: the position of the first invalid row id, and of the first NaN; all ones if there is none. Kernels
// that write read this first.
struct Faults { Count row, nan; };

__device__ inline bool has_faults(const Faults* faults) {
    return faults && (faults->row != ~0ull || faults->nan != ~0ull);
}

__device__ inline Count thread_number() { return (Count)blockIdx.x * blockDim.x + threadIdx.x; }

// Rows that a group of lanes has in flight: enough to hide memory latency.
const int FLIGHT = 4;
