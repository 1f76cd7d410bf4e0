// Fills the tables of tables.h.

#ifndef TERNGRAD_NATIVE_GPU_HOST_H_
#define TERNGRAD_NATIVE_GPU_HOST_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpu/tables.h"

namespace terngrad_gpu {

inline int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What `Variable::start` counts.
enum class Unit { kElements, kStatisticsBlocks };

// Adds a variable after those of the table. `many` has all of them.
inline void Append(const float* data, int64_t size, Unit unit,
                   Variables* variables, std::vector<Variable>* many) {
  const Variable variable = {const_cast<float*>(data), size, variables->total};
  variables->total += unit == Unit::kElements
                          ? size
                          : CeilDivide(size, kStatisticsBlock);
  if (variables->count < kFewVariables) {
    variables->few[variables->count] = variable;
  }
  ++variables->count;
  many->push_back(variable);
}

// The table of payloads at these addresses; its `many` is not set.
inline Payloads PayloadsAt(const std::vector<const uint32*>& payloads) {
  Payloads table = {};
  table.count = static_cast<int>(payloads.size());
  std::copy_n(payloads.begin(), std::min(table.count, kFewPayloads), table.few);
  return table;
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_HOST_H_
