// Elements of groups to words, and words to elements.
//
// grouping_impl.h has the same for CPUs, and explains the numbers.

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
  ToDigits groups[2];  // The first group and the next one.
  int64 first;
  int boundary;
  int size;
};

__device__ inline Stretch StretchOf(const GroupedVariable& variable,
                                    const Grouping& code, const float* scales,
                                    int64 element) {
  Stretch stretch = {};
  const int64 rest = variable.size - element;
  if (rest <= 0) return stretch;
  stretch.first = Divided(element, variable.group);
  const int64 boundary = (stretch.first + 1) * variable.group - element;
  stretch.size = static_cast<int>(rest < kThreads ? rest : kThreads);
  stretch.boundary =
      static_cast<int>(boundary < kThreads ? boundary : kThreads);
  const float* const first = scales + stretch.first;
  const float* const next = first + (boundary < stretch.size);
  stretch.groups[0] = ToDigitsOf(first, variable.num_groups, code);
  stretch.groups[1] = ToDigitsOf(next, variable.num_groups, code);
  return stretch;
}

// The group of a thread's element.
__device__ inline ToDigits GroupOf(const GroupedVariable& variable,
                                   const Grouping& code, const float* scales,
                                   const Stretch& stretch) {
  const int thread = threadIdx.x;
  if (variable.group >= kThreads || thread >= stretch.size) {
    return stretch.groups[thread >= stretch.boundary];
  }
  const uint32 group = static_cast<uint32>(variable.group);
  const uint32 after = (group - stretch.boundary + thread) / group;
  return ToDigitsOf(scales + stretch.first + after, variable.num_groups, code);
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
template <int kKind>
__device__ inline uint32 EncodedWord(const GroupedVariable& variable,
                                     const Grouping& code, const uint32* key,
                                     const float* scales,
                                     const Stretch* stretches, int64 word,
                                     float* values) {
  const uint32 num_words = static_cast<uint32>(variable.num_words);
  const uint32 second = kKind == kSigns ? 0 : key[1];
  uint32 counter = kKind == kSigns
                       ? 0
                       : key[0] + static_cast<uint32>(variable.start + word);
  uint32 sum = 0, power = 1;
#pragma unroll 1
  for (int first = 0; first < code.places; first += kBatch) {
    if (first > 0) ReadBatch(variable, code, first, word, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= code.places) break;
      const Stretch& stretch = stretches[first + i];
      const ToDigits group = kKind == kSigns
                                 ? ToDigits{}
                                 : GroupOf(variable, code, scales, stretch);
      uint32 digit =
          DigitOf<kKind>(values[i], group, code.levels, counter, second);
      // Elements past the end have the code 0, as 0 has in other kinds.
      if (kKind == kSpans && threadIdx.x >= stretch.size) digit = 0;
      sum += digit * power;
      power *= code.base;
      counter += num_words;
    }
  }
  return sum;
}

// A thread a word; the blocks of threads of a variable follow each other. The
// scales in `words` are complete.
extern "C" __global__ void __launch_bounds__(kThreads, 5)
    terngrad_groups_encode(const __grid_constant__ GroupedVariables variables,
                           const Grouping code, const uint32* key,
                           uint32* words) {
  __shared__ Stretch stretches[kMostDigits];
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  const int64 begin = (blockIdx.x - variable.code_block) * kThreads;
  const int64 word = begin + threadIdx.x;
  // Before the scales, so that both wait for the memory together.
  float values[kBatch];
  ReadBatch(variable, code, 0, word, values);
  uint32* const to = words + variable.words;
  const float* const scales = reinterpret_cast<const float*>(to);
  if (threadIdx.x < code.places) {
    stretches[threadIdx.x] =
        StretchOf(variable, code, scales,
                  threadIdx.x * variable.num_words + begin);
  }
  __syncthreads();
  if (word >= variable.num_words) return;
  uint32 sum;
  if (code.kind == kSteps) {
    sum = EncodedWord<kSteps>(variable, code, key, scales, stretches, word,
                              values);
  } else if (code.kind == kSpans) {
    sum = EncodedWord<kSpans>(variable, code, key, scales, stretches, word,
                              values);
  } else {
    sum = EncodedWord<kSigns>(variable, code, key, scales, stretches, word,
                              values);
  }
  to[code.num_scales * variable.num_groups + word] = sum;
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
  const int64 num_words = variable.num_words;
  const int64 num_groups = variable.num_groups;
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
