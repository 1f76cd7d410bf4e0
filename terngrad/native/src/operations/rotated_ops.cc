// The operations of codes of rotated blocks.

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

using tensorflow::OpOutputList;

class EncodeRotated : public Rotated {
 public:
  explicit EncodeRotated(OpKernelConstruction* context) : Rotated(context) {
    if (!context->status().ok()) return;
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
    // Elements past the end have the code 0.
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
    if (!context->status().ok()) return;
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

}  // namespace
}  // namespace terngrad
