// Fills the tables of update_tables.h.

#ifndef TERNGRAD_NATIVE_GPU_UPDATE_H_
#define TERNGRAD_NATIVE_GPU_UPDATE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpu/update_tables.h"

namespace terngrad_gpu {

// The table of a bucket whose variables are updated.
struct UpdatedBucket {
  std::vector<UpdatedVariable> variables;
  int64_t total = 0;  // Elements.
  // An empty variable may have none all the same.
  bool have_velocities = false;
  bool have_averages = false;

  void Add(float* parameter, float* velocity, float* average, int64_t size) {
    variables.push_back({parameter, velocity, average, size, total});
    total += size;
    have_velocities |= velocity != nullptr;
    have_averages |= average != nullptr;
  }

  // The table; its `many` is not set.
  UpdatedVariables Table() const {
    UpdatedVariables table = {};
    table.total = total;
    table.count = static_cast<int>(variables.size());
    table.have_velocities = have_velocities;
    table.have_averages = have_averages;
    std::copy_n(variables.begin(), std::min(table.count, kFewUpdated),
                table.few);
    return table;
  }
};

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_UPDATE_H_
