// The scales of groups of elements; grouping_impl.h has the same for CPUs.

#include "fp8.h"

namespace terngrad_gpu {

constexpr int kReads = 16;  // Of a thread at a time.

// The value of one level, as in kernels.cc.
__device__ inline float StepOf(float span, int levels) {
  const float inverse = static_cast<float>(1.0 / levels);
  uint32 bits = (BitsOf(span * inverse) + 0xff) & ~0xffU;
  if (FloatOf(bits) * static_cast<float>(levels) < span) bits += 0x100;
  const float step = FloatOf(bits);
  return step >= kMinScaler ? step : 0.0f;
}

// Writes the scales of a group of `size` elements; the second one `groups`
// words after the first.
__device__ inline void FinishGroup(const Extent& extent, const Grouping& code,
                                   int64 size, int64 groups, float* scales) {
  if (code.kind == kSigns) {
    scales[0] = static_cast<float>(extent.sum * (1.0 / size));
  } else if (code.kind == kSpans) {
    const float least = Limited(extent.least);
    scales[0] = least == 0.0f ? 0.0f : least;
    scales[groups] = StepOf(Limited(extent.largest) - least, code.levels);
  } else if (code.kind == kFloats) {
    scales[0] = Fp8Scale(extent.largest, code.levels);
  } else {
    const double norm = sqrt(extent.sum);
    const float span =
        code.is_norm
            ? static_cast<float>(kLargestFloat < norm ? kLargestFloat : norm)
            : extent.largest;
    scales[0] = StepOf(Limited(span), code.levels);
  }
}

// The extent of elements [begin, end) of a group that begins with `first`, for
// the threads of a warp. Only its first thread has the sum.
__device__ inline Extent Measure(const float* data, int64 begin, int64 end,
                                 const Grouping& code, double* sums) {
  const int lane = threadIdx.x % kWarp;
  const bool adds = code.kind == kSigns || code.is_norm;
  const float padding = code.kind == kSpans ? data[begin] : 0.0f;
  double sum = 0.0;
  int magnitude = 0;
  float least = data[begin], largest = data[begin];
  for (int64 from = begin; from < end; from += kReads * kWarp) {
    float values[kReads];
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int64 at = from + i * kWarp + lane;
      values[i] = at < end ? data[at] : padding;
    }
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const float value = values[i];
      const int bits = __float_as_int(value) & 0x7fffffff;
      if (adds) {
        const double wide = __int_as_float(bits);
        // The square is exact, so that this is one rounding, as on the CPU.
        sum = code.kind == kSigns ? sum + wide : __fma_rn(wide, wide, sum);
      } else if (code.kind != kSpans) {
        magnitude = magnitude < bits ? bits : magnitude;
      } else {
        least = value < least ? value : least;
        largest = largest < value ? value : largest;
      }
    }
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const int bits = __shfl_xor_sync(0xffffffffU, magnitude, distance);
    const float low = __shfl_xor_sync(0xffffffffU, least, distance);
    const float high = __shfl_xor_sync(0xffffffffU, largest, distance);
    magnitude = magnitude < bits ? bits : magnitude;
    least = low < least ? low : least;
    largest = largest < high ? high : largest;
  }
  sums[lane] = sum;
  __syncwarp();
  if (code.kind != kSpans) largest = __int_as_float(magnitude);
  Extent extent = {least, largest, 0.0};
  if (adds && lane == 0) {
    for (int i = 0; i < kWarp; ++i) extent.sum += sums[i];
  }
  return extent;
}

// A warp for each block of kExtentBlock elements of a group: writes the scales
// of groups of one block, and the extents of the blocks of larger groups.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_groups_measure(const __grid_constant__ GroupedVariables variables,
                            const Grouping code, Extent* extents,
                            uint32* words) {
  __shared__ double sums[kWarps][kWarp];
  const int warp = threadIdx.x / kWarp;
  const int64 number = static_cast<int64>(blockIdx.x) * kWarps + warp;
  if (number >= variables.extents) return;
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::extent, number);
  const int64 blocks = CeilDivided(variable.group, kExtentBlock);
  const int64 group = (number - variable.extent) / blocks;
  const int64 block = (number - variable.extent) % blocks;
  const int64 first = group * variable.group;
  const int64 last = first + variable.group < variable.size
                         ? first + variable.group
                         : variable.size;
  const int64 begin = first + block * kExtentBlock;
  // The last group may have fewer blocks.
  if (begin >= last) return;
  const int64 end = begin + kExtentBlock < last ? begin + kExtentBlock : last;
  const Extent extent = Measure(variable.data, begin, end, code, sums[warp]);
  if (threadIdx.x % kWarp != 0) return;
  if (blocks > 1) {
    extents[number] = extent;
  } else {
    float* const scales = reinterpret_cast<float*>(words + variable.words);
    FinishGroup(extent, code, last - first,
                CeilDivided(variable.size, variable.group), scales + group);
  }
}

// Joins the extents of the blocks of a large group, in order; a block of
// threads for each group.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_groups_finish(const __grid_constant__ GroupedVariables variables,
                           const Grouping code, const Extent* extents,
                           uint32* words) {
  __shared__ Extent some[kThreads];
  __shared__ float least, largest;
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::finish, blockIdx.x);
  const int64 group = blockIdx.x - variable.finish;
  const int64 rest = variable.size - group * variable.group;
  const int64 size = variable.group < rest ? variable.group : rest;
  const int64 blocks = CeilDivided(size, kExtentBlock);
  const Extent* const from = extents + variable.extent +
                             group * CeilDivided(variable.group, kExtentBlock);
  Extent all = from[0];
  for (int64 done = 0; done < blocks; done += kThreads) {
    const int count =
        blocks - done < kThreads ? static_cast<int>(blocks - done) : kThreads;
    __syncthreads();
    if (threadIdx.x < count) some[threadIdx.x] = from[done + threadIdx.x];
    __syncthreads();
    // Three warps, so that the numbers are joined at the same time.
    for (int i = done == 0; i < count; ++i) {
      if (threadIdx.x == 0) all.sum += some[i].sum;
      if (threadIdx.x == kWarp && some[i].least < all.least) {
        all.least = some[i].least;
      }
      if (threadIdx.x == 2 * kWarp && all.largest < some[i].largest) {
        all.largest = some[i].largest;
      }
      if (threadIdx.x % kWarp != 0) break;
    }
  }
  if (threadIdx.x == kWarp) least = all.least;
  if (threadIdx.x == 2 * kWarp) largest = all.largest;
  __syncthreads();
  if (threadIdx.x == 0) {
    const Extent joined = {least, largest, all.sum};
    FinishGroup(joined, code, size, CeilDivided(variable.size, variable.group),
                reinterpret_cast<float*>(words + variable.words) + group);
  }
}

}  // namespace terngrad_gpu
