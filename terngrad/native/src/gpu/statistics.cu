// Standard deviations and largest magnitudes of variables, in two launches.

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

// One block of kStatisticsBlock elements for a block of threads.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_statistics_blocks(const __grid_constant__ Variables variables,
                               Partial* partials) {
  __shared__ float tile[kTile];
  __shared__ double sums[2][kLanes];
  __shared__ int largest;
  const int lane = threadIdx.x;  // Of the first warp.
  const Variable variable = AllOf(variables)[Find(variables, blockIdx.x)];
  const int64 begin = (blockIdx.x - variable.start) * kStatisticsBlock;
  const int64 end = begin + kStatisticsBlock < variable.size
                        ? begin + kStatisticsBlock
                        : variable.size;
  if (threadIdx.x == 0) largest = 0;
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
      tile[i * kThreads + threadIdx.x] = values[i];
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
        const double value = tile[row * kLanes + lane];
        sum += value;
        // The square is exact, so that this is one rounding, as on the CPU.
        squares = __fma_rn(value, value, squares);
      }
    }
  }
  if (lane < kLanes) {
    sums[0][lane] = sum;
    sums[1][lane] = squares;
  }
  Largest(magnitude, &largest);
  __syncthreads();
  if (lane < 2) {
    double total = 0.0;
    for (int i = 0; i < kLanes; ++i) total += sums[lane][i];
    Partial* const partial = partials + blockIdx.x;
    *(lane == 0 ? &partial->sum : &partial->squares) = total;
    if (lane == 0) partial->max_abs = largest;
  }
}

// Adds the blocks of a variable in order, and finishes its statistics; a block
// of threads for each variable. `partials` has the blocks of all variables.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_statistics_finish(const __grid_constant__ Variables variables,
                               const Partial* partials, float clip_factor,
                               float* stddevs, float* max_abs, float* clipped,
                               float* norms) {
  __shared__ double sums[2][kThreads];
  __shared__ double squares;
  __shared__ int largest;
  const Variable variable = AllOf(variables)[blockIdx.x];
  const int64 blocks =
      (variable.size + kStatisticsBlock - 1) / kStatisticsBlock;
  if (threadIdx.x == 0) largest = 0;
  double total = 0.0;
  int magnitude = 0;
  int64 from = 0;
  do {  // Once without blocks, for its barriers.
    const int64 rest = blocks - from;
    const int count = rest < kThreads ? static_cast<int>(rest) : kThreads;
    __syncthreads();
    if (threadIdx.x < count) {
      const Partial& partial = partials[variable.start + from + threadIdx.x];
      sums[0][threadIdx.x] = partial.sum;
      sums[1][threadIdx.x] = partial.squares;
      magnitude = magnitude < partial.max_abs ? partial.max_abs : magnitude;
    }
    __syncthreads();
    // Two warps, so that the sums are added at the same time.
    if (threadIdx.x == 0 || threadIdx.x == kLanes) {
      const double* const some = sums[threadIdx.x / kLanes];
#pragma unroll 8
      for (int i = 0; i < count; ++i) total += some[i];
    }
    from += kThreads;
  } while (from < blocks);
  Largest(magnitude, &largest);
  if (threadIdx.x == kLanes) squares = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  // Without elements the mean is NaN and both results are 0.
  const double size = static_cast<double>(variable.size);
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
  const float limit = clip_factor * deviation;
  stddevs[blockIdx.x] = deviation;
  max_abs[blockIdx.x] = most;
  norms[blockIdx.x] = norm;
  clipped[blockIdx.x] = limit > 0.0f && most > limit ? limit : most;
}

}  // namespace terngrad_gpu
