// The operations of codes of rotated blocks, in rotated_ops.cc and
// table_ops.cc, for GPUs.

#include <cstdint>
#include <vector>

#include "gpu_common.h"
#include "gpu_rotation.h"
#include "rotation.h"
#include "tensorflow/core/framework/op.h"

namespace terngrad {
namespace {

using terngrad_gpu::CeilDivide;
using terngrad_gpu::Function;
using terngrad_gpu::kThreads;
using terngrad_gpu::RotatedBucket;

// The digits of all elements, a byte each, before they are packed.
using Digit = unsigned char;

class EncodeRotated : public Rotated {
 public:
  explicit EncodeRotated(OpKernelConstruction* context) : Rotated(context) {
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes_));
    int64_t total = 0;
    for (const int64_t size : sizes_) total += size;
    SetSize(total);
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    const float* factors;
    const double* borders;
    OP_REQUIRES_OK(context,
                   ReadNumbers(context, "factors", sizes_.size(), &factors));
    OP_REQUIRES_OK(context, ReadNumbers(context, "borders",
                                        code_.num_levels - 1, &borders));
    terngrad_gpu::Key key;
    OP_REQUIRES_OK(context, ReadKey(context, &key));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({num_words()}), &output));
    Launcher launcher(context);
    terngrad_gpu::Variables table;
    OP_REQUIRES_OK(
        context, launcher.MakeTable(data, sizes_, terngrad_gpu::Unit::kElements,
                                    &table));
    Digit* digits = nullptr;
    OP_REQUIRES_OK(context, launcher.Allocate(num_digits_, &digits));
    const auto code = terngrad_gpu::RotatingOf(code_, num_blocks_);
    const auto packing = terngrad_gpu::PackingOf(code_, num_blocks_);
    const int32_t* const words = static_cast<const int32_t*>(output->data());
    const int32_t* const codes = words + kKeyWords + num_blocks_;
    OP_REQUIRES_OK(context, launcher.Launch(Function::kRotatedEncode,
                                            num_blocks_, table, factors,
                                            borders, key, code, words,
                                            digits));
    OP_REQUIRES_OK(context, launcher.Launch(Function::kDigitsPack,
                                            CeilDivide(num_codes_, kThreads),
                                            digits, packing, codes));
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
    std::vector<const int32_t*> rows;
    OP_REQUIRES_OK(context, ReadPayloads(context, num_words(), &rows));
    const float* factors;
    OP_REQUIRES_OK(context,
                   ReadNumbers(context, "factors", shapes_.size(), &factors));
    Launcher launcher(context);
    terngrad_gpu::Variables table;
    OP_REQUIRES_OK(context, launcher.MakeOutputs("sums", shapes_, &table));
    terngrad_gpu::Payloads payloads;
    OP_REQUIRES_OK(context, launcher.MakeTable(rows, &payloads));
    const auto code = terngrad_gpu::RotatingOf(code_, num_blocks_);
    const auto unpacking = terngrad_gpu::UnpackingOf(code_, num_blocks_);
    OP_REQUIRES_OK(context, launcher.Launch(Function::kRotatedDecode,
                                            num_blocks_, table, payloads,
                                            factors, code, unpacking, scale_));
  }

 private:
  std::vector<TensorShape> shapes_;
  float scale_;
};

// The table of variables of `sizes` that are rotated separately.
RotatedBucket BucketOf(const std::vector<const float*>& data,
                       const std::vector<int64_t>& sizes) {
  RotatedBucket bucket;
  for (size_t i = 0; i < sizes.size(); ++i) {
    bucket.Add(data[i], sizes[i], BlockOf(sizes[i]));
  }
  return bucket;
}

class EncodeTable : public Kernel {
 public:
  explicit EncodeTable(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes_));
    int32_t values[kTableEntries];
    OP_REQUIRES_OK(context, ReadTable(context, values));
    entries_ = terngrad_gpu::EntriesOf(values);
    fill_ = FillOf(values);
  }

  void Compute(OpKernelContext* context) override {
    constexpr int kPlaces = 8;
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    const RotatedBucket bucket = BucketOf(data, sizes_);
    const float *factors, *inverses;
    const uint32_t *signs, *draws;
    const int64_t keys = 2 * sizes_.size();
    OP_REQUIRES_OK(context,
                   ReadNumbers(context, "factors", bucket.blocks, &factors));
    OP_REQUIRES_OK(context,
                   ReadNumbers(context, "inverses", bucket.blocks, &inverses));
    OP_REQUIRES_OK(context, ReadNumbers(context, "signs", keys, &signs));
    OP_REQUIRES_OK(context, ReadNumbers(context, "draws", keys, &draws));
    const terngrad_gpu::Packing packing = {16, kPlaces, fill_, bucket.digits,
                                           CeilDivide(bucket.digits, kPlaces)};
    Tensor* output = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(
                     0, TensorShape({static_cast<int64_t>(packing.num_words)}),
                     &output));
    Launcher launcher(context);
    terngrad_gpu::RotatedVariables table;
    OP_REQUIRES_OK(context, launcher.MakeTable(bucket, &table));
    Digit* digits = nullptr;
    OP_REQUIRES_OK(context, launcher.Allocate(bucket.digits, &digits));
    const void* const words = output->data();
    OP_REQUIRES_OK(context, launcher.Launch(Function::kTableEncode,
                                            bucket.blocks, table, entries_,
                                            factors, inverses, signs, draws,
                                            digits));
    OP_REQUIRES_OK(
        context, launcher.Launch(Function::kDigitsPack,
                                 CeilDivide(packing.num_words, kThreads),
                                 digits, packing, words));
  }

 private:
  std::vector<int64_t> sizes_;
  terngrad_gpu::Entries entries_;
  uint32_t fill_;
};

class DecodeTable : public Kernel {
 public:
  explicit DecodeTable(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
  }

  void Compute(OpKernelContext* context) override {
    Launcher launcher(context);
    std::vector<const float*> data;
    std::vector<int64_t> sizes;
    OP_REQUIRES_OK(context, launcher.AllocateOutputs("gradients", shapes_,
                                                     &data, &sizes));
    const RotatedBucket bucket = BucketOf(data, sizes);
    const Tensor* sums;
    OP_REQUIRES_OK(context, context->input("sums", &sums));
    OP_REQUIRES(context, sums->NumElements() >= bucket.digits,
                InvalidArgument("sums: expected ", bucket.digits,
                                " or more, received ", sums->NumElements()));
    const float* factors;
    const uint32_t* signs;
    OP_REQUIRES_OK(context,
                   ReadNumbers(context, "factors", bucket.blocks, &factors));
    OP_REQUIRES_OK(context,
                   ReadNumbers(context, "signs", 2 * sizes.size(), &signs));
    terngrad_gpu::RotatedVariables table;
    OP_REQUIRES_OK(context, launcher.MakeTable(bucket, &table));
    const void* const entries = sums->data();
    OP_REQUIRES_OK(context,
                   launcher.Launch(Function::kTableDecode, bucket.blocks, table,
                                   entries, factors, signs));
  }

 private:
  std::vector<TensorShape> shapes_;
};

REGISTER_OP("TerngradGpuEncodeRotated")
    .Input("gradients: N * float")
    .Input("factors: float")
    .Input("borders: double")
    .Input("key: uint32")
    .Output("words: T")
    .Attr("T: {int32, float} = DT_INT32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("num_words: int >= 0")
    .Attr("levels: list(int) >= 1")
    .Attr("base: int")
    .Attr("places: int")
    .SetShapeFn(WordsShape);

REGISTER_OP("TerngradGpuDecodeRotated")
    .Input("parts: M * T")
    .Input("factors: float")
    .Output("sums: V * float")
    .Attr("T: {int32, float}")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("levels: list(int) >= 1")
    .Attr("base: int")
    .Attr("places: int")
    .SetShapeFn(ListedShapes);

REGISTER_OP("TerngradGpuEncodeTable")
    .Input("gradients: N * float")
    .Input("factors: float")
    .Input("inverses: float")
    .Input("signs: uint32")
    .Input("draws: uint32")
    .Output("words: T")
    .Attr("T: {int32, float} = DT_INT32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("num_words: int >= 0")
    .Attr("table: list(int)")
    .SetShapeFn(WordsShape);

REGISTER_OP("TerngradGpuDecodeTable")
    .Input("sums: T")
    .Input("factors: float")
    .Input("signs: uint32")
    .Output("gradients: V * float")
    .Attr("T: {int32, float}")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .SetShapeFn(ListedShapes);

TERNGRAD_REGISTER_GPU_ENCODER("TerngradGpuEncodeRotated", EncodeRotated);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuDecodeRotated", DecodeRotated);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuEncodeTable", EncodeTable);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuDecodeTable", DecodeTable);

}  // namespace
}  // namespace terngrad
