// Elements of groups to words, and words to elements.
//
// grouping_impl.h has the same for CPUs, and explains the numbers.

#include "groups.h"

namespace terngrad_gpu {

// Fractions of a level have this many bits.
constexpr int kFraction = 22;

// How the elements of one group become digits.
struct ToDigits {
  float inverse;
  float least;
};

__device__ inline ToDigits ToDigitsOf(const float* scales, int64 groups,
                                      const Grouping& code) {
  const float step = scales[(code.num_scales - 1) * groups];
  return {step > 0.0f ? 0x1p22f / step : 0.0f, scales[0]};
}

__device__ inline uint32 DigitOf(float value, const ToDigits& group,
                                 const Grouping& code, uint32 counter,
                                 uint32 second) {
  const int bits = __float_as_int(value);
  if (code.kind == kSigns) return bits < 0 && bits != -2147483647 - 1;
  const float above = code.kind == kSteps ? __int_as_float(bits & 0x7fffffff)
                                          : Limited(value) - group.least;
  int fixed = Nearest(above * group.inverse);
  const int most = code.levels << kFraction;
  fixed = fixed < most ? fixed : most;
  uint32 random = AlmostRandom(counter, second);
  random ^= random >> 16;
  const int digit =
      (fixed + static_cast<int>(random >> (32 - kFraction))) >> kFraction;
  if (code.kind == kSpans) return static_cast<uint32>(digit);
  return static_cast<uint32>((bits < 0 ? -digit : digit) + code.levels);
}

// A thread a word; the blocks of threads of a variable follow each other. The
// scales in `words` are complete.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_groups_encode(const __grid_constant__ GroupedVariables variables,
                           const Grouping code, const uint32* key,
                           uint32* words) {
  __shared__ FirstGroup firsts[kMostDigits];
  __shared__ ToDigits groups[kMostDigits];
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  const int64 begin = (blockIdx.x - variable.code_block) * kThreads;
  const int64 num_words = CeilDivided(variable.size, code.places);
  const int64 num_groups = CeilDivided(variable.size, variable.group);
  const float* const scales =
      reinterpret_cast<const float*>(words + variable.words);
  if (threadIdx.x < code.places) {
    const int64 element = threadIdx.x * num_words + begin;
    if (element < variable.size) {
      const FirstGroup first = FirstGroupOf(variable, element);
      firsts[threadIdx.x] = first;
      groups[threadIdx.x] = ToDigitsOf(scales + first.group, num_groups, code);
    }
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= num_words) return;
  // All reads first, so that they wait for the memory together.
  float values[kMostDigits];
#pragma unroll
  for (int p = 0; p < kMostDigits; ++p) {
    const int64 element = p * num_words + word;
    values[p] = p < code.places && element < variable.size
                    ? variable.data[element]
                    : 0.0f;
  }
  const uint32 first = key[0] + static_cast<uint32>(variable.start);
  const uint32 second = key[1];
  uint32 sum = 0, power = 1;
#pragma unroll
  for (int p = 0; p < kMostDigits; ++p) {
    if (p >= code.places) break;
    const int64 element = p * num_words + word;
    // Elements past the end have the code 0.
    uint32 digit = code.kind == kSteps ? code.levels : 0;
    if (element < variable.size) {
      ToDigits group = groups[p];
      const int64 number = GroupAt(variable, firsts[p], element);
      if (number != firsts[p].group) {
        group = ToDigitsOf(scales + number, num_groups, code);
      }
      digit = DigitOf(values[p], group, code,
                      first + static_cast<uint32>(element), second);
    }
    sum += digit * power;
    power *= code.base;
  }
  words[variable.words + code.num_scales * num_groups + word] = sum;
}

// A step that `StepOf` can return; see `KnownStep` in grouping_impl.h.
__device__ inline float KnownStep(uint32 bits, const Grouping& code) {
  constexpr int kLeast = (127 - 100) << 23;  // Of 2^-100.
  int step = static_cast<int>(bits & 0x7fffff00U);
  step = step < code.largest_step ? step : code.largest_step;
  return __int_as_float(step >= kLeast ? step : 0);
}

// The value of a digit; `scales` are those of its group.
__device__ inline float ValueOf(uint32 digit, const uint32* scales,
                                int64 groups, const Grouping& code) {
  if (code.kind == kSigns) return FloatOf(scales[0] ^ (digit << 31));
  if (code.kind == kSpans) {
    return static_cast<float>(static_cast<int>(digit)) *
               KnownStep(scales[groups], code) +
           FloatOf(scales[0]);
  }
  return static_cast<float>(static_cast<int>(digit) - code.levels) *
         KnownStep(scales[0], code);
}

// The word without its lowest digit.
__device__ inline uint32 WithoutDigit(uint32 word, const Grouping& code) {
  if (code.kind != kSteps) return word >> code.shift;
  const uint32 high = __umulhi(word, code.factor);
  return (high + ((word - high) >> 1)) >> code.shift;
}

// Elements are the sums of the values of all payloads, in order, times `scale`;
// a thread a word.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_groups_decode(const __grid_constant__ GroupedVariables variables,
                           const __grid_constant__ Payloads payloads,
                           const Grouping code, float scale) {
  // Volatile, so that the compiler keeps them out of registers, of which sums
  // and digits need many. An element's group is at most 255 after the first.
  __shared__ volatile int64 groups[kMostDigits];
  __shared__ volatile unsigned char nearby[kMostDigits][kThreads];
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  const int64 begin = (blockIdx.x - variable.code_block) * kThreads;
  const int64 num_words = CeilDivided(variable.size, code.places);
  const int64 num_groups = CeilDivided(variable.size, variable.group);
  if (threadIdx.x < code.places) {
    groups[threadIdx.x] = (threadIdx.x * num_words + begin) / variable.group;
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= num_words) return;
  int count = 0;  // Of the word's digits that are elements.
  for (; count < code.places; ++count) {
    const int64 element = count * num_words + word;
    if (element >= variable.size) break;
    const int64 first = groups[count];
    const FirstGroup start = {first, first * variable.group};
    nearby[count][threadIdx.x] =
        static_cast<unsigned char>(GroupAt(variable, start, element) - first);
  }
  float sums[kMostDigits];
#pragma unroll 1
  for (int r = 0; r < payloads.count; ++r) {
    const uint32* const scales = PayloadOf(payloads, r) + variable.words;
    uint32 rest = scales[code.num_scales * num_groups + word];
#pragma unroll
    for (int p = 0; p < kMostDigits; ++p) {
      if (p >= count) break;
      const uint32 shorter = WithoutDigit(rest, code);
      const float value = ValueOf(rest - shorter * code.base,
                                  scales + groups[p] + nearby[p][threadIdx.x],
                                  num_groups, code);
      sums[p] = r ? sums[p] + value : value;
      rest = shorter;
    }
  }
#pragma unroll
  for (int p = 0; p < kMostDigits; ++p) {
    if (p >= count) break;
    variable.data[p * num_words + word] =
        scale != 1.0f ? sums[p] * scale : sums[p];
  }
}

}  // namespace terngrad_gpu
