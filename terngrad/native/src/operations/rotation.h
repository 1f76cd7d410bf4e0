// Common code of the operations of codes of rotated blocks.

#ifndef TERNGRAD_NATIVE_ROTATION_H_
#define TERNGRAD_NATIVE_ROTATION_H_

#include <cstdint>

#include "kernels.h"

namespace terngrad {

// Digits past the last one that kernels may read and write.
constexpr int64_t kSpare = 64;

// Elements of a block, for a variable of `num_elements`, as in rotation.blocks.
inline int64_t BlockOf(int64_t num_elements) {
  int64_t block = kRotatedBlock;
  while (block / 2 >= num_elements && block > 1) block /= 2;
  return block;
}

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_ROTATION_H_
