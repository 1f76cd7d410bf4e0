// Common code of the TensorFlow operations that call the kernels: they check
// inputs, allocate outputs and spread the work over TensorFlow's threads.
// terngrad/native/ops.py documents them.

#ifndef TERNGRAD_NATIVE_OPS_COMMON_H_
#define TERNGRAD_NATIVE_OPS_COMMON_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels.h"
#include "spread.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace terngrad {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <typename... Pieces>
absl::Status InvalidArgument(const Pieces&... pieces) {
  return absl::InvalidArgumentError(absl::StrCat(pieces...));
}

// Spreads [0, total) over TensorFlow's threads in ranges of whole blocks. An
// item is as much work as `elements` elements.
inline void SpreadOver(OpKernelContext* context, int64_t total, int64_t block,
                       int64_t elements,
                       const std::function<void(int64_t, int64_t)>& work) {
  const auto& threads = *context->device()->tensorflow_cpu_worker_threads();
  // Waking a thread takes about as long as kLeastElements. There are several
  // ranges per thread, because threads start late and are interrupted.
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

inline absl::Status ReadDigits(OpKernelConstruction* context, Digits* digits) {
  TF_RETURN_IF_ERROR(context->GetAttr("radix", &digits->radix));
  TF_RETURN_IF_ERROR(context->GetAttr("places", &digits->places));
  uint64_t largest = 1;
  bool fits = digits->radix >= 3 && digits->places >= 1;
  for (int place = 0; fits && place < digits->places; ++place) {
    largest *= static_cast<uint64_t>(digits->radix);
    fits = largest <= uint64_t{1} << 32;
  }
  if (!fits) {
    return InvalidArgument("expected radix >= 3 and places >= 1 that fit in ",
                           "32 bits, received radix ", digits->radix,
                           " and places ", digits->places);
  }
  return absl::OkStatus();
}

// Reads the parameters of a code of groups, of the first `kinds` kinds.
inline absl::Status ReadGroupCode(OpKernelConstruction* context,
                                  GroupCode* code, int64_t* group_size,
                                  int kinds = 3) {
  int kind, base, size;
  TF_RETURN_IF_ERROR(context->GetAttr("kind", &kind));
  TF_RETURN_IF_ERROR(context->GetAttr("is_norm", &code->is_norm));
  TF_RETURN_IF_ERROR(context->GetAttr("levels", &code->levels));
  TF_RETURN_IF_ERROR(context->GetAttr("base", &base));
  TF_RETURN_IF_ERROR(context->GetAttr("places", &code->places));
  TF_RETURN_IF_ERROR(context->GetAttr("group_size", &size));
  if (kind < 0 || kind >= kinds || code->levels < 1 || code->levels > 255 ||
      base < 2 || base > 511 || code->places < 1 ||
      code->places * std::log2(base) > 32.0 || size < 0) {
    return InvalidArgument("expected a code of groups, received kind ", kind,
                           ", levels ", code->levels, ", base ", base,
                           ", places ", code->places, ", group_size ", size);
  }
  code->kind = static_cast<GroupKind>(kind);
  code->base = static_cast<uint32_t>(base);
  *group_size = size;
  return absl::OkStatus();
}

inline int64_t NumWords(int64_t num_elements, const Digits& digits) {
  return (num_elements + digits.places - 1) / digits.places;
}

// Reads variables of `sizes`: one tensor each, or one tensor for all.
inline absl::Status ReadVariables(const OpInputList& tensors,
                                  const std::vector<int64_t>& sizes,
                                  std::vector<const float*>* data) {
  const bool whole = tensors.size() == static_cast<int>(sizes.size());
  if (!whole && tensors.size() != 1) {
    return InvalidArgument("gradients: expected ", sizes.size(),
                           " tensors, received ", tensors.size());
  }
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  int64_t from = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Tensor& tensor = tensors[whole ? i : 0];
    const int64_t expected = whole ? sizes[i] : total;
    if (tensor.NumElements() != expected) {
      return InvalidArgument("gradients: expected ", expected,
                             " elements, received ", tensor.NumElements());
    }
    data->push_back(tensor.flat<float>().data() + (whole ? 0 : from));
    from += sizes[i];
  }
  return absl::OkStatus();
}

// Reads the input `key`, which has the two numbers of a random key.
inline absl::Status ReadKey(OpKernelContext* context, const Tensor** key) {
  TF_RETURN_IF_ERROR(context->input("key", key));
  return (*key)->NumElements() >= 2
             ? absl::OkStatus()
             : InvalidArgument("key: expected 2 numbers, received ",
                               (*key)->NumElements());
}

// Reads the payloads of all workers, `words` of each, in order, from the input
// `parts` with the row order of codec.method.Piece.
inline absl::Status ReadPayloads(OpKernelContext* context, int64_t words,
                                 std::vector<const int32_t*>* payloads) {
  OpInputList parts;
  TF_RETURN_IF_ERROR(context->input_list("parts", &parts));
  for (int64_t row = 0, more = 1; more; ++row) {
    more = 0;
    for (const Tensor& part : parts) {
      if (part.dims() != 2 || part.dim_size(1) != words) {
        return InvalidArgument("parts: expected shapes [n, ", words,
                               "], received ", part.shape().DebugString());
      }
      if (row < part.dim_size(0)) {
        payloads->push_back(static_cast<const int32_t*>(part.data()) +
                            row * words);
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

// Shape function of operations with the output shapes in attribute `shapes`.
inline absl::Status ListedShapes(
    tensorflow::shape_inference::InferenceContext* context) {
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

// Shape function of operations whose output is `num_words` words.
inline absl::Status WordsShape(
    tensorflow::shape_inference::InferenceContext* context) {
  int32_t words;
  TF_RETURN_IF_ERROR(context->GetAttr("num_words", &words));
  context->set_output(0, context->Vector(words));
  return absl::OkStatus();
}

// Shape function of operations whose outputs are numbers of `N` gradients.
inline absl::Status NumbersShape(
    tensorflow::shape_inference::InferenceContext* context) {
  int32_t count;
  TF_RETURN_IF_ERROR(context->GetAttr("N", &count));
  for (int i = 0; i < context->num_outputs(); ++i) {
    context->set_output(i, context->Vector(count));
  }
  return absl::OkStatus();
}

// Shape function of operations that pack `places` digits into each word.
inline absl::Status DigitsShape(
    tensorflow::shape_inference::InferenceContext* context) {
  std::vector<int64_t> sizes;
  int32_t places;
  TF_RETURN_IF_ERROR(context->GetAttr("sizes", &sizes));
  TF_RETURN_IF_ERROR(context->GetAttr("places", &places));
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  context->set_output(0, context->Vector(NumWords(total, {0, places})));
  return absl::OkStatus();
}

// TensorFlow runs an expensive operation on another thread. These operations
// use several threads anyway, so they run on the thread that schedules them.
class Kernel : public OpKernel {
 public:
  using OpKernel::OpKernel;

  bool IsExpensive() override { return false; }
};

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_OPS_COMMON_H_
