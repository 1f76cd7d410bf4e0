// The operations of codes that send few elements: they find the largest
// elements and add received ones.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels.h"
#include "ops_common.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace terngrad {
namespace {

using tensorflow::OpOutputList;
using tensorflow::shape_inference::InferenceContext;

constexpr int32_t kMagnitude = 0x7fffffff;
// From kSampled elements on, about kSample of them are sampled.
constexpr int64_t kSampled = 65536, kSample = 32768;
// Elements that are processed at a time.
constexpr int64_t kBlock = 32768;

// Some elements of a vector, in order.
struct Elements {
  std::vector<int32_t> indices;
  std::vector<float> values;

  int64_t size() const { return indices.size(); }
  void Add(const int32_t* index, const float* value, int64_t count) {
    indices.insert(indices.end(), index, index + count);
    values.insert(values.end(), value, value + count);
  }
};

int32_t MagnitudeOf(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & kMagnitude;
}

// Estimates a magnitude that at least `number` elements reach, from a sample; 0
// for few elements.
int32_t Likely(const float* data, int64_t size, int64_t number) {
  if (size < kSampled || number > size / 4) return 0;
  // Odd, because columns of matrices are often powers of two.
  const int64_t stride = (size / kSample) | 1;
  std::vector<int32_t> sample;
  sample.reserve(size / stride + 1);
  for (int64_t i = 0; i < size; i += stride) {
    sample.push_back(MagnitudeOf(data[i]));
  }
  // The expected number in the sample, plus six standard deviations.
  const double own = static_cast<double>(number) / stride;
  const int64_t place = std::min<int64_t>(
      static_cast<int64_t>(own + 6 * std::sqrt(own) + 1), sample.size() - 1);
  std::nth_element(sample.begin(), sample.begin() + place, sample.end(),
                   std::greater<int32_t>());
  return sample[place];
}

Elements AtLeast(OpKernelContext* context, const float* data, int64_t size,
                 int32_t least) {
  const int64_t blocks = (size + kBlock - 1) / kBlock;
  std::vector<Elements> found(blocks);
  SpreadOver(context, blocks, 1, kBlock, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> indices(kBlock);
    std::vector<float> values(kBlock);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t from = block * kBlock;
      const int64_t count = Best()->at_least(
          data + from, std::min(kBlock, size - from), least,
          static_cast<int32_t>(from), indices.data(), values.data());
      found[block].Add(indices.data(), values.data(), count);
    }
  });
  if (blocks == 1) return std::move(found[0]);
  Elements all;
  for (const Elements& some : found) {
    all.Add(some.indices.data(), some.values.data(), some.size());
  }
  return all;
}

// The `number`-th largest magnitude, and how many are larger.
std::pair<int32_t, int64_t> Limit(const std::vector<float>& values,
                                  int64_t number) {
  // By the upper bits first, because an exact search takes longer.
  constexpr int kLower = 15;
  std::vector<int64_t> counts(size_t{1} << (31 - kLower));
  for (const float value : values) ++counts[MagnitudeOf(value) >> kLower];
  int64_t larger = 0;
  int32_t upper = counts.size() - 1;
  for (; larger + counts[upper] < number; --upper) larger += counts[upper];
  std::vector<int32_t> equal;
  for (const float value : values) {
    const int32_t magnitude = MagnitudeOf(value);
    if (magnitude >> kLower == upper) equal.push_back(magnitude);
  }
  const auto place = equal.begin() + (number - larger - 1);
  std::nth_element(equal.begin(), place, equal.end(), std::greater<int32_t>());
  const int32_t limit = *place;
  for (const int32_t magnitude : equal) larger += magnitude > limit;
  return {limit, larger};
}

// The `number` elements of largest magnitude, in order; of equal ones the
// first. Fewer if fewer reach `least`.
Elements Largest(OpKernelContext* context, const float* data, int64_t size,
                 int64_t number, int32_t least) {
  const int32_t likely = std::max(least, Likely(data, size, number));
  Elements found = AtLeast(context, data, size, likely);
  if (found.size() < number && likely > least) {
    found = AtLeast(context, data, size, least);
  }
  if (found.size() <= number) return found;
  const auto [limit, larger] = Limit(found.values, number);
  int64_t equal = number - larger;
  int64_t count = 0;
  for (int64_t k = 0; k < found.size(); ++k) {
    const int32_t magnitude = MagnitudeOf(found.values[k]);
    if (magnitude < limit || (magnitude == limit && equal-- <= 0)) continue;
    found.indices[count] = found.indices[k];
    found.values[count++] = found.values[k];
  }
  found.indices.resize(count);
  found.values.resize(count);
  return found;
}

// Operations that write the largest elements.
class Selection : public Kernel {
 public:
  explicit Selection(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("number", &number_));
  }

  void Compute(OpKernelContext* context) final {
    const Tensor& from = context->input(0);
    const int64_t size = from.NumElements();
    OP_REQUIRES(context, number_ >= 0 && number_ <= size && size <= kMagnitude,
                InvalidArgument("number: expected 0 to ", size, ", received ",
                                number_));
    Elements found;
    if (number_) {
      found =
          Largest(context, from.flat<float>().data(), size, number_, least_);
    }
    OP_REQUIRES_OK(context, Write(context, found));
  }

 protected:
  virtual absl::Status Write(OpKernelContext* context,
                             const Elements& found) = 0;

  int64_t number_;
  int32_t least_ = 0;  // Bits of the smallest magnitude.
};

class LargestOp : public Selection {
 public:
  using Selection::Selection;

 protected:
  absl::Status Write(OpKernelContext* context, const Elements& found) override {
    Tensor* indices = nullptr;
    Tensor* values = nullptr;
    const TensorShape shape({number_});
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &indices));
    TF_RETURN_IF_ERROR(context->allocate_output(1, shape, &values));
    std::copy(found.indices.begin(), found.indices.end(),
              indices->flat<int32_t>().data());
    std::copy(found.values.begin(), found.values.end(),
              values->flat<float>().data());
    return absl::OkStatus();
  }
};

// Writes the number of the largest elements that reach a threshold, and the
// index and value of each. See terngrad/codec/methods/sparse/threshold.py.
class EncodeThreshold : public Selection {
 public:
  explicit EncodeThreshold(OpKernelConstruction* context) : Selection(context) {
    float above;
    OP_REQUIRES_OK(context, context->GetAttr("above", &above));
    least_ = std::max(MagnitudeOf(above), 1);  // No zeros.
  }

 protected:
  absl::Status Write(OpKernelContext* context, const Elements& found) override {
    Tensor* words = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(
        0, TensorShape({1 + 2 * number_}), &words));
    int32_t* out = words->flat<int32_t>().data();
    *out++ = static_cast<int32_t>(found.size());
    for (int64_t k = 0; k < found.size(); ++k) {
      *out++ = found.indices[k];
      std::memcpy(out++, &found.values[k], sizeof(int32_t));
    }
    std::fill_n(out, 2 * (number_ - found.size()), 0);
    return absl::OkStatus();
  }
};

// A row of few elements, in ascending order.
struct Row {
  std::vector<int32_t> sorted_indices;
  std::vector<float> sorted_values;
  const int32_t* indices;
  const float* values;
  int64_t size;

  Row(const int32_t* from, const float* what, int64_t count)
      : indices(from), values(what), size(count) {
    if (std::is_sorted(from, from + count)) return;
    std::vector<int32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return from[a] < from[b];
    });
    for (const int32_t i : order) {
      sorted_indices.push_back(from[i]);
      sorted_values.push_back(what[i]);
    }
    indices = sorted_indices.data();
    values = sorted_values.data();
  }
};

// A range of a variable, from element `first` of the bucket on.
struct Stretch {
  float* data;
  int64_t first;
  int64_t size;
};

class AddElements : public Kernel {
 public:
  explicit AddElements(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& indices = context->input(0);
    const Tensor& values = context->input(1);
    OP_REQUIRES(context,
                indices.dims() == 2 && indices.shape() == values.shape(),
                InvalidArgument("indices and values: expected [rows, k], ",
                                "received ", indices.shape().DebugString(),
                                " and ", values.shape().DebugString()));
    const int64_t count = indices.dim_size(1);
    // Rows are never copied, because they may contain pointers to their
    // vectors.
    std::vector<Row> rows;
    rows.reserve(indices.dim_size(0));
    for (int64_t r = 0; r < indices.dim_size(0); ++r) {
      rows.emplace_back(indices.flat<int32_t>().data() + r * count,
                        values.flat<float>().data() + r * count, count);
    }
    OpOutputList sums;
    OP_REQUIRES_OK(context, context->output_list("sums", &sums));
    std::vector<Stretch> stretches;
    int64_t first = 0;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      Tensor* sum = nullptr;
      OP_REQUIRES_OK(context, sums.allocate(i, shapes_[i], &sum));
      const int64_t size = sum->NumElements();
      for (int64_t from = 0; from < size; from += kBlock) {
        stretches.push_back({sum->flat<float>().data() + from, first + from,
                             std::min(kBlock, size - from)});
      }
      first += size;
    }
    SpreadOver(context, stretches.size(), 1, kBlock,
               [&](int64_t begin, int64_t end) {
                 for (int64_t s = begin; s < end; ++s) {
                   AddTo(stretches[s], rows);
                 }
               });
  }

 private:
  void AddTo(const Stretch& stretch, const std::vector<Row>& rows) const {
    std::fill_n(stretch.data, stretch.size, 0.0f);
    const int64_t end = stretch.first + stretch.size;
    for (const Row& row : rows) {
      const int32_t* const last = row.indices + row.size;
      const int32_t* at = std::lower_bound(row.indices, last, stretch.first);
      for (; at < last && *at < end; ++at) {
        stretch.data[*at - stretch.first] += row.values[at - row.indices];
      }
    }
    if (scale_ == 1.0f) return;
    for (int64_t i = 0; i < stretch.size; ++i) stretch.data[i] *= scale_;
  }

  std::vector<TensorShape> shapes_;
  float scale_;
};

absl::Status LargestShape(InferenceContext* context) {
  int32_t number;
  TF_RETURN_IF_ERROR(context->GetAttr("number", &number));
  context->set_output(0, context->Vector(number));
  context->set_output(1, context->Vector(number));
  return absl::OkStatus();
}

REGISTER_OP("TerngradLargest")
    .Input("elements: float")
    .Output("indices: int32")
    .Output("values: float")
    .Attr("number: int >= 0")
    .SetShapeFn(LargestShape);

absl::Status ThresholdShape(InferenceContext* context) {
  int32_t number;
  TF_RETURN_IF_ERROR(context->GetAttr("number", &number));
  context->set_output(0, context->Vector(1 + 2 * number));
  return absl::OkStatus();
}

REGISTER_OP("TerngradEncodeThreshold")
    .Input("elements: float")
    .Output("words: int32")
    .Attr("number: int >= 0")
    .Attr("above: float")
    .SetShapeFn(ThresholdShape);

REGISTER_OP("TerngradAddElements")
    .Input("indices: int32")
    .Input("values: float")
    .Output("sums: V * float")
    .Attr("V: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("scale: float")
    .SetShapeFn(ListedShapes);

REGISTER_KERNEL_BUILDER(Name("TerngradLargest").Device(tensorflow::DEVICE_CPU),
                        LargestOp);
REGISTER_KERNEL_BUILDER(
    Name("TerngradEncodeThreshold").Device(tensorflow::DEVICE_CPU),
    EncodeThreshold);
REGISTER_KERNEL_BUILDER(
    Name("TerngradAddElements").Device(tensorflow::DEVICE_CPU), AddElements);

}  // namespace
}  // namespace terngrad
