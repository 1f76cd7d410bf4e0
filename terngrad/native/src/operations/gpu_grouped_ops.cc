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
  // Returns the `bucket_of` of `Open`.
  auto buckets() const {
    return [this](const std::vector<const float*>& data,
                  const std::vector<int64_t>& sizes) {
      GroupedBucket bucket;
      for (size_t i = 0; i < sizes.size(); ++i) {
        bucket.Add(data[i], sizes[i], code_, group_size_);
      }
      return bucket;
    };
  }

  terngrad_gpu::Grouping code_;

 private:
  int64_t group_size_;
};

// What a kernel of an encoder takes.
struct Encoding {
  GroupedBucket bucket;
  terngrad_gpu::GroupedVariables table;
  terngrad_gpu::Key key;
  const void* words;
};

// Reads the gradients of variables of `sizes` and the key, and allocates the
// words. `bucket_of` takes pointers and sizes of the variables.
template <typename BucketOf>
absl::Status Open(OpKernelContext* context, const std::vector<int64_t>& sizes,
                  const BucketOf& bucket_of, Launcher* launcher,
                  Encoding* encoding) {
  OpInputList gradients;
  TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
  TF_RETURN_IF_ERROR(ReadKey(context, &encoding->key));
  std::vector<const float*> data;
  TF_RETURN_IF_ERROR(ReadVariables(gradients, sizes, &data));
  encoding->bucket = bucket_of(data, sizes);
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(
      0, TensorShape({encoding->bucket.words}), &output));
  encoding->words = output->data();
  return launcher->MakeTable(encoding->bucket, &encoding->table);
}

// What a kernel of a decoder takes.
struct Decoding {
  GroupedBucket bucket;
  terngrad_gpu::GroupedVariables table;
  terngrad_gpu::Payloads payloads;
};

// Reads the payloads and allocates the sums, of `shapes`.
template <typename BucketOf>
absl::Status Open(OpKernelContext* context,
                  const std::vector<TensorShape>& shapes,
                  const BucketOf& bucket_of, Launcher* launcher,
                  Decoding* decoding) {
  std::vector<const float*> data;
  std::vector<int64_t> sizes;
  TF_RETURN_IF_ERROR(
      launcher->AllocateOutputs("sums", shapes, &data, &sizes));
  decoding->bucket = bucket_of(data, sizes);
  std::vector<const int32_t*> rows;
  TF_RETURN_IF_ERROR(ReadPayloads(context, decoding->bucket.words, &rows));
  TF_RETURN_IF_ERROR(launcher->MakeTable(decoding->bucket, &decoding->table));
  return launcher->MakeTable(rows, &decoding->payloads);
}

class EncodeGroups : public Grouped {
 public:
  explicit EncodeGroups(OpKernelConstruction* context) : Grouped(context) {
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes_));
  }

  void Compute(OpKernelContext* context) override {
    Launcher launcher(context);
    Encoding encoding;
    OP_REQUIRES_OK(context, Open(context, sizes_, buckets(), &launcher,
                                 &encoding));
    const auto& [bucket, table, key, words] = encoding;
    if (bucket.is_small) {
      OP_REQUIRES_OK(context, launcher.Launch(Function::kGroupsAll, table.count,
                                              table, code_, key, words));
      return;
    }
    terngrad_gpu::Extent* extents = nullptr;
    // Smaller groups are finished by the kernel that measures them.
    OP_REQUIRES_OK(
        context,
        launcher.Allocate(bucket.finishes ? bucket.extents : 0, &extents));
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
                                       bucket.code_blocks, table, code_, key,
                                       words));
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
    Decoding decoding;
    OP_REQUIRES_OK(context, Open(context, shapes_, buckets(), &launcher,
                                 &decoding));
    OP_REQUIRES_OK(context,
                   launcher.Launch(code_.kind == terngrad_gpu::kFloats
                                       ? Function::kFp8Decode
                                       : Function::kGroupsDecode,
                                   decoding.bucket.code_blocks, decoding.table,
                                   decoding.payloads, code_, scale_));
  }

 private:
  std::vector<TensorShape> shapes_;
  float scale_;
};

GroupedBucket NaturalBucket(const std::vector<const float*>& data,
                            const std::vector<int64_t>& sizes) {
  GroupedBucket bucket;
  for (size_t i = 0; i < sizes.size(); ++i) {
    bucket.AddNatural(data[i], sizes[i]);
  }
  return bucket;
}

class EncodeNatural : public Kernel {
 public:
  explicit EncodeNatural(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes_));
  }

  void Compute(OpKernelContext* context) override {
    Launcher launcher(context);
    Encoding encoding;
    OP_REQUIRES_OK(context, Open(context, sizes_, NaturalBucket, &launcher,
                                 &encoding));
    OP_REQUIRES_OK(context, launcher.Launch(Function::kNaturalEncode,
                                            encoding.bucket.code_blocks,
                                            encoding.table, encoding.key,
                                            encoding.words));
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
    Decoding decoding;
    OP_REQUIRES_OK(context, Open(context, shapes_, NaturalBucket, &launcher,
                                 &decoding));
    OP_REQUIRES_OK(context, launcher.Launch(Function::kNaturalDecode,
                                            decoding.bucket.code_blocks,
                                            decoding.table, decoding.payloads,
                                            scale_));
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

TERNGRAD_REGISTER_GPU_ENCODER("TerngradGpuEncodeGroups", EncodeGroups);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuDecodeGroups", DecodeGroups);
TERNGRAD_REGISTER_GPU_ENCODER("TerngradGpuEncodeNatural", EncodeNatural);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuDecodeNatural", DecodeNatural);

}  // namespace
}  // namespace terngrad
