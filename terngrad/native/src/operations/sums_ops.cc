// The operations that convert sums to gradients, or update variables with them.

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

// Elements that are processed at a time.
constexpr int64_t kBlockSums = 16384;

// The base class of operations on sums.
class OnSums : public Kernel {
 public:
  explicit OnSums(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    tensorflow::DataType type;
    OP_REQUIRES_OK(context, context->GetAttr("T", &type));
    type_ = type == tensorflow::DT_INT8    ? SumType::kInt8
            : type == tensorflow::DT_INT32 ? SumType::kInt32
                                           : SumType::kFloat;
    for (const TensorShape& shape : shapes_) total_ += shape.num_elements();
  }

 protected:
  // Reads the sums, at least `count`, and the scalers.
  absl::Status Read(OpKernelContext* context, int64_t count, const void** sums,
                    const float** scalers) const {
    const Tensor* vector;
    TF_RETURN_IF_ERROR(context->input("sums", &vector));
    if (vector->dims() != 1 || vector->NumElements() < count) {
      return InvalidArgument("sums: expected a vector of ", count,
                             " or more, received ",
                             vector->shape().DebugString());
    }
    const Tensor* numbers;
    TF_RETURN_IF_ERROR(context->input("scalers", &numbers));
    const int64_t variables = shapes_.size();
    if (numbers->NumElements() != variables) {
      return InvalidArgument("scalers: expected ", variables, ", received ",
                             numbers->NumElements());
    }
    *sums = vector->data();
    *scalers = numbers->flat<float>().data();
    return absl::OkStatus();
  }

  std::vector<TensorShape> shapes_;
  float scale_;
  SumType type_;
  int64_t total_ = 0;
};

class ScaleSums : public OnSums {
 public:
  using OnSums::OnSums;

  void Compute(OpKernelContext* context) override {
    const void* sums;
    const float* scalers;
    OP_REQUIRES_OK(context, Read(context, total_, &sums, &scalers));
    OpOutputList gradients;
    OP_REQUIRES_OK(context, context->output_list("gradients", &gradients));
    const int64_t count = shapes_.size();
    std::vector<Target> targets(count);
    for (int64_t i = 0; i < count; ++i) {
      Tensor* gradient = nullptr;
      OP_REQUIRES_OK(context, gradients.allocate(i, shapes_[i], &gradient));
      targets[i] = {gradient->flat<float>().data(), gradient->NumElements(),
                    scalers[i]};
    }
    const Kernels* const kernels = Best();
    SpreadOver(context, total_, kBlockSums, 1,
               [&](int64_t begin, int64_t end) {
                 kernels->scale_sums(sums, type_, scale_, begin, end,
                                     targets.data(), count);
               });
  }
};

class FusedUpdateOfSums : public OnSums {
 public:
  explicit FusedUpdateOfSums(OpKernelConstruction* context)
      : OnSums(context), moving_(context, shapes_) {
    OP_REQUIRES_OK(context, context->GetAttr("first", &first_));
    OP_REQUIRES_OK(context, context->GetAttr("count", &count_));
    OP_REQUIRES(context,
                first_ >= 0 && count_ >= 0 && count_ <= total_ - first_,
                InvalidArgument("piece: expected a range of ", total_,
                                " sums, received ", count_, " from index ",
                                first_));
  }

  void Compute(OpKernelContext* context) override {
    const void* sums;
    const float* scalers;
    OP_REQUIRES_OK(context, Read(context, count_, &sums, &scalers));
    Held held;
    OP_REQUIRES_OK(context, moving_.Open(context, scalers, &held));
    const Kernels* const kernels = Best();
    SpreadOver(context, count_, kBlockSums, 1, [&](int64_t begin, int64_t end) {
      kernels->fused_update_of_sums(
          sums, type_, scale_, held.rates, first_, first_ + begin, first_ + end,
          held.updated.data(), held.updated.size());
    });
  }

 private:
  Moving moving_;
  int64_t first_;
  int64_t count_;
};

REGISTER_OP("TerngradScaleSums")
    .Input("sums: T")
    .Input("scalers: float")
    .Output("gradients: V * float")
    .Attr("T: {int8, int32, float}")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .SetShapeFn(ListedShapes);

REGISTER_OP("TerngradFusedUpdateOfSums")
    .Input("sums: T")
    .Input("scalers: float")
    .Input("parameters: V * resource")
    .Input("velocities: num_velocities * resource")
    .Input("averages: num_averages * resource")
    .Input("learning_rate: float")
    .Input("decay: float")
    .Attr("T: {int8, int32, float}")
    .Attr("V: int >= 1")
    .Attr("num_velocities: int >= 0")
    .Attr("num_averages: int >= 0")
    .Attr("first: int")
    .Attr("count: int")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("momentum: float")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_KERNEL_BUILDER(
    Name("TerngradScaleSums").Device(tensorflow::DEVICE_CPU), ScaleSums);
REGISTER_KERNEL_BUILDER(
    Name("TerngradFusedUpdateOfSums").Device(tensorflow::DEVICE_CPU),
    FusedUpdateOfSums);

}  // namespace
}  // namespace terngrad
