// Digits and scales of rotated blocks to elements.
//
// levels_impl.h has the same for CPUs, and explains the numbers.

#include "groups.h"
#include "rotation.h"

namespace terngrad_gpu {

// The scale of a block divided by its size; see `KnownScale`.
__device__ inline float KnownScale(uint32 bits, const Rotating& code) {
  constexpr int kLeast = (127 - 100) << 23, kMost = (127 + 100) << 23;
  const bool is_coarse = code.levels[code.num_levels - 1] > 1;
  int scale = static_cast<int>(bits & (is_coarse ? 0x7fffff00U : 0x7fffffffU));
  scale = scale < kMost ? scale : kMost;
  return __int_as_float(scale < kLeast ? 0 : scale) /
         static_cast<float>(code.block);
}

// The value of a digit, in units of 1; `levels` are magnitudes.
__device__ inline float LevelOf(uint32 digit, const float* levels,
                                const Rotating& code) {
  if (code.with_zero) return static_cast<float>(static_cast<int>(digit) - 1);
  const float level = levels[digit & (code.num_levels - 1)];
  // Higher bits of corrupted digits are ignored.
  return digit & code.num_levels ? -level : level;
}

// Elements are (sum over payloads, in order, of the decoded values * factor) *
// scale. A block of threads for each block of elements.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_rotated_decode(const __grid_constant__ Variables variables,
                            const __grid_constant__ Payloads payloads,
                            const float* factors,
                            const __grid_constant__ Rotating code,
                            const Packing packing, float scale) {
  __shared__ float shared[kShared];
  __shared__ float levels[kMostLevels];
  __shared__ uint32 powers[kMostDigits];
  const int thread = threadIdx.x;
  const int64 begin = static_cast<int64>(blockIdx.x) * code.block;
  if (thread < code.num_levels) {
    levels[thread] = static_cast<float>(code.levels[thread]);
  }
  if (thread < packing.places) {
    uint32 power = 1;
    for (int p = 0; p < thread; ++p) power *= packing.base;
    powers[thread] = power;
  }
  __syncthreads();
  const int64 first_place = begin / packing.num_words;
  const int64 first_word = begin - first_place * packing.num_words + thread;
  float sums[kRadix];
#pragma unroll 1
  for (int r = 0; r < payloads.count; ++r) {
    const uint32* const payload = PayloadOf(payloads, r);
    const uint32* const words = payload + kKeyWords + code.num_blocks;
    const float unit = KnownScale(payload[kKeyWords + blockIdx.x], code);
    float values[kRadix];
    int64 place = first_place, word = first_word;
#pragma unroll
    for (int k = 0; k < kRadix; ++k) {
      values[k] = 0.0f;
      if (thread + k * kThreads < code.block) {
        for (; word >= packing.num_words; word -= packing.num_words) ++place;
        const uint32 digit = words[word] / powers[place] % packing.base;
        values[k] = LevelOf(digit, levels, code) * unit;
      }
      word += kThreads;
    }
    Hadamard(values, code.block, shared);
    const uint32 first = payload[0] + static_cast<uint32>(begin) + thread;
#pragma unroll
    for (int k = 0; k < kRadix; ++k) {
      const float value = Signed(values[k], first + k * kThreads, payload[1]);
      sums[k] = r ? sums[k] + value : value;
    }
  }
  const Variable* const all = AllOf(variables);
  int index = Find(variables, begin);
#pragma unroll
  for (int k = 0; k < kRadix; ++k) {
    const int i = thread + k * kThreads;
    if (i >= code.block || begin + i >= variables.total) break;
    index = Walk(all, index, begin + i);
    float sum = sums[k] * factors[index];
    if (scale != 1.0f) sum = sum * scale;
    all[index].data[begin + i - all[index].start] = sum;
  }
}

}  // namespace terngrad_gpu
