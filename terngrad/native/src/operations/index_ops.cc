// The operations that pack and unpack the indices of few elements, in the
// format of terngrad/codec/methods/sparse/elias_fano.py.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "index_layout.h"
#include "kernels.h"
#include "ops_common.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace terngrad {
namespace {

using tensorflow::shape_inference::InferenceContext;

class Indices : public Kernel {
 public:
  explicit Indices(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("number", &number_));
    OP_REQUIRES_OK(context, context->GetAttr("num_elements", &num_elements_));
    OP_REQUIRES(context, 1 <= number_ && number_ <= num_elements_ &&
                             num_elements_ <= INT32_MAX,
                InvalidArgument("expected 1 <= number <= num_elements < 2^31, ",
                                "received ", number_, " and ", num_elements_));
  }

 protected:
  Layout layout() const { return Layout(number_, num_elements_); }

 private:
  int64_t number_;
  int64_t num_elements_;
};

class PackIndices : public Indices {
 public:
  using Indices::Indices;

  void Compute(OpKernelContext* context) override {
    const Layout to = layout();
    const Tensor& input = context->input(0);
    OP_REQUIRES(context, input.NumElements() == to.number,
                InvalidArgument("indices: expected ", to.number, ", received ",
                                input.NumElements()));
    const int32_t* const indices = input.flat<int32_t>().data();
    bool rising = indices[0] >= 0 && indices[to.number - 1] < to.num_elements;
    for (int64_t i = 1; i < to.number; ++i) {
      rising = rising && indices[i - 1] < indices[i];
    }
    OP_REQUIRES(context, rising,
                InvalidArgument("indices: expected distinct ones in rising ",
                                "order from 0 to ", to.num_elements - 1,
                                ", received others"));
    Tensor* words = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({to.num_words()}), &words));
    int32_t* out = words->flat<int32_t>().data();
    std::fill_n(out, to.num_words(), 0);
    const int64_t width = to.plane_words();
    for (int bit = 0; bit < to.low_bits; ++bit, out += width) {
      for (int64_t i = 0, place = 0; i < to.number; ++place) {
        for (int64_t j = 0; j < width && i < to.number; ++j, ++i) {
          out[j] |= static_cast<int32_t>(
              static_cast<uint32_t>((indices[i] >> bit) & 1) << place);
        }
      }
    }
    const int64_t string_width = to.string_words();
    for (int64_t i = 0; i < to.number; ++i) {
      const int64_t at = (indices[i] >> to.low_bits) + i;
      out[at % string_width] |=
          static_cast<int32_t>(uint32_t{1} << (at / string_width));
    }
  }
};

class UnpackIndices : public Indices {
 public:
  using Indices::Indices;

  void Compute(OpKernelContext* context) override {
    const Layout from = layout();
    const Tensor& input = context->input(0);
    OP_REQUIRES(context, input.NumElements() == from.num_words(),
                InvalidArgument("words: expected ", from.num_words(),
                                ", received ", input.NumElements()));
    const int32_t* const words = input.flat<int32_t>().data();
    Tensor* indices = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({from.number}), &indices));
    int32_t* const out = indices->flat<int32_t>().data();
    const std::vector<int32_t> ones =
        Ones(words + from.low_bits * from.plane_words(), from);
    // Corrupted words give arbitrary indices, which may be too large.
    const int32_t most =
        static_cast<int32_t>(from.num_elements >> from.low_bits) + 1;
    for (int64_t i = 0; i < from.number; ++i) {
      const int32_t high = std::min(ones[i] - static_cast<int32_t>(i), most);
      out[i] = static_cast<int32_t>(static_cast<uint32_t>(high)
                                    << from.low_bits);
    }
    const int64_t width = from.plane_words();
    for (int bit = 0; bit < from.low_bits; ++bit) {
      const int32_t* const plane = words + bit * width;
      for (int64_t i = 0, place = 0; i < from.number; ++place) {
        for (int64_t j = 0; j < width && i < from.number; ++j, ++i) {
          out[i] |= ((plane[j] >> place) & 1) << bit;
        }
      }
    }
  }

 private:
  // The positions of the string's first ones; past its end if it has too few.
  static std::vector<int32_t> Ones(const int32_t* words, const Layout& from) {
    const int64_t width = from.string_words();
    const int64_t bits = from.string_bits();
    std::vector<int32_t> ones(from.number + 1,
                              static_cast<int32_t>(bits + from.number));
    int64_t rank = 0;
    for (int64_t at = 0, place = 0; at < bits; ++place) {
      for (int64_t j = 0; j < width && at < bits; ++j, ++at) {
        const int64_t bit = (words[j] >> place) & 1;
        // Without a branch, which would often be mispredicted.
        ones[rank] = bit ? static_cast<int32_t>(at) : ones[rank];
        rank = std::min(rank + bit, from.number);
      }
    }
    return ones;
  }
};

absl::Status PackedShape(InferenceContext* context) {
  int32_t number, num_elements;
  TF_RETURN_IF_ERROR(context->GetAttr("number", &number));
  TF_RETURN_IF_ERROR(context->GetAttr("num_elements", &num_elements));
  if (number < 1) {
    return InvalidArgument("number: expected 1 or more, received ", number);
  }
  context->set_output(
      0, context->Vector(Layout(number, num_elements).num_words()));
  return absl::OkStatus();
}

absl::Status UnpackedShape(InferenceContext* context) {
  int32_t number;
  TF_RETURN_IF_ERROR(context->GetAttr("number", &number));
  context->set_output(0, context->Vector(number));
  return absl::OkStatus();
}

REGISTER_OP("TerngradPackIndices")
    .Input("indices: int32")
    .Output("words: int32")
    .Attr("number: int >= 1")
    .Attr("num_elements: int >= 1")
    .SetShapeFn(PackedShape);

REGISTER_OP("TerngradUnpackIndices")
    .Input("words: int32")
    .Output("indices: int32")
    .Attr("number: int >= 1")
    .Attr("num_elements: int >= 1")
    .SetShapeFn(UnpackedShape);

REGISTER_KERNEL_BUILDER(
    Name("TerngradPackIndices").Device(tensorflow::DEVICE_CPU), PackIndices);
REGISTER_KERNEL_BUILDER(
    Name("TerngradUnpackIndices").Device(tensorflow::DEVICE_CPU),
    UnpackIndices);

}  // namespace
}  // namespace terngrad
