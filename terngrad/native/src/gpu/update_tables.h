// What the host passes to the GPU kernels that update variables.
//
// C++ on the host and CUDA C++ compile this file, as they do tables.h.

#ifndef TERNGRAD_NATIVE_GPU_UPDATE_TABLES_H_
#define TERNGRAD_NATIVE_GPU_UPDATE_TABLES_H_

#include "tables.h"

namespace terngrad_gpu {

// A variable that an update changes; see kernels.h.
struct UpdatedVariable {
  float* parameter;
  float* velocity;  // Null without momentum.
  float* average;   // Null without averages.
  int64 size;
  int64 start;  // The number of its first element in the bucket.
};

constexpr int kFewUpdated = 60;

struct UpdatedVariables {
  int64 total;
  const UpdatedVariable* many;
  int count;
  UpdatedVariable few[kFewUpdated];
};

// The factors of an update; two of them are in the GPU's memory.
struct UpdateRates {
  const float* learning_rate;
  const float* decay;
  float momentum;
};

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_UPDATE_TABLES_H_
