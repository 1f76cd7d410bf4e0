// What the host passes to the GPU kernels: tables of variables and payloads.
//
// C++ on the host and CUDA C++ compile this file, so it includes nothing.

#ifndef TERNGRAD_NATIVE_GPU_TABLES_H_
#define TERNGRAD_NATIVE_GPU_TABLES_H_

namespace terngrad_gpu {

typedef unsigned int uint32;
typedef long long int64;

// Threads of a block of every kernel.
constexpr int kThreads = 256;

// As kernels.h has them, which explains them.
constexpr int64 kStatisticsBlock = 16384;
constexpr int kMaxPlaces = 20;

// Sums that a thread scales.
constexpr int kScaled = 4;

// Entries that travel in the arguments of a launch, which may have 4 KiB.
// Longer tables are copied to the GPU's memory first.
constexpr int kFewVariables = 128;
constexpr int kFewPayloads = 64;

// A variable of a bucket. Empty ones have no size.
struct Variable {
  float* data;
  int64 size;
  // The number of its first element, or in statistics of its first block,
  // counted through all variables.
  int64 start;
};

struct Variables {
  int64 total;           // Elements, or blocks.
  const Variable* many;  // All variables, if there are more than a few.
  int count;
  Variable few[kFewVariables];
};

struct Payloads {
  const uint32* const* many;
  int count;
  const uint32* few[kFewPayloads];
};

// The statistics of a block of elements, as in kernels.h; the largest magnitude
// as bits.
struct Partial {
  double sum;
  double squares;
  int max_abs;
};

// How elements become digits; see kernels.h.
struct Coding {
  int radix;
  int places;
  int stratified;  // The key's third number is the stratum.
  int64 num_words;
};

// A variable of a code of groups; see kernels.h.
struct GroupedVariable {
  float* data;
  int64 size;
  int64 start;       // The number of its first element in the bucket.
  int64 group;       // Elements of a group.
  int64 words;       // The index of its first scale in a payload.
  int64 code_block;  // The first block of threads that codes its words.
  int64 extent;  // The first of its groups' blocks of kExtentBlock elements.
  int64 finish;  // The first block of threads that finishes its groups.
};

constexpr int kFewGrouped = 40;

struct GroupedVariables {
  const GroupedVariable* many;
  int count;
  int64 extents;
  GroupedVariable few[kFewGrouped];
};

constexpr int64 kExtentBlock = 16384;

// As in kernels.h; and 8-bit floats, whose largest code is in `levels`.
enum GroupedKind { kSteps, kSpans, kSigns, kFloats };

constexpr int kLargestE4m3 = 0x7e;
constexpr int kLargestE5m2 = 0x7b;

struct Grouping {
  int kind;
  int is_norm;
  int levels;
  uint32 base;
  int places;
  int num_scales;
  // Of the division by the base; see `Divisor` in grouping_impl.h.
  uint32 factor;
  int shift;
  int largest_step;  // As bits.
};

struct Extent {
  float least;
  float largest;
  double sum;
};

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_TABLES_H_
