// The operations of codes of groups, in grouped_ops.cc, for GPUs.

#include <cstdint>
#include <vector>

#include "gpu_common.h"
#include "tensorflow/core/framework/op.h"

namespace terngrad {
namespace {

using terngrad_gpu::CeilDivide;
using terngrad_gpu::Function;
using terngrad_gpu::GroupedBucket;

constexpr int kWarps = terngrad_gpu::kThreads / 32;

// The base class of operations of codes of groups.
class Grouped : public Kernel {
 public:
  explicit Grouped(OpKernelConstruction* context) : Kernel(context) {
    GroupCode code;
    OP_REQUIRES_OK(context, ReadGroupCode(context, &code, &group_size_));
    code_ = terngrad_gpu::MakeGrouping(
        static_cast<terngrad_gpu::GroupedKind>(code.kind), code.is_norm,
        code.levels, code.base, code.places);
  }

 protected:
  GroupedBucket BucketOf(const std::vector<const float*>& data,
                         const std::vector<int64_t>& sizes) const {
    GroupedBucket bucket;
    for (size_t i = 0; i < sizes.size(); ++i) {
      bucket.Add(data[i], sizes[i], code_, group_size_);
    }
    return bucket;
  }

  terngrad_gpu::Grouping code_;

 private:
  int64_t group_size_;
};

class EncodeGroups : public Grouped {
 public:
  explicit EncodeGroups(OpKernelConstruction* context) : Grouped(context) {
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    for (const int64_t size : sizes_) {
      OP_REQUIRES(context, size >= 0,
                  InvalidArgument("sizes: expected >= 0, received ", size));
    }
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const Tensor* key;
    OP_REQUIRES_OK(context, context->input("key", &key));
    OP_REQUIRES(context, key->NumElements() >= 2,
                InvalidArgument("key: expected 2 numbers, received ",
                                key->NumElements()));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    const GroupedBucket bucket = BucketOf(data, sizes_);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({bucket.words}), &output));
    Launcher launcher(context);
    terngrad_gpu::GroupedVariables table;
    OP_REQUIRES_OK(context, launcher.MakeTable(bucket, &table));
    terngrad_gpu::Extent* extents = nullptr;
    // Smaller groups are finished by the kernel that measures them.
    OP_REQUIRES_OK(
        context,
        launcher.Allocate(bucket.finishes ? bucket.extents : 0, &extents));
    const void* const words = output->data();
    const void* const numbers = key->data();
    OP_REQUIRES_OK(context, launcher.Launch(Function::kGroupsMeasure,
                                            CeilDivide(bucket.extents, kWarps),
                                            table, code_, extents, words));
    OP_REQUIRES_OK(context,
                   launcher.Launch(Function::kGroupsFinish, bucket.finishes,
                                   table, code_, extents, words));
    OP_REQUIRES_OK(context,
                   launcher.Launch(Function::kGroupsEncode, bucket.code_blocks,
                                   table, code_, numbers, words));
  }

 private:
  std::vector<int64_t> sizes_;
};

class DecodeGroups : public Grouped {
 public:
  explicit DecodeGroups(OpKernelConstruction* context) : Grouped(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
  }

  void Compute(OpKernelContext* context) override {
    Launcher launcher(context);
    std::vector<const float*> data;
    std::vector<int64_t> sizes;
    OP_REQUIRES_OK(context,
                   launcher.AllocateOutputs("sums", shapes_, &data, &sizes));
    const GroupedBucket bucket = BucketOf(data, sizes);
    std::vector<const int32_t*> rows;
    OP_REQUIRES_OK(context, ReadPayloads(context, bucket.words, &rows));
    terngrad_gpu::GroupedVariables table;
    OP_REQUIRES_OK(context, launcher.MakeTable(bucket, &table));
    terngrad_gpu::Payloads payloads;
    OP_REQUIRES_OK(context, launcher.MakeTable(rows, &payloads));
    OP_REQUIRES_OK(context,
                   launcher.Launch(Function::kGroupsDecode, bucket.code_blocks,
                                   table, payloads, code_, scale_));
  }

 private:
  std::vector<TensorShape> shapes_;
  float scale_;
};

REGISTER_OP("TerngradGpuEncodeGroups")
    .Input("gradients: N * float")
    .Input("key: uint32")
    .Output("words: T")
    .Attr("T: {int32, float} = DT_INT32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("num_words: int >= 0")
    .Attr("kind: int")
    .Attr("is_norm: bool")
    .Attr("levels: int")
    .Attr("base: int")
    .Attr("places: int")
    .Attr("group_size: int")
    .SetShapeFn(WordsShape);

REGISTER_OP("TerngradGpuDecodeGroups")
    .Input("parts: M * T")
    .Output("sums: V * float")
    .Attr("T: {int32, float}")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("kind: int")
    .Attr("is_norm: bool")
    .Attr("levels: int")
    .Attr("base: int")
    .Attr("places: int")
    .Attr("group_size: int")
    .SetShapeFn(ListedShapes);

TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuEncodeGroups", EncodeGroups);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuDecodeGroups", DecodeGroups);

}  // namespace
}  // namespace terngrad
