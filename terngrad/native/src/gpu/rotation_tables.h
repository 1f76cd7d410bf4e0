// What the host passes to the GPU kernels of codes of rotated blocks.
//
// C++ on the host and CUDA C++ compile this file, as they do tables.h.

#ifndef TERNGRAD_NATIVE_GPU_ROTATION_TABLES_H_
#define TERNGRAD_NATIVE_GPU_ROTATION_TABLES_H_

#include "tables.h"

namespace terngrad_gpu {

typedef unsigned long long uint64;

// As kernels.h has them, which explains them.
constexpr int kRotatedBlock = 4096;
constexpr int kMostLevels = 8;
constexpr int kKeyWords = 2;
constexpr int kTableEntries = 16;
constexpr int kTableGrid = 15;
constexpr int kTableFraction = 16;

// A code of rotated blocks and the sizes of its payload; see kernels.h.
struct Rotating {
  int num_levels;
  int levels[kMostLevels];
  int with_zero;
  int block;
  int64 num_blocks;
};

// Digits of words: digit p of word j is at index p * num_words + j. Indices
// from `num_digits` on have the digit `fill`.
struct Packing {
  uint32 base;
  int places;
  uint32 fill;
  int64 num_digits;
  int64 num_words;
};

// The same words, to read their digits.
constexpr int kMostPlaces = 32;

struct Unpacking {
  uint32 base;
  int64 num_words;
  // 2^64 / base^(p + 1) for place p, rounded up.
  uint64 inverses[kMostPlaces];
};

// A variable that is rotated separately. Empty ones are not in the table.
struct RotatedVariable {
  float* data;
  int64 size;
  int64 start;  // The number of its first block, counted through all variables.
  int64 digit;  // The index of its first element with those that fill blocks.
  int block;    // Elements of a block.
  int key;      // The number of the variable, which has a key.
};

constexpr int kFewRotated = 60;

struct RotatedVariables {
  const RotatedVariable* many;
  int count;
  RotatedVariable few[kFewRotated];
};

// The entries of a table, and for each cell between two integers of the grid
// the index of the largest entry at or below it.
struct Entries {
  int values[kTableEntries];
  int below[2 * kTableGrid];
};

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_ROTATION_TABLES_H_
