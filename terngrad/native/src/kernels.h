// The hot loops of the codecs on CPUs: statistics, ternarize and pack, unpack
// and scale. No TensorFlow here, so that they can be tested alone.
//
// They give the same bits as the TensorFlow twin in terngrad/codec: see there
// for the mathematics (ternary.py), the layout of planes (contract.py), the
// digits (packing.py) and the random bits (random_bits.py).
//
// A bucket is a list of variables, which need not be adjacent in memory. Work is
// cut into ranges that callers may spread over threads in any way: every range
// writes bytes of its own and no result depends on the cut.

#ifndef TERNGRAD_NATIVE_KERNELS_H_
#define TERNGRAD_NATIVE_KERNELS_H_

#include <cstdint>

namespace terngrad {

// Elements of one block of the statistics. Part of the definition of their last
// bit, hence the same on every machine.
constexpr int64_t kStatisticsBlock = 16384;

// Words that are worked on at a time: planes of so many floats stay in the
// nearest cache.
constexpr int64_t kBlockWords = 512;

// Most places of a word: 20 trits.
constexpr int kMaxPlaces = 20;

// Most payloads that one decode adds: their digits are summed in 16 bits.
constexpr int64_t kMaxPayloads = 16384;

// What one pass over a block finds.
struct Partial {
  double sum;
  double squares;
  float max_abs;  // Not meaningful where `squares` is not finite.
};

// A variable of a bucket that is read.
struct Source {
  const float* data;
  int64_t size;
  float limit;   // Magnitudes above are clipped; of ternary codes.
  float factor;  // What elements are multiplied by before they are coded.
};

// A variable of a bucket that is written.
struct Target {
  float* data;
  int64_t size;
  float scaler;
};

// A variable of a bucket that a sum is decoded into by an update.
struct UpdatedVariable {
  float* parameter;
  float* velocity;  // nullptr without momentum.
  float* average;   // nullptr without averages.
  int64_t size;
  float scaler;
};

// Of an update.
struct Rates {
  float learning_rate;
  float momentum;
  float decay;  // Of the averages.
};

// Digits of a word: `places` digits of base `radix` >= 3, digit = code + 1. They
// fit in 32 bits.
struct Digits {
  int radix;
  int places;
};

// How the elements of a group are coded; see terngrad/codec/methods/grouped.py.
enum class GroupKind {
  kSteps,  // Signed multiples of a step: qsgd.
  kSpans,  // Multiples of a step above the least: minmax.
  kSigns,  // The sign, of the mean magnitude: sign.
};

// A code of groups of `size` consecutive elements of a variable.
struct GroupCode {
  GroupKind kind;
  bool is_norm;     // Of kSteps: the step is of the Euclidean norm.
  int32_t levels;   // The largest multiple.
  uint32_t base;    // Of a word's digits, 2 or more.
  int32_t places;   // Of a word.
  int64_t size;

  int num_scales() const { return kind == GroupKind::kSpans ? 2 : 1; }
  int64_t num_groups(int64_t elements) const {
    return (elements + size - 1) / size;
  }
};

// What a pass over elements of a group finds, as far as its kind needs it.
struct Extent {
  float least;
  float largest;  // Of magnitudes, but for kSpans.
  double sum;     // Of squares, or of magnitudes.
};

// Elements of one block of an extent; a part of the definition, as
// kStatisticsBlock is.
constexpr int64_t kExtentBlock = 16384;

// Words of a variable that are coded in groups at a time. Groups of at most so
// many elements are measured where they are coded, others before.
constexpr int64_t kGroupWords = 4096;

// Elements that are rotated together, but for variables of fewer; see
// terngrad/codec/methods/transforms/rotation.py.
constexpr int64_t kRotatedBlock = 4096;

// Most levels of a magnitude after a rotation.
constexpr int kMostLevels = 8;

// Words of a payload before its blocks' scales: the rotation's key.
constexpr int kKeyWords = 2;

// A code of rotated blocks; see terngrad/codec/methods/transforms/eden.py.
struct RotatedCode {
  int32_t num_levels;  // A power of 2.
  int32_t levels[kMostLevels];  // Of magnitudes, rising.
  double borders[kMostLevels - 1];  // Between them, in standard deviations.
  bool with_zero;  // Two levels, of which the first is 0: three codes.
  uint32_t base;   // Of a word's digits: 2, 3, 4 or 16.
  int32_t places;  // Of a word: as many as fit.
  int64_t block;   // Elements that are rotated together, a power of 2.

  // Whether scales have 16 bits, so that products with levels are exact.
  bool is_coarse() const { return levels[num_levels - 1] > 1; }
};

// A table of 16 rising integers from -kTableGrid to kTableGrid, and the bits of a
// part of 1; see terngrad/codec/methods/transforms/thc.py.
constexpr int kTableEntries = 16;
constexpr int kTableGrid = 15;
constexpr int kTableFraction = 16;

struct TableCode {
  int32_t entries[kTableEntries];
  int64_t block;  // Elements that are rotated together, a power of 2.
};

// What sums that were added elsewhere are stored as.
enum class SumType { kInt8, kInt32, kFloat };

struct Key {
  uint32_t first;
  uint32_t second;
  // Draws are in strata: `stratum` is added to each, and where the value is not
  // negative its complement counts.
  bool stratified;
  uint32_t stratum;
};

// One set of kernels; those that run are `Best()`.
struct Kernels {
  const char* name;

  // Statistics of `size` elements, at most kStatisticsBlock.
  Partial (*statistics)(const float* data, int64_t size);

  // Writes words[begin, end) of the payload of a bucket of `num_words` words.
  void (*encode)(const Source* sources, int64_t num_sources, Digits digits,
                 Key key, int64_t num_words, int64_t begin, int64_t end,
                 int32_t* words);

  // For the elements that words [begin, end) hold, writes
  // (sum over payloads of code * scaler) * scale. For 20 digits of base 3 and 16
  // of base 4. Words are any bits: a digit above 2 is what arithmetic makes of
  // it, never an access out of bounds.
  void (*decode_sum)(const int32_t* const* payloads, int64_t num_payloads,
                     Digits digits, float scale, int64_t num_words,
                     int64_t begin, int64_t end, const Target* targets,
                     int64_t num_targets);

  // For the elements that words [begin, end) hold, of which `payloads` hold those
  // from `first` on, with g what `decode_sum` would write: v' = momentum v + g, or
  // g without momentum; w' = w - learning_rate v'; a' = decay a + (1 - decay) w',
  // where the first product of each is not rounded.
  void (*fused_update)(const int32_t* const* payloads, int64_t num_payloads,
                       Digits digits, float scale, Rates rates,
                       int64_t num_words, int64_t first, int64_t begin,
                       int64_t end, const UpdatedVariable* variables,
                       int64_t num_variables);

  // For the elements from `begin` to before `end`, counted through all targets,
  // writes (sum * scaler) * scale. `sums` has all elements, one after the other.
  void (*scale_sums)(const void* sums, SumType type, float scale, int64_t begin,
                     int64_t end, const Target* targets, int64_t num_targets);

  // The same as an update; see `fused_update`. `sums` has the elements from
  // `first` on.
  void (*fused_update_of_sums)(const void* sums, SumType type, float scale,
                               Rates rates, int64_t first, int64_t begin,
                               int64_t end, const UpdatedVariable* variables,
                               int64_t num_variables);

  // What `size` elements of one group are like.
  Extent (*extent)(const float* data, int64_t size, const GroupCode& code);

  // Writes words[begin, end) of the codes of a variable of `size` elements. Where
  // `measures`, also the scales of the groups that begin in them; otherwise all
  // scales are there already. They are those of all groups, of the first kind and
  // then of the second. `key.first` is that of element 0.
  void (*encode_groups)(const float* data, int64_t size, const GroupCode& code,
                        Key key, bool measures, float* scales,
                        int64_t num_words, int64_t begin, int64_t end,
                        int32_t* words);

  // For the elements that words [begin, end) hold, writes the sum over payloads,
  // in their order, of what scales and codes stand for, times `scale`. Payloads
  // are any words: scales, then codes.
  void (*decode_groups)(const int32_t* const* payloads, int64_t num_payloads,
                        const GroupCode& code, float scale, int64_t num_words,
                        int64_t begin, int64_t end, float* data, int64_t size);

  // Rotates blocks [begin, end) of a bucket, each element times its source's
  // factor, and writes a scale and `code.block` digits for each. There must be
  // room for 64 digits at least.
  void (*encode_rotated)(const Source* sources, int64_t num_sources,
                         const RotatedCode& code, Key key, int64_t begin,
                         int64_t end, float* scales, uint8_t* digits);

  // Writes words[begin, end) of digits, of which element p * num_words + j is the
  // p-th of word j. There must be 64 more than words have; they are not used.
  // Bases and places are those of a `RotatedCode`.
  void (*pack_digits)(const uint8_t* digits, uint32_t base, int places,
                      int64_t num_words, int64_t begin, int64_t end,
                      int32_t* words);

  // For the elements of blocks [begin, end) of `num_blocks`, writes (sum over
  // payloads, in their order, of what they stand for * scaler) * scale. Payloads
  // are any words: a key, scales, and `num_words` words of digits.
  void (*decode_rotated)(const int32_t* const* payloads, int64_t num_payloads,
                         const RotatedCode& code, float scale,
                         int64_t num_blocks, int64_t num_words, int64_t begin,
                         int64_t end, const Target* targets,
                         int64_t num_targets);

  // Rotates blocks [begin, end) of a variable, each times its factor, and writes
  // for each element the number of one of the two entries next to its rotated
  // value times the block's inverse, 2^16 times what an integer stands for.
  void (*encode_table)(const float* data, int64_t size, const TableCode& code,
                       const float* factors, const float* inverses, Key signs,
                       Key draws, int64_t begin, int64_t end, uint8_t* digits);

  // Rotates blocks [begin, end) of sums of entries back, each times its factor.
  void (*decode_table)(const int32_t* sums, int64_t size, int64_t block_size,
                       const float* factors, Key signs, int64_t begin,
                       int64_t end, float* data);

  // Writes those of `size` elements that have at least the magnitude `least`, as
  // bits, and their indices plus `first`; returns their number. There must be
  // room for `size` of both.
  int64_t (*at_least)(const float* data, int64_t size, int32_t least,
                      int32_t first, int32_t* indices, float* values);
};

// The kernels for the instruction set called `name`, "avx512", "avx2" or
// "generic"; nullptr where they were not built or this machine has it not.
const Kernels* Find(const char* name);

// The fastest that this machine runs, or those that the environment variable
// TERNGRAD_NATIVE names where this machine runs them. Read once.
const Kernels* Best();

// Adds up the blocks of a variable, in their order, and finishes the
// statistics; see terngrad/codec/stages/statistics.py. Both outputs are NaN where an
// element is not finite, and 0 where there is none.
void FinishStatistics(const Partial* partials, int64_t num_partials,
                      int64_t size, float* stddev, float* max_abs);

// Puts together the extents of blocks, in their order.
Extent Joined(const Extent* extents, int64_t num_extents);

// The scales of a group of `size` elements: `code.num_scales()` of them; see
// terngrad/codec/methods/grouped.py.
void FinishScales(const Extent& extent, const GroupCode& code, int64_t size,
                  float* scales);

// The largest magnitude after clipping at `clip_factor` standard deviations,
// where 0 clips nothing; see terngrad/codec/stages/clipping.py.
float Clipped(float stddev, float max_abs, float clip_factor);

// A source's factor; see terngrad/codec/stages/ternary.py.
float Factor(float scaler);

}  // namespace terngrad

// The name of `Best()`, for ctypes.
extern "C" const char* terngrad_instruction_set();

#endif  // TERNGRAD_NATIVE_KERNELS_H_
