// Signs and exponents that are rounded at random, and back.
//
// terngrad/codec/methods/scalar/natural.py explains the words: of a variable
// first those of exponents, 4 in each, then those of signs, 32 in each.

#include "groups.h"

namespace terngrad_gpu {

constexpr int kExponents = 4;
constexpr int kSignsOfWord = 32;
constexpr int kLargestExponent = 254;  // Of a finite float32.

// The random exponent of an element. `counter` is its position plus the first
// number of the key.
__device__ inline uint32 ExponentOf(float value, uint32 counter,
                                    uint32 second) {
  const uint32 bits = BitsOf(value);
  uint32 random = AlmostRandom(counter, second);
  random ^= random >> 16;
  const uint32 exponent =
      (bits >> 23 & 0xffU) + (random >> 9 < (bits & 0x7fffffU));
  return exponent < kLargestExponent ? exponent : kLargestExponent;
}

// A thread a word. Blocks of threads of a variable follow each other: first for
// words of exponents, then for words of signs.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_natural_encode(const __grid_constant__ GroupedVariables variables,
                            const Key key, uint32* words) {
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  const int64 block = blockIdx.x - variable.code_block;
  const int64 exponents = CeilDivided(variable.size, kExponents);
  const int64 signs = CeilDivided(variable.size, kSignsOfWord);
  const int64 blocks = CeilDivided(exponents, kThreads);
  uint32 sum = 0;
  if (block < blocks) {
    const int64 word = block * kThreads + threadIdx.x;
    if (word >= exponents) return;
    const uint32 first = key.first + static_cast<uint32>(variable.start);
#pragma unroll
    for (int p = 0; p < kExponents; ++p) {
      const int64 element = p * exponents + word;
      if (element >= variable.size) break;
      sum |= ExponentOf(variable.data[element],
                        first + static_cast<uint32>(element), key.second)
             << (8 * p);
    }
    words[variable.words + word] = sum;
  } else {
    const int64 word = (block - blocks) * kThreads + threadIdx.x;
    if (word >= signs) return;
#pragma unroll 8
    for (int p = 0; p < kSignsOfWord; ++p) {
      const int64 element = p * signs + word;
      if (element >= variable.size) break;
      sum |= BitsOf(variable.data[element]) >> 31 << p;
    }
    words[variable.words + exponents + word] = sum;
  }
}

// Elements are the sums of the values of all payloads, in order, times `scale`;
// a thread a word of exponents.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_natural_decode(const __grid_constant__ GroupedVariables variables,
                            const __grid_constant__ Payloads payloads,
                            float scale) {
  __shared__ int64 first_words[kExponents];
  __shared__ int first_places[kExponents];
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  const int64 begin = (blockIdx.x - variable.code_block) * kThreads;
  const int64 exponents = CeilDivided(variable.size, kExponents);
  const int64 signs = CeilDivided(variable.size, kSignsOfWord);
  if (threadIdx.x < kExponents) {
    const int64 element = threadIdx.x * exponents + begin;
    const int64 place = element / signs;
    first_places[threadIdx.x] = static_cast<int>(place);
    first_words[threadIdx.x] = element - place * signs;
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= exponents) return;
  // The word and the bit of each element's sign.
  int64 sign_words[kExponents];
  int places[kExponents];
#pragma unroll
  for (int p = 0; p < kExponents; ++p) {
    places[p] = first_places[p];
    sign_words[p] = first_words[p] + threadIdx.x;
    for (; sign_words[p] >= signs; sign_words[p] -= signs) ++places[p];
  }
  float sums[kExponents];
#pragma unroll 2
  for (int r = 0; r < payloads.count; ++r) {
    const uint32* const payload = PayloadOf(payloads, r) + variable.words;
    const uint32 all = payload[word];
#pragma unroll
    for (int p = 0; p < kExponents; ++p) {
      if (p * exponents + word >= variable.size) break;
      const uint32 exponent = all >> (8 * p) & 0xffU;
      const uint32 sign = payload[exponents + sign_words[p]] >> places[p] << 31;
      // No encoder sends infinity, but a damaged payload may contain it.
      const float value = FloatOf(
          (exponent < kLargestExponent ? exponent : kLargestExponent) << 23 |
          sign);
      sums[p] = r ? sums[p] + value : value;
    }
  }
#pragma unroll
  for (int p = 0; p < kExponents; ++p) {
    const int64 element = p * exponents + word;
    if (element >= variable.size) break;
    variable.data[element] = scale != 1.0f ? sums[p] * scale : sums[p];
  }
}

}  // namespace terngrad_gpu
