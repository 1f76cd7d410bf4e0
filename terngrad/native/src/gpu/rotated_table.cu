// Rotated blocks to the entries of a table, and sums of entries back.
//
// tables_impl.h has the same for CPUs, and explains the numbers.

#include "groups.h"
#include "rotation.h"

namespace terngrad_gpu {

// The block of elements of a block of threads.
struct RotatedPart {
  RotatedVariable variable;
  int64 begin;  // Its first element.
  int count;    // Elements; more fill the block.
};

__device__ inline RotatedPart PartOf(const RotatedVariables& variables) {
  const RotatedVariable variable =
      AllOf(variables)[Find(variables, blockIdx.x)];
  const int64 begin = (blockIdx.x - variable.start) * variable.block;
  const int64 rest = variable.size - begin;
  return {variable, begin,
          rest < variable.block ? static_cast<int>(rest) : variable.block};
}

// The index of an entry next to a number of 1 / 2^kTableFraction.
__device__ inline int EntryNear(int fixed, uint32 random, const int* values,
                                const unsigned char* below) {
  int cell = (fixed >> kTableFraction) + kTableGrid;
  cell = cell < 2 * kTableGrid - 1 ? cell : 2 * kTableGrid - 1;
  cell = cell < 0 ? 0 : cell;  // For NaN.
  const int index = below[cell];
  const int above = fixed - values[index] * (1 << kTableFraction);
  const int width = values[index + 1] - values[index];
  const int draw = static_cast<int>(random >> (32 - kTableFraction));
  return draw * width < above ? index + 1 : index;
}

// Writes a byte for each element: the index of one of the two nearest entries.
// A block of threads for each block of elements.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_table_encode(const __grid_constant__ RotatedVariables variables,
                          const __grid_constant__ Entries entries,
                          const float* factors,
                          const float* inverses, const uint32* signs,
                          const uint32* draws, unsigned char* digits) {
  constexpr float kLimit = kTableGrid << kTableFraction;
  __shared__ float shared[kShared];
  __shared__ int values_of[kTableEntries];
  __shared__ unsigned char below[2 * kTableGrid];
  const int thread = threadIdx.x;
  const RotatedPart part = PartOf(variables);
  if (thread < kTableEntries) values_of[thread] = entries.values[thread];
  if (thread < 2 * kTableGrid) {
    below[thread] = static_cast<unsigned char>(entries.below[thread]);
  }
  const uint32 begin = static_cast<uint32>(part.begin) + thread;
  const uint32* const sign = signs + 2 * part.variable.key;
  const uint32* const draw = draws + 2 * part.variable.key;
  const float* const data = part.variable.data + part.begin;
  const float factor = factors[blockIdx.x], inverse = inverses[blockIdx.x];
  float values[kRadix];
#pragma unroll
  for (int k = 0; k < kRadix; ++k) {
    const int i = thread + k * kThreads;
    values[k] = i < part.count
                    ? Signed(data[i] * factor, sign[0] + begin + k * kThreads,
                             sign[1])
                    : 0.0f;
  }
  Store<kThreads>(values, shared);
  Hadamard(shared, part.variable.block, values);
  unsigned char* const to = digits + part.variable.digit + part.begin;
#pragma unroll
  for (int k = 0; k < kRadix; ++k) {
    const int i = thread + k * kThreads;
    if (i >= part.variable.block) break;
    const float scaled = values[k] * inverse;
    const float above = kLimit < scaled ? kLimit : scaled;
    const int fixed = Nearest(above < -kLimit ? -kLimit : above);
    const uint32 random =
        AlmostRandom(draw[0] + begin + k * kThreads, draw[1]);
    to[i] = static_cast<unsigned char>(
        EntryNear(fixed, random, values_of, below));
  }
}

// Rotates sums of entries back, each block times its factor.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_table_decode(const __grid_constant__ RotatedVariables variables,
                          const int* sums, const float* factors,
                          const uint32* signs) {
  __shared__ float shared[kShared];
  const int thread = threadIdx.x;
  const RotatedPart part = PartOf(variables);
  const int* const from = sums + part.variable.digit + part.begin;
  float values[kRadix];
#pragma unroll
  for (int k = 0; k < kRadix; ++k) {
    const int i = thread + k * kThreads;
    values[k] = i < part.variable.block ? static_cast<float>(from[i]) : 0.0f;
  }
  Store<kThreads>(values, shared);
  Hadamard(shared, part.variable.block, values);
  const uint32* const sign = signs + 2 * part.variable.key;
  const uint32 first = sign[0] + static_cast<uint32>(part.begin) + thread;
  float* const to = part.variable.data + part.begin;
#pragma unroll
  for (int k = 0; k < kRadix; ++k) {
    const int i = thread + k * kThreads;
    if (i >= part.count) break;
    to[i] = Signed(values[k] * factors[blockIdx.x], first + k * kThreads,
                   sign[1]);
  }
}

}  // namespace terngrad_gpu
