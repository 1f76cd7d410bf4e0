// Common code of the kernels that select few elements and of those that add
// them.

#ifndef TERNGRAD_NATIVE_GPU_SELECTION_H_
#define TERNGRAD_NATIVE_GPU_SELECTION_H_

#include "groups.h"

namespace terngrad_gpu {

constexpr uint32 kAllLanes = 0xffffffffU;

constexpr int kReadsOfBits = 8;  // Of a thread at a time.

// Sums of the warps of a block, in shared memory.
struct WarpSums {
  int of[kWarps];
};

// A part of a vector for a block of threads.
struct Chunk {
  int number;
  const SparseVariable* variable;
  float* data;
  int size;
  int index;  // Of its first element, in the vector.
};

__device__ inline const SparseVariable* AllOf(
    const SparseVariables& variables) {
  return variables.count > kFewSparse ? variables.many : variables.few;
}

// A variable of a vector: all of them say the same of the vector.
__device__ inline const SparseVariable& VectorAt(
    const SparseVariables& variables, int vector) {
  return FindBy(variables, &SparseVariable::vector, vector);
}

__device__ inline Chunk ChunkOf(const SparseVariables& variables, int number) {
  const SparseVariable& variable =
      FindBy(variables, &SparseVariable::chunk, number);
  const int64 begin = static_cast<int64>(number - variable.chunk) * kChunk;
  const int64 rest = variable.size - begin;
  return {number, &variable, variable.data + begin,
          rest < kChunk ? static_cast<int>(rest) : kChunk,
          static_cast<int>(variable.start + begin)};
}

__device__ inline uint32 PlaneWords(const SparseVariable& vector) {
  return static_cast<uint32>(CeilDivided(vector.number, 32));
}

__device__ inline uint32 StringWords(const SparseVariable& vector) {
  return static_cast<uint32>(CeilDivided(vector.string_bits, 32));
}

// The sum of the values of earlier threads of the block; and of all.
__device__ inline int Scan(int value, WarpSums* sums, int* total) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int earlier = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += earlier;
  }
  __syncthreads();
  if (lane == kWarp - 1) sums->of[warp] = sum;
  __syncthreads();
  int before = 0;
  *total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += sums->of[w];
    *total += sums->of[w];
  }
  return before + sum - value;
}

// 32 bits for each thread of a block, of numbers that follow each other from
// 32 * threadIdx.x on. Another thread reads each of them, so that neighbours
// read neighbours, and `bit_of` makes a bit of what `read` returned.
template <typename Read, typename BitOf>
__device__ inline uint32 CollectBits(const Read& read, const BitOf& bit_of) {
  const int lane = threadIdx.x % kWarp;
  const int from = (threadIdx.x - lane) * kWarp + lane;
  uint32 bits = 0;
#pragma unroll 1
  for (int row = 0; row < kWarp; row += kReadsOfBits) {
    decltype(read(0)) values[kReadsOfBits];
#pragma unroll
    for (int i = 0; i < kReadsOfBits; ++i) {
      values[i] = read(from + (row + i) * kWarp);
    }
#pragma unroll
    for (int i = 0; i < kReadsOfBits; ++i) {
      const uint32 all = __ballot_sync(
          kAllLanes, bit_of(from + (row + i) * kWarp, values[i]));
      if (lane == row + i) bits = all;
    }
  }
  return bits;
}

// Calls a step for each chunk of a vector.
template <typename Step>
__device__ inline void ForChunks(const SparseVariables& variables,
                                 const SparseVariable& vector,
                                 const Step& step) {
  for (int i = 0; i < vector.chunks; ++i) {
    step(ChunkOf(variables, vector.first + i));
    __syncthreads();
  }
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_SELECTION_H_
