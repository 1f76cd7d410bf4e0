// The operations of codes of rotated blocks.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "ops_common.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace terngrad {
namespace {

using tensorflow::OpOutputList;

// Digits that kernels may read and write past the last.
constexpr int64_t kSpare = 64;

// Elements that are rotated together, of so many in all: rotation.blocks.
int64_t BlockOf(int64_t num_elements) {
  int64_t block = kRotatedBlock;
  while (block / 2 >= num_elements && block > 1) block /= 2;
  return block;
}

// What operations of `RotatedCode` have in common.
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
                (count & (count - 1)) == 0 && (count == 2 || levels[0] > 0);
    for (int32_t k = 0; fits && k < count; ++k) {
      fits = levels[k] >= 0 && levels[k] < 256 &&
             (k == 0 || levels[k - 1] < levels[k]);
      code_.levels[k] = levels[k];
    }
    code_.num_levels = count;
    code_.with_zero = fits && levels[0] == 0;
    const int places = code_.places;
    fits = fits && (base == 2    ? places == 32
                    : base == 3  ? places == 20
                    : base == 4  ? places == 16
                    : base == 16 ? places == 8
                                 : false);
    fits = fits && base >= (code_.with_zero ? 3 : 2 * count);
    OP_REQUIRES(context, fits,
                InvalidArgument("expected 1, 2, 4 or 8 levels that rise, a ",
                                "base of 2, 3, 4 or 16 that holds them and ",
                                "their signs, and as many digits as fit in 32 ",
                                "bits, received ", count, " levels, base ",
                                base, " and places ", code_.places));
    code_.base = static_cast<uint32_t>(base);
  }

 protected:
  // The code of so many elements, and the numbers of its parts.
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

class EncodeRotated : public Rotated {
 public:
  explicit EncodeRotated(OpKernelConstruction* context) : Rotated(context) {
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    int64_t total = 0;
    for (const int64_t size : sizes_) {
      OP_REQUIRES(context, size >= 0,
                  InvalidArgument("sizes: expected >= 0, received ", size));
      total += size;
    }
    SetSize(total);
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const Tensor& factors = context->input(gradients.size());
    const Tensor& borders = context->input(gradients.size() + 1);
    const Tensor& key = context->input(gradients.size() + 2);
    const int64_t count = sizes_.size();
    OP_REQUIRES(context,
                factors.NumElements() == count && key.NumElements() >= 2 &&
                    borders.NumElements() == code_.num_levels - 1,
                InvalidArgument("expected ", count, " factors, ",
                                code_.num_levels - 1, " borders and 2 numbers ",
                                "of a key, received ", factors.NumElements(),
                                ", ", borders.NumElements(), " and ",
                                key.NumElements()));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    std::vector<Source> sources(count);
    for (int64_t i = 0; i < count; ++i) {
      // Nothing is clipped.
      sources[i] = {data[i], sizes_[i], 0.0f, factors.flat<float>()(i)};
    }
    Tensor* words = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({num_words()}), &words));
    if (!num_words()) return;
    RotatedCode code = code_;
    for (int k = 0; k + 1 < code.num_levels; ++k) {
      code.borders[k] = borders.flat<double>()(k);
    }
    Tensor digits;
    OP_REQUIRES_OK(
        context, context->allocate_temp(
                     tensorflow::DT_UINT8,
                     TensorShape({num_codes_ * code.places + kSpare}),
                     &digits));
    uint8_t* const bytes = digits.flat<uint8_t>().data();
    int32_t* const out = words->flat<int32_t>().data();
    const Key keys = {key.flat<uint32_t>()(0), key.flat<uint32_t>()(1), false,
                      0};
    std::memcpy(out, &keys.first, sizeof(int32_t));
    std::memcpy(out + 1, &keys.second, sizeof(int32_t));
    const Kernels* const kernels = Best();
    SpreadOver(context, num_blocks_, 1, code.block,
               [&](int64_t begin, int64_t end) {
                 kernels->encode_rotated(
                     sources.data(), count, code, keys, begin, end,
                     reinterpret_cast<float*>(out + kKeyWords), bytes);
               });
    // Past the end stands the code 0.
    std::memset(bytes + num_digits_, code.with_zero ? 1 : 0,
                num_codes_ * code.places + kSpare - num_digits_);
    SpreadOver(context, num_codes_, kBlockWords, code.places,
               [&](int64_t begin, int64_t end) {
                 kernels->pack_digits(bytes, code.base, code.places, num_codes_,
                                      begin, end,
                                      out + kKeyWords + num_blocks_);
               });
  }

 private:
  std::vector<int64_t> sizes_;
};

class DecodeRotated : public Rotated {
 public:
  explicit DecodeRotated(OpKernelConstruction* context) : Rotated(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    int64_t total = 0;
    for (const TensorShape& shape : shapes_) total += shape.num_elements();
    SetSize(total);
  }

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> payloads;
    OP_REQUIRES_OK(context, ReadPayloads(context, num_words(), &payloads));
    const Tensor* factors;
    OP_REQUIRES_OK(context, context->input("factors", &factors));
    OpOutputList sums;
    OP_REQUIRES_OK(context, context->output_list("sums", &sums));
    const int64_t count = shapes_.size();
    OP_REQUIRES(context, factors->NumElements() == count,
                InvalidArgument("factors: expected ", count, ", received ",
                                factors->NumElements()));
    std::vector<Target> targets(count);
    for (int64_t i = 0; i < count; ++i) {
      Tensor* sum = nullptr;
      OP_REQUIRES_OK(context, sums.allocate(i, shapes_[i], &sum));
      targets[i] = {sum->flat<float>().data(), sum->NumElements(),
                    factors->flat<float>()(i)};
    }
    SpreadOver(context, num_blocks_, 1, code_.block * payloads.size(),
               [&](int64_t begin, int64_t end) {
                 Best()->decode_rotated(payloads.data(), payloads.size(), code_,
                                        scale_, num_blocks_, num_codes_, begin,
                                        end, targets.data(), count);
               });
  }

 private:
  std::vector<TensorShape> shapes_;
  float scale_;
};

// Where the blocks of variables lie that are rotated each by itself.
class Blocks {
 public:
  explicit Blocks(const std::vector<int64_t>& sizes) : sizes_(sizes) {
    for (const int64_t size : sizes) {
      const int64_t block = BlockOf(size);
      const int64_t count = (size + block - 1) / block;
      counts_.push_back(count);
      num_blocks_ += count;
      num_padded_ += count * block;
    }
  }

  // Calls visit(variable, its elements, a block's, blocks, first block, first
  // padded element).
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

Key KeyOf(const Tensor& keys, int64_t row) {
  const uint32_t* const numbers = keys.flat<uint32_t>().data() + 2 * row;
  return {numbers[0], numbers[1], false, 0};
}

class EncodeTable : public Kernel {
 public:
  explicit EncodeTable(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    for (const int64_t size : sizes_) {
      OP_REQUIRES(context, size >= 0,
                  InvalidArgument("sizes: expected >= 0, received ", size));
    }
    std::vector<int32_t> table;
    OP_REQUIRES_OK(context, context->GetAttr("table", &table));
    bool rises = table.size() == kTableEntries && table[0] == -kTableGrid &&
                 table.back() == kTableGrid;
    for (int k = 0; rises && k < kTableEntries; ++k) {
      rises = k == 0 || table[k - 1] < table[k];
      code_.entries[k] = table[k];
    }
    OP_REQUIRES(context, rises,
                InvalidArgument("table: expected ", kTableEntries,
                                " integers that rise from -", kTableGrid,
                                " to ", kTableGrid));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const Tensor& factors = context->input(gradients.size());
    const Tensor& inverses = context->input(gradients.size() + 1);
    const Tensor& signs = context->input(gradients.size() + 2);
    const Tensor& draws = context->input(gradients.size() + 3);
    const Blocks blocks(sizes_);
    const int64_t count = sizes_.size();
    OP_REQUIRES(context,
                factors.NumElements() == blocks.num_blocks() &&
                    inverses.NumElements() == blocks.num_blocks() &&
                    signs.NumElements() == 2 * count &&
                    draws.NumElements() == 2 * count,
                InvalidArgument("expected two numbers for each of ",
                                blocks.num_blocks(), " blocks and two keys ",
                                "for each of ", count, " variables"));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    constexpr int kPlaces = 8;
    const int64_t num_words = (blocks.num_padded() + kPlaces - 1) / kPlaces;
    Tensor* words = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({num_words}), &words));
    if (!num_words) return;
    Tensor digits;
    OP_REQUIRES_OK(
        context,
        context->allocate_temp(tensorflow::DT_UINT8,
                               TensorShape({num_words * kPlaces + kSpare}),
                               &digits));
    uint8_t* const bytes = digits.flat<uint8_t>().data();
    const Kernels* const kernels = Best();
    blocks.ForAll([&](size_t i, int64_t size, int64_t block, int64_t number,
                      int64_t first_block, int64_t first) {
      TableCode code = code_;
      code.block = block;
      SpreadOver(context, number, 1, block, [&](int64_t begin, int64_t end) {
        kernels->encode_table(data[i], size, code,
                              factors.flat<float>().data() + first_block,
                              inverses.flat<float>().data() + first_block,
                              KeyOf(signs, i), KeyOf(draws, i), begin, end,
                              bytes + first);
      });
    });
    // Past the end stands the entry 0, or the first where there is none.
    const int32_t* const zero =
        std::find(code_.entries, code_.entries + kTableEntries, 0);
    const int fill = zero - code_.entries;
    std::memset(bytes + blocks.num_padded(), fill < kTableEntries ? fill : 0,
                num_words * kPlaces + kSpare - blocks.num_padded());
    SpreadOver(context, num_words, kBlockWords, kPlaces,
               [&](int64_t begin, int64_t end) {
                 kernels->pack_digits(bytes, 16, kPlaces, num_words, begin, end,
                                      words->flat<int32_t>().data());
               });
  }

 private:
  std::vector<int64_t> sizes_;
  TableCode code_;
};

class DecodeTable : public Kernel {
 public:
  explicit DecodeTable(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    for (const TensorShape& shape : shapes_) {
      sizes_.push_back(shape.num_elements());
    }
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& sums = context->input(0);
    const Tensor& factors = context->input(1);
    const Tensor& signs = context->input(2);
    const Blocks blocks(sizes_);
    const int64_t count = sizes_.size();
    OP_REQUIRES(context,
                sums.NumElements() >= blocks.num_padded() &&
                    factors.NumElements() == blocks.num_blocks() &&
                    signs.NumElements() == 2 * count,
                InvalidArgument("expected ", blocks.num_padded(), " sums or more, ",
                                blocks.num_blocks(), " factors and ", count,
                                " keys, received ", sums.NumElements(), ", ",
                                factors.NumElements(), " and ",
                                signs.NumElements() / 2));
    std::vector<float*> data(count);
    for (int64_t i = 0; i < count; ++i) {
      Tensor* gradient = nullptr;
      OP_REQUIRES_OK(context,
                     context->allocate_output(i, shapes_[i], &gradient));
      data[i] = gradient->flat<float>().data();
    }
    blocks.ForAll([&](size_t i, int64_t size, int64_t block, int64_t number,
                      int64_t first_block, int64_t first) {
      SpreadOver(context, number, 1, block, [&](int64_t begin, int64_t end) {
        Best()->decode_table(sums.flat<int32_t>().data() + first, size, block,
                             factors.flat<float>().data() + first_block,
                             KeyOf(signs, i), begin, end, data[i]);
      });
    });
  }

 private:
  std::vector<TensorShape> shapes_;
  std::vector<int64_t> sizes_;
};

REGISTER_OP("TerngradEncodeTable")
    .Input("gradients: N * float")
    .Input("factors: float")
    .Input("inverses: float")
    .Input("signs: uint32")
    .Input("draws: uint32")
    .Output("words: int32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("num_words: int >= 0")
    .Attr("table: list(int)")
    .SetShapeFn(WordsShape);

REGISTER_OP("TerngradDecodeTable")
    .Input("sums: int32")
    .Input("factors: float")
    .Input("signs: uint32")
    .Output("gradients: V * float")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .SetShapeFn(ListedShapes);

REGISTER_OP("TerngradEncodeRotated")
    .Input("gradients: N * float")
    .Input("factors: float")
    .Input("borders: double")
    .Input("key: uint32")
    .Output("words: int32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("num_words: int >= 0")
    .Attr("levels: list(int) >= 1")
    .Attr("base: int")
    .Attr("places: int")
    .SetShapeFn(WordsShape);

REGISTER_OP("TerngradDecodeRotated")
    .Input("parts: M * int32")
    .Input("factors: float")
    .Output("sums: V * float")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("levels: list(int) >= 1")
    .Attr("base: int")
    .Attr("places: int")
    .SetShapeFn(ListedShapes);

REGISTER_KERNEL_BUILDER(
    Name("TerngradEncodeRotated").Device(tensorflow::DEVICE_CPU),
    EncodeRotated);
REGISTER_KERNEL_BUILDER(
    Name("TerngradDecodeRotated").Device(tensorflow::DEVICE_CPU),
    DecodeRotated);
REGISTER_KERNEL_BUILDER(
    Name("TerngradEncodeTable").Device(tensorflow::DEVICE_CPU), EncodeTable);
REGISTER_KERNEL_BUILDER(
    Name("TerngradDecodeTable").Device(tensorflow::DEVICE_CPU), DecodeTable);

}  // namespace
}  // namespace terngrad
