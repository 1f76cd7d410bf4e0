// Words and sums to steps of variables, without storing gradients.
//
// decoding_impl.h has the same for CPUs.

#include "ternary.h"
#include "update_tables.h"

namespace terngrad_gpu {

__device__ inline const UpdatedVariable* AllOf(
    const UpdatedVariables& variables) {
  return variables.count > kFewUpdated ? variables.many : variables.few;
}

// The numbers of an update.
struct Factors {
  float minus_rate;
  float momentum;
  float decay;
  int roundings;
};

__device__ inline Factors FactorsOf(const UpdateRates& rates) {
  return {-*rates.learning_rate, rates.momentum, *rates.decay,
          rates.roundings};
}

__device__ inline float MultiplyAdd(float a, float b, float c, bool rounds) {
  return rounds ? a * b + c : __fmaf_rn(a, b, c);
}

// Updates an element by its gradient. Without roundings the first product of
// each sum is not rounded, as on the CPU.
__device__ inline void Update(const UpdatedVariable& variable, int64 element,
                              float gradient, const Factors& factors) {
  float step = gradient;
  if (variable.velocity) {
    step = MultiplyAdd(variable.velocity[element], factors.momentum, step,
                       factors.roundings & kRoundsMomentum);
    variable.velocity[element] = step;
  }
  const float parameter =
      MultiplyAdd(step, factors.minus_rate, variable.parameter[element],
                  factors.roundings & kRoundsRate);
  variable.parameter[element] = parameter;
  if (variable.average) {
    const float average = variable.average[element];
    const float share = 1.0f - factors.decay;
    variable.average[element] =
        factors.roundings & kRoundsAverage
            ? __fmaf_rn(parameter, share, average * factors.decay)
            : MultiplyAdd(average, factors.decay, share * parameter,
                          factors.roundings & kRoundsShares);
  }
}

// Updates by `count` words of the payloads, which are those from `first` on of
// `num_words`.
template <int kPlaces>
__device__ inline void UpdateByWords(const UpdatedVariables& variables,
                                     const Payloads& payloads,
                                     const float* scalers, float scale,
                                     const UpdateRates& rates, int64 num_words,
                                     int64 first, int64 count, int* indices) {
  const UpdatedVariable* const all = AllOf(variables);
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads;
  if (threadIdx.x < kPlaces) {
    indices[threadIdx.x] =
        Find(variables, threadIdx.x * num_words + first + begin);
  }
  __syncthreads();
  const int64 word = begin + threadIdx.x;
  if (word >= count) return;
  uint32 totals[kPlaces / 2] = {};
  AddPayloads<kPlaces>(payloads, word, totals);
  const Factors factors = FactorsOf(rates);
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) {
    const int64 position = p * num_words + first + word;
    if (position >= variables.total) break;
    const int index = Walk(all, indices[p], position);
    const int sum = DigitsIn<kPlaces>(totals, p) - payloads.count;
    Update(all[index], position - all[index].start,
           static_cast<float>(sum) * scalers[index] * scale, factors);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_update_base3(const __grid_constant__ UpdatedVariables variables,
                          const __grid_constant__ Payloads payloads,
                          const float* scalers, float scale,
                          const UpdateRates rates, int64 num_words, int64 first,
                          int64 count) {
  __shared__ int indices[20];
  UpdateByWords<20>(variables, payloads, scalers, scale, rates, num_words,
                    first, count, indices);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_update_two_bit(const __grid_constant__ UpdatedVariables variables,
                            const __grid_constant__ Payloads payloads,
                            const float* scalers, float scale,
                            const UpdateRates rates, int64 num_words,
                            int64 first, int64 count) {
  __shared__ int indices[16];
  UpdateByWords<16>(variables, payloads, scalers, scale, rates, num_words,
                    first, count, indices);
}

// Updates by `count` sums of elements, which are those from `first` on.
template <typename Sum>
__device__ inline void UpdateBySums(const UpdatedVariables& variables,
                                    const Sum* sums, const float* scalers,
                                    float scale, const UpdateRates& rates,
                                    int64 first, int64 count, int* index) {
  const UpdatedVariable* const all = AllOf(variables);
  const int64 begin = static_cast<int64>(blockIdx.x) * kThreads * kScaled;
  if (threadIdx.x == 0) *index = Find(variables, first + begin);
  __syncthreads();
  const Factors factors = FactorsOf(rates);
#pragma unroll
  for (int i = 0; i < kScaled; ++i) {
    const int64 at = begin + i * kThreads + threadIdx.x;
    if (at >= count) break;
    const int number = Walk(all, *index, first + at);
    Update(all[number], first + at - all[number].start,
           static_cast<float>(sums[at]) * scalers[number] * scale, factors);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_update_int8(const __grid_constant__ UpdatedVariables variables,
                         const signed char* sums, const float* scalers,
                         float scale, const UpdateRates rates, int64 first,
                         int64 count) {
  __shared__ int index;
  UpdateBySums(variables, sums, scalers, scale, rates, first, count, &index);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_update_int32(const __grid_constant__ UpdatedVariables variables,
                          const int* sums, const float* scalers, float scale,
                          const UpdateRates rates, int64 first, int64 count) {
  __shared__ int index;
  UpdateBySums(variables, sums, scalers, scale, rates, first, count, &index);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_update_float(const __grid_constant__ UpdatedVariables variables,
                          const float* sums, const float* scalers, float scale,
                          const UpdateRates rates, int64 first, int64 count) {
  __shared__ int index;
  UpdateBySums(variables, sums, scalers, scale, rates, first, count, &index);
}

}  // namespace terngrad_gpu
