#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>

namespace terngrad {

namespace generic {
extern const Kernels kKernels;
}
#ifdef TERNGRAD_AVX2
namespace avx2 {
extern const Kernels kKernels;
}
#endif
#ifdef TERNGRAD_AVX512
namespace avx512 {
extern const Kernels kKernels;
}
#endif

namespace {

// A gradient counts as constant below this ratio of variance to mean square;
// terngrad/codec/stages/statistics.py gives the reason.
constexpr double kConstant = 0x1p-32;

// A smaller scaler counts as 0.
constexpr float kMinScaler = 0x1p-100f;

// Codes of groups reduce larger magnitudes to this.
constexpr float kLargest = 0x1p126f;

// The value of one level, as in grouped.step.
float Step(float span, int32_t levels) {
  const float inverse = static_cast<float>(1.0 / levels);
  const float exact = span * inverse;
  uint32_t bits;  // Those of a NaN may wrap around.
  std::memcpy(&bits, &exact, sizeof(bits));
  bits = (bits + 0xff) & ~0xffU;
  float coarse;
  std::memcpy(&coarse, &bits, sizeof(bits));
  if (coarse * static_cast<float>(levels) < span) {
    bits += 0x100;
    std::memcpy(&coarse, &bits, sizeof(bits));
  }
  return coarse >= kMinScaler ? coarse : 0.0f;
}

}  // namespace

const Kernels* Find(const char* name) {
#ifdef TERNGRAD_AVX512
  if (std::strcmp(name, "avx512") == 0) {
    // What -march=skylake-avx512 may use beyond AVX2.
    const bool has = __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vl");
    return has ? &avx512::kKernels : nullptr;
  }
#endif
#ifdef TERNGRAD_AVX2
  if (std::strcmp(name, "avx2") == 0) {
    const bool has =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return has ? &avx2::kKernels : nullptr;
  }
#endif
  return std::strcmp(name, "generic") == 0 ? &generic::kKernels : nullptr;
}

const Kernels* Best() {
  static const Kernels* const best = [] {
    const char* const chosen = std::getenv("TERNGRAD_NATIVE");
    for (const char* name : {chosen ? chosen : "", "avx512", "avx2"}) {
      if (const Kernels* kernels = Find(name)) return kernels;
    }
    return Find("generic");
  }();
  return best;
}

void FinishStatistics(const Partial* partials, int64_t num_partials,
                      int64_t size, float* stddev, float* max_abs) {
  if (size == 0) {
    *stddev = *max_abs = 0.0f;
    return;
  }
  Partial total = {};
  for (int64_t i = 0; i < num_partials; ++i) {
    total.sum += partials[i].sum;
    total.squares += partials[i].squares;
    total.max_abs = std::max(total.max_abs, partials[i].max_abs);
  }
  // Squares of float32 and their sums are finite in float64.
  if (!std::isfinite(total.squares)) {
    *stddev = *max_abs = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  const double mean = total.sum / static_cast<double>(size);
  const double mean_square = total.squares / static_cast<double>(size);
  const double variance = mean_square - mean * mean;
  *stddev = variance > kConstant * mean_square
                ? static_cast<float>(std::sqrt(variance))
                : 0.0f;
  *max_abs = total.max_abs;
}

Extent Joined(const Extent* extents, int64_t num_extents) {
  Extent all = extents[0];
  for (int64_t i = 1; i < num_extents; ++i) {
    const Extent& one = extents[i];
    // NaN remains: comparisons with it are false.
    const bool is_nan = std::isnan(one.largest);
    if (one.least < all.least || is_nan) all.least = one.least;
    if (all.largest < one.largest || is_nan) all.largest = one.largest;
    all.sum += one.sum;
  }
  return all;
}

void FinishScales(const Extent& extent, const GroupCode& code, int64_t size,
                  float* scales) {
  // Both preserve NaN. Payloads have one NaN, processors make several.
  const auto bounded = [](float value) {
    return std::min(std::max(value, -kLargest), kLargest);
  };
  const auto known = [](float value) {
    return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
  };
  if (code.kind == GroupKind::kSigns) {
    // Multiplies as statistics.mean_magnitude does, which explains why.
    scales[0] = known(static_cast<float>(extent.sum * (1.0 / size)));
  } else if (code.kind == GroupKind::kSpans) {
    const float least = known(bounded(extent.least));
    scales[0] = least == 0.0f ? 0.0f : least;
    scales[1] = Step(bounded(extent.largest) - least, code.levels);
  } else {
    constexpr double kMost = std::numeric_limits<float>::max();
    const double norm = std::sqrt(extent.sum);
    const float span = code.is_norm ? static_cast<float>(std::min(norm, kMost))
                                    : extent.largest;
    scales[0] = Step(bounded(span), code.levels);
  }
}

float Clipped(float stddev, float max_abs, float clip_factor) {
  const float limit = clip_factor * stddev;
  // NaN is preserved.
  return limit > 0.0f && max_abs > limit ? limit : max_abs;
}

float Factor(float scaler) {
  return scaler >= kMinScaler ? 0x1p23f / scaler : 0.0f;
}

}  // namespace terngrad

extern "C" __attribute__((visibility("default"))) const char*
terngrad_instruction_set() {
  return terngrad::Best()->name;
}
