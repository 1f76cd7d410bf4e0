// Ternary codes: elements to words, and words or sums to elements.

#include "ternary.h"

namespace terngrad_gpu {

// The elements of a block of words, if those of each place follow each other in
// one variable.
struct Inside {
  float* data[kMaxPlaces];
  int is_known;  // Otherwise some are in several variables.
};

// The variables in which the places of a block of words begin: threads of the
// first warp call this, and each receives that of the place with its number.
__device__ inline int FindPlace(const Variables& variables, int64 begin,
                                int64 num_words, int places, Inside* inside) {
  const int p = threadIdx.x;
  int index = 0;
  bool is_inside = true;
  if (p < places) {
    const int64 position = p * num_words + begin;
    index = Find(variables, position);
    const Variable& variable = AllOf(variables)[index];
    const int64 offset = position - variable.start;
    inside->data[p] = variable.data + offset;
    is_inside = offset + kThreads <= variable.size;
  }
  const uint32 lanes = __ballot_sync(0xffffffffU, is_inside);
  if (p == 0) inside->is_known = lanes == 0xffffffffU;
  return index;
}

// The word of a thread. `counter` is the position of its first element plus the
// first number of the key.
template <int kRadix, int kPlaces, bool kStratified>
__device__ inline uint32 WordInside(const Inside& inside, const Place* places,
                                    uint32 counter, uint32 num_words,
                                    uint32 second, uint32 stratum) {
  constexpr int kHalf = kPlaces / 2;
  // All reads first, so that they wait for the memory together.
  float values[kPlaces];
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) values[p] = inside.data[p][threadIdx.x];
  uint32 word = 0;
#pragma unroll
  for (int half = 1; half >= 0; --half) {
    // Sums of half of the digits are exact in float32, whose additions are
    // faster.
    float sum = 0.0f;
    int power = 1, digits = 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i, power *= kRadix) {
      const int p = half * kHalf + i;
      const float value = values[p];
      const uint32 random = AlmostRandom(counter + p * num_words, second);
      const int bits = __float_as_int(static_cast<float>(power));
      if (Fires(value, places[p], random, kStratified, stratum)) {
        sum += __int_as_float((__float_as_int(value) & ~0x7fffffff) | bits);
      }
      digits += power;  // A digit is its code plus one.
    }
    word = word * power + static_cast<uint32>(static_cast<int>(sum) + digits);
  }
  return word;
}

template <int kRadix, int kPlaces>
__device__ inline uint32 WordInside(const Inside& inside, const Place* places,
                                    int64 word, const uint32* key,
                                    int has_stratum, const Coding& coding) {
  const uint32 counter = static_cast<uint32>(word) + key[0];
  const uint32 num_words = static_cast<uint32>(coding.num_words);
  const uint32 stratum = has_stratum ? key[2] : 0;
  return coding.stratified
             ? WordInside<kRadix, kPlaces, true>(inside, places, counter,
                                                 num_words, key[1], stratum)
             : WordInside<kRadix, kPlaces, false>(inside, places, counter,
                                                  num_words, key[1], stratum);
}

// A thread a word. `limits` is null if nothing is clipped.
extern "C" __global__ void __launch_bounds__(kThreads, 5)
    terngrad_ternary_encode(const __grid_constant__ Variables variables,
                            const float* limits, const float* scalers,
                            const uint32* key, int has_stratum, Coding coding,
                            uint32* words) {
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
    words[word] = WordInside<3, 20>(inside, places, word, key, has_stratum,
                                    coding);
    return;
  }
  if (inside.is_known && coding.radix == 4 && coding.places == 16) {
    words[word] = WordInside<4, 16>(inside, places, word, key, has_stratum,
                                    coding);
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
                       has_stratum, coding);
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
