// Ternary codes: elements to words, and words or sums to elements.

#include "device.h"

namespace terngrad_gpu {

// The elements of one digit of a block's words begin in this variable.
struct Place {
  int index;
  float limit;
  float factor;
};

// The limit and factor of a variable. With a limit that is NaN all codes are 0.
__device__ inline Place PlaceOf(int index, const float* limits,
                                const float* scalers) {
  Place place = {index, __int_as_float(kInfinity), Factor(scalers[index])};
  if (limits) {
    place.limit = limits[index];
    if (place.limit != place.limit) place.factor = 0.0f;
  }
  return place;
}

// True if the code of a value is not 0.
__device__ inline bool Fires(float value, const Place& place, uint32 random,
                             bool stratified, uint32 stratum) {
  random ^= random >> 16;
  if (stratified) {
    random += stratum;
    if (__float_as_int(value) >= 0) random = ~random;
  }
  const float magnitude = __int_as_float(__float_as_int(value) & 0x7fffffff);
  // NaN is preserved and gives the code 0.
  const float scaled =
      (place.limit < magnitude ? place.limit : magnitude) * place.factor;
  return static_cast<float>(random >> 9) + 0.5f <= scaled;
}

// A thread a word. `limits` is null if nothing is clipped. `key` has a third
// number, the stratum, if `has_stratum`.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_encode(const __grid_constant__ Variables variables,
                            const float* limits, const float* scalers,
                            const uint32* key, int has_stratum, Coding coding,
                            uint32* words) {
  __shared__ Place places[kMaxPlaces];
  const Variable* const all = AllOf(variables);
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads;
  if (threadIdx.x < coding.places) {
    places[threadIdx.x] =
        PlaceOf(Find(variables, threadIdx.x * coding.num_words + begin), limits,
                scalers);
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= coding.num_words) return;
  // All reads first, so that they wait for the memory together.
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
  const uint32 first = key[0], second = key[1];
  const uint32 stratum = has_stratum ? key[2] : 0;
  uint32 sum = 0, power = 1;
#pragma unroll
  for (int p = 0; p < kMaxPlaces; ++p) {
    if (p >= coding.places) break;
    const int64 position = p * coding.num_words + word;
    Place place = places[p];
    if (position - all[place.index].start >= all[place.index].size &&
        position < variables.total) {
      place = PlaceOf(Walk(all, place.index, position), limits, scalers);
    }
    const uint32 random =
        AlmostRandom(static_cast<uint32>(position) + first, second);
    // A digit is its code plus one.
    sum += power;
    if (Fires(values[p], place, random, coding.stratified, stratum)) {
      sum += __float_as_int(values[p]) < 0 ? 0 - power : power;
    }
    power *= coding.radix;
  }
  words[word] = sum;
}

// Adds the digits of a word to totals: digit i in the low 16 bits of total i,
// digit i + 10 in the high ones. decoding_impl.h explains the fractions.
__device__ inline void AddTrits(uint32 word, uint32* totals) {
  const uint32 rest = word - 3486784401U;
  word = word < rest ? word : rest;
  const uint32 high = word / 59049U, low = word - high * 59049U;
  const uint32 upper[2] = {low / 243U, high / 243U};
  const uint32 lower[2] = {low - upper[0] * 243U, high - upper[1] * 243U};
  uint32 fractions[2] = {((lower[0] * 270U) >> 2) + 1,
                         ((upper[0] * 270U) >> 2) + 1};
  fractions[0] |= (((lower[1] * 270U) >> 2) + 1) << 16;
  fractions[1] |= (((upper[1] * 270U) >> 2) + 1) << 16;
#pragma unroll
  for (int quarter = 0; quarter < 2; ++quarter) {
    uint32 fraction = fractions[quarter];
#pragma unroll
    for (int p = 4; p >= 0; --p) {
      fraction *= 3;
      totals[5 * quarter + p] += (fraction >> 14) & 0x00030003U;
      fraction &= 0x3fff3fffU;
    }
  }
}

__device__ inline void AddPairs(uint32 word, uint32* totals) {
#pragma unroll
  for (int p = 0; p < 8; ++p) totals[p] += (word >> (2 * p)) & 0x00030003U;
}

template <int kPlaces>
__device__ inline void Decode(const Variables& variables,
                              const Payloads& payloads, const float* scalers,
                              float scale, int64 num_words, int* first) {
  const Variable* const all = AllOf(variables);
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads;
  if (threadIdx.x < kPlaces) {
    first[threadIdx.x] = Find(variables, threadIdx.x * num_words + begin);
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= num_words) return;
  uint32 totals[kPlaces / 2] = {};
#pragma unroll 4
  for (int r = 0; r < payloads.count; ++r) {
    const uint32 one = PayloadOf(payloads, r)[word];
    if (kPlaces == 20) {
      AddTrits(one, totals);
    } else {
      AddPairs(one, totals);
    }
  }
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) {
    const int64 position = p * num_words + word;
    if (position >= variables.total) break;
    const int index = Walk(all, first[p], position);
    const uint32 both = totals[p % (kPlaces / 2)];
    const int sum = p < kPlaces / 2 ? both & 0xffffU : both >> 16;
    all[index].data[position - all[index].start] =
        static_cast<float>(sum - payloads.count) * scalers[index] * scale;
  }
}

// Elements are (sum over payloads of code * scaler) * scale; a thread a word.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_decode_base3(const __grid_constant__ Variables variables,
                                  const __grid_constant__ Payloads payloads,
                                  const float* scalers, float scale,
                                  int64 num_words) {
  __shared__ int first[20];
  Decode<20>(variables, payloads, scalers, scale, num_words, first);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_ternary_decode_two_bit(const __grid_constant__ Variables variables,
                                    const __grid_constant__ Payloads payloads,
                                    const float* scalers, float scale,
                                    int64 num_words) {
  __shared__ int first[16];
  Decode<16>(variables, payloads, scalers, scale, num_words, first);
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
