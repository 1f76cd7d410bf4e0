// Common code of the kernels of ternary codes.

#ifndef TERNGRAD_NATIVE_GPU_TERNARY_H_
#define TERNGRAD_NATIVE_GPU_TERNARY_H_

#include "device.h"

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

// The elements of one digit of a block's words begin in this variable.
struct Place {
  int index;
  float most;  // The limit times the factor.
  float factor;
};

// The numbers of a variable. With a limit that is NaN all codes are 0.
__device__ inline Place PlaceOf(int index, const float* limits,
                                const float* scalers) {
  const float limit = limits ? limits[index] : __int_as_float(kInfinity);
  const float factor = limit == limit ? Factor(scalers[index]) : 0.0f;
  return {index, limit * factor, factor};
}

// True if the code of a value is not 0.
__device__ inline bool Fires(float value, const Place& place, uint32 random,
                             bool stratified, uint32 stratum) {
  random ^= random >> 16;
  if (stratified) {
    random += stratum;
    random ^= ~static_cast<uint32>(__float_as_int(value) >> 31);
  }
  // (random >> 9) + 0.5, without a conversion: 2^23 has the upper bits 0x96.
  const float threshold =
      __int_as_float(static_cast<int>(__funnelshift_r(random, 0x96, 9))) -
      8388607.5f;
  // NaN gives the code 0. As products are rounded monotonically, this limits
  // the magnitude.
  return (threshold <= place.most) &
         (threshold <= fabsf(value * place.factor));
}

// The word of the values of its elements. `places` are those of the first word
// of the block of threads.
__device__ inline uint32 WordOf(const float* values, int64 word,
                                const Variables& variables,
                                const Place* places, const float* limits,
                                const float* scalers, const Key& key,
                                const Coding& coding) {
  const Variable* const all = AllOf(variables);
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
        AlmostRandom(static_cast<uint32>(position) + key.first, key.second);
    // A digit is its code plus one.
    sum += power;
    if (Fires(values[p], place, random, coding.stratified, key.stratum)) {
      sum += __float_as_int(values[p]) < 0 ? 0 - power : power;
    }
    power *= coding.radix;
  }
  return sum;
}

// The word of a thread from its values. `counter` is the position of its first
// element plus the first number of the key.
template <int kRadix, int kPlaces, bool kStratified>
__device__ inline uint32 WordInside(const float* values, const Place* places,
                                    uint32 counter, uint32 num_words,
                                    const Key& key) {
  constexpr int kHalf = kPlaces / 2;
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
      const uint32 random = AlmostRandom(counter + p * num_words, key.second);
      const int bits = __float_as_int(static_cast<float>(power));
      if (Fires(value, places[p], random, kStratified, key.stratum)) {
        sum += __int_as_float((__float_as_int(value) & ~0x7fffffff) | bits);
      }
      digits += power;  // A digit is its code plus one.
    }
    word = word * power + static_cast<uint32>(static_cast<int>(sum) + digits);
  }
  return word;
}

template <int kRadix, int kPlaces>
__device__ inline uint32 WordInside(const float* values, const Place* places,
                                    int64 word, const Key& key,
                                    const Coding& coding) {
  const uint32 counter = static_cast<uint32>(word) + key.first;
  const uint32 num_words = static_cast<uint32>(coding.num_words);
  return coding.stratified
             ? WordInside<kRadix, kPlaces, true>(values, places, counter,
                                                 num_words, key)
             : WordInside<kRadix, kPlaces, false>(values, places, counter,
                                                  num_words, key);
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

// Adds the digits of a word of all payloads to totals.
template <int kPlaces>
__device__ inline void AddPayloads(const Payloads& payloads, int64 word,
                                   uint32* totals) {
#pragma unroll 4
  for (int r = 0; r < payloads.count; ++r) {
    const uint32 one = PayloadOf(payloads, r)[word];
    if (kPlaces == 20) {
      AddTrits(one, totals);
    } else {
      AddPairs(one, totals);
    }
  }
}

// The sum of the digits in a place.
template <int kPlaces>
__device__ inline int DigitsIn(const uint32* totals, int place) {
  const uint32 both = totals[place % (kPlaces / 2)];
  return place < kPlaces / 2 ? both & 0xffffU : both >> 16;
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_TERNARY_H_
