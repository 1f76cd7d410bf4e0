// The operations of decoding_ops.cc and sums_ops.cc that update variables, for
// GPUs.

#include <cstdint>
#include <vector>

#include "gpu_common.h"
#include "gpu_update.h"
#include "moving.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace terngrad {
namespace {

using terngrad_gpu::CeilDivide;
using terngrad_gpu::Function;
using terngrad_gpu::kThreads;

// The base class of both operations.
class Updating : public Kernel {
 public:
  explicit Updating(OpKernelConstruction* context)
      : Kernel(context), shapes_(ShapesOf(context)), moving_(context, shapes_) {
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    OP_REQUIRES_OK(context, context->GetAttr("roundings", &roundings_));
    int64_t first, count;
    OP_REQUIRES_OK(context, context->GetAttr("first", &first));
    OP_REQUIRES_OK(context, context->GetAttr("count", &count));
    first_ = first;
    count_ = count;
    for (const TensorShape& shape : shapes_) total_ += shape.num_elements();
  }

 protected:
  static std::vector<TensorShape> ShapesOf(OpKernelConstruction* context) {
    std::vector<TensorShape> shapes;
    context->SetStatus(context->GetAttr("shapes", &shapes));
    return shapes;
  }

  // Whether the piece is a range of `all` words or sums.
  absl::Status CheckPiece(int64_t all) const {
    if (first_ >= 0 && count_ >= 0 && count_ <= all - first_) {
      return absl::OkStatus();
    }
    return InvalidArgument("piece: expected a range of ", all, ", received ",
                           count_, " from index ", first_);
  }

  // Locks the variables, and reads their table and the other arguments.
  absl::Status Open(OpKernelContext* context, Launcher* launcher, Held* held,
                    terngrad_gpu::UpdatedVariables* table,
                    const float** scalers,
                    terngrad_gpu::UpdateRates* rates) const {
    TF_RETURN_IF_ERROR(
        ReadNumbers(context, "scalers", shapes_.size(), scalers));
    rates->momentum = moving_.momentum();
    rates->roundings = roundings_;
    TF_RETURN_IF_ERROR(
        ReadNumber(context, "learning_rate", &rates->learning_rate));
    TF_RETURN_IF_ERROR(ReadNumber(context, "decay", &rates->decay));
    TF_RETURN_IF_ERROR(moving_.OpenVariables(
        context,
        [launcher](float* to, const float* from, int64_t count) {
          return launcher->Copy(to, from, count);
        },
        held));
    terngrad_gpu::UpdatedBucket bucket;
    for (const UpdatedVariable& one : held->updated) {
      bucket.Add(one.parameter, one.velocity, one.average, one.size);
    }
    return launcher->MakeTable(bucket, table);
  }

  const std::vector<TensorShape> shapes_;
  const Moving moving_;
  float scale_;
  int roundings_;
  terngrad_gpu::int64 first_ = 0;
  terngrad_gpu::int64 count_ = 0;
  int64_t total_ = 0;
};

class FusedUpdate : public Updating {
 public:
  explicit FusedUpdate(OpKernelConstruction* context) : Updating(context) {
    if (!context->status().ok()) return;
    Digits digits;
    OP_REQUIRES_OK(context, ReadDigits(context, &digits));
    OP_REQUIRES_OK(context, ReadDecodedDigits(context, &is_base3_));
    num_words_ = NumWords(total_, digits);
    OP_REQUIRES_OK(context, CheckPiece(num_words_));
  }

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> rows;
    OP_REQUIRES_OK(context, ReadPayloads(context, count_, &rows));
    Launcher launcher(context);
    Held held;
    terngrad_gpu::UpdatedVariables table;
    const float* scalers;
    terngrad_gpu::UpdateRates rates;
    OP_REQUIRES_OK(context,
                   Open(context, &launcher, &held, &table, &scalers, &rates));
    terngrad_gpu::Payloads payloads;
    OP_REQUIRES_OK(context, launcher.MakeTable(rows, &payloads));
    OP_REQUIRES_OK(
        context,
        launcher.Launch(
            is_base3_ ? Function::kUpdateBase3 : Function::kUpdateTwoBit,
            CeilDivide(count_, kThreads), table, payloads, scalers, scale_,
            rates, num_words_, first_, count_));
  }

 private:
  bool is_base3_;
  terngrad_gpu::int64 num_words_;
};

class FusedUpdateOfSums : public Updating {
 public:
  explicit FusedUpdateOfSums(OpKernelConstruction* context)
      : Updating(context) {
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, CheckPiece(total_));
    tensorflow::DataType type;
    OP_REQUIRES_OK(context, context->GetAttr("T", &type));
    function_ = type == tensorflow::DT_INT8    ? Function::kUpdateInt8
                : type == tensorflow::DT_INT32 ? Function::kUpdateInt32
                                               : Function::kUpdateFloat;
  }

  void Compute(OpKernelContext* context) override {
    const Tensor* sums;
    OP_REQUIRES_OK(context, context->input("sums", &sums));
    OP_REQUIRES(
        context, sums->dims() == 1 && sums->NumElements() >= count_,
        InvalidArgument("sums: expected a vector of ", count_,
                        " or more, received ", sums->shape().DebugString()));
    Launcher launcher(context);
    Held held;
    terngrad_gpu::UpdatedVariables table;
    const float* scalers;
    terngrad_gpu::UpdateRates rates;
    OP_REQUIRES_OK(context,
                   Open(context, &launcher, &held, &table, &scalers, &rates));
    const void* const data = sums->data();
    OP_REQUIRES_OK(
        context,
        launcher.Launch(function_,
                        CeilDivide(count_, kThreads * terngrad_gpu::kScaled),
                        table, data, scalers, scale_, rates, first_, count_));
  }

 private:
  Function function_;
};

REGISTER_OP("TerngradGpuFusedUpdate")
    .Input("parts: M * T")
    .Input("scalers: float")
    .Input("parameters: V * resource")
    .Input("velocities: num_velocities * resource")
    .Input("averages: num_averages * resource")
    .Input("learning_rate: float")
    .Input("decay: float")
    .Attr("T: {int32, float}")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("num_velocities: int >= 0")
    .Attr("num_averages: int >= 0")
    .Attr("first: int")
    .Attr("count: int")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("momentum: float")
    .Attr("roundings: int >= 0")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_OP("TerngradGpuFusedUpdateOfSums")
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
    .Attr("roundings: int >= 0")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

// Handles of variables and the rates are in the host's memory.
#define TERNGRAD_REGISTER_UPDATE(name, kernel)                   \
  REGISTER_KERNEL_BUILDER(Name(name)                             \
                              .Device(tensorflow::DEVICE_GPU)    \
                              .HostMemory("parameters")          \
                              .HostMemory("velocities")          \
                              .HostMemory("averages")            \
                              .HostMemory("learning_rate")       \
                              .HostMemory("decay"),              \
                          kernel);                               \
  TERNGRAD_REGISTER_EMULATED_KERNEL(name, kernel)

TERNGRAD_REGISTER_UPDATE("TerngradGpuFusedUpdate", FusedUpdate);
TERNGRAD_REGISTER_UPDATE("TerngradGpuFusedUpdateOfSums", FusedUpdateOfSums);

}  // namespace
}  // namespace terngrad
