// Digits and scales of rotated blocks to elements.
//
// levels_impl.h has the same for CPUs, and explains the numbers.

#include "groups.h"
#include "rotation.h"

namespace terngrad_gpu {

// The scale of a block divided by its size, a power of 2; see `KnownScale`.
__device__ inline float KnownScale(uint32 bits, const Rotating& code) {
  constexpr int kLeast = (127 - 100) << 23, kMost = (127 + 100) << 23;
  const bool is_coarse = code.levels[code.num_levels - 1] > 1;
  int scale = static_cast<int>(bits & (is_coarse ? 0x7fffff00U : 0x7fffffffU));
  scale = scale < kMost ? scale : kMost;
  const int size = __float_as_int(static_cast<float>(code.block));
  return __int_as_float(scale < kLeast ? 0 : scale) *
         __int_as_float((254 << 23) - size);
}

// The value of a digit, in units of 1.
__device__ inline float LevelOf(int digit, const Rotating& code) {
  if (code.with_zero) return static_cast<float>(digit - 1);
  const float level =
      static_cast<float>(code.levels[digit & (code.num_levels - 1)]);
  // Higher bits of corrupted digits are ignored.
  return digit & code.num_levels ? -level : level;
}

// A digit of a word. The product with the inverse of a power of the base is a
// fraction of 2^64, below the next multiple of the power: its rounding error is
// less than 2^32, and a multiple is 2^32 or more.
__device__ inline uint32 DigitOf(uint32 word, uint64 inverse, uint32 base) {
  const uint64 fraction = word * inverse;
  const uint32 carry = __umulhi(static_cast<uint32>(fraction), base);
  return ((fraction >> 32) * base + carry) >> 32;
}

// The first digit of a block.
struct FirstDigit {
  uint32 place;
  uint32 word;
};

__device__ inline FirstDigit FirstDigitOf(int64 begin, int64 num_words) {
  const int lane = threadIdx.x % kWarp;
  const uint32 before = __ballot_sync(~0U, lane * num_words <= begin);
  const int place = __popc(before) - 1;
  return {static_cast<uint32>(place),
          static_cast<uint32>(begin - place * num_words)};
}

// Writes the levels of a block's digits times `unit`.
__device__ inline void ReadLevels(const uint32* words, const FirstDigit& first,
                                  const Unpacking& packing, int block,
                                  const float* levels, float unit,
                                  float* shared) {
  const uint32 num_words = static_cast<uint32>(packing.num_words);
  if (block == kRotatedBlock && first.word + kRotatedBlock <= num_words) {
    // One place has all digits. The reads wait together.
    const uint32* const from = words + first.word + threadIdx.x;
    const uint64 inverse = packing.inverses[first.place];
    uint32 some[kRadix];
    float values[kRadix];
#pragma unroll
    for (int k = 0; k < kRadix; ++k) some[k] = from[k * kThreads];
#pragma unroll
    for (int k = 0; k < kRadix; ++k) {
      values[k] = levels[DigitOf(some[k], inverse, packing.base)] * unit;
    }
    Store<kThreads>(values, shared);
    return;
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < block; i += kThreads) {
    const uint32 place = (first.word + i) / num_words;
    const uint32 word = words[first.word + i - place * num_words];
    const uint64 inverse = packing.inverses[first.place + place];
    shared[PlaceOf(i)] = levels[DigitOf(word, inverse, packing.base)] * unit;
  }
}

// Writes the elements of a block, times the factors of their variables.
__device__ inline void WriteSums(const Variables& variables,
                                 const float* factors, int64 begin, int block,
                                 float scale, const float* sums,
                                 float* shared) {
  const Variable* const all = AllOf(variables);
  int index = Find(variables, begin);
  const int64 offset = begin - all[index].start;
  if (block == kRotatedBlock && offset + block <= all[index].size) {
    float* const to = all[index].data + offset + threadIdx.x;
    const float factor = factors[index];
#pragma unroll
    for (int k = 0; k < kRadix; ++k) {
      to[k * kThreads] = sums[k] * factor * scale;
    }
    return;
  }
  Store<kThreads>(sums, shared);
#pragma unroll 1
  for (int i = threadIdx.x; i < block; i += kThreads) {
    if (begin + i >= variables.total) break;
    index = Walk(all, index, begin + i);
    all[index].data[begin + i - all[index].start] =
        shared[PlaceOf(i)] * factors[index] * scale;
  }
}

// Elements are (sum over payloads, in order, of the decoded values * factor) *
// scale. A block of threads for each block of elements.
extern "C" __global__ void __launch_bounds__(kThreads, 4)
    terngrad_rotated_decode(const __grid_constant__ Variables variables,
                            const __grid_constant__ Payloads payloads,
                            const float* factors,
                            const __grid_constant__ Rotating code,
                            const __grid_constant__ Unpacking packing,
                            float scale) {
  constexpr int kMostBase = 16;
  __shared__ float shared[kShared];
  __shared__ float levels[kMostBase];
  const int thread = threadIdx.x;
  const int64 begin = static_cast<int64>(blockIdx.x) * code.block;
  const FirstDigit first = FirstDigitOf(begin, packing.num_words);
  if (thread < kMostBase) levels[thread] = LevelOf(thread, code);
  __syncthreads();
  float sums[kRadix];
#pragma unroll
  for (int k = 0; k < kRadix; ++k) sums[k] = -0.0f;  // Adding it changes none.
#pragma unroll 1
  for (int r = 0; r < payloads.count; ++r) {
    const uint32* const payload = PayloadOf(payloads, r);
    const float unit = KnownScale(payload[kKeyWords + blockIdx.x], code);
    ReadLevels(payload + kKeyWords + code.num_blocks, first, packing,
               code.block, levels, unit, shared);
    float values[kRadix];
    Hadamard(shared, code.block, values);
    const uint32 counter = payload[0] + static_cast<uint32>(begin) + thread;
#pragma unroll
    for (int k = 0; k < kRadix; ++k) {
      sums[k] += Signed(values[k], counter + k * kThreads, payload[1]);
    }
  }
  WriteSums(variables, factors, begin, code.block, scale, sums, shared);
}

}  // namespace terngrad_gpu
