// Ternary codes: elements to words, and words or sums to elements.

#include "ternary.h"

namespace terngrad_gpu {

template <int kRadix, int kPlaces>
__device__ inline uint32 EncodeInside(const Inside& inside, const Place* places,
                                      int64 word, const Key& key,
                                      const Coding& coding) {
  // All reads first, so that they wait for the memory together.
  float values[kPlaces];
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) values[p] = inside.data[p][threadIdx.x];
  return WordInside<kRadix, kPlaces>(values, places, word, key, coding);
}

// A thread a word. `limits` is null if nothing is clipped.
extern "C" __global__ void __launch_bounds__(kThreads, 5)
    terngrad_ternary_encode(const __grid_constant__ Variables variables,
                            const float* limits, const float* scalers,
                            const Key key, Coding coding, uint32* words) {
  __shared__ Place places[kMaxPlaces];
  __shared__ Inside inside;
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads;
  if (threadIdx.x < kWarp) {
    const int index =
        FindPlace(variables, begin, coding.num_words, coding.places, &inside);
    if (threadIdx.x < coding.places) {
      places[threadIdx.x] = PlaceOf(index, limits, scalers);
    }
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= coding.num_words) return;
  if (inside.is_known && coding.radix == 3 && coding.places == 20) {
    words[word] = EncodeInside<3, 20>(inside, places, word, key, coding);
    return;
  }
  if (inside.is_known && coding.radix == 4 && coding.places == 16) {
    words[word] = EncodeInside<4, 16>(inside, places, word, key, coding);
    return;
  }
  const Variable* const all = AllOf(variables);
  float values[kMaxPlaces];
#pragma unroll
  for (int p = 0; p < kMaxPlaces; ++p) {
    const int64 position = p * coding.num_words + word;
    if (p < coding.places && position < variables.total) {
      const Variable& variable = all[Walk(all, places[p].index, position)];
      values[p] = variable.data[position - variable.start];
    } else {
      values[p] = 0.0f;  // The code 0.
    }
  }
  words[word] = WordOf(values, word, variables, places, limits, scalers, key,
                       coding);
}

// The variable of the first element of each place, and its scaler.
struct DecodedPlaces {
  Inside inside;
  int first[kMaxPlaces];
  float scalers[kMaxPlaces];
};

template <int kPlaces>
__device__ inline void Decode(const Variables& variables,
                              const Payloads& payloads, const float* scalers,
                              float scale, int64 num_words,
                              DecodedPlaces* places) {
  const Variable* const all = AllOf(variables);
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads;
  if (threadIdx.x < kWarp) {
    const int index =
        FindPlace(variables, begin, num_words, kPlaces, &places->inside);
    if (threadIdx.x < kPlaces) {
      places->first[threadIdx.x] = index;
      places->scalers[threadIdx.x] = scalers[index];
    }
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= num_words) return;
  uint32 totals[kPlaces / 2] = {};
  AddPayloads<kPlaces>(payloads, word, totals);
  const bool is_known = places->inside.is_known;
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) {
    const int64 position = p * num_words + word;
    float* to = places->inside.data[p] + threadIdx.x;
    float scaler = places->scalers[p];
    if (!is_known) {
      if (position >= variables.total) break;
      const int index = Walk(all, places->first[p], position);
      to = all[index].data + (position - all[index].start);
      scaler = scalers[index];
    }
    const int sum = DigitsIn<kPlaces>(totals, p) - payloads.count;
    *to = static_cast<float>(sum) * scaler * scale;
  }
}

// Elements are (sum over payloads of code * scaler) * scale; a thread a word.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_decode_base3(const __grid_constant__ Variables variables,
                                  const __grid_constant__ Payloads payloads,
                                  const float* scalers, float scale,
                                  int64 num_words) {
  __shared__ DecodedPlaces places;
  Decode<20>(variables, payloads, scalers, scale, num_words, &places);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_decode_two_bit(const __grid_constant__ Variables variables,
                                    const __grid_constant__ Payloads payloads,
                                    const float* scalers, float scale,
                                    int64 num_words) {
  __shared__ DecodedPlaces places;
  Decode<16>(variables, payloads, scalers, scale, num_words, &places);
}

template <typename Sum>
__device__ inline void Scale(const Variables& variables, const Sum* sums,
                             const float* scalers, float scale, int* first) {
  const Variable* const all = AllOf(variables);
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads * kScaled;
  if (threadIdx.x == 0) *first = Find(variables, begin);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kScaled; ++i) {
    const int64 position = begin + i * kThreads + threadIdx.x;
    if (position >= variables.total) break;
    const int index = Walk(all, *first, position);
    all[index].data[position - all[index].start] =
        static_cast<float>(sums[position]) * scalers[index] * scale;
  }
}

// Elements are sum * scaler * scale, for sums that were added before.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_scale_int8(const __grid_constant__ Variables variables,
                        const signed char* sums, const float* scalers,
                        float scale) {
  __shared__ int first;
  Scale(variables, sums, scalers, scale, &first);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_scale_int32(const __grid_constant__ Variables variables,
                         const int* sums, const float* scalers, float scale) {
  __shared__ int first;
  Scale(variables, sums, scalers, scale, &first);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_scale_float(const __grid_constant__ Variables variables,
                         const float* sums, const float* scalers, float scale) {
  __shared__ int first;
  Scale(variables, sums, scalers, scale, &first);
}

}  // namespace terngrad_gpu
