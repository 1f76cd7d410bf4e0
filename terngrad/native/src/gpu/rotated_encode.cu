// Rotated blocks to digits of a few levels and a scale each.
//
// levels_impl.h has the same for CPUs, and explains the numbers.

#include "rotation.h"

namespace terngrad_gpu {

constexpr int kSumLanes = 32;    // Partial sums of the squares,
constexpr int kAlongLanes = 16;  // and of the products with levels.

// Adds lanes in their order.
__device__ inline double TotalOf(const double* lanes, int count) {
  double total = 0.0;
  for (int lane = 0; lane < count; ++lane) total += lanes[lane];
  return total;
}

// The sum of the squares of the elements in `shared`; of the first thread of
// the first warp, whose threads call it.
__device__ inline double SquareOf(const float* shared, int size,
                                  double* lanes) {
  const int lane = threadIdx.x;
  double sum = 0.0;
#pragma unroll 8
  for (int i = lane; i < size; i += kSumLanes) {
    const double wide = shared[PlaceOf(i)];
    // The square is exact, so that this is one rounding, as on the CPU.
    sum = __fma_rn(wide, wide, sum);
  }
  lanes[lane] = sum;
  __syncwarp();
  return TotalOf(lanes, kSumLanes);
}

// The sum of the products of magnitudes and levels, likewise.
__device__ inline double AlongOf(const float* shared,
                                 const unsigned char* indices,
                                 const Rotating& code, double* lanes) {
  const int lane = threadIdx.x;
  double sum = 0.0;
  if (lane < kAlongLanes) {
#pragma unroll 8
    for (int i = lane; i < code.block; i += kAlongLanes) {
      const double wide =
          __int_as_float(__float_as_int(shared[PlaceOf(i)]) & 0x7fffffff);
      const double level = code.levels[indices[i]];
      sum = __fma_rn(level, wide, sum);  // This product is exact, too.
    }
    lanes[lane] = sum;
  }
  __syncwarp();
  return TotalOf(lanes, kAlongLanes);
}

// The scale of a block; see `QuantizeBlock`.
__device__ inline uint32 ScaleOf(double square, double along,
                                 const Rotating& code) {
  const float scale = along == 0.0 ? 0.0f : static_cast<float>(square / along);
  const uint32 bits = static_cast<uint32>(__float_as_int(scale));
  // Scales of levels above 1 have 16 bits.
  return code.levels[code.num_levels - 1] > 1 ? (bits + 0x80) & ~0xffU : bits;
}

__device__ inline int DigitOf(int index, bool negative, const Rotating& code) {
  if (code.with_zero) return negative ? 1 - index : 1 + index;
  return negative ? index + code.num_levels : index;
}

// A block of threads for each block of elements. Writes the key, the scales,
// and a byte for each digit.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_rotated_encode(const __grid_constant__ Variables variables,
                            const float* factors, const double* borders,
                            const uint32* key,
                            const __grid_constant__ Rotating code,
                            uint32* words, unsigned char* digits) {
  __shared__ float shared[kShared];
  __shared__ unsigned char indices[kRotatedBlock];
  __shared__ double lanes[2][kSumLanes];
  __shared__ int below[kMostLevels];
  const int thread = threadIdx.x;
  const Variable* const all = AllOf(variables);
  const int64 begin = static_cast<int64>(blockIdx.x) * code.block;
  const uint32 first = key[0] + static_cast<uint32>(begin), second = key[1];
  float values[kRadix];
  int index = Find(variables, begin);
#pragma unroll
  for (int k = 0; k < kRadix; ++k) {
    const int i = thread + k * kThreads;
    values[k] = 0.0f;
    if (i < code.block && begin + i < variables.total) {
      index = Walk(all, index, begin + i);
      const float value = all[index].data[begin + i - all[index].start];
      values[k] = Signed(value * factors[index], first + i, second);
    }
  }
  Hadamard(values, code.block, shared);
  Store<kThreads>(values, shared);
  __syncthreads();
  double square = 0.0;
  if (thread < kSumLanes) {
    square = SquareOf(shared, code.block, lanes[0]);
    if (thread > 0 && thread < code.num_levels) {
      const double deviation = sqrt(square / code.block);
      const int bits = __float_as_int(
          static_cast<float>(borders[thread - 1] * deviation));
      // The largest magnitude below the level. Zeros are below any.
      below[thread] = (bits > 1 ? bits : 1) - 1;
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kRadix; ++k) {
    const int i = thread + k * kThreads;
    if (i >= code.block) break;
    const int bits = __float_as_int(values[k]) & 0x7fffffff;
    int level = 0;
    for (int n = 1; n < code.num_levels; ++n) level += bits > below[n];
    indices[i] = static_cast<unsigned char>(level);
    digits[begin + i] =
        static_cast<unsigned char>(DigitOf(level, values[k] < 0.0f, code));
  }
  __syncthreads();
  if (thread >= kSumLanes) return;
  const double along = AlongOf(shared, indices, code, lanes[1]);
  if (thread == 0) {
    words[kKeyWords + blockIdx.x] = ScaleOf(square, along, code);
  }
  if (blockIdx.x == 0 && thread < kKeyWords) words[thread] = key[thread];
}

// A thread a word.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_digits_pack(const unsigned char* digits, const Packing packing,
                         uint32* words) {
  constexpr int kReads = 8;  // So many wait for the memory together.
  const int64 word = static_cast<int64>(blockIdx.x) * kThreads + threadIdx.x;
  if (word >= packing.num_words) return;
  uint32 sum = 0, power = 1;
  for (int from = 0; from < packing.places; from += kReads) {
    uint32 some[kReads];
#pragma unroll
    for (int k = 0; k < kReads; ++k) {
      const int64 at = (from + k) * packing.num_words + word;
      some[k] = at < packing.num_digits ? digits[at] : packing.fill;
    }
#pragma unroll
    for (int k = 0; k < kReads; ++k) {
      if (from + k >= packing.places) break;
      sum += some[k] * power;
      power *= packing.base;
    }
  }
  words[word] = sum;
}

}  // namespace terngrad_gpu
