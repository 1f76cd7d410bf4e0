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

// Only GPU kernels have this kind.
constexpr auto kFp8 = static_cast<GroupKind>(terngrad_gpu::kFloats);

// The base class of operations of codes of groups.
class Grouped : public Kernel {
 public:
  explicit Grouped(OpKernelConstruction* context) : Kernel(context) {
    GroupCode code;
    OP_REQUIRES_OK(context, ReadGroupCode(context, &code, &group_size_, 4));
    const bool is_fp8 = code.kind == kFp8;
    OP_REQUIRES(context,
                !is_fp8 || code.levels == terngrad_gpu::kLargestE4m3 ||
                    code.levels == terngrad_gpu::kLargestE5m2,
                InvalidArgument("levels: expected ", terngrad_gpu::kLargestE4m3,
                                " or ", terngrad_gpu::kLargestE5m2,
                                ", received ", code.levels));
    OP_REQUIRES(context, !is_fp8 || (code.base == 256 && code.places == 4),
                InvalidArgument("expected base 256 and 4 places, received ",
                                code.base, " and ", code.places));
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
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes_));
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
    OP_REQUIRES_OK(
        context, code_.kind == terngrad_gpu::kFloats
                     ? launcher.Launch(Function::kFp8Encode, bucket.code_blocks,
                                       table, code_, words)
                     : launcher.Launch(Function::kGroupsEncode,
                                       bucket.code_blocks, table, code_,
                                       numbers, words));
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
                   launcher.Launch(code_.kind == terngrad_gpu::kFloats
                                       ? Function::kFp8Decode
                                       : Function::kGroupsDecode,
                                   bucket.code_blocks, table, payloads, code_,
                                   scale_));
  }

 private:
  std::vector<TensorShape> shapes_;
  float scale_;
};

class EncodeNatural : public Kernel {
 public:
  explicit EncodeNatural(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes_));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    const Tensor* key;
    OP_REQUIRES_OK(context, context->input("key", &key));
    OP_REQUIRES(context, key->NumElements() >= 2,
                InvalidArgument("key: expected 2 numbers, received ",
                                key->NumElements()));
    GroupedBucket bucket;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      bucket.AddNatural(data[i], sizes_[i]);
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({bucket.words}), &output));
    Launcher launcher(context);
    terngrad_gpu::GroupedVariables table;
    OP_REQUIRES_OK(context, launcher.MakeTable(bucket, &table));
    const void* const numbers = key->data();
    const void* const words = output->data();
    OP_REQUIRES_OK(context, launcher.Launch(Function::kNaturalEncode,
                                            bucket.code_blocks, table, numbers,
                                            words));
  }

 private:
  std::vector<int64_t> sizes_;
};

class DecodeNatural : public Kernel {
 public:
  explicit DecodeNatural(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
  }

  void Compute(OpKernelContext* context) override {
    Launcher launcher(context);
    std::vector<const float*> data;
    std::vector<int64_t> sizes;
    OP_REQUIRES_OK(context,
                   launcher.AllocateOutputs("sums", shapes_, &data, &sizes));
    GroupedBucket bucket;
    for (size_t i = 0; i < sizes.size(); ++i) {
      bucket.AddNatural(data[i], sizes[i]);
    }
    std::vector<const int32_t*> rows;
    OP_REQUIRES_OK(context, ReadPayloads(context, bucket.words, &rows));
    terngrad_gpu::GroupedVariables table;
    OP_REQUIRES_OK(context, launcher.MakeTable(bucket, &table));
    terngrad_gpu::Payloads payloads;
    OP_REQUIRES_OK(context, launcher.MakeTable(rows, &payloads));
    OP_REQUIRES_OK(context,
                   launcher.Launch(Function::kNaturalDecode, bucket.code_blocks,
                                   table, payloads, scale_));
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

REGISTER_OP("TerngradGpuEncodeNatural")
    .Input("gradients: N * float")
    .Input("key: uint32")
    .Output("words: T")
    .Attr("T: {int32, float} = DT_INT32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("num_words: int >= 0")
    .SetShapeFn(WordsShape);

REGISTER_OP("TerngradGpuDecodeNatural")
    .Input("parts: M * T")
    .Output("sums: V * float")
    .Attr("T: {int32, float}")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .SetShapeFn(ListedShapes);

TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuEncodeGroups", EncodeGroups);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuDecodeGroups", DecodeGroups);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuEncodeNatural", EncodeNatural);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuDecodeNatural", DecodeNatural);

}  // namespace
}  // namespace terngrad
