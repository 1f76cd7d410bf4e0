// The operations that decode payloads, into tensors or into variables.

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "moving.h"
#include "ops_common.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace terngrad {
namespace {

using tensorflow::OpOutputList;

// The base class of operations that decode payloads.
class Decoding : public Kernel {
 public:
  explicit Decoding(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadDigits(context, &digits_));
    OP_REQUIRES(context,
                (digits_.radix == 3 && digits_.places == 20) ||
                    (digits_.radix == 4 && digits_.places == 16),
                InvalidArgument("expected radix 3 with 20 places or 4 with 16, "
                                "received radix ", digits_.radix,
                                " and places ", digits_.places));
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    int64_t total = 0;
    for (const TensorShape& shape : shapes_) total += shape.num_elements();
    num_words_ = NumWords(total, digits_);
  }

 protected:
  // Reads the payloads of all workers, `words` of each, in order, and the
  // scalers.
  absl::Status Read(OpKernelContext* context, int64_t words,
                    std::vector<const int32_t*>* payloads,
                    const float** scalers) {
    TF_RETURN_IF_ERROR(ReadPayloads(context, words, payloads));
    const Tensor* numbers;
    TF_RETURN_IF_ERROR(context->input("scalers", &numbers));
    const int64_t count = shapes_.size();
    if (numbers->NumElements() != count) {
      return InvalidArgument("scalers: expected ", count, ", received ",
                             numbers->NumElements());
    }
    *scalers = numbers->flat<float>().data();
    return absl::OkStatus();
  }

  Digits digits_;
  std::vector<TensorShape> shapes_;
  float scale_;
  int64_t num_words_;
};

class DecodeSum : public Decoding {
 public:
  using Decoding::Decoding;

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> payloads;
    const float* scalers;
    OP_REQUIRES_OK(context, Read(context, num_words_, &payloads, &scalers));
    OpOutputList sums;
    OP_REQUIRES_OK(context, context->output_list("sums", &sums));
    const int64_t count = shapes_.size();
    std::vector<Target> targets(count);
    for (int64_t i = 0; i < count; ++i) {
      Tensor* sum = nullptr;
      OP_REQUIRES_OK(context, sums.allocate(i, shapes_[i], &sum));
      targets[i] = {sum->flat<float>().data(), sum->NumElements(), scalers[i]};
    }
    const Kernels* const kernels = Best();
    SpreadOver(context, num_words_, kBlockWords,
               digits_.places * payloads.size(),
               [&](int64_t begin, int64_t end) {
                 kernels->decode_sum(payloads.data(), payloads.size(), digits_,
                                     scale_, num_words_, begin, end,
                                     targets.data(), count);
               });
  }
};

class FusedUpdate : public Decoding {
 public:
  explicit FusedUpdate(OpKernelConstruction* context)
      : Decoding(context), moving_(context, shapes_) {
    OP_REQUIRES_OK(context, context->GetAttr("first", &first_));
    OP_REQUIRES_OK(context, context->GetAttr("count", &words_));
    OP_REQUIRES(context, first_ >= 0 && words_ >= 0 &&
                             words_ <= num_words_ - first_,
                InvalidArgument("piece: expected a range of ", num_words_,
                                " words, received ", words_, " from index ",
                                first_));
  }

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> payloads;
    const float* scalers;
    OP_REQUIRES_OK(context, Read(context, words_, &payloads, &scalers));
    Held held;
    OP_REQUIRES_OK(context, moving_.Open(context, scalers, &held));
    const Kernels* const kernels = Best();
    SpreadOver(context, words_, kBlockWords, digits_.places * payloads.size(),
               [&](int64_t begin, int64_t end) {
                 kernels->fused_update(payloads.data(), payloads.size(),
                                       digits_, scale_, held.rates, num_words_,
                                       first_, first_ + begin, first_ + end,
                                       held.updated.data(),
                                       held.updated.size());
               });
  }

 private:
  Moving moving_;
  int64_t first_;
  int64_t words_;
};

REGISTER_OP("TerngradDecodeSum")
    .Input("parts: M * int32")
    .Input("scalers: float")
    .Output("sums: V * float")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetShapeFn(ListedShapes);

REGISTER_OP("TerngradFusedUpdate")
    .Input("parts: M * int32")
    .Input("scalers: float")
    .Input("parameters: V * resource")
    .Input("velocities: num_velocities * resource")
    .Input("averages: num_averages * resource")
    .Input("learning_rate: float")
    .Input("decay: float")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("num_velocities: int >= 0")
    .Attr("num_averages: int >= 0")
    .Attr("first: int")
    .Attr("count: int")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("momentum: float")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_KERNEL_BUILDER(
    Name("TerngradDecodeSum").Device(tensorflow::DEVICE_CPU), DecodeSum);
REGISTER_KERNEL_BUILDER(
    Name("TerngradFusedUpdate").Device(tensorflow::DEVICE_CPU), FusedUpdate);

}  // namespace
}  // namespace terngrad
