// The operations of codes of rotated blocks by a table.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "ops_common.h"
#include "rotation.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace terngrad {
namespace {

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
    blocks_ = Blocks(sizes_);
    OP_REQUIRES_OK(context, ReadTable(context, code_.entries));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const Tensor& factors = context->input(gradients.size());
    const Tensor& inverses = context->input(gradients.size() + 1);
    const Tensor& signs = context->input(gradients.size() + 2);
    const Tensor& draws = context->input(gradients.size() + 3);
    const int64_t count = sizes_.size();
    OP_REQUIRES(context,
                factors.NumElements() == blocks_.num_blocks() &&
                    inverses.NumElements() == blocks_.num_blocks() &&
                    signs.NumElements() == 2 * count &&
                    draws.NumElements() == 2 * count,
                InvalidArgument("expected two numbers for each of ",
                                blocks_.num_blocks(), " blocks and two keys ",
                                "for each of ", count, " variables, received ",
                                factors.NumElements(), " and ",
                                inverses.NumElements(), " numbers, ",
                                signs.NumElements() / 2, " and ",
                                draws.NumElements() / 2, " keys"));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    constexpr int kPlaces = 8;
    const int64_t num_words = (blocks_.num_padded() + kPlaces - 1) / kPlaces;
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
    blocks_.ForAll([&](size_t i, int64_t size, int64_t block, int64_t number,
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
    std::memset(bytes + blocks_.num_padded(), FillOf(code_.entries),
                num_words * kPlaces + kSpare - blocks_.num_padded());
    SpreadOver(context, num_words, kBlockWords, kPlaces,
               [&](int64_t begin, int64_t end) {
                 kernels->pack_digits(bytes, 16, kPlaces, num_words, begin, end,
                                      words->flat<int32_t>().data());
               });
  }

 private:
  std::vector<int64_t> sizes_;
  Blocks blocks_;
  TableCode code_;
};

class DecodeTable : public Kernel {
 public:
  explicit DecodeTable(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    for (const TensorShape& shape : shapes_) {
      sizes_.push_back(shape.num_elements());
    }
    blocks_ = Blocks(sizes_);
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& sums = context->input(0);
    const Tensor& factors = context->input(1);
    const Tensor& signs = context->input(2);
    const int64_t count = sizes_.size();
    OP_REQUIRES(context,
                sums.NumElements() >= blocks_.num_padded() &&
                    factors.NumElements() == blocks_.num_blocks() &&
                    signs.NumElements() == 2 * count,
                InvalidArgument("expected ", blocks_.num_padded(), " sums or more, ",
                                blocks_.num_blocks(), " factors and ", count,
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
    blocks_.ForAll([&](size_t i, int64_t size, int64_t block, int64_t number,
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
  Blocks blocks_;
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

REGISTER_KERNEL_BUILDER(
    Name("TerngradEncodeTable").Device(tensorflow::DEVICE_CPU), EncodeTable);
REGISTER_KERNEL_BUILDER(
    Name("TerngradDecodeTable").Device(tensorflow::DEVICE_CPU), DecodeTable);

}  // namespace
}  // namespace terngrad
