// Words of ternary codes of one scaler to words of a larger one.

#include "ternary.h"

namespace terngrad_gpu {

// The variables of the first word of a block of threads.
struct Requantized {
  Inside inside;
  Place places[kMaxPlaces];
  float own[kMaxPlaces];
};

// Decodes and encodes again, as two other kernels do, but in registers. `own`
// are the scalers of the words `from`, and limits if `clips`; a thread a word.
template <int kPlaces>
__device__ inline void Requantize(const Variables& variables, const float* own,
                                  int clips, const float* scalers,
                                  const Key& key, const Coding& coding,
                                  const uint32* from, uint32* words,
                                  Requantized* first) {
  const Variable* const all = AllOf(variables);
  const float* const limits = clips ? own : nullptr;
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads;
  if (threadIdx.x < kWarp) {
    const int index =
        FindPlace(variables, begin, coding.num_words, kPlaces, &first->inside);
    if (threadIdx.x < kPlaces) {
      first->places[threadIdx.x] = PlaceOf(index, limits, scalers);
      first->own[threadIdx.x] = own[index];
    }
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
  const Place* const places = first->places;
  const bool is_known = first->inside.is_known;
  float values[kMaxPlaces];
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) {
    const int64 position = p * coding.num_words + word;
    float scaler = first->own[p];
    if (!is_known) {
      scaler = position < variables.total
                   ? own[Walk(all, places[p].index, position)]
                   : 0.0f;  // The code 0.
    }
    values[p] = static_cast<float>(DigitsIn<kPlaces>(totals, p) - 1) * scaler;
  }
  words[word] = is_known ? WordInside<kPlaces == 20 ? 3 : 4, kPlaces>(
                               values, places, word, key, coding)
                         : WordOf(values, word, variables, places, limits,
                                  scalers, key, coding);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_requantize_base3(
        const __grid_constant__ Variables variables, const float* own,
        int clips, const float* scalers, const Key key, Coding coding,
        const uint32* from, uint32* words) {
  __shared__ Requantized first;
  Requantize<20>(variables, own, clips, scalers, key, coding, from, words, &first);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_requantize_two_bit(
        const __grid_constant__ Variables variables, const float* own,
        int clips, const float* scalers, const Key key, Coding coding,
        const uint32* from, uint32* words) {
  __shared__ Requantized first;
  Requantize<16>(variables, own, clips, scalers, key, coding, from, words, &first);
}

}  // namespace terngrad_gpu
