// The TensorFlow operations around the kernels: they check, allocate and spread
// the work over TensorFlow's own threads. terngrad/native/ops.py has their
// documentation.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels.h"
#include "spread.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"

// Read from the file before it is loaded: a library that was built against
// another version must not be.
extern "C" __attribute__((used, visibility("default")))
const char terngrad_built_for[] =
    "terngrad-native-built-for-tensorflow-" TERNGRAD_TF_VERSION ";";

namespace terngrad {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

template <typename... Pieces>
absl::Status InvalidArgument(const Pieces&... pieces) {
  return absl::InvalidArgumentError(absl::StrCat(pieces...));
}

// Spreads [0, total) over TensorFlow's threads in ranges of whole blocks; an item
// is `elements` elements of work.
void SpreadOver(OpKernelContext* context, int64_t total, int64_t block,
                int64_t elements,
                const std::function<void(int64_t, int64_t)>& work) {
  const auto& threads = *context->device()->tensorflow_cpu_worker_threads();
  // Waking a thread costs about as much as so many elements. Several ranges a
  // thread, since threads start late and are taken away.
  constexpr int64_t kLeastElements = 32768;
  constexpr int64_t kRanges = 16;
  const int64_t size = std::max(total / (kRanges * threads.num_threads),
                                kLeastElements / elements + 1);
  Spread(total, (size + block - 1) / block * block, threads.num_threads,
         [&](std::function<void()> closure) {
           threads.workers->Schedule(std::move(closure));
         },
         work);
}

absl::Status ReadDigits(OpKernelConstruction* context, Digits* digits) {
  TF_RETURN_IF_ERROR(context->GetAttr("radix", &digits->radix));
  TF_RETURN_IF_ERROR(context->GetAttr("places", &digits->places));
  uint64_t largest = 1;
  bool fits = digits->radix >= 3 && digits->places >= 1;
  for (int place = 0; fits && place < digits->places; ++place) {
    largest *= static_cast<uint64_t>(digits->radix);
    fits = largest <= uint64_t{1} << 32;
  }
  if (!fits) {
    return InvalidArgument("expected places >= 1 of a radix >= 3 that fit in ",
                           "32 bits, received radix ", digits->radix,
                           " and places ", digits->places);
  }
  return absl::OkStatus();
}

int64_t NumWords(int64_t num_elements, const Digits& digits) {
  return (num_elements + digits.places - 1) / digits.places;
}

// TensorFlow hands an expensive operation to another thread. These spread over
// threads themselves, so the one that reaches them runs them.
class Kernel : public OpKernel {
 public:
  using OpKernel::OpKernel;

  bool IsExpensive() override { return false; }
};

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

// What operations that decode payloads have in common.
class Decoding : public Kernel {
 public:
  explicit Decoding(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadDigits(context, &digits_));
    OP_REQUIRES(context,
                (digits_.radix == 3 && digits_.places == 20) ||
                    (digits_.radix == 4 && digits_.places == 16),
                InvalidArgument("expected radix 3 with 20 places or 4 with 16, "
                                "received radix ", digits_.radix,
                                " and places ", digits_.places));
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    int64_t total = 0;
    for (const TensorShape& shape : shapes_) total += shape.num_elements();
    num_words_ = NumWords(total, digits_);
  }

 protected:
  // The payloads of all workers, `words` of each, in their order, and the
  // scalers.
  absl::Status Read(OpKernelContext* context, int64_t words,
                    std::vector<const int32_t*>* payloads,
                    const float** scalers) {
    OpInputList parts;
    TF_RETURN_IF_ERROR(context->input_list("parts", &parts));
    const Tensor* numbers;
    TF_RETURN_IF_ERROR(context->input("scalers", &numbers));
    const int64_t count = shapes_.size();
    if (numbers->NumElements() != count) {
      return InvalidArgument("scalers: expected ", count, ", received ",
                             numbers->NumElements());
    }
    *scalers = numbers->flat<float>().data();
    for (int64_t row = 0, more = 1; more; ++row) {
      more = 0;
      for (const Tensor& part : parts) {
        if (part.dims() != 2 || part.dim_size(1) != words) {
          return InvalidArgument("parts: expected shapes [n, ", words,
                                 "], received ", part.shape().DebugString());
        }
        if (row < part.dim_size(0)) {
          payloads->push_back(part.flat<int32_t>().data() + row * words);
          more = 1;
        }
      }
    }
    const int64_t num_payloads = payloads->size();
    if (num_payloads < 1 || num_payloads > kMaxPayloads) {
      return InvalidArgument("parts: expected 1 to ", kMaxPayloads,
                             " payloads, received ", num_payloads);
    }
    return absl::OkStatus();
  }

  Digits digits_;
  std::vector<TensorShape> shapes_;
  float scale_;
  int64_t num_words_;
};

class DecodeSum : public Decoding {
 public:
  using Decoding::Decoding;

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> payloads;
    const float* scalers;
    OP_REQUIRES_OK(context, Read(context, num_words_, &payloads, &scalers));
    OpOutputList sums;
    OP_REQUIRES_OK(context, context->output_list("sums", &sums));
    const int64_t count = shapes_.size();
    std::vector<Target> targets(count);
    for (int64_t i = 0; i < count; ++i) {
      Tensor* sum = nullptr;
      OP_REQUIRES_OK(context, sums.allocate(i, shapes_[i], &sum));
      targets[i] = {sum->flat<float>().data(), sum->NumElements(), scalers[i]};
    }
    const Kernels* const kernels = Best();
    SpreadOver(context, num_words_, kBlockWords,
               digits_.places * payloads.size(),
               [&](int64_t begin, int64_t end) {
                 kernels->decode_sum(payloads.data(), payloads.size(), digits_,
                                     scale_, num_words_, begin, end,
                                     targets.data(), count);
               });
  }
};

// Variables that are held while an operation writes them.
class Variables {
 public:
  // Takes hold of the variables that are `context`'s inputs of these names.
  absl::Status Lock(OpKernelContext* context,
                    std::initializer_list<const char*> names) {
    for (const char* name : names) {
      OpInputList handles;
      TF_RETURN_IF_ERROR(context->input_list(name, &handles));
      for (const Tensor& handle : handles) {
        if (handle.NumElements() != 1) {
          return InvalidArgument(name, ": expected handles of a variable each");
        }
        tensorflow::core::RefCountPtr<tensorflow::Var> variable;
        TF_RETURN_IF_ERROR(tensorflow::LookupResource(
            context, handle.flat<tensorflow::ResourceHandle>()(0),
            &variable));
        variables_.push_back(std::move(variable));
      }
    }
    std::vector<tensorflow::mutex*> order;
    for (const auto& variable : variables_) order.push_back(variable->mu());
    std::sort(order.begin(), order.end());
    if (std::adjacent_find(order.begin(), order.end()) != order.end()) {
      return InvalidArgument("variables: expected each once, received one ",
                             "twice");
    }
    for (tensorflow::mutex* each : order) locks_.emplace_back(*each);
    return absl::OkStatus();
  }

  // Where to read variable `index` and where to write it: to new memory where
  // somebody still reads the old.
  absl::Status Open(OpKernelContext* context, int64_t index,
                    const TensorShape& shape, const float** from, float** to) {
    Tensor* const now = variables_[index]->tensor();
    if (!variables_[index]->is_initialized ||
        now->dtype() != tensorflow::DT_FLOAT || now->shape() != shape) {
      return InvalidArgument("variable ", index, ": expected float32 ",
                             shape.DebugString(), ", received ",
                             now->DebugString(0));
    }
    *from = now->flat<float>().data();
    if (now->RefCountIsOne()) {
      *to = now->flat<float>().data();
      return absl::OkStatus();
    }
    Tensor fresh;
    TF_RETURN_IF_ERROR(
        context->allocate_temp(tensorflow::DT_FLOAT, shape, &fresh));
    *to = fresh.flat<float>().data();
    fresh_.emplace_back(now, std::move(fresh));
    return absl::OkStatus();
  }

  // Makes what was written the variables' values.
  void Close() {
    for (auto& [variable, fresh] : fresh_) *variable = std::move(fresh);
  }

 private:
  // Before the locks, which must go first.
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<std::unique_lock<tensorflow::mutex>> locks_;
  std::vector<std::pair<Tensor*, Tensor>> fresh_;
};

class Descend : public Decoding {
 public:
  explicit Descend(OpKernelConstruction* context) : Decoding(context) {
    OP_REQUIRES_OK(context, context->GetAttr("momentum", &momentum_));
    OP_REQUIRES_OK(context, context->GetAttr("num_velocities", &velocities_));
    OP_REQUIRES_OK(context, context->GetAttr("num_averages", &averages_));
    OP_REQUIRES_OK(context, context->GetAttr("first", &first_));
    OP_REQUIRES_OK(context, context->GetAttr("count", &words_));
    OP_REQUIRES(context, first_ >= 0 && words_ >= 0 &&
                             words_ <= num_words_ - first_,
                InvalidArgument("piece: expected some of ", num_words_,
                                " words, received ", words_, " from ", first_,
                                " on"));
    int64_t variables;
    OP_REQUIRES_OK(context, context->GetAttr("V", &variables));
    const int64_t count = shapes_.size();
    OP_REQUIRES(context, variables == count,
                InvalidArgument("parameters: expected ", count, ", received ",
                                variables));
    for (const int64_t number : {velocities_, averages_}) {
      OP_REQUIRES(context, number == 0 || number == count,
                  InvalidArgument("velocities and averages: expected none or ",
                                  count, ", received ", number));
    }
  }

  void Compute(OpKernelContext* context) override {
    std::vector<const int32_t*> payloads;
    const float* scalers;
    OP_REQUIRES_OK(context, Read(context, words_, &payloads, &scalers));
    const Tensor* rate;
    const Tensor* decay;
    OP_REQUIRES_OK(context, context->input("learning_rate", &rate));
    OP_REQUIRES_OK(context, context->input("decay", &decay));
    OP_REQUIRES(context, rate->NumElements() == 1 && decay->NumElements() == 1,
                InvalidArgument("learning_rate and decay: expected scalars, ",
                                "received ", rate->shape().DebugString(),
                                " and ", decay->shape().DebugString()));
    const Rates rates = {rate->flat<float>()(0), momentum_,
                         decay->flat<float>()(0)};
    Variables variables;
    OP_REQUIRES_OK(context, variables.Lock(context, {"parameters", "velocities",
                                                     "averages"}));
    const int64_t count = shapes_.size();
    std::vector<Descent> descents(count);
    for (int64_t i = 0; i < count; ++i) {
      Descent& d = descents[i];
      const TensorShape& shape = shapes_[i];
      d = {};
      d.size = shape.num_elements();
      d.scaler = scalers[i];
      OP_REQUIRES_OK(context,
                     variables.Open(context, i, shape, &d.from, &d.to));
      if (velocities_) {
        OP_REQUIRES_OK(context,
                       variables.Open(context, count + i, shape,
                                      &d.old_velocity, &d.velocity));
      }
      if (averages_) {
        OP_REQUIRES_OK(context,
                       variables.Open(context, count + velocities_ + i, shape,
                                      &d.old_average, &d.average));
      }
    }
    const Kernels* const kernels = Best();
    SpreadOver(context, words_, kBlockWords, digits_.places * payloads.size(),
               [&](int64_t begin, int64_t end) {
                 kernels->descend(payloads.data(), payloads.size(), digits_,
                                  scale_, rates, num_words_, first_,
                                  first_ + begin, first_ + end,
                                  descents.data(), count);
               });
    variables.Close();
  }

 private:
  float momentum_;
  int64_t first_;
  int64_t words_;
  int64_t velocities_;
  int64_t averages_;
};

absl::Status StatisticsShape(InferenceContext* context) {
  int32_t count;
  TF_RETURN_IF_ERROR(context->GetAttr("N", &count));
  context->set_output(0, context->Vector(count));
  context->set_output(1, context->Vector(count));
  context->set_output(2, context->Vector(count));
  return absl::OkStatus();
}

absl::Status EncodeShape(InferenceContext* context) {
  std::vector<int64_t> sizes;
  int32_t places;
  TF_RETURN_IF_ERROR(context->GetAttr("sizes", &sizes));
  TF_RETURN_IF_ERROR(context->GetAttr("places", &places));
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  context->set_output(0, context->Vector(NumWords(total, {0, places})));
  return absl::OkStatus();
}

absl::Status DecodeSumShape(InferenceContext* context) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
  for (size_t i = 0; i < shapes.size(); ++i) {
    tensorflow::shape_inference::ShapeHandle shape;
    TF_RETURN_IF_ERROR(
        context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    context->set_output(i, shape);
  }
  return absl::OkStatus();
}

REGISTER_OP("TerngradStatistics")
    .Input("gradients: N * float")
    .Output("stddev: float")
    .Output("max_abs: float")
    .Output("clipped: float")
    .Attr("N: int >= 1")
    .Attr("clip_factor: float")
    .SetShapeFn(StatisticsShape);

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
    .SetShapeFn(EncodeShape);

REGISTER_OP("TerngradDecodeSum")
    .Input("parts: M * int32")
    .Input("scalers: float")
    .Output("sums: V * float")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetShapeFn(DecodeSumShape);

REGISTER_OP("TerngradDescend")
    .Input("parts: M * int32")
    .Input("scalers: float")
    .Input("parameters: V * resource")
    .Input("velocities: num_velocities * resource")
    .Input("averages: num_averages * resource")
    .Input("learning_rate: float")
    .Input("decay: float")
    .Attr("M: int >= 1")
    .Attr("V: int >= 1")
    .Attr("num_velocities: int >= 0")
    .Attr("num_averages: int >= 0")
    .Attr("first: int")
    .Attr("count: int")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .Attr("momentum: float")
    .Attr("radix: int")
    .Attr("places: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_KERNEL_BUILDER(
    Name("TerngradStatistics").Device(tensorflow::DEVICE_CPU), Statistics);
REGISTER_KERNEL_BUILDER(
    Name("TerngradEncode").Device(tensorflow::DEVICE_CPU), Encode);
REGISTER_KERNEL_BUILDER(
    Name("TerngradDecodeSum").Device(tensorflow::DEVICE_CPU), DecodeSum);
REGISTER_KERNEL_BUILDER(
    Name("TerngradDescend").Device(tensorflow::DEVICE_CPU), Descend);

}  // namespace
}  // namespace terngrad
