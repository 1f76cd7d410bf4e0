// The hot loops of the codecs on CPUs: statistics, ternarize and pack, unpack
// and scale. They do not depend on TensorFlow, so that they can be tested
// alone.
//
// Results are bit-identical to those of the TensorFlow code in terngrad/codec,
// which explains the mathematics (ternary.py), the layout of planes
// (planes.py), the digits (packing.py) and the random bits (random_bits.py).
//
// A bucket is a list of variables, which need not be adjacent in memory. Work
// is split into ranges, which callers may assign to threads in any way. Each
// range writes different bytes, and results do not depend on the split.

#ifndef TERNGRAD_NATIVE_KERNELS_H_
#define TERNGRAD_NATIVE_KERNELS_H_

#include <cstdint>

namespace terngrad {

// Elements of one block of the statistics. The last bit of the sums depends on
// this number, so it is the same on every machine.
constexpr int64_t kStatisticsBlock = 16384;

// Words that are processed at a time; planes of this many floats fit in the L1
// cache.
constexpr int64_t kBlockWords = 512;

// Largest number of digits in a word: 20 trits.
constexpr int kMaxPlaces = 20;

// Largest number of payloads that one call adds: sums of digits have 16 bits.
constexpr int64_t kMaxPayloads = 16384;

// The sums and the maximum of a block of elements.
struct Partial {
  double sum;
  double squares;
  float max_abs;  // Undefined if `squares` is not finite.
};

// A variable of a bucket that is read.
struct Source {
  const float* data;
  int64_t size;
  float limit;   // Larger magnitudes are clipped; for ternary codes.
  float factor;  // Multiplies elements before they are coded.
};

// A variable of a bucket that is written.
struct Target {
  float* data;
  int64_t size;
  float scaler;
};

// A variable of a bucket that a fused update changes.
struct UpdatedVariable {
  float* parameter;
  float* velocity;  // nullptr without momentum.
  float* average;   // nullptr without averages.
  int64_t size;
  float scaler;
};

// The factors of an update.
struct Rates {
  float learning_rate;
  float momentum;
  float decay;  // Of the averages.
};

// Digits of a word: `places` digits of base `radix` >= 3, digit = code + 1.
// They fit in 32 bits.
struct Digits {
  int radix;
  int places;
};

// How the elements of a group are coded; see terngrad/codec/methods/grouped.py.
enum class GroupKind {
  kSteps,  // Signed multiples of a step: qsgd.
  kSpans,  // Multiples of a step above the minimum: minmax.
  kSigns,  // The sign, times the mean magnitude: sign.
};

// A code of groups of `size` consecutive elements of a variable.
struct GroupCode {
  GroupKind kind;
  bool is_norm;     // For kSteps: the step is a part of the norm.
  int32_t levels;   // The largest multiple.
  uint32_t base;    // Of a word's digits, 2 or more.
  int32_t places;   // Of a word.
  int64_t size;

  int num_scales() const { return kind == GroupKind::kSpans ? 2 : 1; }
  int64_t num_groups(int64_t elements) const {
    return (elements + size - 1) / size;
  }
};

// Statistics of the elements of a group; each kind uses some of them.
struct Extent {
  float least;
  float largest;  // Of magnitudes, or of elements for kSpans.
  double sum;     // Of squares, or of magnitudes.
};

// Elements of one block of an extent. The last bit depends on it, as on
// kStatisticsBlock.
constexpr int64_t kExtentBlock = 16384;

// Words of a variable with groups that are coded at a time. The extents of
// groups of at most this many elements are computed in the same pass.
constexpr int64_t kGroupWords = 4096;

// Elements that are rotated together; smaller variables have smaller blocks.
// See terngrad/codec/methods/transforms/rotation.py.
constexpr int64_t kRotatedBlock = 4096;

// Largest number of levels of a magnitude after a rotation.
constexpr int kMostLevels = 8;

// Words of a payload before its blocks' scales: the rotation's key.
constexpr int kKeyWords = 2;

// A code of rotated blocks; see terngrad/codec/methods/transforms/eden.py.
struct RotatedCode {
  int32_t num_levels;  // A power of 2.
  int32_t levels[kMostLevels];  // Of magnitudes, increasing.
  double borders[kMostLevels - 1];  // Between them, in standard deviations.
  bool with_zero;  // The two levels are 0 and 1: three codes.
  uint32_t base;   // Of a word's digits: 2, 3, 4 or 16.
  int32_t places;  // Digits per word: as many as fit.
  int64_t block;   // Elements that are rotated together, a power of 2.

  // True if scales have 16 bits, so that products with levels are exact.
  bool is_coarse() const { return levels[num_levels - 1] > 1; }
};

// A table of 16 increasing integers from -kTableGrid to kTableGrid, and the
// number of fraction bits; see terngrad/codec/methods/transforms/thc.py.
constexpr int kTableEntries = 16;
constexpr int kTableGrid = 15;
constexpr int kTableFraction = 16;

struct TableCode {
  int32_t entries[kTableEntries];
  int64_t block;  // Elements that are rotated together, a power of 2.
};

// The type of sums that were added before.
enum class SumType { kInt8, kInt32, kFloat };

struct Key {
  uint32_t first;
  uint32_t second;
  // True: `stratum` is added to each draw, and values that are not negative use
  // the complement of the draw.
  bool stratified;
  uint32_t stratum;
};

// The kernels for one instruction set; `Best()` are used.
struct Kernels {
  const char* name;

  // Statistics of `size` elements, at most kStatisticsBlock.
  Partial (*statistics)(const float* data, int64_t size);

  // Writes words[begin, end) of the payload of a bucket of `num_words` words.
  void (*encode)(const Source* sources, int64_t num_sources, Digits digits,
                 Key key, int64_t num_words, int64_t begin, int64_t end,
                 int32_t* words);

  // For the elements in words [begin, end), writes (sum over payloads of code *
  // scaler) * scale. Supports 20 digits of base 3 and 16 of base 4. Words may
  // be corrupted: a digit above 2 gives an arbitrary value, but no access out
  // of bounds.
  void (*decode_sum)(const int32_t* const* payloads, int64_t num_payloads,
                     Digits digits, float scale, int64_t num_words,
                     int64_t begin, int64_t end, const Target* targets,
                     int64_t num_targets);

  // Updates the elements in words [begin, end); `payloads` have the words from
  // `first` on. With g the result of `decode_sum`: v' = momentum v + g, or g
  // without momentum; w' = w - learning_rate v'; a' = decay a + (1 - decay) w'.
  // The first product of each is not rounded.
  void (*fused_update)(const int32_t* const* payloads, int64_t num_payloads,
                       Digits digits, float scale, Rates rates,
                       int64_t num_words, int64_t first, int64_t begin,
                       int64_t end, const UpdatedVariable* variables,
                       int64_t num_variables);

  // For the elements [begin, end), counted through all targets, writes
  // (sum * scaler) * scale. `sums` has all elements in order.
  void (*scale_sums)(const void* sums, SumType type, float scale, int64_t begin,
                     int64_t end, const Target* targets, int64_t num_targets);

  // Updates variables as `fused_update` does, by sums. `sums` has the elements
  // from `first` on.
  void (*fused_update_of_sums)(const void* sums, SumType type, float scale,
                               Rates rates, int64_t first, int64_t begin,
                               int64_t end, const UpdatedVariable* variables,
                               int64_t num_variables);

  // The statistics of `size` elements of one group. If an element is NaN, its
  // numbers that the scales depend on are NaN.
  Extent (*extent)(const float* data, int64_t size, const GroupCode& code);

  // Writes words[begin, end) of the codes of a variable of `size` elements. If
  // `measures` is true it also writes the scales of the groups that begin in
  // them; if not, `scales` is an input. `scales` has the first scales of all
  // groups, then the second ones. `key.first` is for element 0.
  void (*encode_groups)(const float* data, int64_t size, const GroupCode& code,
                        Key key, bool measures, float* scales,
                        int64_t num_words, int64_t begin, int64_t end,
                        int32_t* words);

  // For the elements in words [begin, end), writes the sum of the decoded
  // values over payloads, in order, times `scale`. Payloads are scales, then
  // codes; they may be corrupted.
  void (*decode_groups)(const int32_t* const* payloads, int64_t num_payloads,
                        const GroupCode& code, float scale, int64_t num_words,
                        int64_t begin, int64_t end, float* data, int64_t size);

  // Rotates blocks [begin, end) of a bucket, each element times its source's
  // factor, and writes a scale and `code.block` digits for each. `digits` must
  // have room for at least 64 digits.
  void (*encode_rotated)(const Source* sources, int64_t num_sources,
                         const RotatedCode& code, Key key, int64_t begin,
                         int64_t end, float* scales, uint8_t* digits);

  // Writes words[begin, end) of digits; digit p of word j is at index
  // p * num_words + j. `digits` must be 64 longer than needed; these digits are
  // not used. Bases and digits per word are those of a `RotatedCode`.
  void (*pack_digits)(const uint8_t* digits, uint32_t base, int places,
                      int64_t num_words, int64_t begin, int64_t end,
                      int32_t* words);

  // For the elements of blocks [begin, end) of `num_blocks`, writes (sum over
  // payloads, in order, of the decoded values * scaler) * scale. Payloads are a
  // key, scales, and `num_words` words of digits; they may be corrupted.
  void (*decode_rotated)(const int32_t* const* payloads, int64_t num_payloads,
                         const RotatedCode& code, float scale,
                         int64_t num_blocks, int64_t num_words, int64_t begin,
                         int64_t end, const Target* targets,
                         int64_t num_targets);

  // Rotates blocks [begin, end) of a variable, each times its factor.
  // Multiplies rotated values by the block's inverse, which gives table units
  // times 2^16. Writes the index of one of the two nearest entries for each
  // element.
  void (*encode_table)(const float* data, int64_t size, const TableCode& code,
                       const float* factors, const float* inverses, Key signs,
                       Key draws, int64_t begin, int64_t end, uint8_t* digits);

  // Rotates blocks [begin, end) of sums of entries back, each times its factor.
  void (*decode_table)(const int32_t* sums, int64_t size, int64_t block_size,
                       const float* factors, Key signs, int64_t begin,
                       int64_t end, float* data);

  // Writes the elements whose magnitude is at least `least` (float32 bits), and
  // their indices plus `first`; returns their number. Both outputs must have
  // room for `size` elements.
  int64_t (*at_least)(const float* data, int64_t size, int32_t least,
                      int32_t first, int32_t* indices, float* values);
};

// The kernels for the instruction set `name`: "avx512", "avx2" or "generic".
// nullptr if they were not built or this machine does not support them.
const Kernels* Find(const char* name);

// The fastest kernels that this machine supports, or those that the environment
// variable TERNGRAD_NATIVE names, if supported. The variable is read once.
const Kernels* Best();

// Adds the blocks of a variable, in order, and computes its statistics; see
// terngrad/codec/stages/statistics.py. Both outputs are NaN if an element is
// not finite, and 0 if there are no elements.
void FinishStatistics(const Partial* partials, int64_t num_partials,
                      int64_t size, float* stddev, float* max_abs);

// Combines the extents of blocks, in order.
Extent Joined(const Extent* extents, int64_t num_extents);

// Writes the `code.num_scales()` scales of a group of `size` elements; see
// terngrad/codec/methods/grouped.py.
void FinishScales(const Extent& extent, const GroupCode& code, int64_t size,
                  float* scales);

// The largest magnitude after clipping at `clip_factor` standard deviations; 0
// turns clipping off. See terngrad/codec/stages/clipping.py.
float Clipped(float stddev, float max_abs, float clip_factor);

// The factor of a source; see terngrad/codec/stages/ternary.py.
float Factor(float scaler);

}  // namespace terngrad

// The name of `Best()`, for ctypes.
extern "C" const char* terngrad_instruction_set();

#endif  // TERNGRAD_NATIVE_KERNELS_H_
