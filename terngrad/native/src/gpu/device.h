// Common code of the GPU kernels, in CUDA C++ without CUDA's headers.
//
// The kernels give the bits of the CPU's kernels. Three rules make this true:
// products and sums are rounded separately (--fmad=false, and __fma_rn where
// the CPU fuses); sums have the CPU's order; and subnormal float32 numbers are
// zero (--ftz=true), as on TensorFlow's CPU threads; ternary_update.cu says
// where they are not.

#ifndef TERNGRAD_NATIVE_GPU_DEVICE_H_
#define TERNGRAD_NATIVE_GPU_DEVICE_H_

#include "tables.h"

namespace terngrad_gpu {

constexpr int kWarp = 32;  // Threads.

// The smallest normal float32, as bits.
constexpr int kLeastNormal = 0x00800000;

// Larger bits of a magnitude are NaN.
constexpr int kInfinity = 0x7f800000;

// What payloads have for NaN: processors make NaNs of different bits.
constexpr uint32 kQuietNan = 0x7fc00000U;

// The largest finite float32.
constexpr double kLargestFloat = 0x1.fffffep127;

// A smaller scaler counts as 0.
constexpr float kMinScaler = 0x1p-100f;

__device__ inline const Variable* AllOf(const Variables& variables) {
  return variables.count > kFewVariables ? variables.many : variables.few;
}

// The variable with the element, or block, of this number: the last one that
// does not start after it. Numbers past the end have the last variable.
template <typename Table>
__device__ inline int Find(const Table& variables, int64 number) {
  const auto* const all = AllOf(variables);
  int from = 0, to = variables.count;
  while (to - from > 1) {
    const int middle = from + (to - from) / 2;
    if (all[middle].start <= number) {
      from = middle;
    } else {
      to = middle;
    }
  }
  return from;
}

// The variable with element `number`; `from` is that of an earlier element.
template <typename Entry>
__device__ inline int Walk(const Entry* all, int from, int64 number) {
  while (number - all[from].start >= all[from].size) ++from;
  return from;
}

__device__ inline const uint32* PayloadOf(const Payloads& payloads, int index) {
  return payloads.count > kFewPayloads ? payloads.many[index]
                                       : payloads.few[index];
}

// `Factor` of kernels.h.
__device__ inline float Factor(float scaler) {
  return scaler >= kMinScaler ? 0x1p23f / scaler : 0.0f;
}

// random_bits.element_bits without its last step, bits ^ (bits >> 16).
// `counter` is the position plus the first number of the key.
__device__ inline uint32 AlmostRandom(uint32 counter, uint32 second) {
  uint32 bits = (counter ^ (counter >> 16)) * 0x7feb352dU + second;
  return (bits ^ (bits >> 15)) * 0x846ca68bU;
}

// Whether this block of threads is the last one of `blocks`, which count
// in *ended, and then sees what the others have written. `is_last` is in shared
// memory.
__device__ inline bool IsLast(int* ended, int blocks, int* is_last) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *is_last = atomicAdd(ended, 1) == blocks - 1;
  __syncthreads();
  if (*is_last) __threadfence();
  return *is_last;
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_DEVICE_H_
