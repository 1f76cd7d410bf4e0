// Fills the tables of rotation_tables.h.

#ifndef TERNGRAD_NATIVE_GPU_ROTATION_HOST_H_
#define TERNGRAD_NATIVE_GPU_ROTATION_HOST_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpu/rotation_tables.h"
#include "gpu_host.h"
#include "kernels.h"

namespace terngrad_gpu {

// The parameters of a code, for a bucket of `num_blocks` blocks.
inline Rotating RotatingOf(const terngrad::RotatedCode& code,
                           int64_t num_blocks) {
  Rotating rotating = {code.num_levels, {}, code.with_zero,
                       static_cast<int>(code.block), num_blocks};
  std::copy_n(code.levels, code.num_levels, rotating.levels);
  return rotating;
}

// The words of the digits of that bucket. Past its end is the code 0.
inline Packing PackingOf(const terngrad::RotatedCode& code,
                         int64_t num_blocks) {
  const int64_t digits = num_blocks * code.block;
  return {code.base, code.places, code.with_zero ? 1U : 0U, digits,
          CeilDivide(digits, code.places)};
}

inline Unpacking UnpackingOf(const terngrad::RotatedCode& code,
                             int64_t num_blocks) {
  const Packing packing = PackingOf(code, num_blocks);
  Unpacking unpacking = {packing.base, packing.num_words, {}};
  uint64_t power = 1;  // At most 2^32.
  for (int p = 0; p < code.places; ++p) {
    power *= code.base;
    unpacking.inverses[p] = UINT64_MAX / power + 1;
  }
  return unpacking;
}

inline Entries EntriesOf(const int32_t* values) {
  Entries entries = {};
  std::copy_n(values, kTableEntries, entries.values);
  int entry = 0;
  for (int cell = 0; cell < 2 * kTableGrid; ++cell) {
    while (entry + 2 < kTableEntries &&
           values[entry + 1] <= cell - kTableGrid) {
      ++entry;
    }
    entries.below[cell] = entry;
  }
  return entries;
}

// The table of a bucket whose variables are rotated separately.
struct RotatedBucket {
  std::vector<RotatedVariable> variables;
  int64_t blocks = 0;
  int64_t digits = 0;  // Elements, with those that fill blocks.
  int count = 0;       // Of variables, with those without elements.

  // Adds a variable in blocks of `block` elements.
  void Add(const float* data, int64_t size, int64_t block) {
    const int64_t number = CeilDivide(size, block);
    if (size > 0) {
      variables.push_back({const_cast<float*>(data), size, blocks, digits,
                           static_cast<int>(block), count});
    }
    blocks += number;
    digits += number * block;
    ++count;
  }

  // The table; its `many` is not set.
  RotatedVariables Table() const {
    RotatedVariables table = {};
    table.count = static_cast<int>(variables.size());
    std::copy_n(variables.begin(), std::min(table.count, kFewRotated),
                table.few);
    return table;
  }
};

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_ROTATION_HOST_H_
