// Common code of the kernels of codes of groups of elements.

#ifndef TERNGRAD_NATIVE_GPU_GROUPS_H_
#define TERNGRAD_NATIVE_GPU_GROUPS_H_

#include "device.h"

namespace terngrad_gpu {

constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

// Codes reduce larger magnitudes to this.
constexpr float kLargestMagnitude = 0x1p126f;

__device__ inline const GroupedVariable* AllOf(
    const GroupedVariables& variables) {
  return variables.count > kFewGrouped ? variables.many : variables.few;
}

// The last variable whose member is not above `number`. Variables without
// elements are not in the table.
template <typename Table, typename Entry, typename Number>
__device__ inline const Entry& FindBy(const Table& variables,
                                      Number Entry::* member, int64 number) {
  const Entry* const all = AllOf(variables);
  int from = 0, to = variables.count;
  while (to - from > 1) {
    const int middle = from + (to - from) / 2;
    if (all[middle].*member <= number) {
      from = middle;
    } else {
      to = middle;
    }
  }
  return all[from];
}

__device__ inline int64 CeilDivided(int64 a, int64 b) {
  return (a + b - 1) / b;
}

// The bits of a float as an integer that wraps around.
__device__ inline uint32 BitsOf(float value) {
  return static_cast<uint32>(__float_as_int(value));
}

__device__ inline float FloatOf(uint32 bits) {
  return __int_as_float(static_cast<int>(bits));
}

// NaN is preserved.
__device__ inline float Limited(float value) {
  const float above = value < -kLargestMagnitude ? -kLargestMagnitude : value;
  return kLargestMagnitude < above ? kLargestMagnitude : above;
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_GROUPS_H_
