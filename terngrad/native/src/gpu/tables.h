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

// Where the statistics of variables are written, a number of each.
struct StatisticsOutputs {
  float* stddevs;
  float* max_abs;
  float* clipped;  // The largest magnitudes, clipped by `clip_factor`.
  float* norms;
  float clip_factor;
};

// The key of random bits; see kernels.h. It travels in the arguments of a
// launch: TensorFlow would wait for the GPU before it copied it.
struct Key {
  uint32 first;
  uint32 second;
  uint32 stratum;
};

// How elements become digits; see kernels.h.
struct Coding {
  int radix;
  int places;
  int stratified;  // The draws use the key's stratum.
  int64 num_words;
};

// A variable of a code of groups; see kernels.h.
struct GroupedVariable {
  float* data;
  int64 size;
  int64 start;       // The number of its first element in the bucket.
  int64 group;       // Elements of a group.
  int64 num_groups;
  int64 num_words;  // Without scales.
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

// Larger variables take several launches. A block of threads that encodes alone
// takes about as long for these as another launch: 8 rounds of its warps for
// the extents, and 16 words of each thread.
constexpr int kExtentsAlone = 64;
constexpr int64 kWordsAlone = 16 * kThreads;

// Digits that a thread of a code of groups reads or writes at a time.
constexpr int kBatch = 8;

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
  int words;  // Of a thread that codes: 1, or 2 of few places.
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

// Elements that a block of threads selects from or adds to at a time: a word
// of bits for each thread.
constexpr int kChunk = 32 * kThreads;

// Larger vectors take several launches, a block of threads for each chunk.
constexpr int kChunksAlone = 8;

// How few elements are sent; see terngrad/codec/methods/sparse.
enum SparseKind {
  // Indices, then values: topk.
  kLists,
  // A magnitude, signs, and indices in Elias-Fano code: stc.
  kSignedIndices,
  // The number of elements, then an index and a value of each: threshold.
  kPairs,
};

// A variable of a vector whose largest elements are sent: the only one, or for
// kPairs one of all variables of the bucket.
struct SparseVariable {
  float* data;
  int64 size;
  int64 start;  // The index of its first element in the vector.
  // Of the vector, as are the next ones:
  int64 elements;
  int64 number;  // Elements that are sent, at most.
  int64 words;   // The index of its first word in a payload.
  int64 entry;   // The number of elements sent of the vectors before it.
  int first;     // Its first chunk.
  int chunks;
  int vector;
  int low_bits;  // Of an index in Elias-Fano code, and the bits of the string.
  uint32 string_bits;
  int chunk;  // The variable's first chunk.
};

constexpr int kFewSparse = 36;

struct SparseVariables {
  const SparseVariable* many;
  int count;
  int kind;
  SparseVariable few[kFewSparse];
};

// Bins of the digits of a magnitude: 11 bits, 10 and 10.
constexpr int kUpperBins = 2048;
constexpr int kLowerBins = 1024;

// What is known of the limit: the smallest magnitude that is sent.
struct Selection {
  int bins[kUpperBins + 2 * kLowerBins];
  int least;  // Candidates have this magnitude, as bits, or a larger one.
  int digits;
  int rank;      // Of the limit, among those with its digits.
  int is_known;  // All digits are known.
  int ended[5];  // Blocks of threads, of each launch.
};

// How many elements of a chunk, or before it, are above the limit and at it.
struct ChunkCounts {
  int above;
  int equal;
};

// The memory and options of a selection.
struct Selecting {
  Selection* selections;
  uint32* masks;  // Bits of candidates, a word for each thread of a chunk.
  ChunkCounts* counts;
  double* sums;  // Of the magnitudes that are sent, of each chunk.
  uint32* sent;  // Indices with signs in the highest bit, for stc.
  uint32* words;
  int floor;  // No smaller magnitude is sent.
};

// The memory and options of the addition of few elements.
struct Adding {
  int* ones;     // In each chunk of bits of each payload.
  int* indices;  // Unpacked, of each payload.
  unsigned char* disorder;  // Of each chunk's share of the indices.
  int64 entries;            // Of a payload.
  int64 pieces;             // Of `ones`, of a payload.
  float scale;
};

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_TABLES_H_
