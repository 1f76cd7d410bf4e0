// Elements of groups to words; grouping_impl.h has the same for CPUs, and
// explains the numbers.

#ifndef TERNGRAD_NATIVE_GPU_GROUPS_ENCODE_H_
#define TERNGRAD_NATIVE_GPU_GROUPS_ENCODE_H_

#include "groups.h"

namespace terngrad_gpu {

// Fractions of a level have this many bits.
constexpr int kFraction = 22;

constexpr int kBatch = 8;  // Digits whose elements a thread reads at a time.

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

template <int kKind>
__device__ inline uint32 DigitOf(float value, const ToDigits& group, int levels,
                                 uint32 counter, uint32 second) {
  const int bits = __float_as_int(value);
  if (kKind == kSigns) return BitsOf(value) > 0x80000000U;
  const float above =
      kKind == kSteps ? fabsf(value) : Limited(value) - group.least;
  const int fixed = Nearest(above * group.inverse);
  const int most = levels << kFraction;
  uint32 random = AlmostRandom(counter, second);
  random ^= random >> 16;
  const int digit = ((fixed < most ? fixed : most) +
                     static_cast<int>(random >> (32 - kFraction))) >>
                    kFraction;
  if (kKind == kSpans) return static_cast<uint32>(digit);
  return static_cast<uint32>(digit * (bits >> 31 | 1) + levels);
}

// The elements of one digit of a block's words: the first `size` threads have
// one. That of the first thread is in group `first`, and those from `boundary`
// on are in the next ones.
struct Stretch {
  int64 first;
  int boundary;
  int size;
};

__device__ inline Stretch StretchOf(const GroupedVariable& variable,
                                    int64 element) {
  Stretch stretch = {};
  const int64 rest = variable.size - element;
  if (rest <= 0) return stretch;
  stretch.first = Divided(element, variable.group);
  const int64 boundary = (stretch.first + 1) * variable.group - element;
  stretch.size = static_cast<int>(rest < kThreads ? rest : kThreads);
  stretch.boundary =
      static_cast<int>(boundary < kThreads ? boundary : kThreads);
  return stretch;
}

// How many groups after the first one a thread's element is, where groups are
// smaller than a block of threads.
__device__ inline uint32 GroupsAfter(const GroupedVariable& variable,
                                     const Stretch& stretch) {
  const uint32 group = static_cast<uint32>(variable.group);
  return (group - stretch.boundary + threadIdx.x) / group;
}

// Reads the elements of kBatch digits of a word, from the first digit on.
__device__ inline void ReadBatch(const GroupedVariable& variable,
                                 const Grouping& code, int first, int64 word,
                                 float* values) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int64 element = (first + i) * variable.num_words + word;
    values[i] = first + i < code.places && element < variable.size
                    ? variable.data[element]
                    : 0.0f;
  }
}

// The word of a thread, of whose elements the first kBatch are in `values`.
// `counter` is the number of its first element plus the key's first number.
template <int kKind>
__device__ inline uint32 EncodedWord(const GroupedVariable& variable,
                                     const Grouping& code, uint32 counter,
                                     uint32 second, const float* scales,
                                     const Stretch* stretches,
                                     const ToDigits (*groups)[2], int64 word,
                                     float* values) {
  uint32 sum = 0, power = 1;
#pragma unroll 1
  for (int first = 0; first < code.places; first += kBatch) {
    if (first > 0) ReadBatch(variable, code, first, word, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= code.places) break;
      const Stretch& stretch = stretches[first + i];
      ToDigits group = groups[first + i][threadIdx.x >= stretch.boundary];
      if (kKind != kSigns && variable.group < kThreads &&
          threadIdx.x < stretch.size) {
        group = ToDigitsOf(scales + stretch.first +
                               GroupsAfter(variable, stretch),
                           variable.num_groups, code);
      }
      uint32 digit =
          DigitOf<kKind>(values[i], group, code.levels, counter, second);
      // Elements past the end have the code 0, as 0 has in other kinds.
      if (kKind == kSpans && threadIdx.x >= stretch.size) digit = 0;
      sum += digit * power;
      power *= code.base;
      counter += static_cast<uint32>(variable.num_words);
    }
  }
  return sum;
}

// Encodes the words of a block of threads, of which `begin` is the first one.
// The scales in `words` are complete. `stretches` and `groups` are in shared
// memory, an entry for each digit.
__device__ inline void EncodeWords(const GroupedVariable& variable,
                                   const Grouping& code, int64 begin,
                                   const uint32* key, uint32* words,
                                   Stretch* stretches, ToDigits (*groups)[2]) {
  const int64 word = begin + threadIdx.x;
  // All reads first, so that they wait for the memory together.
  float values[kBatch];
  ReadBatch(variable, code, 0, word, values);
  const bool is_random = code.kind != kSigns;
  const uint32 counter = (is_random ? key[0] : 0) +
                         static_cast<uint32>(variable.start + word);
  const uint32 second = is_random ? key[1] : 0;
  uint32* const to = words + variable.words;
  const float* const scales = reinterpret_cast<const float*>(to);
  if (threadIdx.x < code.places) {
    const Stretch stretch =
        StretchOf(variable, threadIdx.x * variable.num_words + begin);
    const float* const first = scales + stretch.first;
    const float* const next = first + (stretch.boundary < stretch.size);
    stretches[threadIdx.x] = stretch;
    groups[threadIdx.x][0] = ToDigitsOf(first, variable.num_groups, code);
    groups[threadIdx.x][1] = ToDigitsOf(next, variable.num_groups, code);
  }
  __syncthreads();
  if (word >= variable.num_words) return;
  uint32 sum;
  if (code.kind == kSteps) {
    sum = EncodedWord<kSteps>(variable, code, counter, second, scales,
                              stretches, groups, word, values);
  } else if (code.kind == kSpans) {
    sum = EncodedWord<kSpans>(variable, code, counter, second, scales,
                              stretches, groups, word, values);
  } else {
    sum = EncodedWord<kSigns>(variable, code, counter, second, scales,
                              stretches, groups, word, values);
  }
  to[code.num_scales * variable.num_groups + word] = sum;
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_GROUPS_ENCODE_H_
