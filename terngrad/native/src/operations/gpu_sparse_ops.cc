// Operations of codes that send few elements, for GPUs: sparse_ops.cc and
// index_ops.cc have those for CPUs.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu_common.h"
#include "tensorflow/core/framework/op.h"

namespace terngrad {
namespace {

using terngrad_gpu::Function;
using terngrad_gpu::SparseBucket;
using terngrad_gpu::SparseKind;

// The base class of operations of few elements.
class Sparse : public Kernel {
 public:
  explicit Sparse(OpKernelConstruction* context) : Kernel(context) {
    int kind;
    OP_REQUIRES_OK(context, context->GetAttr("kind", &kind));
    OP_REQUIRES_OK(context, context->GetAttr("numbers", &numbers_));
    OP_REQUIRES(context, kind >= 0 && kind <= terngrad_gpu::kPairs,
                InvalidArgument("kind: expected 0 to 2, received ", kind));
    kind_ = static_cast<SparseKind>(kind);
  }

 protected:
  // Checks that the numbers of sent elements fit the sizes of variables.
  absl::Status CheckNumbers(const std::vector<int64_t>& sizes) const {
    std::vector<int64_t> vectors = sizes;
    if (kind_ == terngrad_gpu::kPairs) {
      vectors = {0};
      for (const int64_t size : sizes) vectors[0] += size;
    }
    bool fits = vectors.size() == numbers_.size();
    for (size_t i = 0; fits && i < vectors.size(); ++i) {
      fits = vectors[i] == 0 ? numbers_[i] == 0
                             : 1 <= numbers_[i] && numbers_[i] <= vectors[i] &&
                                   vectors[i] <= INT32_MAX;
    }
    return fits ? absl::OkStatus()
                : InvalidArgument("numbers: expected 1 to the size of each of ",
                                  vectors.size(), " vectors, received others");
  }

  SparseKind kind_;
  std::vector<int64_t> numbers_;
};

class EncodeElements : public Sparse {
 public:
  explicit EncodeElements(OpKernelConstruction* context) : Sparse(context) {
    float above;
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(context, context->GetAttr("num_words", &num_words_));
    OP_REQUIRES_OK(context, context->GetAttr("above", &above));
    OP_REQUIRES_OK(context, CheckNumbers(sizes_));
    std::memcpy(&floor_, &above, sizeof(above));
    floor_ &= INT32_MAX;
    // No zeros.
    if (kind_ == terngrad_gpu::kPairs) floor_ = std::max(floor_, 1);
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    const SparseBucket bucket(kind_, data, sizes_, numbers_);
    OP_REQUIRES(context, bucket.words == num_words_,
                InvalidArgument("num_words: expected ", bucket.words,
                                ", received ", num_words_));
    Tensor* words = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({bucket.words}), &words));
    OP_REQUIRES_OK(context, Select(context, bucket, words));
  }

 private:
  absl::Status Select(OpKernelContext* context, const SparseBucket& bucket,
                      Tensor* words) const {
    Launcher launcher(context);
    if (bucket.vectors == 0) {
      // Of no elements at most their number is sent.
      const int32_t none = 0;
      return bucket.words ? StatusOf(terngrad_gpu::CopyToGpu(
                                StreamOf(context), words->data(), &none,
                                sizeof(none)))
                          : absl::OkStatus();
    }
    terngrad_gpu::SparseVariables table;
    TF_RETURN_IF_ERROR(launcher.MakeTable(bucket, &table));
    const bool packs = kind_ == terngrad_gpu::kSignedIndices;
    terngrad_gpu::Selecting to = {};
    TF_RETURN_IF_ERROR(launcher.Allocate(bucket.vectors, &to.selections));
    TF_RETURN_IF_ERROR(
        launcher.Allocate(bucket.chunks * terngrad_gpu::kThreads, &to.masks));
    TF_RETURN_IF_ERROR(launcher.Allocate(bucket.chunks, &to.counts));
    TF_RETURN_IF_ERROR(launcher.Allocate(packs * bucket.chunks, &to.sums));
    TF_RETURN_IF_ERROR(launcher.Allocate(packs * bucket.entries, &to.sent));
    to.words = static_cast<terngrad_gpu::uint32*>(words->data());
    to.floor = floor_;
    const int64_t chunks = bucket.chunks;
    if (bucket.is_small) {
      return launcher.Launch(Function::kSelectAll, bucket.vectors, table, to);
    }
    TF_RETURN_IF_ERROR(
        launcher.Launch(Function::kSelectSample, bucket.vectors, table, to));
    TF_RETURN_IF_ERROR(
        launcher.Launch(Function::kSelectCandidates, chunks, table, to));
    for (const int digit : {1, 2}) {
      TF_RETURN_IF_ERROR(
          launcher.Launch(Function::kSelectDigit, chunks, table, to, digit));
    }
    TF_RETURN_IF_ERROR(
        launcher.Launch(Function::kSelectCount, chunks, table, to));
    TF_RETURN_IF_ERROR(
        launcher.Launch(Function::kSelectWrite, chunks, table, to));
    return launcher.Launch(Function::kSelectPack, packs * chunks, table, to);
  }

  std::vector<int64_t> sizes_;
  int64_t num_words_;
  int32_t floor_;
};

class AddElements : public Sparse {
 public:
  explicit AddElements(OpKernelConstruction* context) : Sparse(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    std::vector<int64_t> sizes;
    for (const TensorShape& shape : shapes_) {
      sizes.push_back(shape.num_elements());
    }
    OP_REQUIRES_OK(context, CheckNumbers(sizes));
  }

  void Compute(OpKernelContext* context) override {
    Launcher launcher(context);
    std::vector<const float*> data;
    std::vector<int64_t> sizes;
    OP_REQUIRES_OK(context,
                   launcher.AllocateOutputs("sums", shapes_, &data, &sizes));
    const SparseBucket bucket(kind_, data, sizes, numbers_);
    std::vector<const int32_t*> rows;
    OP_REQUIRES_OK(context, ReadPayloads(context, bucket.words, &rows));
    if (bucket.vectors) {
      OP_REQUIRES_OK(context, Add(&launcher, bucket, rows));
    }
  }

 private:
  absl::Status Add(Launcher* launcher, const SparseBucket& bucket,
                   const std::vector<const int32_t*>& rows) const {
    terngrad_gpu::SparseVariables table;
    TF_RETURN_IF_ERROR(launcher->MakeTable(bucket, &table));
    terngrad_gpu::Payloads payloads;
    TF_RETURN_IF_ERROR(launcher->MakeTable(rows, &payloads));
    const bool packed = kind_ == terngrad_gpu::kSignedIndices;
    const int64_t count = packed ? rows.size() : 0;
    terngrad_gpu::Adding with = {};
    with.entries = bucket.entries;
    with.pieces = 2 * bucket.chunks;
    with.scale = scale_;
    TF_RETURN_IF_ERROR(launcher->Allocate(count * with.pieces, &with.ones));
    TF_RETURN_IF_ERROR(launcher->Allocate(count * with.entries, &with.indices));
    TF_RETURN_IF_ERROR(launcher->Allocate(bucket.chunks, &with.disorder));
    if (bucket.is_small) {
      return launcher->Launch(Function::kAddAll, bucket.vectors, table,
                              payloads, with);
    }
    for (const Function function : {Function::kAddCount, Function::kAddUnpack,
                                    Function::kAddCheck,
                                    Function::kAddElements}) {
      const bool unpacks =
          function == Function::kAddCount || function == Function::kAddUnpack;
      if (unpacks && !packed) continue;
      TF_RETURN_IF_ERROR(
          launcher->Launch(function, bucket.chunks, table, payloads, with));
    }
    return absl::OkStatus();
  }

  std::vector<TensorShape> shapes_;
  float scale_;
};

REGISTER_OP("TerngradGpuEncodeElements")
    .Input("gradients: N * float")
    .Output("words: T")
    .Attr("T: {int32, float} = DT_INT32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("numbers: list(int) >= 1")
    .Attr("num_words: int >= 0")
    .Attr("kind: int")
    .Attr("above: float")
    .SetShapeFn(WordsShape);

REGISTER_OP("TerngradGpuAddElements")
    .Input("parts: M * T")
    .Output("sums: V * float")
    .Attr("T: {int32, float}")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("numbers: list(int) >= 1")
    .Attr("scale: float")
    .Attr("kind: int")
    .SetShapeFn(ListedShapes);

TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuEncodeElements", EncodeElements);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuAddElements", AddElements);

}  // namespace
}  // namespace terngrad
