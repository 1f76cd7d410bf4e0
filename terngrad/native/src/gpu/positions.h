// The position of each element that is sent, and the words.

#ifndef TERNGRAD_NATIVE_GPU_POSITIONS_H_
#define TERNGRAD_NATIVE_GPU_POSITIONS_H_

#include "candidates.h"

namespace terngrad_gpu {

// --- positions

// Bits of a thread's elements.
struct Found {
  uint32 above;
  uint32 equal;
};

__device__ inline Found FindElements(const Task& task, const Chunk& chunk) {
  const int limit = task.to.selections[chunk.variable->vector].digits;
  Found found = {0, 0};
  uint32 left = MaskOf(task, chunk);
  for (int at = NextBit(&left); at >= 0; at = NextBit(&left)) {
    const int bits = MagnitudeOf(chunk.data[at]);
    const uint32 bit = 1U << (at % kWarp);
    if (bits > limit) found.above |= bit;
    if (bits == limit) found.equal |= bit;
  }
  return found;
}

// How many elements of earlier threads of the block are above the limit, and,
// times 2^16, at it; and of all.
__device__ inline int ScanFound(const Found& found, WarpSums* sums,
                                int* total) {
  return Scan(__popc(found.above) + (__popc(found.equal) << 16), sums, total);
}

__device__ inline void CountElements(const Task& task, const Chunk& chunk) {
  int total;
  ScanFound(FindElements(task, chunk), &task.space->warps, &total);
  if (threadIdx.x == 0) {
    task.to.counts[chunk.number] = {total & 0xffff, total >> 16};
  }
}

// Replaces the counts of chunks by those of all earlier chunks.
__device__ inline void FinishCounts(const Task& task,
                                    const SparseVariable& vector) {
  volatile ChunkCounts* const counts = task.to.counts + vector.first;
  ChunkCounts before = {0, 0};
  for (int from = 0; from < vector.chunks; from += kThreads) {
    const int at = from + threadIdx.x;
    const bool is_chunk = at < vector.chunks;
    int above, equal;
    const int earlier_above =
        Scan(is_chunk ? counts[at].above : 0, &task.space->warps, &above);
    const int earlier_equal =
        Scan(is_chunk ? counts[at].equal : 0, &task.space->warps, &equal);
    if (is_chunk) {
      counts[at].above = before.above + earlier_above;
      counts[at].equal = before.equal + earlier_equal;
    }
    before.above += above;
    before.equal += equal;
  }
  if (task.variables.kind == kPairs && threadIdx.x == 0) {
    // No more than those at the limit that are sent.
    const int rank = task.to.selections[vector.vector].rank;
    task.to.words[vector.words] = before.above + rank;
  }
}

// --- words

// Writes one element; `rank` is its number among those that are sent.
__device__ inline void WriteElement(const Task& task,
                                    const SparseVariable& vector, int rank,
                                    int index, uint32 bits) {
  uint32* const words = task.to.words + vector.words;
  if (task.variables.kind == kLists) {
    words[rank] = index;
    words[vector.number + rank] = bits;
  } else if (task.variables.kind == kPairs) {
    words[1 + 2 * rank] = index;
    words[2 + 2 * rank] = bits;
  } else {
    task.to.sent[vector.entry + rank] = index | (bits & 0x80000000U);
    const uint32 at = (static_cast<uint32>(index) >> vector.low_bits) + rank;
    const uint32 width = StringWords(vector);
    atomicOr(words + 1 + (1 + vector.low_bits) * PlaneWords(vector) +
                 at % width,
             1U << (at / width));
  }
}

// Adds the threads' numbers, in an order that is always the same. Only the
// first thread gets the sum.
__device__ inline double AddThreads(double value, double* sums) {
  sums[threadIdx.x] = value;
  __syncthreads();
  double total = 0.0;
  if (threadIdx.x < kWarp) {
    for (int w = 0; w < kWarps; ++w) total += sums[w * kWarp + threadIdx.x];
    sums[threadIdx.x] = total;
  }
  __syncthreads();
  total = 0.0;
  if (threadIdx.x == 0) {
    for (int lane = 0; lane < kWarp; ++lane) total += sums[lane];
  }
  return total;
}

__device__ inline void WriteElements(const Task& task, const Chunk& chunk) {
  const SparseVariable& vector = *chunk.variable;
  const int ties = task.to.selections[vector.vector].rank;
  const ChunkCounts counts = task.to.counts[chunk.number];
  const Found found = FindElements(task, chunk);
  int total;
  const int before = ScanFound(found, &task.space->warps, &total);
  int above = counts.above + (before & 0xffff);
  int equal = counts.equal + (before >> 16);
  double sum = 0.0;
  uint32 left = found.above | found.equal;
  for (int at = NextBit(&left); at >= 0; at = NextBit(&left)) {
    const bool is_equal = (found.equal >> (at % kWarp)) & 1;
    // Of equal magnitudes the first are sent.
    if (!is_equal || equal < ties) {
      const float value = chunk.data[at];
      WriteElement(task, vector, above + (equal < ties ? equal : ties),
                   chunk.index + at, BitsOf(value));
      sum += __int_as_float(MagnitudeOf(value));
    }
    above += !is_equal;
    equal += is_equal;
  }
  if (task.variables.kind != kSignedIndices) return;
  sum = AddThreads(sum, task.space->sums);
  if (threadIdx.x == 0) task.to.sums[chunk.number] = sum;
}

// Writes the mean magnitude.
__device__ inline void FinishElements(const Task& task,
                                      const SparseVariable& vector) {
  const volatile double* const sums = task.to.sums + vector.first;
  double sum = 0.0;
  for (int i = threadIdx.x; i < vector.chunks; i += kThreads) sum += sums[i];
  sum = AddThreads(sum, task.space->sums);
  if (threadIdx.x == 0) {
    task.to.words[vector.words] =
        BitsOf(static_cast<float>(sum * (1.0 / vector.number)));
  }
}

// Writes the words of signs and of the lower bits of indices, a chunk's share.
__device__ inline void PackIndices(const Task& task, const Chunk& chunk) {
  const SparseVariable& vector = *chunk.variable;
  const uint32* const sent = task.to.sent + vector.entry;
  const uint32 width = PlaneWords(vector);
  const int64 count = static_cast<int64>(1 + vector.low_bits) * width;
  for (int64 word =
           static_cast<int64>(chunk.number - vector.first) * kThreads +
           threadIdx.x;
       word < count; word += static_cast<int64>(vector.chunks) * kThreads) {
    const uint32 plane = static_cast<uint32>(word) / width;
    const uint32 first = static_cast<uint32>(word) - plane * width;
    // Signs are before the bits of indices.
    const uint32 shift = plane == 0 ? 31 : plane - 1;
    uint32 bits = 0;
#pragma unroll 8
    for (int p = 0; p < 32; ++p) {
      const int64 rank = static_cast<int64>(p) * width + first;
      if (rank < vector.number) bits |= ((sent[rank] >> shift) & 1) << p;
    }
    task.to.words[vector.words + 1 + word] = bits;
  }
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_POSITIONS_H_
