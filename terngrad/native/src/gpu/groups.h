// Common code of the kernels of codes of groups of elements.

#ifndef TERNGRAD_NATIVE_GPU_GROUPS_H_
#define TERNGRAD_NATIVE_GPU_GROUPS_H_

#include "device.h"

namespace terngrad_gpu {

constexpr int kWarps = kThreads / kWarp;

// Digits of a word: 32 of base 2.
constexpr int kMostDigits = 32;

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

// a / b, without the division of 64 bits if both have 32; neither is negative.
__device__ inline int64 Divided(int64 a, int64 b) {
  return (a | b) >> 32 ? a / b
                       : static_cast<uint32>(a) / static_cast<uint32>(b);
}

// The bits of a float as an integer that wraps around.
__device__ inline uint32 BitsOf(float value) {
  return static_cast<uint32>(__float_as_int(value));
}

__device__ inline float FloatOf(uint32 bits) {
  return __int_as_float(static_cast<int>(bits));
}

// Rounds to the nearest integer, ties to even, as x86 does: other numbers, and
// NaN, give the smallest one, which is also that of -2^31.
__device__ inline int Nearest(float value) {
  return fabsf(value) < 0x1p31f ? __float2int_rn(value) : -2147483647 - 1;
}

// NaN is preserved.
__device__ inline float Limited(float value) {
  const float above = value < -kLargestMagnitude ? -kLargestMagnitude : value;
  return kLargestMagnitude < above ? kLargestMagnitude : above;
}

// The group of the first element of a digit of a block's words.
struct FirstGroup {
  int64 group;
  int64 start;
};

__device__ inline FirstGroup FirstGroupOf(const GroupedVariable& variable,
                                          int64 element) {
  const int64 group = Divided(element, variable.group);
  return {group, group * variable.group};
}

// The group of an element, at most kThreads after the first one.
__device__ inline int64 GroupAt(const GroupedVariable& variable,
                                const FirstGroup& first, int64 element) {
  const int64 offset = element - first.start;
  // Both are below 2^32 if groups are not larger than a block of threads.
  return offset < variable.group ? first.group
         : variable.group > kThreads
             ? first.group + 1
             : first.group + static_cast<uint32>(offset) /
                                 static_cast<uint32>(variable.group);
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_GROUPS_H_
