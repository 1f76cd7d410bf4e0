// The operations that decode payloads, into tensors or into variables.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels.h"
#include "ops_common.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace terngrad {
namespace {

using tensorflow::OpOutputList;
using tensorflow::shape_inference::InferenceContext;

// What operations that decode payloads have in common.
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
  // The payloads of all workers, `words` of each, in their order, and the
  // scalers.
  absl::Status Read(OpKernelContext* context, int64_t words,
                    std::vector<const int32_t*>* payloads,
                    const float** scalers) {
    OpInputList parts;
    TF_RETURN_IF_ERROR(context->input_list("parts", &parts));
    const Tensor* numbers;
    TF_RETURN_IF_ERROR(context->input("scalers", &numbers));
    const int64_t count = shapes_.size();
    if (numbers->NumElements() != count) {
      return InvalidArgument("scalers: expected ", count, ", received ",
                             numbers->NumElements());
    }
    *scalers = numbers->flat<float>().data();
    for (int64_t row = 0, more = 1; more; ++row) {
      more = 0;
      for (const Tensor& part : parts) {
        if (part.dims() != 2 || part.dim_size(1) != words) {
          return InvalidArgument("parts: expected shapes [n, ", words,
                                 "], received ", part.shape().DebugString());
        }
        if (row < part.dim_size(0)) {
          payloads->push_back(part.flat<int32_t>().data() + row * words);
          more = 1;
        }
      }
    }
    const int64_t num_payloads = payloads->size();
    if (num_payloads < 1 || num_payloads > kMaxPayloads) {
      return InvalidArgument("parts: expected 1 to ", kMaxPayloads,
                             " payloads, received ", num_payloads);
    }
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

// Variables that are held while an operation writes them.
class Variables {
 public:
  // Takes hold of the variables that are `context`'s inputs of these names.
  absl::Status Lock(OpKernelContext* context,
                    std::initializer_list<const char*> names) {
    for (const char* name : names) {
      OpInputList handles;
      TF_RETURN_IF_ERROR(context->input_list(name, &handles));
      for (const Tensor& handle : handles) {
        if (handle.NumElements() != 1) {
          return InvalidArgument(name, ": expected handles of a variable each");
        }
        tensorflow::core::RefCountPtr<tensorflow::Var> variable;
        TF_RETURN_IF_ERROR(tensorflow::LookupResource(
            context, handle.flat<tensorflow::ResourceHandle>()(0),
            &variable));
        variables_.push_back(std::move(variable));
      }
    }
    std::vector<tensorflow::mutex*> order;
    for (const auto& variable : variables_) order.push_back(variable->mu());
    std::sort(order.begin(), order.end());
    if (std::adjacent_find(order.begin(), order.end()) != order.end()) {
      return InvalidArgument("variables: expected each once, received one ",
                             "twice");
    }
    for (tensorflow::mutex* each : order) locks_.emplace_back(*each);
    return absl::OkStatus();
  }

  // Where variable `index` may be written: a copy where somebody still reads it.
  absl::Status Open(OpKernelContext* context, int64_t index,
                    const TensorShape& shape, float** data) {
    Tensor* const now = variables_[index]->tensor();
    if (!variables_[index]->is_initialized ||
        now->dtype() != tensorflow::DT_FLOAT || now->shape() != shape) {
      return InvalidArgument("variable ", index, ": expected float32 ",
                             shape.DebugString(), ", received ",
                             now->DebugString(0));
    }
    if (!now->RefCountIsOne()) {
      Tensor copy;
      TF_RETURN_IF_ERROR(
          context->allocate_temp(tensorflow::DT_FLOAT, shape, &copy));
      std::copy_n(now->flat<float>().data(), now->NumElements(),
                  copy.flat<float>().data());
      *now = std::move(copy);
    }
    *data = now->flat<float>().data();
    return absl::OkStatus();
  }

 private:
  // Before the locks, which must go first.
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<std::unique_lock<tensorflow::mutex>> locks_;
};

class Descend : public Decoding {
 public:
  explicit Descend(OpKernelConstruction* context) : Decoding(context) {
    OP_REQUIRES_OK(context, context->GetAttr("momentum", &momentum_));
    OP_REQUIRES_OK(context, context->GetAttr("num_velocities", &velocities_));
    OP_REQUIRES_OK(context, context->GetAttr("num_averages", &averages_));
    OP_REQUIRES_OK(context, context->GetAttr("first", &first_));
    OP_REQUIRES_OK(context, context->GetAttr("count", &words_));
    OP_REQUIRES(context, first_ >= 0 && words_ >= 0 &&
                             words_ <= num_words_ - first_,
                InvalidArgument("piece: expected some of ", num_words_,
                                " words, received ", words_, " from ", first_,
                                " on"));
    int64_t variables;
    OP_REQUIRES_OK(context, context->GetAttr("V", &variables));
    const int64_t count = shapes_.size();
    OP_REQUIRES(context, variables == count,
                InvalidArgument("parameters: expected ", count, ", received ",
                                variables));
    for (const int64_t number : {velocities_, averages_}) {
      OP_REQUIRES(context, number == 0 || number == count,
                  InvalidArgument("velocities and averages: expected none or ",
                                  count, ", received ", number));
    }
  }

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> payloads;
    const float* scalers;
    OP_REQUIRES_OK(context, Read(context, words_, &payloads, &scalers));
    const Tensor* rate;
    const Tensor* decay;
    OP_REQUIRES_OK(context, context->input("learning_rate", &rate));
    OP_REQUIRES_OK(context, context->input("decay", &decay));
    OP_REQUIRES(context, rate->NumElements() == 1 && decay->NumElements() == 1,
                InvalidArgument("learning_rate and decay: expected scalars, ",
                                "received ", rate->shape().DebugString(),
                                " and ", decay->shape().DebugString()));
    const Rates rates = {rate->flat<float>()(0), momentum_,
                         decay->flat<float>()(0)};
    Variables variables;
    OP_REQUIRES_OK(context, variables.Lock(context, {"parameters", "velocities",
                                                     "averages"}));
    const int64_t count = shapes_.size();
    std::vector<Descent> descents(count);
    for (int64_t i = 0; i < count; ++i) {
      Descent& d = descents[i];
      const TensorShape& shape = shapes_[i];
      d = {};
      d.size = shape.num_elements();
      d.scaler = scalers[i];
      OP_REQUIRES_OK(context,
                     variables.Open(context, i, shape, &d.parameter));
      if (velocities_) {
        OP_REQUIRES_OK(context,
                       variables.Open(context, count + i, shape, &d.velocity));
      }
      if (averages_) {
        OP_REQUIRES_OK(context,
                       variables.Open(context, count + velocities_ + i, shape,
                                      &d.average));
      }
    }
    const Kernels* const kernels = Best();
    SpreadOver(context, words_, kBlockWords, digits_.places * payloads.size(),
               [&](int64_t begin, int64_t end) {
                 kernels->descend(payloads.data(), payloads.size(), digits_,
                                  scale_, rates, num_words_, first_,
                                  first_ + begin, first_ + end,
                                  descents.data(), count);
               });
  }

 private:
  float momentum_;
  int64_t first_;
  int64_t words_;
  int64_t velocities_;
  int64_t averages_;
};

absl::Status DecodeSumShape(InferenceContext* context) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
  for (size_t i = 0; i < shapes.size(); ++i) {
    tensorflow::shape_inference::ShapeHandle shape;
    TF_RETURN_IF_ERROR(
        context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    context->set_output(i, shape);
  }
  return absl::OkStatus();
}

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
    .SetShapeFn(DecodeSumShape);

REGISTER_OP("TerngradDescend")
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
    Name("TerngradDescend").Device(tensorflow::DEVICE_CPU), Descend);

}  // namespace
}  // namespace terngrad
