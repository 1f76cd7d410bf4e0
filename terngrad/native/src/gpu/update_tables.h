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
  int have_velocities;
  int have_averages;
  UpdatedVariable few[kFewUpdated];
};

// Products of an update that are rounded before they are added to something.
// XLA's compiler rounds some of them; which ones depends on the device.
enum Roundings {
  kRoundsMomentum = 1,
  kRoundsRate = 2,
  // Of an average and a parameter times their shares the first product is not
  // rounded; with one of these only the second one is not, or none.
  kRoundsAverage = 4,
  kRoundsShares = 8,
};

// The factors of an update.
struct UpdateRates {
  float learning_rate;
  float decay;
  float momentum;
  int roundings;
};

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_UPDATE_TABLES_H_
