// The limit of a selection: the smallest magnitude that is sent, to the bit.
//
// A sample gives a magnitude that slightly more elements reach than are sent,
// the candidates. Histograms of the 11, 10 and 10 bits of their magnitudes find
// the limit.

#ifndef TERNGRAD_NATIVE_GPU_CANDIDATES_H_
#define TERNGRAD_NATIVE_GPU_CANDIDATES_H_

#include "selection.h"

namespace terngrad_gpu {

// Vectors from this size on are sampled, about kSample elements of them.
constexpr int kSampled = 16384;
constexpr int kReadsOfSample = 16;
constexpr int kSample = kReadsOfSample * kThreads;

constexpr int kLowerBits = 10;
constexpr int kUpperShift = 2 * kLowerBits;
constexpr int kLargestBits = 0x7fffffff;

// Shared memory of a block of threads.
struct Workspace {
  int bins[kUpperBins];
  double sums[kThreads];
  WarpSums warps;
  int bin;
  int rank;
  int is_last;
};

// What a block of threads works on.
struct Task {
  const SparseVariables& variables;
  const Selecting& to;
  Workspace* space;
};

__device__ inline int MagnitudeOf(float value) {
  return __float_as_int(value) & kLargestBits;
}

__device__ inline void Clear(int* numbers, int count) {
  for (int i = threadIdx.x; i < count; i += kThreads) numbers[i] = 0;
}

// Adds 1 to the bin of each thread of a warp that has one, which is not -1. One
// thread adds those that are equal to the first.
__device__ inline void AddToBins(int bin, int* bins) {
  const uint32 has_bin = __ballot_sync(kAllLanes, bin >= 0);
  if (has_bin == 0) return;
  const int leader = __ffs(has_bin) - 1;
  const int first = __shfl_sync(kAllLanes, bin, leader);
  const uint32 equal = __ballot_sync(kAllLanes, bin == first);
  if (threadIdx.x % kWarp == leader) {
    atomicAdd(bins + first, __popc(equal));
  } else if (bin >= 0 && bin != first) {
    atomicAdd(bins + bin, 1);
  }
}

__device__ inline void Flush(const int* bins, int count, int* sums) {
  for (int i = threadIdx.x; i < count; i += kThreads) {
    if (bins[i] != 0) atomicAdd(sums + i, bins[i]);
  }
}

// Finds the bin of the element of a rank, from the last bin on, and its rank in
// it; they are in `space`. Returns the sum of all bins.
__device__ inline int FindBin(const volatile int* bins, int count, int rank,
                              Workspace* space) {
  const int each = count / kThreads;
  const int last = count - 1 - threadIdx.x * each;
  int sum = 0, total;
  for (int i = 0; i < each; ++i) sum += bins[last - i];
  const int before = Scan(sum, &space->warps, &total);
  if (before < rank && rank <= before + sum) {
    int bin = last;
    for (rank -= before; rank > bins[bin]; --bin) rank -= bins[bin];
    space->bin = bin;
    space->rank = rank;
  }
  __syncthreads();
  return total;
}

// --- the sample

__device__ inline const float* AddressOf(const SparseVariables& variables,
                                         const SparseVariable& vector,
                                         int64 index) {
  const SparseVariable& variable =
      variables.kind == kPairs
          ? FindBy(variables, &SparseVariable::start, index)
          : vector;
  return variable.data + (index - variable.start);
}

__device__ inline int64 StrideOfSample(int64 elements) {
  return elements / kSample + 1;
}

// A random element of each part of `stride` elements: steps of one length would
// meet only some columns of a matrix.
__device__ inline int64 SampledElement(uint32 part, int64 stride) {
  return part * stride +
         __umulhi(AlmostRandom(part, 0), static_cast<uint32>(stride));
}

// The magnitude, as bits, that a sample lets expect of the candidates.
__device__ inline int Likely(const SparseVariables& variables,
                             const SparseVariable& vector, Workspace* space) {
  const int64 stride = StrideOfSample(vector.elements);
  int sample[kReadsOfSample];
#pragma unroll
  for (int i = 0; i < kReadsOfSample; ++i) {
    const int64 index = SampledElement(i * kThreads + threadIdx.x, stride);
    sample[i] = index < vector.elements
                    ? MagnitudeOf(*AddressOf(variables, vector, index))
                    : -1;
  }
  // The expected number in the sample, plus six standard deviations.
  const double expected = static_cast<double>(vector.number) / stride;
  int rank = static_cast<int>(expected + 6 * sqrt(expected) + 2);
  int digits = 0;
#pragma unroll 1
  for (int digit = 0; digit < 3; ++digit) {
    const int count = digit == 0 ? kUpperBins : kLowerBins;
    const int shift = kUpperShift - digit * kLowerBits;
    Clear(space->bins, count);
    __syncthreads();  // Without it only the estimate would differ.
#pragma unroll
    for (int i = 0; i < kReadsOfSample; ++i) {
      const int bits = sample[i] >> shift;
      const bool counts = digit == 0 || bits >> kLowerBits == digits;
      AddToBins(sample[i] >= 0 && counts ? bits & (count - 1) : -1,
                space->bins);
    }
    __syncthreads();  // Without it only the estimate would differ.
    FindBin(space->bins, count, rank, space);
    digits = digits << kLowerBits | space->bin;
    rank = space->rank;
  }
  return digits;
}

__device__ inline void Start(const Task& task, int number) {
  const SparseVariable& vector = VectorAt(task.variables, number);
  Selection* const selection = task.to.selections + number;
  Clear(selection->bins, kUpperBins + 2 * kLowerBins);
  Clear(selection->ended, 5);
  int least = task.to.floor;
  if (vector.elements >= kSampled && vector.number <= vector.elements / 4) {
    const int likely = Likely(task.variables, vector, task.space);
    least = least < likely ? likely : least;
  }
  if (threadIdx.x == 0) selection->least = least;
}

// --- candidates

// Writes a mask of the elements whose magnitude is `least` or larger, and adds
// those up to `most` to the histogram.
__device__ inline void MarkCandidates(const Task& task, const Chunk& chunk,
                                      int least, int most) {
  int* const bins = task.space->bins;
  Clear(bins, kUpperBins);
  __syncthreads();
  const auto read = [&](int at) {
    return at < chunk.size ? chunk.data[at] : 0.0f;
  };
  const auto mark = [&](int at, float value) {
    const int bits = MagnitudeOf(value);
    const bool found = at < chunk.size && bits >= least;
    AddToBins(found && bits <= most ? bits >> kUpperShift : -1, bins);
    return found;
  };
  task.to.masks[static_cast<int64>(chunk.number) * kThreads + threadIdx.x] =
      CollectBits(read, mark);
  __syncthreads();
  Flush(bins, kUpperBins, task.to.selections[chunk.variable->vector].bins);
}

// Words that are not written as a whole: a chunk's share is 0 from now on.
__device__ inline void ClearWords(const Task& task, const Chunk& chunk) {
  const SparseVariable& vector = *chunk.variable;
  int64 from = vector.words, count = 0;
  if (task.variables.kind == kPairs) {
    count = 1 + 2 * vector.number;
  } else if (task.variables.kind == kSignedIndices) {
    from += 1 + (1 + vector.low_bits) * PlaneWords(vector);
    count = StringWords(vector);
  }
  for (int64 i =
           static_cast<int64>(chunk.number - vector.first) * kThreads +
           threadIdx.x;
       i < count; i += static_cast<int64>(vector.chunks) * kThreads) {
    task.to.words[from + i] = 0;
  }
}

__device__ inline void Candidates(const Task& task, const Chunk& chunk) {
  ClearWords(task, chunk);
  const int least = task.to.selections[chunk.variable->vector].least;
  MarkCandidates(task, chunk, least, kLargestBits);
}

__device__ inline void FinishCandidates(const Task& task,
                                        const SparseVariable& vector) {
  Selection* const selection = task.to.selections + vector.vector;
  const int number = static_cast<int>(vector.number);
  int least = selection->least;
  int total = FindBin(selection->bins, kUpperBins, number, task.space);
  if (total < number && least > task.to.floor) {
    // The sample was not like the other elements.
    for (int i = 0; i < vector.chunks; ++i) {
      MarkCandidates(task, ChunkOf(task.variables, vector.first + i),
                     task.to.floor, least - 1);
      __syncthreads();
    }
    least = task.to.floor;
    total = FindBin(selection->bins, kUpperBins, number, task.space);
  }
  if (threadIdx.x == 0) {
    // If not more are there, all of them are above the limit.
    const bool all = total <= number;
    selection->is_known = all;
    selection->digits = all ? least - 1 : task.space->bin;
    selection->rank = all ? 0 : task.space->rank;
  }
}

// --- the other digits

// The next of the bits that a thread has; -1 if none is left.
__device__ inline int NextBit(uint32* bits) {
  if (*bits == 0) return -1;
  const int bit = __ffs(*bits) - 1;
  *bits &= *bits - 1;
  return threadIdx.x * kWarp + bit;
}

__device__ inline uint32 MaskOf(const Task& task, const Chunk& chunk) {
  return task.to
      .masks[static_cast<int64>(chunk.number) * kThreads + threadIdx.x];
}

// Adds candidates with the known digits to the histogram of digit 1 or 2.
__device__ inline void CountDigit(const Task& task, const Chunk& chunk,
                                  int digit) {
  Selection* const selection =
      task.to.selections + chunk.variable->vector;
  if (selection->is_known) return;
  const int digits = selection->digits;
  const int shift = kUpperShift - digit * kLowerBits;
  int* const bins = task.space->bins;
  Clear(bins, kLowerBins);
  __syncthreads();
  uint32 left = MaskOf(task, chunk);
  while (__ballot_sync(kAllLanes, left != 0)) {
    const int at = NextBit(&left);
    int bin = -1;
    if (at >= 0) {
      const int bits = MagnitudeOf(chunk.data[at]) >> shift;
      if (bits >> kLowerBits == digits) bin = bits & (kLowerBins - 1);
    }
    AddToBins(bin, bins);
  }
  __syncthreads();
  Flush(bins, kLowerBins,
        selection->bins + kUpperBins + (digit - 1) * kLowerBins);
}

__device__ inline void FinishDigit(const Task& task,
                                   const SparseVariable& vector, int digit) {
  Selection* const selection = task.to.selections + vector.vector;
  if (selection->is_known) return;
  FindBin(selection->bins + kUpperBins + (digit - 1) * kLowerBins, kLowerBins,
          selection->rank, task.space);
  if (threadIdx.x == 0) {
    selection->digits = selection->digits << kLowerBits | task.space->bin;
    selection->rank = task.space->rank;
  }
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_CANDIDATES_H_
