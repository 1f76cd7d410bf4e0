// Rotated blocks to digits of a few levels and a scale each.
//
// levels_impl.h has the same for CPUs, and explains the numbers.

#include "groups.h"
#include "rotation.h"

namespace terngrad_gpu {

constexpr int kSumLanes = 32;    // Partial sums of the squares,
constexpr int kAlongLanes = 16;  // and of the products with levels.

// The shared memory of a block: its elements, rotated, then its numbers.
union Elements {
  float parts[kShared];
  double wide[kRotatedBlock];
};

struct RotatedSpace {
  Elements elements;
  double lanes[kSumLanes];
  double levels[kMostLevels];
  int below[kMostLevels];  // The largest magnitude below a level, as bits.
};

// Writes the elements of a block times their factors and signs.
__device__ inline void FillSigned(const Variables& variables,
                                  const float* factors, const Key& key,
                                  int64 begin, int block, float* shared) {
  const Variable* const all = AllOf(variables);
  int index = Find(variables, begin);
  const int thread = threadIdx.x;
  const uint32 first = key.first + static_cast<uint32>(begin);
  const int64 offset = begin - all[index].start;
  if (block == kRotatedBlock && offset + block <= all[index].size) {
    const float* const from = all[index].data + offset + thread;
    const float factor = factors[index];
    float values[kRadix];
#pragma unroll
    for (int k = 0; k < kRadix; ++k) values[k] = from[k * kThreads];
#pragma unroll
    for (int k = 0; k < kRadix; ++k) {
      values[k] =
          Signed(values[k] * factor, first + thread + k * kThreads, key.second);
    }
    Store<kThreads>(values, shared);
    return;
  }
#pragma unroll 1
  for (int i = thread; i < block; i += kThreads) {
    float value = 0.0f;
    if (begin + i < variables.total) {
      index = Walk(all, index, begin + i);
      value = all[index].data[begin + i - all[index].start];
      value = Signed(value * factors[index], first + i, key.second);
    }
    shared[PlaceOf(i)] = value;
  }
}

// The total of sums of every kLanes-th number, each added in order, as the CPU
// adds them: of the squares, which are exact, or of the numbers. A warp calls
// it.
template <int kLanes, bool kSquares>
__device__ inline double TotalOf(const double* numbers, int size,
                                 double* lanes) {
  const int lane = threadIdx.x % kWarp;
  double sum = 0.0;
  if (lane < kLanes) {
// Reads wait together. While squares are added the elements have registers.
#pragma unroll(kSquares ? 8 : 16)
    for (int i = lane; i < size; i += kLanes) {
      sum = __fma_rn(numbers[i], kSquares ? numbers[i] : 1.0, sum);
    }
    lanes[lane] = sum;
  }
  __syncwarp();
  double total = 0.0;
  for (int k = 0; k < kLanes; ++k) total += lanes[k];
  return total;
}

// The scale of a block; see `QuantizeBlock`.
__device__ inline uint32 ScaleOf(double square, double along,
                                 const Rotating& code) {
  const float scale = along == 0.0 ? 0.0f : static_cast<float>(square / along);
  // Rounding would make a number of a NaN of other bits.
  if (scale != scale) return kQuietNan;
  const uint32 bits = static_cast<uint32>(__float_as_int(scale));
  // Scales of levels above 1 have 16 bits.
  return code.levels[code.num_levels - 1] > 1 ? (bits + 0x80) & ~0xffU : bits;
}

// Writes the digits of a block, and the products of magnitudes and levels over
// the elements.
__device__ inline void Quantize(const float* values, const Rotating& code,
                                unsigned char* digits, RotatedSpace* space) {
  constexpr int kSome = 4;  // They share the reads of borders.
  // The digits of index 0, above and below 0, and the step to the next ones.
  const int above = code.with_zero, step = code.with_zero ? -1 : 1;
  const int negative = code.with_zero ? 1 : code.num_levels;
  double* const wide = space->elements.wide + threadIdx.x;
  unsigned char* const to = digits + threadIdx.x;
#pragma unroll
  for (int from = 0; from < kRadix; from += kSome) {
    uint32 index[kSome] = {};
#pragma unroll 1
    for (int n = 1; n < code.num_levels; ++n) {
      const uint32 below = space->below[n];
#pragma unroll
      for (int k = 0; k < kSome; ++k) {
        // Adds 1 to the index if the magnitude is larger.
        index[k] += (below - (BitsOf(values[from + k]) & 0x7fffffff)) >> 31;
      }
    }
#pragma unroll
    for (int k = 0; k < kSome; ++k) {
      const int at = (from + k) * kThreads;
      wide[at] = fabs(wide[at]) * space->levels[index[k]];
      const int digit = values[from + k] < 0.0f ? negative + step * index[k]
                                                : above + index[k];
      if (threadIdx.x + at < code.block) to[at] = digit;
    }
  }
}

// A block of threads for each block of elements. Writes the key, the scales,
// and a byte for each digit.
extern "C" __global__ void __launch_bounds__(kThreads, 5)
    terngrad_rotated_encode(const __grid_constant__ Variables variables,
                            const float* factors, const double* borders,
                            const Key key,
                            const __grid_constant__ Rotating code,
                            uint32* words, unsigned char* digits) {
  __shared__ RotatedSpace space;
  const int thread = threadIdx.x, lane = thread % kWarp;
  const int64 begin = static_cast<int64>(blockIdx.x) * code.block;
  if (thread < code.num_levels) space.levels[thread] = code.levels[thread];
  FillSigned(variables, factors, key, begin, code.block, space.elements.parts);
  float values[kRadix];
  Hadamard(space.elements.parts, code.block, values);
  __syncthreads();
  double* const wide = space.elements.wide;
#pragma unroll
  for (int k = 0; k < kRadix; ++k) wide[thread + k * kThreads] = values[k];
  __syncthreads();
  // A warp adds. It is another one in the next block, as each warp has one of
  // the four schedulers of a multiprocessor.
  const bool adds = thread / kWarp == blockIdx.x % kWarps;
  double square = 0.0;
  if (adds) {
    square = TotalOf<kSumLanes, true>(wide, code.block, space.lanes);
    if (lane > 0 && lane < code.num_levels) {
      const double deviation = sqrt(square / code.block);
      const float least = static_cast<float>(borders[lane - 1] * deviation);
      const int bits = __float_as_int(least);
      // Zeros are below any level, and all are below NaN.
      space.below[lane] =
          least != least ? 0x7fffffff : (bits > 1 ? bits : 1) - 1;
    }
  }
  __syncthreads();
  Quantize(values, code, digits + begin, &space);
  __syncthreads();
  if (!adds) return;
  const double along =
      TotalOf<kAlongLanes, false>(wide, code.block, space.lanes);
  if (lane != 0) return;
  words[kKeyWords + blockIdx.x] = ScaleOf(square, along, code);
  if (blockIdx.x == 0) {
    words[0] = key.first;
    words[1] = key.second;
  }
}

// A thread a word.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_digits_pack(const unsigned char* digits, const Packing packing,
                         uint32* words) {
  constexpr int kReads = 4;  // So many wait for the memory together.
  const int64 word = static_cast<int64>(blockIdx.x) * kThreads + threadIdx.x;
  if (word >= packing.num_words) return;
  const int64 last = (packing.places - 1) * packing.num_words + word;
  uint32 sum = 0, power = 1;
  if (last < packing.num_digits) {
    const unsigned char* from = digits + word;
    // All numbers of places are multiples of kReads.
    for (int p = 0; p < packing.places; p += kReads) {
      uint32 some[kReads];
#pragma unroll
      for (int k = 0; k < kReads; ++k) {
        some[k] = *from;
        from += packing.num_words;
      }
#pragma unroll
      for (int k = 0; k < kReads; ++k) {
        sum += some[k] * power;
        power *= packing.base;
      }
    }
  } else {
    for (int64 at = word; at <= last; at += packing.num_words) {
      sum += power * (at < packing.num_digits ? digits[at] : packing.fill);
      power *= packing.base;
    }
  }
  words[word] = sum;
}

}  // namespace terngrad_gpu
