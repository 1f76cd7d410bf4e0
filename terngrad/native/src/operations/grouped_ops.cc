// The operations of codes of groups of elements, and norms.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels.h"
#include "ops_common.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace terngrad {
namespace {

using tensorflow::OpOutputList;

// The extent of a variable, or of one group.
Extent ExtentOf(OpKernelContext* context, const float* data, int64_t size,
                const GroupCode& code) {
  const int64_t blocks = (size + kExtentBlock - 1) / kExtentBlock;
  std::vector<Extent> extents(blocks);
  const Kernels* const kernels = Best();
  SpreadOver(context, blocks, 1, kExtentBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t from = block * kExtentBlock;
      extents[block] = kernels->extent(
          data + from, std::min(kExtentBlock, size - from), code);
    }
  });
  return Joined(extents.data(), blocks);
}

class Norms : public Kernel {
 public:
  using Kernel::Kernel;

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    Tensor* norms = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({gradients.size()}), &norms));
    const GroupCode code = {GroupKind::kSteps, true, 1, 3, 20, 1};
    for (int i = 0; i < gradients.size(); ++i) {
      const int64_t size = gradients[i].NumElements();
      const double squares =
          size ? ExtentOf(context, gradients[i].flat<float>().data(), size,
                          code)
                     .sum
               : 0.0;
      constexpr double kMost = std::numeric_limits<float>::max();
      norms->vec<float>()(i) =
          std::isfinite(squares)
              ? static_cast<float>(std::min(std::sqrt(squares), kMost))
              : std::numeric_limits<float>::quiet_NaN();
    }
  }
};

// The base class of operations of codes of groups.
class Grouped : public Kernel {
 public:
  explicit Grouped(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadGroupCode(context, &code_, &group_size_));
  }

 protected:
  // The code of a variable of `size` elements, at least one.
  GroupCode CodeOf(int64_t size) const {
    GroupCode code = code_;
    code.size = group_size_ ? std::min(group_size_, size) : size;
    return code;
  }

  int64_t NumScales(int64_t size) const {
    const GroupCode code = CodeOf(size);
    return code.num_scales() * code.num_groups(size);
  }

  int64_t NumCodes(int64_t size) const {
    return (size + code_.places - 1) / code_.places;
  }

  int64_t NumWords(int64_t size) const {
    return size ? NumScales(size) + NumCodes(size) : 0;
  }

 private:
  GroupCode code_;
  int64_t group_size_;
};

class EncodeGroups : public Grouped {
 public:
  explicit EncodeGroups(OpKernelConstruction* context) : Grouped(context) {
    if (!context->status().ok()) return;  // The code is not set.
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    for (const int64_t size : sizes_) {
      OP_REQUIRES(context, size >= 0,
                  InvalidArgument("sizes: expected >= 0, received ", size));
      num_words_ += NumWords(size);
    }
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const Tensor* key;
    OP_REQUIRES_OK(context, ReadKey(context, &key));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    Tensor* words = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({num_words_}), &words));
    int32_t* out = words->flat<int32_t>().data();
    const auto numbers = key->flat<uint32_t>();
    Key keys = {numbers(0), numbers(1), false, 0};
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (!sizes_[i]) continue;
      EncodeOne(context, data[i], sizes_[i], keys, out);
      out += NumWords(sizes_[i]);
      keys.first += static_cast<uint32_t>(sizes_[i]);
    }
  }

 private:
  void EncodeOne(OpKernelContext* context, const float* data, int64_t size,
                 Key key, int32_t* out) const {
    const GroupCode code = CodeOf(size);
    float* const scales = reinterpret_cast<float*>(out);
    const int64_t groups = code.num_groups(size);
    const bool measures = code.size <= kGroupWords && groups > 1;
    if (!measures) {
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t from = g * code.size;
        const int64_t length = std::min(code.size, size - from);
        float own[2];
        FinishScales(ExtentOf(context, data + from, length, code), code, length,
                     own);
        for (int k = 0; k < code.num_scales(); ++k) {
          scales[k * groups + g] = own[k];
        }
      }
    }
    const int64_t num_words = NumCodes(size);
    SpreadOver(context, num_words, kGroupWords, code.places,
               [&](int64_t begin, int64_t end) {
                 Best()->encode_groups(data, size, code, key, measures, scales,
                                       num_words, begin, end,
                                       out + NumScales(size));
               });
  }

  std::vector<int64_t> sizes_;
  int64_t num_words_ = 0;
};

class DecodeGroups : public Grouped {
 public:
  explicit DecodeGroups(OpKernelConstruction* context) : Grouped(context) {
    if (!context->status().ok()) return;  // The code is not set.
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    for (const TensorShape& shape : shapes_) {
      num_words_ += NumWords(shape.num_elements());
    }
  }

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> payloads;
    OP_REQUIRES_OK(context, ReadPayloads(context, num_words_, &payloads));
    OpOutputList sums;
    OP_REQUIRES_OK(context, context->output_list("sums", &sums));
    for (size_t i = 0; i < shapes_.size(); ++i) {
      Tensor* sum = nullptr;
      OP_REQUIRES_OK(context, sums.allocate(i, shapes_[i], &sum));
      const int64_t size = sum->NumElements();
      if (!size) continue;
      const GroupCode code = CodeOf(size);
      const int64_t num_words = NumCodes(size);
      SpreadOver(context, num_words, kGroupWords,
                 code.places * payloads.size(),
                 [&](int64_t begin, int64_t end) {
                   Best()->decode_groups(payloads.data(), payloads.size(),
                                         code, scale_, num_words, begin, end,
                                         sum->flat<float>().data(), size);
                 });
      for (const int32_t*& payload : payloads) payload += NumWords(size);
    }
  }

 private:
  std::vector<TensorShape> shapes_;
  float scale_;
  int64_t num_words_ = 0;
};

REGISTER_OP("TerngradNorms")
    .Input("gradients: N * float")
    .Output("norms: float")
    .Attr("N: int >= 1")
    .SetShapeFn(NumbersShape);

REGISTER_OP("TerngradEncodeGroups")
    .Input("gradients: N * float")
    .Input("key: uint32")
    .Output("words: int32")
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

REGISTER_OP("TerngradDecodeGroups")
    .Input("parts: M * int32")
    .Output("sums: V * float")
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

REGISTER_KERNEL_BUILDER(Name("TerngradNorms").Device(tensorflow::DEVICE_CPU),
                        Norms);
REGISTER_KERNEL_BUILDER(
    Name("TerngradEncodeGroups").Device(tensorflow::DEVICE_CPU), EncodeGroups);
REGISTER_KERNEL_BUILDER(
    Name("TerngradDecodeGroups").Device(tensorflow::DEVICE_CPU), DecodeGroups);

}  // namespace
}  // namespace terngrad
