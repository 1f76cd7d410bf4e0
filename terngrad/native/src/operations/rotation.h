// Common code of the operations of codes of rotated blocks.

#ifndef TERNGRAD_NATIVE_ROTATION_H_
#define TERNGRAD_NATIVE_ROTATION_H_

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "ops_common.h"

namespace terngrad {

// Digits past the last one that kernels may read and write.
constexpr int64_t kSpare = 64;

// Elements of a block, for a variable of `num_elements`, as in rotation.blocks.
inline int64_t BlockOf(int64_t num_elements) {
  int64_t block = kRotatedBlock;
  while (block / 2 >= num_elements && block > 1) block /= 2;
  return block;
}

// The base class of operations of `RotatedCode`.
class Rotated : public Kernel {
 public:
  explicit Rotated(OpKernelConstruction* context) : Kernel(context) {
    std::vector<int32_t> levels;
    int base;
    OP_REQUIRES_OK(context, context->GetAttr("levels", &levels));
    OP_REQUIRES_OK(context, context->GetAttr("base", &base));
    OP_REQUIRES_OK(context, context->GetAttr("places", &code_.places));
    const int32_t count = levels.size();
    bool fits = count >= 1 && count <= kMostLevels &&
                (count & (count - 1)) == 0;
    for (int32_t k = 0; fits && k < count; ++k) {
      fits = levels[k] >= 0 && levels[k] < 256 &&
             (k == 0 || levels[k - 1] < levels[k]);
      code_.levels[k] = levels[k];
    }
    code_.num_levels = count;
    code_.with_zero = fits && levels[0] == 0;
    // With a zero level, the only other levels are -1 and 1.
    fits = fits && (!code_.with_zero || (count == 2 && levels[1] == 1));
    const int places = code_.places;
    fits = fits && (base == 2    ? places == 32
                    : base == 3  ? places == 20
                    : base == 4  ? places == 16
                    : base == 16 ? places == 8
                                 : false);
    fits = fits && base >= (code_.with_zero ? 3 : 2 * count);
    OP_REQUIRES(context, fits,
                InvalidArgument("expected 1, 2, 4 or 8 rising levels, a base ",
                                "of 2, 3, 4 or 16 that encodes them and their ",
                                "signs, and as many digits as fit in 32 ",
                                "bits, received ", count, " levels, base ",
                                base, " and places ", code_.places));
    code_.base = static_cast<uint32_t>(base);
  }

 protected:
  // Sets the code for `num_elements` elements, and the sizes of its parts.
  void SetSize(int64_t num_elements) {
    code_.block = BlockOf(num_elements);
    num_blocks_ = (num_elements + code_.block - 1) / code_.block;
    num_digits_ = num_blocks_ * code_.block;
    num_codes_ = (num_digits_ + code_.places - 1) / code_.places;
  }

  int64_t num_words() const {
    return num_blocks_ ? kKeyWords + num_blocks_ + num_codes_ : 0;
  }

  RotatedCode code_;
  int64_t num_blocks_;
  int64_t num_digits_;
  int64_t num_codes_;  // Words of digits.
};

// The blocks of variables; each variable is rotated separately.
class Blocks {
 public:
  Blocks() = default;
  explicit Blocks(const std::vector<int64_t>& sizes) : sizes_(sizes) {
    for (const int64_t size : sizes) {
      const int64_t block = BlockOf(size);
      const int64_t count = (size + block - 1) / block;
      counts_.push_back(count);
      num_blocks_ += count;
      num_padded_ += count * block;
    }
  }

  // Calls visit(variable, elements of it, elements of a block, number of
  // blocks, first block, first padded element).
  template <typename Visit>
  void ForAll(Visit visit) const {
    int64_t first_block = 0, first = 0;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const int64_t block = BlockOf(sizes_[i]);
      visit(i, sizes_[i], block, counts_[i], first_block, first);
      first_block += counts_[i];
      first += counts_[i] * block;
    }
  }

  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_padded() const { return num_padded_; }

 private:
  std::vector<int64_t> sizes_;
  std::vector<int64_t> counts_;
  int64_t num_blocks_ = 0;
  int64_t num_padded_ = 0;
};

// Reads the entries of a table.
inline absl::Status ReadTable(OpKernelConstruction* context,
                              int32_t* entries) {
  std::vector<int32_t> table;
  TF_RETURN_IF_ERROR(context->GetAttr("table", &table));
  bool rises = table.size() == kTableEntries && table[0] == -kTableGrid &&
               table.back() == kTableGrid;
  for (int k = 0; rises && k < kTableEntries; ++k) {
    rises = k == 0 || table[k - 1] < table[k];
    entries[k] = table[k];
  }
  if (!rises) {
    return InvalidArgument("table: expected ", kTableEntries,
                           " integers that rise from -", kTableGrid, " to ",
                           kTableGrid);
  }
  return absl::OkStatus();
}

// The index of the entry 0, or of the first entry without one: that of
// positions past the end.
inline int FillOf(const int32_t* entries) {
  for (int k = 0; k < kTableEntries; ++k) {
    if (entries[k] == 0) return k;
  }
  return 0;
}

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_ROTATION_H_
