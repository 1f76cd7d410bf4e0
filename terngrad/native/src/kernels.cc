#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

namespace terngrad {

namespace generic {
extern const Kernels kKernels;
}
#ifdef TERNGRAD_X86
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

namespace {

// A gradient counts as constant below this ratio of variance to mean square;
// terngrad/codec/stages/statistics.py says why.
constexpr double kConstant = 0x1p-32;

// A scaler below this counts as 0.
constexpr float kMinScaler = 0x1p-100f;

}  // namespace

const Kernels* Find(const char* name) {
#ifdef TERNGRAD_X86
  if (std::strcmp(name, "avx512") == 0) {
    // What -march=skylake-avx512 may use beyond AVX2.
    const bool has = __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vl");
    return has ? &avx512::kKernels : nullptr;
  }
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
    for (const char* name : {"avx512", "avx2"}) {
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
  // A float32 squared is finite in float64, and so is any sum of such.
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

float Clipped(float stddev, float max_abs, float clip_factor) {
  const float limit = clip_factor * stddev;
  // What is not a number stays.
  return limit > 0.0f && max_abs > limit ? limit : max_abs;
}

float Factor(float scaler) {
  return scaler >= kMinScaler ? 0x1p23f / scaler : 0.0f;
}

}  // namespace terngrad
