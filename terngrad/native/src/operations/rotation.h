// What operations of codes of rotated blocks have in common.

#ifndef TERNGRAD_NATIVE_ROTATION_H_
#define TERNGRAD_NATIVE_ROTATION_H_

#include <cstdint>

#include "kernels.h"

namespace terngrad {

// Digits that kernels may read and write past the last.
constexpr int64_t kSpare = 64;

// Elements that are rotated together, of so many in all: rotation.blocks.
inline int64_t BlockOf(int64_t num_elements) {
  int64_t block = kRotatedBlock;
  while (block / 2 >= num_elements && block > 1) block /= 2;
  return block;
}

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_ROTATION_H_
