// Standard deviations and largest magnitudes of variables.
//
// Blocks of threads that end late add the sums of all blocks, in order.

#include "device.h"

namespace terngrad_gpu {

// Elements that a block of threads has in shared memory, which one warp adds
// while the others read the next ones.
constexpr int kTile = 4096;
constexpr int kPerThread = kTile / kThreads;

// The parallel partial sums of encoding_impl.h: as many as a warp has lanes.
constexpr int kLanes = 32;

// A gradient counts as constant below this ratio of variance to mean square.
constexpr double kConstant = 0x1p-32;
constexpr double kLargestDouble = 0x1.fffffffffffffp1023;

// Reads elements [from, from + kTile) of `size`; those past the end are 0,
// which changes no sum.
__device__ inline void ReadTile(const float* data, int64 size, int64 from,
                                float* values) {
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64 at = from + i * kThreads + threadIdx.x;
    values[i] = at < size ? data[at] : 0.0f;
  }
}

// Writes the largest of the threads' magnitudes to *largest, which is 0. Other
// threads see it after a barrier.
__device__ inline void Largest(int magnitude, int* largest) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    const int other = __shfl_xor_sync(0xffffffffU, magnitude, distance);
    magnitude = magnitude < other ? other : magnitude;
  }
  if (threadIdx.x % kLanes == 0) atomicMax(largest, magnitude);
}

// Shared memory of a block of threads.
struct StatisticsSpace {
  float tile[kTile];
  double sums[2][kThreads];
  int largest;
  int is_last;
};

// Writes the sums of one block of kStatisticsBlock elements, from `begin` on.
__device__ inline void MeasureBlock(const Variable& variable, int64 begin,
                                    StatisticsSpace* space, Partial* partial) {
  const int lane = threadIdx.x;  // Of the first warp.
  const int64 end = begin + kStatisticsBlock < variable.size
                        ? begin + kStatisticsBlock
                        : variable.size;
  if (threadIdx.x == 0) space->largest = 0;
  double sum = 0.0, squares = 0.0;
  int magnitude = 0;
  float values[kPerThread];
  ReadTile(variable.data, end, begin, values);
  for (int64 from = begin; from < end; from += kTile) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int bits = __float_as_int(values[i]) & 0x7fffffff;
      magnitude = magnitude < bits ? bits : magnitude;
      space->tile[i * kThreads + threadIdx.x] = values[i];
    }
    __syncthreads();
    ReadTile(variable.data, end, from + kTile, values);
    if (lane < kLanes) {
      const int64 rest = end - from;
      const int rows = rest < kTile
                           ? static_cast<int>((rest + kLanes - 1) / kLanes)
                           : kTile / kLanes;
#pragma unroll 8
      for (int row = 0; row < rows; ++row) {
        const double value = space->tile[row * kLanes + lane];
        sum += value;
        // The square is exact, so that this is one rounding, as on the CPU.
        squares = __fma_rn(value, value, squares);
      }
    }
  }
  if (lane < kLanes) {
    space->sums[0][lane] = sum;
    space->sums[1][lane] = squares;
  }
  Largest(magnitude, &space->largest);
  __syncthreads();
  if (lane < 2) {
    double total = 0.0;
    for (int i = 0; i < kLanes; ++i) total += space->sums[lane][i];
    *(lane == 0 ? &partial->sum : &partial->squares) = total;
    if (lane == 0) partial->max_abs = space->largest;
  }
}

// Writes the statistics of variable `index`, whose elements have these sums.
__device__ inline void WriteStatistics(int index, double size, double total,
                                       double squares, int largest,
                                       const StatisticsOutputs& to) {
  // Without elements the mean is NaN and all results are 0.
  float deviation = 0.0f, most = 0.0f, norm = 0.0f;
  if (!(squares <= kLargestDouble)) {
    deviation = most = norm = __int_as_float(0x7fc00000);
  } else {
    const double mean = total / size, mean_square = squares / size;
    const double variance = mean_square - mean * mean;
    if (variance > kConstant * mean_square) {
      deviation = static_cast<float>(sqrt(variance));
    }
    const double root = sqrt(squares);
    norm = static_cast<float>(kLargestFloat < root ? kLargestFloat : root);
    most = largest < kLeastNormal ? 0.0f : __int_as_float(largest);
  }
  const float limit = to.clip_factor * deviation;
  to.stddevs[index] = deviation;
  to.max_abs[index] = most;
  to.norms[index] = norm;
  to.clipped[index] = limit > 0.0f && most > limit ? limit : most;
}

// Adds the sums of `count` blocks, which other blocks of threads have written,
// in order, to those before them if there are any. The last of the partials
// becomes the result.
__device__ inline void AddBlocks(volatile Partial* partials, int count,
                                 bool has_before, StatisticsSpace* space) {
  if (threadIdx.x == 0) {
    space->largest = has_before ? partials[-1].max_abs : 0;
  }
  int magnitude = 0;
  if (threadIdx.x < count) {
    space->sums[0][threadIdx.x] = partials[threadIdx.x].sum;
    space->sums[1][threadIdx.x] = partials[threadIdx.x].squares;
    magnitude = partials[threadIdx.x].max_abs;
  }
  __syncthreads();
  volatile Partial* const result = partials + (count - 1);
  // Two warps, so that the sums are added at the same time.
  if (threadIdx.x == 0 || threadIdx.x == kLanes) {
    const bool is_sum = threadIdx.x == 0;
    const double* const some = space->sums[is_sum ? 0 : 1];
    double total = !has_before ? 0.0
                   : is_sum    ? partials[-1].sum
                               : partials[-1].squares;
#pragma unroll 16
    for (int i = 0; i < count; ++i) total += some[i];
    *(is_sum ? &result->sum : &result->squares) = total;
  }
  Largest(magnitude, &space->largest);
  __syncthreads();
  if (threadIdx.x == 0) result->max_abs = space->largest;
}

// Ends a block of `blocks` of a variable. The additions are in order, so they
// cannot begin at the end, when nothing else is left to do: whoever completes
// kThreads blocks adds their sums, or, if the sums before them are not known
// yet, whoever completes those. `ended` counts both events.
__device__ inline bool IsAdded(int64 block, int64 blocks, Partial* partials,
                               int* ended, StatisticsSpace* space) {
  int64 first = block / kThreads * kThreads;
  for (; first < blocks; first += kThreads) {
    const int count =
        blocks - first < kThreads ? static_cast<int>(blocks - first) : kThreads;
    int* const events = ended + first / kThreads;
    if (!IsLast(events, count + (first > 0), &space->is_last)) return false;
    if (threadIdx.x == 0) *events = 0;
    AddBlocks(partials + first, count, first > 0, space);
  }
  return true;
}

// A block of threads for each block of kStatisticsBlock elements, or one if
// there are no elements. `ended` has NumEnded numbers, which are 0 before and
// after.
extern "C" __global__ void __launch_bounds__(kThreads, 5)
    terngrad_statistics(const __grid_constant__ Variables variables,
                        Partial* partials, int* ended,
                        const __grid_constant__ StatisticsOutputs to) {
  __shared__ StatisticsSpace space;
  const Variable* const all = AllOf(variables);
  if (blockIdx.x == 0) {
    for (int i = threadIdx.x; i < variables.count; i += kThreads) {
      if (all[i].size == 0) WriteStatistics(i, 0.0, 0.0, 0.0, 0, to);
    }
  }
  const int index = Find(variables, blockIdx.x);
  const Variable variable = all[index];
  if (variable.size == 0) return;
  const int64 blocks =
      (variable.size + kStatisticsBlock - 1) / kStatisticsBlock;
  Partial* const own = partials + variable.start;
  const int64 block = blockIdx.x - variable.start;
  MeasureBlock(variable, block * kStatisticsBlock, &space, own + block);
  // Variables that follow each other have numbers that do not overlap.
  if (!IsAdded(block, blocks, own, ended + variable.start / kThreads + index,
               &space)) {
    return;
  }
  if (threadIdx.x == 0) {
    const volatile Partial& all = own[blocks - 1];
    WriteStatistics(index, static_cast<double>(variable.size), all.sum,
                    all.squares, all.max_abs, to);
  }
}

}  // namespace terngrad_gpu
