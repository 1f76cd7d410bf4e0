// Random signs and the Hadamard transform of a block of elements.
//
// rotation_impl.h has the same for CPUs. A block of threads rotates a block of
// elements: thread t has the elements t, t + kThreads and so on in registers.

#ifndef TERNGRAD_NATIVE_GPU_ROTATION_H_
#define TERNGRAD_NATIVE_GPU_ROTATION_H_

#include "device.h"
#include "rotation_tables.h"

namespace terngrad_gpu {

// Elements of a thread.
constexpr int kRadix = 16;
static_assert(kThreads == kRadix * kRadix, "three passes of four steps each");
static_assert(kRotatedBlock == kRadix * kThreads, "an element of each thread");

// Floats of a block in shared memory. The gaps put the elements that a warp
// reads or writes at a time in different banks.
constexpr int kBanks = 32;
constexpr int kShared = kRotatedBlock + kRotatedBlock / kBanks;

__device__ inline int PlaceOf(int element) {
  return element + static_cast<uint32>(element) / kBanks;
}

__device__ inline const RotatedVariable* AllOf(
    const RotatedVariables& variables) {
  return variables.count > kFewRotated ? variables.many : variables.few;
}

// The place of this thread's first element; the others are kStride apart.
template <int kStride>
__device__ inline int FirstPlace() {
  const uint32 thread = threadIdx.x;
  if (kStride == 1) return PlaceOf(thread * kRadix);
  if (kStride == kThreads) return PlaceOf(thread);
  // The halves of a warp have rows that are two apart, and so other banks.
  const uint32 row = thread / kRadix;
  const uint32 other = (row & 12) | (row & 1) << 1 | (row >> 1 & 1);
  return PlaceOf(other * kThreads + thread % kRadix);
}

template <int kStride>
__device__ inline void Load(const float* shared, float* parts) {
  const float* const from = shared + FirstPlace<kStride>();
#pragma unroll
  for (int k = 0; k < kRadix; ++k) parts[k] = from[PlaceOf(k * kStride)];
}

template <int kStride>
__device__ inline void Store(const float* parts, float* shared) {
  float* const to = shared + FirstPlace<kStride>();
#pragma unroll
  for (int k = 0; k < kRadix; ++k) to[PlaceOf(k * kStride)] = parts[k];
}

template <int kStep>
__device__ inline void AddPairs(float* parts) {
#pragma unroll
  for (int k = 0; k < kRadix; ++k) {
    if (k & kStep) continue;
    const float a = parts[k], b = parts[k | kStep];
    parts[k] = a + b;
    parts[k | kStep] = a - b;
  }
}

// The transform steps kStride to 8 kStride that a block of `size` elements has,
// on elements that are kStride apart.
template <int kStride>
__device__ inline void Transform(float* parts, int size) {
  if (size >= kRadix * kStride) {
    // No branches between the steps: parts need not stay in their registers.
    AddPairs<1>(parts);
    AddPairs<2>(parts);
    AddPairs<4>(parts);
    AddPairs<8>(parts);
    return;
  }
  if (size > kStride) AddPairs<1>(parts);
  if (size > 2 * kStride) AddPairs<2>(parts);
  if (size > 4 * kStride) AddPairs<4>(parts);
}

// Multiplies a block of `size` elements in `shared`, a power of 2, by the
// Hadamard matrix. The elements after them have any values before and after.
// Before it, a thread has written its own elements, those that are kThreads
// apart; it may do so again when it has its values.
__device__ inline void Hadamard(float* shared, int size, float* values) {
  __syncthreads();
  Load<1>(shared, values);
  Transform<1>(values, size);
  Store<1>(values, shared);
  __syncthreads();
  Load<kRadix>(shared, values);
  Transform<kRadix>(values, size);
  Store<kRadix>(values, shared);
  __syncthreads();
  Load<kThreads>(shared, values);
  Transform<kThreads>(values, size);
}

// A value with its random sign; `counter` is the position of the element plus
// the first number of the key.
__device__ inline float Signed(float value, uint32 counter, uint32 second) {
  const uint32 sign = AlmostRandom(counter, second) & 0x80000000U;
  return __int_as_float(
      static_cast<int>(static_cast<uint32>(__float_as_int(value)) ^ sign));
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_ROTATION_H_
