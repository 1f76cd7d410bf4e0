// 8-bit floats; terngrad/codec/methods/scalar/fp8.py explains them.

#ifndef TERNGRAD_NATIVE_GPU_FP8_H_
#define TERNGRAD_NATIVE_GPU_FP8_H_

#include "groups.h"

namespace terngrad_gpu {

constexpr int kFloatsOfWord = 4;

// A format, which its largest finite code identifies: that of e4m3 or e5m2.
struct Fp8Format {
  int mantissa;  // Bits.
  int bias;      // Of the exponent.
};

__device__ inline Fp8Format Fp8FormatOf(int largest) {
  return largest == kLargestE4m3 ? Fp8Format{3, 7} : Fp8Format{2, 15};
}

// The value of a code without its sign. Codes above the largest finite code
// have its value.
__device__ inline float Fp8Magnitude(uint32 code, int largest) {
  const Fp8Format format = Fp8FormatOf(largest);
  const int known = static_cast<int>(code) < largest ? static_cast<int>(code)
                                                     : largest;
  const int least = 128 - format.bias;  // The exponent of the normal numbers.
  if (known >> format.mantissa == 0) {
    return static_cast<float>(known) *
           __int_as_float((least - format.mantissa) << 23);
  }
  return __int_as_float(((least - 1) << 23) +
                        (known << (23 - format.mantissa)));
}

// A power of two from 2^-120, also for NaN, to 2^120, by rounding down.
__device__ inline float PowerOfTwo(uint32 bits) {
  constexpr uint32 kLeast = (127 - 120) << 23, kMost = (127 + 120) << 23;
  bits &= 0x7f800000U;
  return FloatOf(bits < kLeast ? kLeast : bits < kMost ? bits : kMost);
}

// The scale of a group with this largest magnitude.
__device__ inline float Fp8Scale(float span, int largest) {
  const float inverse =
      static_cast<float>(1.0 / Fp8Magnitude(largest, largest));
  return PowerOfTwo(BitsOf(span * inverse) + 0x7fffffU);
}

// Rounds to the nearest code, ties to even; NaN gives 0. `inverse` is that of
// the scale.
__device__ inline uint32 Fp8Code(float value, float inverse, int largest) {
  const Fp8Format format = Fp8FormatOf(largest);
  const float most = Fp8Magnitude(largest, largest);
  const float product =
      __int_as_float(__float_as_int(value) & 0x7fffffff) * inverse;
  if (product != product) return 0;
  const float magnitude = most < product ? most : product;
  const int least = 128 - format.bias;
  int code;
  if (magnitude < __int_as_float(least << 23)) {
    // Subnormal numbers have equal steps.
    code = __float2int_rn(
        magnitude * __int_as_float((254 - least + format.mantissa) << 23));
  } else {
    const int cut = 23 - format.mantissa;
    const int bits = __float_as_int(magnitude);
    const int rounded = bits + (1 << (cut - 1)) - 1 + (bits >> cut & 1);
    code = (rounded >> cut) - ((least - 1) << format.mantissa);
  }
  return static_cast<uint32>(value < 0.0f && code > 0 ? code + 128 : code);
}

// Finds the groups of the elements of a block's first word.
__device__ inline void FindFirstGroups(const GroupedVariable& variable,
                                       int64 begin, FirstGroup* firsts) {
  if (threadIdx.x < kFloatsOfWord) {
    firsts[threadIdx.x] =
        FirstGroupOf(variable, threadIdx.x * variable.num_words + begin);
  }
  __syncthreads();
}

// Encodes the words of a block of threads, as `EncodeWords` does.
__device__ inline void EncodeFp8(const GroupedVariable& variable,
                                 const Grouping& code, int64 begin,
                                 uint32* words, FirstGroup* firsts) {
  const int64 num_words = variable.num_words;
  FindFirstGroups(variable, begin, firsts);
  const int64 word = begin + threadIdx.x;
  if (word >= num_words) return;
  uint32 sum = 0;
#pragma unroll
  for (int p = 0; p < kFloatsOfWord; ++p) {
    const int64 element = p * num_words + word;
    if (element >= variable.size) break;
    const int64 group = GroupAt(variable, firsts[p], element);
    // Exact, because scales are powers of two.
    const float inverse = 1.0f / FloatOf(words[variable.words + group]);
    sum |= Fp8Code(variable.data[element], inverse, code.levels) << (8 * p);
  }
  words[variable.words + variable.num_groups + word] = sum;
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_FP8_H_
