// The operations of coding_ops.cc and decoding_ops.cc for GPUs.
//
// Words are int32 or float32 of the same bits, because TensorFlow keeps int32
// of most other operations in the host's memory.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "gpu_common.h"
#include "tensorflow/core/framework/op.h"

namespace terngrad {
namespace {

using terngrad_gpu::CeilDivide;
using terngrad_gpu::Function;
using terngrad_gpu::kThreads;

class Statistics : public Kernel {
 public:
  explicit Statistics(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("clip_factor", &clip_factor_));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const int64_t count = gradients.size();
    std::vector<const float*> data;
    std::vector<int64_t> sizes;
    for (const Tensor& gradient : gradients) {
      data.push_back(gradient.flat<float>().data());
      sizes.push_back(gradient.NumElements());
    }
    float* outputs[4];
    for (int i = 0; i < 4; ++i) {
      Tensor* output = nullptr;
      OP_REQUIRES_OK(
          context, context->allocate_output(i, TensorShape({count}), &output));
      outputs[i] = output->flat<float>().data();
    }
    Launcher launcher(context);
    terngrad_gpu::Variables table;
    OP_REQUIRES_OK(context, launcher.MakeTable(
                                data, sizes,
                                terngrad_gpu::Unit::kStatisticsBlocks, &table));
    terngrad_gpu::Partial* partials = nullptr;
    OP_REQUIRES_OK(context, launcher.Allocate(table.total, &partials));
    Tensor held;
    int* ended = nullptr;
    OP_REQUIRES_OK(
        context,
        counters_.Get(context, terngrad_gpu::NumEnded(table), &held, &ended));
    const terngrad_gpu::StatisticsOutputs to = {
        outputs[0], outputs[1], outputs[2], outputs[3], clip_factor_};
    OP_REQUIRES_OK(context, launcher.Launch(Function::kStatistics,
                                            std::max<int64_t>(table.total, 1),
                                            table, partials, ended, to));
  }

 private:
  float clip_factor_;
  Counters counters_;
};

class Encode : public Kernel {
 public:
  explicit Encode(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadDigits(context, &digits_));
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes_));
    OP_REQUIRES_OK(context, context->GetAttr("clips", &clips_));
    OP_REQUIRES_OK(context, context->GetAttr("stratified", &stratified_));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    std::vector<const float*> data;
    OP_REQUIRES_OK(context, ReadVariables(gradients, sizes_, &data));
    const int64_t count = sizes_.size();
    const float* limits;
    const float* scalers;
    OP_REQUIRES_OK(context, ReadNumbers(context, "limits", count, &limits));
    OP_REQUIRES_OK(context, ReadNumbers(context, "scalers", count, &scalers));
    if (!clips_) limits = nullptr;
    terngrad_gpu::Key key;
    OP_REQUIRES_OK(context, ReadKey(context, &key));
    Launcher launcher(context);
    terngrad_gpu::Variables table;
    OP_REQUIRES_OK(
        context, launcher.MakeTable(data, sizes_, terngrad_gpu::Unit::kElements,
                                    &table));
    const int64_t num_words = NumWords(table.total, digits_);
    Tensor* words = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(0, TensorShape({num_words}), &words));
    const terngrad_gpu::Coding coding = {digits_.radix, digits_.places,
                                         stratified_, num_words};
    const void* const out = words->data();
    OP_REQUIRES_OK(
        context, launcher.Launch(Function::kTernaryEncode,
                                 CeilDivide(num_words, kThreads), table, limits,
                                 scalers, key, coding, out));
  }

 protected:
  Digits digits_;
  std::vector<int64_t> sizes_;
  bool clips_;
  bool stratified_;
};

class Requantize : public Encode {
 public:
  explicit Requantize(OpKernelConstruction* context) : Encode(context) {
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, ReadDecodedDigits(context, &is_base3_));
    for (const int64_t size : sizes_) total_ += size;
  }

  void Compute(OpKernelContext* context) override {
    const Tensor* words;
    OP_REQUIRES_OK(context, context->input("words", &words));
    const int64_t num_words = NumWords(total_, digits_);
    OP_REQUIRES(context, words->NumElements() == num_words,
                InvalidArgument("words: expected ", num_words, ", received ",
                                words->NumElements()));
    const int64_t count = sizes_.size();
    const float *own, *scalers;
    OP_REQUIRES_OK(context, ReadNumbers(context, "own", count, &own));
    OP_REQUIRES_OK(context, ReadNumbers(context, "scalers", count, &scalers));
    terngrad_gpu::Key key;
    OP_REQUIRES_OK(context, ReadKey(context, &key));
    Tensor* changed = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({num_words}), &changed));
    // Elements are not read, but the table has their sizes.
    const std::vector<const float*> data(count, nullptr);
    Launcher launcher(context);
    terngrad_gpu::Variables table;
    OP_REQUIRES_OK(
        context, launcher.MakeTable(data, sizes_, terngrad_gpu::Unit::kElements,
                                    &table));
    const terngrad_gpu::Coding coding = {digits_.radix, digits_.places,
                                         stratified_, num_words};
    const int clips = clips_;
    const void* const from = words->data();
    const void* const to = changed->data();
    OP_REQUIRES_OK(context,
                   launcher.Launch(is_base3_ ? Function::kRequantizeBase3
                                             : Function::kRequantizeTwoBit,
                                   CeilDivide(num_words, kThreads), table, own,
                                   clips, scalers, key, coding, from, to));
  }

 private:
  bool is_base3_;
  int64_t total_ = 0;
};

// The base class of operations with the output shapes and the scale in
// attributes, and a scaler for each output.
class Decoding : public Kernel {
 public:
  explicit Decoding(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    for (const TensorShape& shape : shapes_) total_ += shape.num_elements();
  }

 protected:
  std::vector<TensorShape> shapes_;
  float scale_;
  int64_t total_ = 0;
};

class DecodeSum : public Decoding {
 public:
  explicit DecodeSum(OpKernelConstruction* context) : Decoding(context) {
    Digits digits;
    OP_REQUIRES_OK(context, ReadDigits(context, &digits));
    OP_REQUIRES_OK(context, ReadDecodedDigits(context, &is_base3_));
    num_words_ = NumWords(total_, digits);
  }

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> data;
    OP_REQUIRES_OK(context, ReadPayloads(context, num_words_, &data));
    const float* scalers;
    OP_REQUIRES_OK(context,
                   ReadNumbers(context, "scalers", shapes_.size(), &scalers));
    Launcher launcher(context);
    terngrad_gpu::Variables table;
    OP_REQUIRES_OK(context, launcher.MakeOutputs("sums", shapes_, &table));
    terngrad_gpu::Payloads payloads;
    OP_REQUIRES_OK(context, launcher.MakeTable(data, &payloads));
    const terngrad_gpu::int64 num_words = num_words_;
    OP_REQUIRES_OK(context,
                   launcher.Launch(is_base3_ ? Function::kTernaryDecodeBase3
                                             : Function::kTernaryDecodeTwoBit,
                                   CeilDivide(num_words_, kThreads), table,
                                   payloads, scalers, scale_, num_words));
  }

 private:
  bool is_base3_;
  int64_t num_words_;
};

class ScaleSums : public Decoding {
 public:
  explicit ScaleSums(OpKernelConstruction* context) : Decoding(context) {
    tensorflow::DataType type;
    OP_REQUIRES_OK(context, context->GetAttr("T", &type));
    function_ = type == tensorflow::DT_INT8    ? Function::kScaleInt8
                : type == tensorflow::DT_INT32 ? Function::kScaleInt32
                                               : Function::kScaleFloat;
  }

  void Compute(OpKernelContext* context) override {
    const Tensor* sums;
    OP_REQUIRES_OK(context, context->input("sums", &sums));
    OP_REQUIRES(
        context, sums->dims() == 1 && sums->NumElements() >= total_,
        InvalidArgument("sums: expected a vector of ", total_,
                        " or more, received ", sums->shape().DebugString()));
    const float* scalers;
    OP_REQUIRES_OK(context,
                   ReadNumbers(context, "scalers", shapes_.size(), &scalers));
    Launcher launcher(context);
    terngrad_gpu::Variables table;
    OP_REQUIRES_OK(context, launcher.MakeOutputs("gradients", shapes_, &table));
    const void* const data = sums->data();
    OP_REQUIRES_OK(
        context,
        launcher.Launch(function_,
                        CeilDivide(total_, kThreads * terngrad_gpu::kScaled),
                        table, data, scalers, scale_));
  }

 private:
  Function function_;
};

REGISTER_OP("TerngradGpuStatistics")
    .Input("gradients: N * float")
    .Output("stddev: float")
    .Output("max_abs: float")
    .Output("clipped: float")
    .Output("norms: float")
    .Attr("N: int >= 1")
    .Attr("clip_factor: float")
    .SetShapeFn(NumbersShape);

REGISTER_OP("TerngradGpuEncode")
    .Input("gradients: N * float")
    .Input("limits: float")
    .Input("scalers: float")
    .Input("key: uint32")
    .Output("words: T")
    .Attr("T: {int32, float} = DT_INT32")
    .Attr("N: int >= 1")
    .Attr("sizes: list(int) >= 1")
    .Attr("clips: bool")
    .Attr("stratified: bool")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetShapeFn(DigitsShape);

REGISTER_OP("TerngradGpuRequantize")
    .Input("words: T")
    .Input("own: float")
    .Input("scalers: float")
    .Input("key: uint32")
    .Output("changed: T")
    .Attr("T: {int32, float}")
    .Attr("sizes: list(int) >= 1")
    .Attr("clips: bool")
    .Attr("stratified: bool")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetShapeFn(DigitsShape);

REGISTER_OP("TerngradGpuDecodeSum")
    .Input("parts: M * T")
    .Input("scalers: float")
    .Output("sums: V * float")
    .Attr("T: {int32, float}")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetShapeFn(ListedShapes);

REGISTER_OP("TerngradGpuScaleSums")
    .Input("sums: T")
    .Input("scalers: float")
    .Output("gradients: V * float")
    .Attr("T: {int8, int32, float}")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .SetShapeFn(ListedShapes);

TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuStatistics", Statistics);
TERNGRAD_REGISTER_GPU_ENCODER("TerngradGpuEncode", Encode);
TERNGRAD_REGISTER_GPU_ENCODER("TerngradGpuRequantize", Requantize);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuDecodeSum", DecodeSum);
TERNGRAD_REGISTER_GPU_KERNEL("TerngradGpuScaleSums", ScaleSums);

}  // namespace
}  // namespace terngrad
