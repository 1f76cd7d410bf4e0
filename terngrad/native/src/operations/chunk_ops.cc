// The operations of codes that send a few elements of each chunk: they find the
// largest elements, and pack and unpack their indices in the format of
// terngrad/codec/methods/sparse/combinations.py.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels.h"
#include "ops_common.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace terngrad {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

constexpr int32_t kMagnitude = 0x7fffffff;
// Bits of float32 between a chunk's limit and the threshold of the next chunk:
// half of a power of two.
constexpr int32_t kBelow = 1 << 22;
constexpr int64_t kMostTableWords = 1 << 22;

int32_t MagnitudeOf(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & kMagnitude;
}

// Finds the largest elements of chunks, one after the other.
class Selector {
 public:
  Selector(int64_t chunk, int64_t kept)
      : chunk_(chunk), kept_(kept), found_(chunk), values_(chunk) {}

  void Select(const float* data, int32_t* indices, float* values) {
    int64_t count = AtLeast(data, likely_);
    if (count < kept_) count = AtLeast(data, 0);
    magnitudes_.clear();
    for (int64_t i = 0; i < count; ++i) {
      magnitudes_.push_back(MagnitudeOf(values_[i]));
    }
    const auto place = magnitudes_.begin() + (kept_ - 1);
    std::nth_element(magnitudes_.begin(), place, magnitudes_.end(),
                     std::greater<int32_t>());
    const int32_t limit = *place;
    int64_t equal = kept_;
    for (auto one = magnitudes_.begin(); one < place; ++one) {
      equal -= *one > limit;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int32_t magnitude = MagnitudeOf(values_[i]);
      // Of equal ones the first.
      if (magnitude < limit || (magnitude == limit && equal-- <= 0)) continue;
      *indices++ = found_[i];
      *values++ = values_[i];
    }
    likely_ = std::max(0, limit - kBelow);
  }

 private:
  int64_t AtLeast(const float* data, int32_t least) {
    return Best()->at_least(data, chunk_, least, 0, found_.data(),
                            values_.data());
  }

  int64_t chunk_;
  int64_t kept_;
  std::vector<int32_t> found_;
  std::vector<float> values_;
  std::vector<int32_t> magnitudes_;
  // Bits of a magnitude that enough elements may reach.
  int32_t likely_ = 0;
};

class LargestOfChunks : public Kernel {
 public:
  explicit LargestOfChunks(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("chunk", &chunk_));
    OP_REQUIRES_OK(context, context->GetAttr("kept", &kept_));
    OP_REQUIRES(context, 1 <= kept_ && kept_ <= chunk_,
                InvalidArgument("expected 1 <= kept <= chunk, received ", kept_,
                                " and ", chunk_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& elements = context->input(0);
    const int64_t rows = elements.NumElements() / chunk_;
    Tensor* indices = nullptr;
    Tensor* values = nullptr;
    const TensorShape shape({rows, kept_});
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &indices));
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &values));
    const float* const from = elements.flat<float>().data();
    int32_t* const to = indices->flat<int32_t>().data();
    float* const what = values->flat<float>().data();
    SpreadOver(context, rows, 1, chunk_, [&](int64_t begin, int64_t end) {
      Selector selector(chunk_, kept_);
      for (int64_t row = begin; row < end; ++row) {
        selector.Select(from + row * chunk_, to + row * kept_,
                        what + row * kept_);
      }
    });
  }

 private:
  int64_t chunk_;
  int64_t kept_;
};

// The layout of a row of words, and binomial coefficients of the words'
// number.
class Combinations : public Kernel {
 public:
  explicit Combinations(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("number", &number_));
    OP_REQUIRES_OK(context, context->GetAttr("low_bits", &low_bits_));
    OP_REQUIRES_OK(context, context->GetAttr("largest", &largest_));
    OP_REQUIRES_OK(context, context->GetAttr("number_words", &number_words_));
    OP_REQUIRES_OK(context, context->GetAttr("low_words", &low_words_));
    OP_REQUIRES(
        context,
        number_ >= 1 && low_bits_ >= 0 && low_bits_ < 16 && largest_ >= 0 &&
            number_words_ >= 0 && low_words_ >= 0 && largest_ < 65536 &&
            number_ <= 4096 && number_words_ <= 1024 &&
            (largest_ + 1) * number_ * number_words_ <= kMostTableWords &&
            32 * low_words_ >= low_bits_ * number_,
        InvalidArgument("expected the layout of a row, received number ",
                        number_, ", low_bits ", low_bits_, ", largest ",
                        largest_, ", number_words ", number_words_,
                        ", low_words ", low_words_));
    // Pascal's rule; numbers that do not fit are never used.
    table_.assign((largest_ + 1) * number_ * number_words_, 0);
    if (!number_words_) return;
    for (int64_t d = 1; d <= largest_; ++d) {
      std::vector<uint32_t> before(number_words_, 0);
      before[0] = 1;
      const uint32_t* left = before.data();
      for (int64_t i = 0; i < number_; ++i) {
        uint32_t* const sum = table_.data() + (d * number_ + i) * number_words_;
        uint64_t carry = 0;
        for (int64_t w = 0; w < number_words_; ++w) {
          carry += uint64_t{left[w]} + Term(d - 1, i)[w];
          sum[w] = static_cast<uint32_t>(carry);
          carry >>= 32;
        }
        left = sum;
      }
    }
  }

 protected:
  // (i + d choose i + 1), the lowest word first.
  const uint32_t* Term(int64_t d, int64_t i) const {
    return table_.data() + (d * number_ + i) * number_words_;
  }

  int64_t num_words() const { return number_words_ + low_words_; }

  // Reads input 0, [rows, columns], and allocates output 0, [rows, width].
  absl::Status Allocate(OpKernelContext* context, int64_t columns,
                        int64_t width, int64_t* rows, Tensor** output) const {
    const Tensor& input = context->input(0);
    if (input.dims() != 2 || input.dim_size(1) != columns) {
      return InvalidArgument("expected rows of ", columns, ", received ",
                             input.shape().DebugString());
    }
    *rows = input.dim_size(0);
    return context->allocate_output(0, TensorShape({*rows, width}), output);
  }

  int64_t number_;
  int64_t low_bits_;
  int64_t largest_;
  int64_t number_words_;
  int64_t low_words_;

 private:
  std::vector<uint32_t> table_;
};

class PackCombinations : public Combinations {
 public:
  using Combinations::Combinations;

  void Compute(OpKernelContext* context) override {
    int64_t rows;
    Tensor* words = nullptr;
    OP_REQUIRES_OK(context,
                   Allocate(context, number_, num_words(), &rows, &words));
    const int32_t* const from = context->input(0).flat<int32_t>().data();
    // Tables are read at these positions.
    bool fits = true;
    for (int64_t i = 0; i < rows * number_; ++i) {
      const int64_t upper = Upper(from[i], i % number_);
      fits = fits && 0 <= upper && upper <= largest_;
    }
    OP_REQUIRES(context, fits,
                InvalidArgument("indices: expected ascending ones below the ",
                                "size of a chunk, received others"));
    auto* const to = reinterpret_cast<uint32_t*>(words->flat<int32_t>().data());
    SpreadOver(context, rows, 1, number_ * 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        Pack(from + row * number_, to + row * num_words());
      }
    });
  }

 private:
  int64_t Upper(int32_t index, int64_t i) const {
    return low_bits_ ? index >> low_bits_ : index - i;
  }

  void Pack(const int32_t* indices, uint32_t* words) const {
    std::fill_n(words, num_words(), 0);
    uint32_t* const low = words + number_words_;
    for (int64_t i = 0; i < number_; ++i) {
      const uint32_t* const term = Term(Upper(indices[i], i), i);
      uint64_t carry = 0;
      for (int64_t w = 0; w < number_words_; ++w) {
        carry += uint64_t{words[w]} + term[w];
        words[w] = static_cast<uint32_t>(carry);
        carry >>= 32;
      }
      for (int64_t bit = 0; bit < low_bits_; ++bit) {
        const int64_t at = bit * number_ + i;
        low[at / 32] |= static_cast<uint32_t>((indices[i] >> bit) & 1)
                        << (at % 32);
      }
    }
  }
};

class UnpackCombinations : public Combinations {
 public:
  using Combinations::Combinations;

  void Compute(OpKernelContext* context) override {
    int64_t rows;
    Tensor* indices = nullptr;
    OP_REQUIRES_OK(context,
                   Allocate(context, num_words(), number_, &rows, &indices));
    const auto* const from = reinterpret_cast<const uint32_t*>(
        context->input(0).flat<int32_t>().data());
    int32_t* const to = indices->flat<int32_t>().data();
    SpreadOver(context, rows, 1, number_ * 16, [&](int64_t begin, int64_t end) {
      std::vector<uint32_t> rest(number_words_);
      for (int64_t row = begin; row < end; ++row) {
        const uint32_t* const words = from + row * num_words();
        std::copy_n(words, number_words_, rest.data());
        Unpack(rest.data(), words + number_words_, to + row * number_);
      }
    });
  }

 private:
  bool Fits(const uint32_t* term, const uint32_t* rest) const {
    for (int64_t w = number_words_ - 1; w >= 0; --w) {
      if (term[w] != rest[w]) return term[w] < rest[w];
    }
    return true;
  }

  // Any words give upper bits from 0 to `largest_`, because the term of 0 is 0.
  void Unpack(uint32_t* rest, const uint32_t* low, int32_t* indices) const {
    int64_t upper = largest_;
    for (int64_t i = number_ - 1; i >= 0; --i) {
      while (!Fits(Term(upper, i), rest)) --upper;
      const uint32_t* const term = Term(upper, i);
      int64_t borrow = 0;
      for (int64_t w = 0; w < number_words_; ++w) {
        borrow += int64_t{rest[w]} - term[w];
        rest[w] = static_cast<uint32_t>(borrow);
        borrow >>= 32;
      }
      int64_t index = low_bits_ ? upper << low_bits_ : upper + i;
      for (int64_t bit = 0; bit < low_bits_; ++bit) {
        const int64_t at = bit * number_ + i;
        index |= int64_t{(low[at / 32] >> (at % 32)) & 1} << bit;
      }
      indices[i] = static_cast<int32_t>(index);
    }
  }
};

// The shape of rows of input 0 that are `width` wide.
absl::Status RowsShape(InferenceContext* context, int64_t width) {
  ShapeHandle input;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 2, &input));
  context->set_output(0, context->Matrix(context->Dim(input, 0), width));
  return absl::OkStatus();
}

absl::Status ChunksShape(InferenceContext* context) {
  int64_t chunk, kept;
  TF_RETURN_IF_ERROR(context->GetAttr("chunk", &chunk));
  TF_RETURN_IF_ERROR(context->GetAttr("kept", &kept));
  ShapeHandle elements;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 1, &elements));
  auto rows = context->UnknownDim();
  if (context->ValueKnown(context->Dim(elements, 0))) {
    rows = context->MakeDim(context->Value(context->Dim(elements, 0)) / chunk);
  }
  for (int i = 0; i < 2; ++i) {
    context->set_output(i, context->Matrix(rows, kept));
  }
  return absl::OkStatus();
}

absl::Status PackedCombinationsShape(InferenceContext* context) {
  int64_t number_words, low_words;
  TF_RETURN_IF_ERROR(context->GetAttr("number_words", &number_words));
  TF_RETURN_IF_ERROR(context->GetAttr("low_words", &low_words));
  return RowsShape(context, number_words + low_words);
}

absl::Status UnpackedCombinationsShape(InferenceContext* context) {
  int64_t number;
  TF_RETURN_IF_ERROR(context->GetAttr("number", &number));
  return RowsShape(context, number);
}

REGISTER_OP("TerngradLargestOfChunks")
    .Input("elements: float")
    .Output("indices: int32")
    .Output("values: float")
    .Attr("chunk: int >= 1")
    .Attr("kept: int >= 1")
    .SetShapeFn(ChunksShape);

REGISTER_OP("TerngradPackCombinations")
    .Input("indices: int32")
    .Output("words: int32")
    .Attr("number: int >= 1")
    .Attr("low_bits: int >= 0")
    .Attr("largest: int >= 0")
    .Attr("number_words: int >= 0")
    .Attr("low_words: int >= 0")
    .SetShapeFn(PackedCombinationsShape);

REGISTER_OP("TerngradUnpackCombinations")
    .Input("words: int32")
    .Output("indices: int32")
    .Attr("number: int >= 1")
    .Attr("low_bits: int >= 0")
    .Attr("largest: int >= 0")
    .Attr("number_words: int >= 0")
    .Attr("low_words: int >= 0")
    .SetShapeFn(UnpackedCombinationsShape);

REGISTER_KERNEL_BUILDER(
    Name("TerngradLargestOfChunks").Device(tensorflow::DEVICE_CPU),
    LargestOfChunks);
REGISTER_KERNEL_BUILDER(
    Name("TerngradPackCombinations").Device(tensorflow::DEVICE_CPU),
    PackCombinations);
REGISTER_KERNEL_BUILDER(
    Name("TerngradUnpackCombinations").Device(tensorflow::DEVICE_CPU),
    UnpackCombinations);

}  // namespace
}  // namespace terngrad
