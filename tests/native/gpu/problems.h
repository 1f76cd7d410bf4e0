// Random problems for GPU kernels: buckets with the elements that decide.

#ifndef TESTS_NATIVE_GPU_PROBLEMS_H_
#define TESTS_NATIVE_GPU_PROBLEMS_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "kernels.h"
#include "operations/gpu_host.h"

namespace problems {

// Unlike a vector's, the memory ends where the elements do.
template <typename T>
using Array = std::unique_ptr<T[]>;

inline std::mt19937_64 source;

inline int64_t Draw(int64_t from, int64_t to) {
  return std::uniform_int_distribution<int64_t>(from, to)(source);
}

inline uint32_t Bits() { return static_cast<uint32_t>(source()); }

inline float Normal() { return std::normal_distribution<float>()(source); }

inline float NotFinite() {
  const float values[] = {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::quiet_NaN()};
  return values[Draw(0, 3)];
}

// Zeroes of both signs, subnormal, smallest and largest numbers, infinity, NaN.
inline float SpecialFloat() {
  const float values[] = {0.0f,       -0.0f,   1e-40f,   -1e-40f, 0x1p-126f,
                          -0x1p-126f, 3.4e38f, -3.4e38f, 2.5f,    -2.5f};
  return Draw(0, 15) ? values[Draw(0, 9)] : NotFinite();
}

// A float of any bits.
inline float AnyBits() {
  const uint32_t bits = Bits();
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Subnormal numbers and the smallest normal ones. Of bits, as arithmetic would
// flush them.
inline float TinyFloat() {
  const uint32_t sign = Draw(0, 1) ? 0x80000000U : 0;
  const uint32_t bits = sign | static_cast<uint32_t>(Draw(0, 0x02000000));
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline terngrad_gpu::Key GpuKey(terngrad::Key key) {
  return {key.first, key.second, key.stratum};
}

// The random bits of an element; see terngrad/codec/stages/random_bits.py.
inline uint32_t BitsOf(terngrad::Key key, uint32_t position) {
  uint32_t bits = position + key.first;
  bits = (bits ^ (bits >> 16)) * 0x7feb352dU + key.second;
  bits = (bits ^ (bits >> 15)) * 0x846ca68bU;
  return bits ^ (bits >> 16);
}

// A value that fires, or does not, by the last bit, with a factor of 1.
inline float EdgeOf(uint32_t bits, terngrad::Key key) {
  const bool negative = Draw(0, 1);
  if (key.stratified) {
    bits += key.stratum;
    if (!negative) bits = ~bits;
  }
  const float edge = static_cast<float>(bits >> 9) + 0.5f;
  const float value =
      Draw(0, 1) ? edge : std::nextafter(edge, Draw(0, 1) ? 0.0f : 1e9f);
  return negative ? -value : value;
}

inline terngrad::Key AnyKey() {
  terngrad::Key key = {Bits(), Bits(), Draw(0, 1) == 1, 0};
  if (key.stratified) key.stratum = Draw(0, 4) ? Bits() : 0;
  return key;
}

// Sizes around those of warps, tiles and blocks, and of nothing.
inline int64_t AnySize() {
  const int64_t around[] = {0, 1, 32, 256, 1024, 4096, 16384, 32768};
  const int64_t size = around[Draw(0, Draw(0, 3) ? 5 : 7)];
  return std::max<int64_t>(0, size + Draw(-1, 1) * Draw(0, 3));
}

// The variables of a bucket, in separate memory.
struct Bucket {
  std::vector<Array<float>> memory;
  std::vector<int64_t> sizes;
  int64_t total = 0;

  void Add(int64_t size) {
    memory.emplace_back(new float[size]());
    sizes.push_back(size);
    total += size;
  }

  terngrad_gpu::Variables Table(
      terngrad_gpu::Unit unit,
      std::vector<terngrad_gpu::Variable>* many) const {
    terngrad_gpu::Variables table = {};
    for (size_t i = 0; i < sizes.size(); ++i) {
      terngrad_gpu::Append(memory[i].get(), sizes[i], unit, &table, many);
    }
    table.many = many->data();
    return table;
  }
};

// A bucket of a few variables, or now and then of many small ones.
inline Bucket AnyBucket() {
  Bucket bucket;
  const bool many = Draw(0, 9) == 0;
  for (int64_t i = many ? Draw(127, 300) : Draw(1, 6); i > 0; --i) {
    bucket.Add(many ? Draw(0, 90) : AnySize());
  }
  return bucket;
}

// Flushes subnormal numbers to zero, as TensorFlow's CPU threads do.
inline bool FlushSubnormal() {
#if defined(__SSE2__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
  return true;
#else
  return false;
#endif
}

// Runs `work` with subnormal numbers, as XLA's programs for GPUs do. A call, so
// that the compiler moves no arithmetic into it or out of it.
__attribute__((noinline)) inline void WithSubnormal(
    const std::function<void()>& work) {
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before & ~0x8040U);
  work();
  _mm_setcsr(before);
#else
  work();
#endif
}

// Equal to the bit; any NaN is like any other.
inline bool Same(const float* a, const float* b, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(a + i, b + i, sizeof(float))) return false;
  }
  return true;
}

// Whether scales have only the NaN of payloads; processors make several.
inline bool HasOneNan(const void* scales, int64_t count) {
  bool has = true;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, static_cast<const char*>(scales) + i * sizeof(bits),
                sizeof(bits));
    has &= (bits & 0x7fffffff) <= 0x7f800000 || bits == 0x7fc00000;
  }
  return has;
}

inline bool Report(bool same, const char* kernel) {
  if (!same) std::printf("%s differs\n", kernel);
  return same;
}

}  // namespace problems

#endif  // TESTS_NATIVE_GPU_PROBLEMS_H_
