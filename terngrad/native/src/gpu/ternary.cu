// Ternary codes: elements to words, and words or sums to elements.

#include "ternary.h"

namespace terngrad_gpu {

// A thread a word. `limits` is null if nothing is clipped.
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
  words[word] = WordOf(values, word, variables, places, limits, scalers, key,
                       has_stratum, coding);
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
  AddPayloads<kPlaces>(payloads, word, totals);
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) {
    const int64 position = p * num_words + word;
    if (position >= variables.total) break;
    const int index = Walk(all, first[p], position);
    const int sum = DigitsIn<kPlaces>(totals, p);
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
