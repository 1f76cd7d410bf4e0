// Groups of elements to 8-bit floats, and back. groups_measure.cu has the
// scales.

#include "fp8.h"

namespace terngrad_gpu {

// A thread a word; the blocks of threads of a variable follow each other. The
// scales in `words` are complete.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_fp8_encode(const __grid_constant__ GroupedVariables variables,
                        const Grouping code, uint32* words) {
  __shared__ FirstGroup firsts[kFloatsOfWord];
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  EncodeFp8(variable, code, (blockIdx.x - variable.code_block) * kThreads,
            words, firsts);
}

// Elements are the sums of the values of all payloads, in order, times `scale`;
// a thread a word.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_fp8_decode(const __grid_constant__ GroupedVariables variables,
                        const __grid_constant__ Payloads payloads,
                        const Grouping code, float scale) {
  __shared__ FirstGroup firsts[kFloatsOfWord];
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::code_block, blockIdx.x);
  const int64 begin = (blockIdx.x - variable.code_block) * kThreads;
  const int64 num_words = variable.num_words;
  FindFirstGroups(variable, begin, firsts);
  const int64 word = begin + threadIdx.x;
  if (word >= num_words) return;
  float sums[kFloatsOfWord];
  for (int r = 0; r < payloads.count; ++r) {
    const uint32* const scales = PayloadOf(payloads, r) + variable.words;
    const uint32 all = scales[variable.num_groups + word];
#pragma unroll
    for (int p = 0; p < kFloatsOfWord; ++p) {
      const int64 element = p * num_words + word;
      if (element >= variable.size) break;
      const uint32 digit = all >> (8 * p);
      const float magnitude = Fp8Magnitude(digit & 127, code.levels);
      const float value =
          (digit & 128 ? -magnitude : magnitude) *
          PowerOfTwo(scales[GroupAt(variable, firsts[p], element)]);
      sums[p] = r ? sums[p] + value : value;
    }
  }
#pragma unroll
  for (int p = 0; p < kFloatsOfWord; ++p) {
    const int64 element = p * num_words + word;
    if (element >= variable.size) break;
    variable.data[element] = scale != 1.0f ? sums[p] * scale : sums[p];
  }
}

}  // namespace terngrad_gpu
