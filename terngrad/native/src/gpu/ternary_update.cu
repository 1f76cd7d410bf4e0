// Words and sums to steps of variables, without storing gradients.
//
// decoding_impl.h has the same for CPUs. The decoded gradients are those of
// ternary.cu, where subnormal numbers are zero. What follows must give the bits
// of XLA's update, which on GPUs computes with subnormal numbers: only
// __fmaf_ieee_rn, which no option of the compiler changes, may do it.

#include "ternary.h"
#include "update_tables.h"

namespace terngrad_gpu {

__device__ inline const UpdatedVariable* AllOf(
    const UpdatedVariables& variables) {
  return variables.count > kFewUpdated ? variables.many : variables.few;
}

// A factor of a product that is added to something. One of the numbers is 1;
// the product with the first one is rounded, that with the second one is not.
struct Multiplier {
  float rounding;
  float fused;
};

__device__ inline Multiplier MultiplierOf(float factor, bool rounds) {
  return {rounds ? factor : 1.0f, rounds ? 1.0f : factor};
}

// A product with subnormal numbers; adding -0 changes none.
__device__ inline float Product(float a, float b) {
  return __fmaf_ieee_rn(a, b, -0.0f);
}

__device__ inline float MultiplyAdd(float a, const Multiplier& b, float c) {
  return __fmaf_ieee_rn(Product(a, b.rounding), b.fused, c);
}

// The numbers of an update. Without roundings the first product of each sum is
// not rounded, as on the CPU.
struct Factors {
  float scale;
  Multiplier momentum;
  Multiplier minus_rate;
  // Of the first one and the second one of the average before and the
  // parameter, or of the parameter and the average if `swaps`.
  Multiplier first;
  float second;
  bool swaps;
};

__device__ inline Factors FactorsOf(const UpdateRates& rates, float scale) {
  const bool swaps = rates.roundings & kRoundsAverage;
  const float decay = rates.decay, share = 1.0f - decay;
  return {scale,
          MultiplierOf(rates.momentum, rates.roundings & kRoundsMomentum),
          MultiplierOf(Product(rates.learning_rate, -1.0f),
                       rates.roundings & kRoundsRate),
          MultiplierOf(swaps ? share : decay,
                       !swaps && rates.roundings & kRoundsShares),
          swaps ? decay : share, swaps};
}

__device__ inline float Average(float average, float parameter,
                                const Factors& factors) {
  const float first = factors.swaps ? parameter : average;
  const float second = factors.swaps ? average : parameter;
  return MultiplyAdd(first, factors.first, Product(second, factors.second));
}

// Where an element is, or null; a velocity or an average that the update has
// not is anywhere.
struct Target {
  float* parameter;
  float* velocity;
  float* average;
  float scaler;
};

// The element `offset` elements after that of a variable or another target.
template <typename From>
__device__ inline Target After(const From& from, int64 offset, float scaler) {
  return {from.parameter + offset, from.velocity + offset,
          from.average + offset, scaler};
}

// Elements that a thread updates at a time.
constexpr int kBatched = kScaled;

// Updates elements by their sums. All reads first, so that they wait for the
// memory together: the compiler moves none before a write.
template <bool kExist, typename Sum>
__device__ inline void UpdateBatch(const UpdatedVariables& variables,
                                   const Target* targets, const Sum* sums,
                                   const Factors& factors) {
  float velocities[kBatched], parameters[kBatched], averages[kBatched];
#pragma unroll
  for (int i = 0; i < kBatched; ++i) {
    const Target& from = targets[i];
    const bool exists = kExist || from.parameter;
    velocities[i] = exists && variables.have_velocities ? *from.velocity : 0.0f;
    parameters[i] = exists ? *from.parameter : 0.0f;
    averages[i] = exists && variables.have_averages ? *from.average : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kBatched; ++i) {
    const Target& to = targets[i];
    if (!kExist && !to.parameter) continue;
    float step = static_cast<float>(sums[i]) * to.scaler * factors.scale;
    if (variables.have_velocities) {
      step = MultiplyAdd(velocities[i], factors.momentum, step);
      *to.velocity = step;
    }
    const float parameter =
        MultiplyAdd(step, factors.minus_rate, parameters[i]);
    *to.parameter = parameter;
    if (variables.have_averages) {
      *to.average = Average(averages[i], parameter, factors);
    }
  }
}

// The first elements of a block of threads, of each place.
struct Targets {
  Target first[kMaxPlaces];
  int indices[kMaxPlaces];
  // The elements of each place follow each other in one variable; otherwise
  // some are in several variables.
  int is_known;
};

// Finds the targets of `count` elements from `begin` on, and from there in each
// other place: threads of the first warp call this.
__device__ inline void FindTargets(const UpdatedVariables& variables,
                                   const float* scalers, int64 begin,
                                   int count, int64 num_words, int places,
                                   Targets* targets) {
  const int p = threadIdx.x;
  bool is_inside = true;
  if (p < places) {
    const int64 position = p * num_words + begin;
    const int index = Find(variables, position);
    const UpdatedVariable& variable = AllOf(variables)[index];
    const int64 offset = position - variable.start;
    targets->first[p] = After(variable, offset, scalers[index]);
    targets->indices[p] = index;
    is_inside = offset + count <= variable.size;
  }
  const uint32 lanes = __ballot_sync(0xffffffffU, is_inside);
  if (p == 0) targets->is_known = lanes == 0xffffffffU;
}

// Element `position` of the bucket, which is `offset` after the first one of
// its place.
template <bool kIsKnown>
__device__ inline Target TargetAt(const UpdatedVariables& variables,
                                  const float* scalers, const Targets& targets,
                                  int place, int offset, int64 position) {
  if (kIsKnown) {
    const Target& first = targets.first[place];
    return After(first, offset, first.scaler);
  }
  if (position >= variables.total) return {};
  const UpdatedVariable* const all = AllOf(variables);
  const int index = Walk(all, targets.indices[place], position);
  return After(all[index], position - all[index].start, scalers[index]);
}

// Updates by a word's digits, whose totals are given; the word's number is that
// of its first element.
template <int kPlaces, bool kIsKnown>
__device__ inline void UpdatePlaces(const UpdatedVariables& variables,
                                    const float* scalers,
                                    const Factors& factors, int64 num_words,
                                    int64 word, const uint32* totals,
                                    int payloads, const Targets& targets) {
#pragma unroll
  for (int batch = 0; batch < kPlaces; batch += kBatched) {
    Target some[kBatched];
    int sums[kBatched];
#pragma unroll
    for (int i = 0; i < kBatched; ++i) {
      const int p = batch + i;
      some[i] = TargetAt<kIsKnown>(variables, scalers, targets, p, threadIdx.x,
                                   p * num_words + word);
      sums[i] = DigitsIn<kPlaces>(totals, p) - payloads;
    }
    UpdateBatch<kIsKnown>(variables, some, sums, factors);
  }
}

// Updates by `count` words of the payloads, which are those from `first` on of
// `num_words`.
template <int kPlaces>
__device__ inline void UpdateByWords(const UpdatedVariables& variables,
                                     const Payloads& payloads,
                                     const float* scalers, float scale,
                                     const UpdateRates& rates, int64 num_words,
                                     int64 first, int64 count,
                                     Targets* targets) {
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads;
  if (threadIdx.x < kWarp) {
    FindTargets(variables, scalers, first + begin, kThreads, num_words, kPlaces,
                targets);
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= count) return;
  uint32 totals[kPlaces / 2] = {};
  AddPayloads<kPlaces>(payloads, word, totals);
  const Factors factors = FactorsOf(rates, scale);
  if (targets->is_known) {
    UpdatePlaces<kPlaces, true>(variables, scalers, factors, num_words,
                                first + word, totals, payloads.count, *targets);
  } else {
    UpdatePlaces<kPlaces, false>(variables, scalers, factors, num_words,
                                 first + word, totals, payloads.count,
                                 *targets);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 4)
    terngrad_update_base3(const __grid_constant__ UpdatedVariables variables,
                          const __grid_constant__ Payloads payloads,
                          const float* scalers, float scale,
                          const UpdateRates rates, int64 num_words, int64 first,
                          int64 count) {
  __shared__ Targets targets;
  UpdateByWords<20>(variables, payloads, scalers, scale, rates, num_words,
                    first, count, &targets);
}

extern "C" __global__ void __launch_bounds__(kThreads, 4)
    terngrad_update_two_bit(const __grid_constant__ UpdatedVariables variables,
                            const __grid_constant__ Payloads payloads,
                            const float* scalers, float scale,
                            const UpdateRates rates, int64 num_words,
                            int64 first, int64 count) {
  __shared__ Targets targets;
  UpdateByWords<16>(variables, payloads, scalers, scale, rates, num_words,
                    first, count, &targets);
}

// Updates the elements of a thread by their sums; those of the block are the
// first ones of `rest`, or if they are known all of them exist.
template <bool kIsKnown, typename Sum>
__device__ inline void UpdateThread(const UpdatedVariables& variables,
                                    const Sum* sums, const float* scalers,
                                    const Factors& factors, int64 begin,
                                    int64 rest, const Targets& targets) {
  Target some[kBatched];
  Sum values[kBatched];
#pragma unroll
  for (int i = 0; i < kBatched; ++i) {
    const int at = i * kThreads + threadIdx.x;
    const bool exists = kIsKnown || at < rest;
    some[i] = exists ? TargetAt<kIsKnown>(variables, scalers, targets, 0, at,
                                          begin + at)
                     : Target{};
    values[i] = exists ? sums[at] : Sum{};
  }
  UpdateBatch<kIsKnown>(variables, some, values, factors);
}

// Updates by `count` sums of elements, which are those from `first` on.
template <typename Sum>
__device__ inline void UpdateBySums(const UpdatedVariables& variables,
                                    const Sum* sums, const float* scalers,
                                    float scale, const UpdateRates& rates,
                                    int64 first, int64 count,
                                    Targets* targets) {
  constexpr int kElements = kThreads * kScaled;
  const int64 begin = static_cast<int64>(blockIdx.x) * kElements;
  if (threadIdx.x < kWarp) {
    FindTargets(variables, scalers, first + begin, kElements, 0, 1, targets);
  }
  __syncthreads();
  const Factors factors = FactorsOf(rates, scale);
  if (targets->is_known && count - begin >= kElements) {
    UpdateThread<true>(variables, sums + begin, scalers, factors, first + begin,
                       count - begin, *targets);
  } else {
    UpdateThread<false>(variables, sums + begin, scalers, factors,
                        first + begin, count - begin, *targets);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_update_int8(const __grid_constant__ UpdatedVariables variables,
                         const signed char* sums, const float* scalers,
                         float scale, const UpdateRates rates, int64 first,
                         int64 count) {
  __shared__ Targets targets;
  UpdateBySums(variables, sums, scalers, scale, rates, first, count, &targets);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_update_int32(const __grid_constant__ UpdatedVariables variables,
                          const int* sums, const float* scalers, float scale,
                          const UpdateRates rates, int64 first, int64 count) {
  __shared__ Targets targets;
  UpdateBySums(variables, sums, scalers, scale, rates, first, count, &targets);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_update_float(const __grid_constant__ UpdatedVariables variables,
                          const float* sums, const float* scalers, float scale,
                          const UpdateRates rates, int64 first, int64 count) {
  __shared__ Targets targets;
  UpdateBySums(variables, sums, scalers, scale, rates, first, count, &targets);
}

}  // namespace terngrad_gpu
