// Elements of groups to words, and words to elements.
//
// grouping_impl.h has the same for CPUs, and explains the numbers.

#include "groups_encode.h"

namespace terngrad_gpu {

// A thread has `code.words` words; the blocks of threads of a variable follow
// each other. The scales in `words` are complete.
extern "C" __global__ void __launch_bounds__(kThreads, 5)
    terngrad_groups_encode(const __grid_constant__ GroupedVariables variables,
                           const Grouping code, const Key key,
                           uint32* words) {
  __shared__ Stretch stretches[kMostDigits];
  __shared__ ToDigits groups[kMostDigits][2];
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  const int64 begin =
      (blockIdx.x - variable.code_block) * kThreads * code.words;
  EncodeWords(variable, code, begin, key, words, stretches, groups);
}

// A step that `StepOf` can return; see `KnownStep` in grouping_impl.h.
__device__ inline float KnownStep(uint32 bits, const Grouping& code) {
  constexpr int kLeast = (127 - 100) << 23;  // Of 2^-100.
  int step = static_cast<int>(bits & 0x7fffff00U);
  step = step < code.largest_step ? step : code.largest_step;
  return __int_as_float(step >= kLeast ? step : 0);
}

// How the digits of one group become elements.
struct FromDigits {
  float step;
  float least;
};

__device__ inline FromDigits FromDigitsOf(const uint32* scales, int64 groups,
                                          const Grouping& code) {
  if (code.kind == kSigns) return {FloatOf(scales[0]), 0.0f};
  return {KnownStep(scales[(code.num_scales - 1) * groups], code),
          FloatOf(scales[0])};
}

// The number of a digit plus 2^23, which takes no conversion.
__device__ inline float Raised(uint32 digit) {
  return FloatOf(0x4b000000U | digit);
}

template <int kKind>
__device__ inline float ValueOf(uint32 digit, const FromDigits& group,
                                int levels) {
  if (kKind == kSigns) return FloatOf(BitsOf(group.step) ^ (digit << 31));
  if (kKind == kSpans) {
    return (Raised(digit) - 0x1p23f) * group.step + group.least;
  }
  return (Raised(digit) - Raised(levels)) * group.step;
}

// Removes the lowest digit of a word and returns it.
template <int kKind>
__device__ inline uint32 TakeDigit(const Grouping& code, uint32* word) {
  const uint32 before = *word;
  if (kKind != kSteps) {
    *word = before >> code.shift;
    return before & (code.base - 1);
  }
  const uint32 high = __umulhi(before, code.factor);
  *word = (high + ((before - high) >> 1)) >> code.shift;
  return before - *word * code.base;
}

// The groups of kBatch digits of a block in kSome payloads: of each digit
// that of the first thread's element and the next one.
constexpr int kSome = kThreads / (2 * kBatch);
using SomeGroups = FromDigits[kSome][kBatch][2];

// A thread reads one of the groups.
__device__ inline void ReadGroups(const GroupedVariable& variable,
                                  const Grouping& code,
                                  const Payloads& payloads, int payload,
                                  const Stretch* stretches, int first,
                                  SomeGroups groups) {
  const int i = threadIdx.x % 2, p = threadIdx.x / 2 % kBatch;
  const int r = threadIdx.x / (2 * kBatch);
  if (payload + r >= payloads.count || first + p >= DigitsOf(code)) {
    return;
  }
  const Stretch& stretch = stretches[first + p];
  if (stretch.size == 0) return;
  const int64 group = stretch.first + (i && stretch.boundary < stretch.size);
  groups[r][p][i] =
      FromDigitsOf(PayloadOf(payloads, payload + r) + variable.words + group,
                   variable.num_groups, code);
}

// The words of a thread; without the second one it is 0.
struct TwoWords {
  uint32 first;
  uint32 second;
};

// Reads the words of a thread from those of a variable. `word` is the number of
// its first one.
__device__ inline TwoWords ReadWords(const GroupedVariable& variable,
                                     const Grouping& code, const uint32* from,
                                     int64 word) {
  const int64 next = word + kThreads;
  const bool has_first = word < variable.num_words;
  const bool has_second = code.words == 2 && next < variable.num_words;
  return {has_first ? from[word] : 0, has_second ? from[next] : 0};
}

// Adds kBatch digits of a thread's words in a payload, from the digit `first`
// on, to the sums. `scales` are those of the payload.
template <int kKind>
__device__ inline void AddDigits(const GroupedVariable& variable,
                                 const Grouping& code, const uint32* scales,
                                 const FromDigits (*groups)[2],
                                 const Stretch* stretches, int first,
                                 const TwoWords& words, bool is_first,
                                 float* sums) {
  const int thread = threadIdx.x;
  uint32 word = words.first;
  for (int i = 0; i < first; ++i) TakeDigit<kKind>(code, &word);
#pragma unroll
  for (int p = 0; p < kBatch; ++p) {
    if (first + p >= DigitsOf(code)) break;
    if (first + p == code.places) word = words.second;
    const Stretch& stretch = stretches[first + p];
    const uint32 digit = TakeDigit<kKind>(code, &word);
    FromDigits group = groups[p][thread >= stretch.boundary];
    if (variable.group < kThreads && thread < stretch.size) {
      group = FromDigitsOf(
          scales + stretch.first + GroupsAfter(variable, stretch),
          variable.num_groups, code);
    }
    const float value = ValueOf<kKind>(digit, group, code.levels);
    sums[p] = is_first ? value : sums[p] + value;
  }
}

template <int kKind>
__device__ inline void Decode(const GroupedVariable& variable,
                              const Grouping& code, const Payloads& payloads,
                              const Stretch* stretches, int64 word, float scale,
                              SomeGroups groups) {
  const int64 at = variable.words + code.num_scales * variable.num_groups;
  const bool has_word = word < variable.num_words;
  // Before the scales, so that both wait for the memory together.
  const TwoWords own = ReadWords(variable, code, PayloadOf(payloads, 0) + at,
                                 word);
#pragma unroll 1
  for (int first = 0; first < DigitsOf(code); first += kBatch) {
    float sums[kBatch];
#pragma unroll 1
    for (int r = 0; r < payloads.count; ++r) {
      if (r % kSome == 0) {
        __syncthreads();
        ReadGroups(variable, code, payloads, r, stretches, first, groups);
        __syncthreads();
      }
      if (!has_word) continue;
      const uint32* const payload = PayloadOf(payloads, r);
      AddDigits<kKind>(variable, code, payload + variable.words,
                       groups[r % kSome], stretches, first,
                       r ? ReadWords(variable, code, payload + at, word) : own,
                       r == 0, sums);
    }
#pragma unroll
    for (int p = 0; p < kBatch; ++p) {
      if (first + p >= DigitsOf(code)) break;
      const Digit digit = DigitAt(code, first + p, word);
      if (digit.word >= variable.num_words) continue;
      if (threadIdx.x >= stretches[first + p].size) continue;
      const int64 element = digit.number * variable.num_words + digit.word;
      variable.data[element] = scale != 1.0f ? sums[p] * scale : sums[p];
    }
  }
}

// Elements are the sums of the values of all payloads, in order, times `scale`;
// threads have words as in terngrad_groups_encode.
extern "C" __global__ void __launch_bounds__(kThreads, 5)
    terngrad_groups_decode(const __grid_constant__ GroupedVariables variables,
                           const __grid_constant__ Payloads payloads,
                           const Grouping code, float scale) {
  __shared__ Stretch stretches[kMostDigits];
  __shared__ SomeGroups groups;
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  const int64 begin =
      (blockIdx.x - variable.code_block) * kThreads * code.words;
  const int64 word = begin + threadIdx.x;
  if (threadIdx.x < DigitsOf(code)) {
    stretches[threadIdx.x] = StretchOf(variable, code, threadIdx.x, begin);
  }
  if (code.kind == kSteps) {
    Decode<kSteps>(variable, code, payloads, stretches, word, scale, groups);
  } else if (code.kind == kSpans) {
    Decode<kSpans>(variable, code, payloads, stretches, word, scale, groups);
  } else {
    Decode<kSigns>(variable, code, payloads, stretches, word, scale, groups);
  }
}

}  // namespace terngrad_gpu
