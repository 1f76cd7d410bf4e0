// Kernels of fp8 and natural, which have no CPU kernels, against plain code.
//
// test_gpu_ops.py compares the same kernels with the codes in TensorFlow.

#ifndef TESTS_NATIVE_GPU_FLOAT_PROBLEMS_H_
#define TESTS_NATIVE_GPU_FLOAT_PROBLEMS_H_

#include <vector>

#include "operations/gpu_host.h"
#include "problems.h"

namespace problems {

namespace gpu = terngrad_gpu;

// The magnitude of a code of 8-bit floats; larger codes have the largest one.
inline double ValueOfFp8(int code, int largest) {
  const int mantissa = largest == 0x7e ? 3 : 2;
  const int bias = largest == 0x7e ? 7 : 15;
  const int known = std::min(code, largest);
  const int exponent = known >> mantissa, rest = known & ((1 << mantissa) - 1);
  const double fraction = std::ldexp(rest, -mantissa) + (exponent > 0);
  return std::ldexp(fraction, std::max(exponent, 1) - bias);
}

// The nearest code, or of two nearest ones the even one, found by trying all.
inline uint32_t NearestFp8(float value, float scale, int largest) {
  // A product with a power of two is exact, or flushed to 0.
  const float scaled = std::abs(value) * (1.0f / scale);
  int best = 0;
  for (int code = 1; code <= largest; ++code) {
    const double now = std::abs(ValueOfFp8(code, largest) - scaled);
    const double before = std::abs(ValueOfFp8(best, largest) - scaled);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return value < 0.0f && best > 0 ? best + 128 : best;
}

// What a scale in a payload counts as: damaged ones as powers of two as well.
inline float KnownScale(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23 & 255) - 127;
  return std::ldexp(1.0f, std::min(std::max(exponent, -120), 120));
}

// The smallest power of two that brings the largest magnitude into the range.
inline float ScaleOfFp8(const float* data, int64_t size, int largest) {
  float span = 0.0f;
  for (int64_t i = 0; i < size; ++i) span = std::max(span, std::abs(data[i]));
  span *= static_cast<float>(1.0 / ValueOfFp8(largest, largest));
  double scale = 0x1p-120;
  while (scale < span && scale < 0x1p120) scale *= 2;
  return static_cast<float>(scale);
}

inline Bucket AnyFloats(bool has_special) {
  Bucket bucket;
  const bool many = Draw(0, 9) == 0;
  for (int64_t i = many ? Draw(40, 60) : Draw(1, 3); i > 0; --i) {
    bucket.Add(many ? Draw(0, 20) : Draw(0, 3) ? Draw(0, 300) : AnySize());
    const int kind = Draw(0, 3);
    for (int64_t k = 0; k < bucket.sizes.back(); ++k) {
      float* const to = &bucket.memory.back()[k];
      *to = kind == 0   ? std::ldexp(Normal(), Draw(-140, 120))
            : kind == 1 ? static_cast<float>(Draw(-512, 512)) / 16.0f
            : kind == 2 && has_special ? SpecialFloat()
                                       : Normal();
    }
  }
  return bucket;
}

inline std::vector<Array<uint32_t>> RandomWords(int64_t payloads,
                                                int64_t words) {
  std::vector<Array<uint32_t>> memory;
  for (int64_t r = 0; r < payloads; ++r) {
    memory.emplace_back(new uint32_t[words]);
    for (int64_t k = 0; k < words; ++k) memory[r][k] = Bits();
  }
  return memory;
}

inline gpu::Payloads TableOf(const std::vector<Array<uint32_t>>& memory,
                             std::vector<const uint32_t*>* all) {
  for (const auto& one : memory) all->push_back(one.get());
  gpu::Payloads payloads = gpu::PayloadsAt(*all);
  payloads.many = all->data();
  return payloads;
}

// Whether one launch gives the same words, if the variables are small.
inline bool AloneAgrees(uint64_t seed, const gpu::GroupedBucket& bucket,
                        const gpu::GroupedVariables& variables,
                        const gpu::Grouping& code, const gpu::Key& key,
                        const uint32_t* words) {
  if (!bucket.is_small) return true;
  const auto memory = RandomWords(1, bucket.words);
  emulator::Launch(seed, variables.count, gpu::kThreads,
                   gpu::terngrad_groups_all, variables, code, key,
                   memory[0].get());
  return Report(std::equal(words, words + bucket.words, memory[0].get()),
                "encode of groups by one launch");
}

// Adds in the order of the payloads.
inline void Add(int64_t payload, float value, float* sum) {
  *sum = payload ? *sum + value : value;
}

inline bool Fp8Agrees(uint64_t seed) {
  const int largest = Draw(0, 1) ? 0x7e : 0x7b;
  const int64_t sizes[] = {0, 1, 7, 300, 20000};
  const int64_t group_size = sizes[Draw(0, 4)];
  const gpu::Grouping code =
      gpu::MakeGrouping(gpu::kFloats, false, largest, 256, 4);
  const Bucket bucket = AnyFloats(false);
  gpu::GroupedBucket table;
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    table.Add(bucket.memory[i].get(), bucket.sizes[i], code, group_size);
  }
  const int64_t count = Draw(1, 3);
  const auto memory = RandomWords(count, table.words);
  gpu::GroupedVariables variables = table.Table();
  variables.many = table.variables.data();
  Array<gpu::Extent> extents(new gpu::Extent[table.extents]);
  uint32_t* const words = memory[0].get();
  emulator::Launch(seed, gpu::CeilDivide(table.extents, gpu::kWarps),
                   gpu::kThreads, gpu::terngrad_groups_measure, variables, code,
                   extents.get(), words);
  emulator::Launch(seed, table.finishes, gpu::kThreads,
                   gpu::terngrad_groups_finish, variables, code, extents.get(),
                   words);
  emulator::Launch(seed, table.code_blocks, gpu::kThreads,
                   gpu::terngrad_fp8_encode, variables, code, words);
  const float scale = Draw(0, 1) ? 1.0f / count : 1.0f;
  bool same = true;
  std::vector<std::vector<float>> expected;
  for (const gpu::GroupedVariable& one : table.variables) {
    const int64_t groups = gpu::CeilDivide(one.size, one.group);
    const int64_t num_words = gpu::CeilDivide(one.size, 4);
    std::vector<uint32_t> digits(num_words);
    expected.emplace_back(one.size);
    for (int64_t i = 0; i < one.size; ++i) {
      const int64_t group = i / one.group, from = group * one.group;
      const float unit = ScaleOfFp8(
          one.data + from, std::min(one.group, one.size - from), largest);
      same &= words[one.words + group] ==
              static_cast<uint32_t>(__float_as_int(unit));
      const int shift = 8 * (i / num_words);
      digits[i % num_words] |= NearestFp8(one.data[i], unit, largest) << shift;
      for (int64_t r = 0; r < count; ++r) {
        const uint32_t* const payload = memory[r].get() + one.words;
        const uint32_t digit = payload[groups + i % num_words] >> shift & 0xff;
        const float value = ValueOfFp8(digit & 127, largest);
        const float of_group = KnownScale(payload[group]);
        Add(r, (digit > 127 ? -value : value) * of_group, &expected.back()[i]);
      }
      if (scale != 1.0f) expected.back()[i] *= scale;
    }
    same &= std::equal(digits.begin(), digits.end(),
                       words + one.words + groups);
  }
  if (!Report(same, "encode of fp8")) return false;
  if (!AloneAgrees(seed, table, variables, code, {}, words)) return false;
  std::vector<const uint32_t*> all;
  emulator::Launch(seed, table.code_blocks, gpu::kThreads,
                   gpu::terngrad_fp8_decode, variables,
                   TableOf(memory, &all), code, scale);
  for (size_t i = 0; i < expected.size(); ++i) {
    same &= Same(expected[i].data(), table.variables[i].data,
                 table.variables[i].size);
  }
  return Report(same, "decode of fp8");
}

inline uint32_t ExponentOf(float value, terngrad::Key key, int64_t position) {
  const uint32_t bits = __float_as_int(value);
  const uint32_t draw = BitsOf(key, static_cast<uint32_t>(position)) >> 9;
  const uint32_t exponent = (bits >> 23) % 256 + (draw < bits % (1 << 23));
  return std::min(exponent, 254U);
}

inline bool NaturalAgrees(uint64_t seed) {
  const terngrad::Key key = {Bits(), Bits(), false, 0};
  const Bucket bucket = AnyFloats(true);
  gpu::GroupedBucket table;
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    table.AddNatural(bucket.memory[i].get(), bucket.sizes[i]);
  }
  const int64_t count = Draw(0, 9) ? Draw(1, 3) : Draw(64, 66);
  const auto memory = RandomWords(count, table.words);
  gpu::GroupedVariables variables = table.Table();
  variables.many = table.variables.data();
  uint32_t* const words = memory[0].get();
  emulator::Launch(seed, table.code_blocks, gpu::kThreads,
                   gpu::terngrad_natural_encode, variables, GpuKey(key), words);
  const float scale = Draw(0, 1) ? 1.0f / count : 1.0f;
  std::vector<std::vector<float>> expected;
  std::vector<uint32_t> right;
  for (const gpu::GroupedVariable& one : table.variables) {
    const int64_t exponents = gpu::CeilDivide(one.size, 4);
    const int64_t signs = gpu::CeilDivide(one.size, 32);
    const size_t first = right.size();
    right.resize(first + exponents + signs);
    expected.emplace_back(one.size);
    for (int64_t i = 0; i < one.size; ++i) {
      right[first + i % exponents] |=
          ExponentOf(one.data[i], key, one.start + i) << (8 * (i / exponents));
      right[first + exponents + i % signs] |=
          static_cast<uint32_t>(std::signbit(one.data[i])) << (i / signs);
      for (int64_t r = 0; r < count; ++r) {
        const uint32_t* const payload = memory[r].get() + one.words;
        const uint32_t exponent =
            payload[i % exponents] >> (8 * (i / exponents)) & 0xff;
        const uint32_t sign = payload[exponents + i % signs] >> (i / signs) & 1;
        const float value = __int_as_float(
            (exponent == 255 ? 254 : exponent) << 23 | sign << 31);
        Add(r, value, &expected.back()[i]);
      }
      if (scale != 1.0f) expected.back()[i] *= scale;
    }
  }
  bool same = std::equal(right.begin(), right.end(), words);
  if (!Report(same, "encode of natural")) return false;
  std::vector<const uint32_t*> all;
  emulator::Launch(seed, table.code_blocks, gpu::kThreads,
                   gpu::terngrad_natural_decode, variables,
                   TableOf(memory, &all), scale);
  for (size_t i = 0; i < expected.size(); ++i) {
    same &= Same(expected[i].data(), table.variables[i].data,
                 table.variables[i].size);
  }
  return Report(same, "decode of natural");
}

}  // namespace problems

#endif  // TESTS_NATIVE_GPU_FLOAT_PROBLEMS_H_
