// Elements of groups to words; grouping_impl.h has the same for CPUs, and
// explains the numbers.

#ifndef TERNGRAD_NATIVE_GPU_GROUPS_ENCODE_H_
#define TERNGRAD_NATIVE_GPU_GROUPS_ENCODE_H_

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

template <int kKind>
__device__ inline uint32 DigitOf(float value, const ToDigits& group, int levels,
                                 uint32 counter, uint32 second) {
  const int bits = __float_as_int(value);
  if (kKind == kSigns) return BitsOf(value) > 0x80000000U;
  const float above =
      kKind == kSteps ? fabsf(Limited(value)) : Limited(value) - group.least;
  const float scaled = above * group.inverse;
  // In a group with NaN the step is 0, and so are all digits.
  const int fixed = scaled == scaled ? Nearest(scaled) : 0;
  const int most = levels << kFraction;
  uint32 random = AlmostRandom(counter, second);
  random ^= random >> 16;
  const int digit = ((fixed < most ? fixed : most) +
                     static_cast<int>(random >> (32 - kFraction))) >>
                    kFraction;
  if (kKind == kSpans) return static_cast<uint32>(digit);
  return static_cast<uint32>(digit * (bits >> 31 | 1) + levels);
}

// A digit of a thread's words: those of the first word, then of the second.
struct Digit {
  int number;  // In its word.
  int64 word;
};

// `word` is the thread's first one.
__device__ inline Digit DigitAt(const Grouping& code, int digit, int64 word) {
  if (digit < code.places) return {digit, word};
  return {digit - code.places, word + kThreads};
}

__device__ inline int DigitsOf(const Grouping& code) {
  return code.places * code.words;
}

// The elements of one digit of a block's words: the first `size` threads have
// one. That of the first thread is in group `first`, and those from `boundary`
// on are in the next ones.
struct Stretch {
  int64 first;
  int boundary;
  int size;
};

// `begin` is the first word of the block.
__device__ inline Stretch StretchOf(const GroupedVariable& variable,
                                    const Grouping& code, int digit,
                                    int64 begin) {
  Stretch stretch = {};
  const Digit at = DigitAt(code, digit, begin);
  const int64 element = at.number * variable.num_words + at.word;
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

// Reads the elements of kBatch digits of a thread, from the digit `first` on.
__device__ inline void ReadBatch(const GroupedVariable& variable,
                                 const Grouping& code, int first, int64 word,
                                 float* values) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const Digit at = DigitAt(code, first + i, word);
    const int64 element = at.number * variable.num_words + at.word;
    values[i] = first + i < DigitsOf(code) && element < variable.size
                    ? variable.data[element]
                    : 0.0f;
  }
}

// Writes the words of a thread, from `word` on, which is one of the variable;
// the elements of its first kBatch digits are in `values`. `counter` is the
// number of its first element plus the key's first number.
template <int kKind>
__device__ inline void WriteWords(const GroupedVariable& variable,
                                  const Grouping& code, uint32 counter,
                                  uint32 second, const float* scales,
                                  const Stretch* stretches,
                                  const ToDigits (*groups)[2], int64 word,
                                  float* values, uint32* to) {
  const int64 num_words = variable.num_words;
  uint32 sum = 0, power = 1;
#pragma unroll 1
  for (int first = 0; first < DigitsOf(code); first += kBatch) {
    if (first > 0) ReadBatch(variable, code, first, word, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= DigitsOf(code)) break;
      if (first + i == code.places) {
        to[word] = sum;
        word += kThreads;
        sum = 0;
        power = 1;
        counter += kThreads - static_cast<uint32>(code.places * num_words);
      }
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
      counter += static_cast<uint32>(num_words);
    }
  }
  if (word < num_words) to[word] = sum;
}

// Encodes the words of a block of threads, of which `begin` is the first one.
// The scales in `words` are complete. `stretches` and `groups` are in shared
// memory, an entry for each digit.
__device__ inline void EncodeWords(const GroupedVariable& variable,
                                   const Grouping& code, int64 begin,
                                   const Key& key, uint32* words,
                                   Stretch* stretches, ToDigits (*groups)[2]) {
  const int64 word = begin + threadIdx.x;
  // All reads first, so that they wait for the memory together.
  float values[kBatch];
  ReadBatch(variable, code, 0, word, values);
  const uint32 counter =
      key.first + static_cast<uint32>(variable.start + word);
  const float* const scales =
      reinterpret_cast<const float*>(words + variable.words);
  if (threadIdx.x < DigitsOf(code)) {
    const Stretch stretch = StretchOf(variable, code, threadIdx.x, begin);
    const float* const first = scales + stretch.first;
    const float* const next = first + (stretch.boundary < stretch.size);
    stretches[threadIdx.x] = stretch;
    groups[threadIdx.x][0] = ToDigitsOf(first, variable.num_groups, code);
    groups[threadIdx.x][1] = ToDigitsOf(next, variable.num_groups, code);
  }
  __syncthreads();
  if (word >= variable.num_words) return;
  uint32* const to =
      words + variable.words + code.num_scales * variable.num_groups;
  if (code.kind == kSteps) {
    WriteWords<kSteps>(variable, code, counter, key.second, scales, stretches,
                       groups, word, values, to);
  } else if (code.kind == kSpans) {
    WriteWords<kSpans>(variable, code, counter, key.second, scales, stretches,
                       groups, word, values, to);
  } else {
    WriteWords<kSigns>(variable, code, counter, key.second, scales, stretches,
                       groups, word, values, to);
  }
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_GROUPS_ENCODE_H_
