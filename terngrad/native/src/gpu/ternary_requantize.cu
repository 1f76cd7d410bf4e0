// Words of ternary codes of one scaler to words of a larger one.

#include "ternary.h"

namespace terngrad_gpu {

// Decodes and encodes again, as two other kernels do, but in registers. `own`
// are the scalers of the words `from`, and limits if `clips`; a thread a word.
template <int kPlaces>
__device__ inline void Requantize(const Variables& variables, const float* own,
                                  int clips, const float* scalers,
                                  const uint32* key, int has_stratum,
                                  const Coding& coding, const uint32* from,
                                  uint32* words, Place* places) {
  const Variable* const all = AllOf(variables);
  const float* const limits = clips ? own : nullptr;
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads;
  if (threadIdx.x < kPlaces) {
    places[threadIdx.x] =
        PlaceOf(Find(variables, threadIdx.x * coding.num_words + begin), limits,
                scalers);
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= coding.num_words) return;
  uint32 totals[kPlaces / 2] = {};
  if (kPlaces == 20) {
    AddTrits(from[word], totals);
  } else {
    AddPairs(from[word], totals);
  }
  float values[kMaxPlaces];
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) {
    const int64 position = p * coding.num_words + word;
    values[p] = 0.0f;  // The code 0.
    if (position >= variables.total) continue;
    values[p] = static_cast<float>(DigitsIn<kPlaces>(totals, p) - 1) *
                own[Walk(all, places[p].index, position)];
  }
  words[word] = WordOf(values, word, variables, places, limits, scalers, key,
                       has_stratum, coding);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_requantize_base3(
        const __grid_constant__ Variables variables, const float* own,
        int clips, const float* scalers, const uint32* key, int has_stratum,
        Coding coding, const uint32* from, uint32* words) {
  __shared__ Place places[20];
  Requantize<20>(variables, own, clips, scalers, key, has_stratum, coding, from,
                 words, places);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_requantize_two_bit(
        const __grid_constant__ Variables variables, const float* own,
        int clips, const float* scalers, const uint32* key, int has_stratum,
        Coding coding, const uint32* from, uint32* words) {
  __shared__ Place places[16];
  Requantize<16>(variables, own, clips, scalers, key, has_stratum, coding, from,
                 words, places);
}

}  // namespace terngrad_gpu
