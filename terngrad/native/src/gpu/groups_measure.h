// The scales of groups of elements; measuring_impl.h has the same for CPUs.

#ifndef TERNGRAD_NATIVE_GPU_GROUPS_MEASURE_H_
#define TERNGRAD_NATIVE_GPU_GROUPS_MEASURE_H_

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

// A number, or the NaN of payloads.
__device__ inline float Known(float value) {
  return value == value ? value : FloatOf(kQuietNan);
}

// Writes the scales of a group of `size` elements; the second one `groups`
// words after the first.
__device__ inline void FinishGroup(const Extent& extent, const Grouping& code,
                                   int64 size, int64 groups, float* scales) {
  if (code.kind == kSigns) {
    scales[0] = Known(static_cast<float>(extent.sum * (1.0 / size)));
  } else if (code.kind == kSpans) {
    const float least = Known(Limited(extent.least));
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

// What of a group decides its scales.
enum Measured { kSum, kSquares, kMagnitude, kRange };

__device__ inline Measured MeasuredBy(const Grouping& code) {
  return code.kind == kSigns   ? kSum
         : code.is_norm        ? kSquares
         : code.kind == kSpans ? kRange
                               : kMagnitude;
}

// Adds a value to what a thread has measured. NaN remains: comparisons with it
// are false.
template <Measured kMeasured>
__device__ inline void Add(float value, Extent* extent) {
  if (kMeasured == kRange) {
    const bool is_nan = value != value;
    if (value < extent->least || is_nan) extent->least = value;
    if (extent->largest < value || is_nan) extent->largest = value;
  } else if (kMeasured == kMagnitude) {
    const int bits = __float_as_int(fabsf(value));
    const int most = __float_as_int(extent->largest);
    extent->largest = __int_as_float(most < bits ? bits : most);
  } else {
    const double wide = fabsf(value);
    // The square is exact, so that this is one rounding, as on the CPU.
    extent->sum = kMeasured == kSum ? extent->sum + wide
                                    : __fma_rn(wide, wide, extent->sum);
  }
}

// The extent of `count` elements, for the threads of a warp. Only its first
// thread has the sum.
template <Measured kMeasured>
__device__ inline Extent Measure(const float* data, int count, double* sums) {
  constexpr bool kAdds = kMeasured == kSum || kMeasured == kSquares;
  const int lane = threadIdx.x % kWarp;
  const float padding = kMeasured == kRange ? data[0] : 0.0f;
  Extent extent = {padding, padding, 0.0};
  for (int from = lane; from < count; from += kReads * kWarp) {
    float values[kReads];
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int at = from + i * kWarp;
      values[i] = at < count ? data[at] : padding;
    }
#pragma unroll
    for (int i = 0; i < kReads; ++i) Add<kMeasured>(values[i], &extent);
  }
  if (kAdds) {
    sums[lane] = extent.sum;
    __syncwarp();
    if (lane == 0) {
      extent.sum = 0.0;
#pragma unroll 8
      for (int i = 0; i < kWarp; ++i) extent.sum += sums[i];
    }
    return extent;
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const float least = __shfl_xor_sync(0xffffffffU, extent.least, distance);
    const float most = __shfl_xor_sync(0xffffffffU, extent.largest, distance);
    Add<kMeasured>(most, &extent);
    if (kMeasured == kRange) Add<kMeasured>(least, &extent);
  }
  return extent;
}

__device__ inline Extent Measure(const float* data, int count,
                                 const Grouping& code, double* sums) {
  switch (MeasuredBy(code)) {
    case kSum:
      return Measure<kSum>(data, count, sums);
    case kSquares:
      return Measure<kSquares>(data, count, sums);
    case kMagnitude:
      return Measure<kMagnitude>(data, count, sums);
    default:
      return Measure<kRange>(data, count, sums);
  }
}

// Measures an extent of a variable, of number `number` there: writes the scales
// of a group of one, and otherwise the extent for `Finish`; for a warp.
__device__ inline void MeasureExtent(const GroupedVariable& variable,
                                     const Grouping& code, int64 number,
                                     Extent* extents, uint32* words,
                                     double* sums) {
  const int64 blocks = CeilDivided(variable.group, kExtentBlock);
  const int64 group = Divided(number, blocks);
  const int64 block = number - group * blocks;
  const int64 first = group * variable.group;
  const int64 last = first + variable.group < variable.size
                         ? first + variable.group
                         : variable.size;
  const int64 begin = first + block * kExtentBlock;
  // The last group may have fewer blocks.
  if (begin >= last) return;
  const int64 rest = last - begin;
  const Extent extent = Measure(
      variable.data + begin,
      static_cast<int>(rest < kExtentBlock ? rest : kExtentBlock), code, sums);
  if (threadIdx.x % kWarp != 0) return;
  if (blocks > 1) {
    extents[number] = extent;
  } else {
    float* const scales = reinterpret_cast<float*>(words + variable.words);
    FinishGroup(extent, code, last - first, variable.num_groups,
                scales + group);
  }
}

// The sum of the blocks' sums, in order. Only the first thread has it.
__device__ inline double SumOf(const Extent* extents, int64 blocks,
                               Extent* some) {
  const auto read = [&](int64 at) {
    return at < blocks ? extents[at].sum : 0.0;
  };
  double sum = 0.0, next = read(threadIdx.x);
  for (int64 done = 0; done < blocks; done += kThreads) {
    const int count =
        blocks - done < kThreads ? static_cast<int>(blocks - done) : kThreads;
    __syncthreads();
    some[threadIdx.x].sum = next;
    __syncthreads();
    next = read(done + kThreads + threadIdx.x);
    if (threadIdx.x == 0) {
#pragma unroll 16
      for (int i = 0; i < count; ++i) sum += some[i].sum;
    }
  }
  return sum;
}

// The smallest and the largest number of all blocks; NaN if one has NaN.
__device__ inline Extent RangeOf(const Extent* extents, int64 blocks,
                                 Extent* some) {
  Extent all = extents[0];
  const auto join = [&](const Extent& one) {
    const bool is_nan = one.largest != one.largest;
    if (one.least < all.least || is_nan) all.least = one.least;
    if (all.largest < one.largest || is_nan) all.largest = one.largest;
  };
  for (int64 i = threadIdx.x; i < blocks; i += kThreads) join(extents[i]);
  some[threadIdx.x] = all;
  __syncthreads();
  for (int i = 0; i < kThreads; ++i) join(some[i]);
  return all;
}

// Joins the extents of a group of several and writes its scales; for a block of
// threads. `extents` are those of the variable.
__device__ inline void Finish(const GroupedVariable& variable,
                              const Grouping& code, int64 group,
                              const Extent* extents, uint32* words,
                              Extent* some) {
  const int64 rest = variable.size - group * variable.group;
  const int64 size = variable.group < rest ? variable.group : rest;
  const int64 blocks = CeilDivided(size, kExtentBlock);
  const Extent* const from =
      extents + group * CeilDivided(variable.group, kExtentBlock);
  const Measured measured = MeasuredBy(code);
  Extent all = {};
  if (measured == kSum || measured == kSquares) {
    all.sum = SumOf(from, blocks, some);
  } else {
    all = RangeOf(from, blocks, some);
  }
  if (threadIdx.x == 0) {
    FinishGroup(all, code, size, variable.num_groups,
                reinterpret_cast<float*>(words + variable.words) + group);
  }
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_GROUPS_MEASURE_H_
