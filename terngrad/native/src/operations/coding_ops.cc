// The operations that compute statistics of gradients and encode them.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels.h"
#include "ops_common.h"
#include "tensorflow/core/framework/op.h"

// Read from the file before loading, because a library that was built for
// another version must not be loaded.
extern "C" __attribute__((used, visibility("default")))
const char terngrad_built_for[] =
    "terngrad-native-built-for-tensorflow-" TERNGRAD_TF_VERSION ";";

namespace terngrad {
namespace {


class Statistics : public Kernel {
 public:
  explicit Statistics(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("clip_factor", &clip_factor_));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const int64_t count = gradients.size();
    // Block b belongs to the variable i with first[i] <= b < first[i + 1].
    std::vector<int64_t> first(count + 1, 0);
    for (int64_t i = 0; i < count; ++i) {
      first[i + 1] = first[i] + (gradients[i].NumElements() +
                                 kStatisticsBlock - 1) / kStatisticsBlock;
    }
    std::vector<const float*> data(count);
    for (int64_t i = 0; i < count; ++i) {
      data[i] = gradients[i].flat<float>().data();
    }
    std::vector<Partial> partials(first[count]);
    const Kernels* const kernels = Best();
    SpreadOver(context, first[count], 1, kStatisticsBlock,
           [&](int64_t begin, int64_t end) {
             int64_t i = std::upper_bound(first.begin(), first.end(), begin) -
                         first.begin() - 1;
             for (int64_t block = begin; block < end; ++block) {
               while (block >= first[i + 1]) ++i;
               const int64_t from = (block - first[i]) * kStatisticsBlock;
               partials[block] = kernels->statistics(
                   data[i] + from,
                   std::min(kStatisticsBlock,
                            gradients[i].NumElements() - from));
             }
           });
    Tensor* stddev = nullptr;
    Tensor* max_abs = nullptr;
    Tensor* clipped = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({count}), &stddev));
    OP_REQUIRES_OK(context, context->allocate_output(
                                1, TensorShape({count}), &max_abs));
    OP_REQUIRES_OK(context, context->allocate_output(
                                2, TensorShape({count}), &clipped));
    for (int64_t i = 0; i < count; ++i) {
      FinishStatistics(partials.data() + first[i], first[i + 1] - first[i],
                       gradients[i].NumElements(), &stddev->vec<float>()(i),
                       &max_abs->vec<float>()(i));
      clipped->vec<float>()(i) = Clipped(
          stddev->vec<float>()(i), max_abs->vec<float>()(i), clip_factor_);
    }
  }

 private:
  float clip_factor_;
};

class Encode : public Kernel {
 public:
  explicit Encode(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadDigits(context, &digits_));
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(context, context->GetAttr("clips", &clips_));
    OP_REQUIRES_OK(context, context->GetAttr("stratified", &stratified_));
    for (const int64_t size : sizes_) {
      OP_REQUIRES(context, size >= 0,
                  InvalidArgument("sizes: expected >= 0, received ", size));
      total_ += size;
    }
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const Tensor& limits = context->input(gradients.size());
    const Tensor& scalers = context->input(gradients.size() + 1);
    const Tensor& key = context->input(gradients.size() + 2);
    const int64_t count = sizes_.size();
    OP_REQUIRES(context, limits.NumElements() == count &&
                             scalers.NumElements() == count,
                InvalidArgument("limits and scalers: expected ", count,
                                " of each, received ", limits.NumElements(),
                                " and ", scalers.NumElements()));
    const bool has_stratum = key.NumElements() == 3;
    OP_REQUIRES(context, has_stratum || key.NumElements() == 2,
                InvalidArgument("key: expected 2 or 3 numbers, received ",
                                key.NumElements()));
    std::vector<Source> sources(count);
    if (gradients.size() == 1) {
      OP_REQUIRES(context, gradients[0].NumElements() == total_,
                  InvalidArgument("gradients: expected ", total_,
                                  " elements in all, received ",
                                  gradients[0].NumElements()));
    } else {
      OP_REQUIRES(context, gradients.size() == count,
                  InvalidArgument("gradients: expected ", count,
                                  " tensors, received ", gradients.size()));
    }
    const float* next = gradients[0].flat<float>().data();
    for (int64_t i = 0; i < count; ++i) {
      if (gradients.size() > 1) {
        OP_REQUIRES(context, gradients[i].NumElements() == sizes_[i],
                    InvalidArgument("gradient ", i, ": expected ", sizes_[i],
                                    " elements, received ",
                                    gradients[i].NumElements()));
        next = gradients[i].flat<float>().data();
      }
      sources[i] = {next, sizes_[i],
                    clips_ ? limits.flat<float>()(i)
                           : std::numeric_limits<float>::infinity(),
                    Factor(scalers.flat<float>()(i))};
      next += sizes_[i];
    }
    const int64_t num_words = NumWords(total_, digits_);
    Tensor* words = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({num_words}), &words));
    int32_t* const out = words->flat<int32_t>().data();
    const Key keys = {key.flat<uint32_t>()(0), key.flat<uint32_t>()(1),
                      stratified_, has_stratum ? key.flat<uint32_t>()(2) : 0};
    const Kernels* const kernels = Best();
    SpreadOver(context, num_words, kBlockWords, digits_.places,
           [&](int64_t begin, int64_t end) {
             kernels->encode(sources.data(), count, digits_, keys, num_words,
                             begin, end, out);
           });
  }

 private:
  Digits digits_;
  std::vector<int64_t> sizes_;
  bool clips_;
  bool stratified_;
  int64_t total_ = 0;
};

REGISTER_OP("TerngradStatistics")
    .Input("gradients: N * float")
    .Output("stddev: float")
    .Output("max_abs: float")
    .Output("clipped: float")
    .Attr("N: int >= 1")
    .Attr("clip_factor: float")
    .SetShapeFn(NumbersShape);

REGISTER_OP("TerngradEncode")
    .Input("gradients: N * float")
    .Input("limits: float")
    .Input("scalers: float")
    .Input("key: uint32")
    .Output("words: int32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("clips: bool")
    .Attr("stratified: bool")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetShapeFn(DigitsShape);

REGISTER_KERNEL_BUILDER(
    Name("TerngradStatistics").Device(tensorflow::DEVICE_CPU), Statistics);
REGISTER_KERNEL_BUILDER(
    Name("TerngradEncode").Device(tensorflow::DEVICE_CPU), Encode);

}  // namespace
}  // namespace terngrad
