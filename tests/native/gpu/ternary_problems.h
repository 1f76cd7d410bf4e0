// Kernels that requantize ternary codes, or update variables by them, against
// the CPU's kernels.

#ifndef TESTS_NATIVE_GPU_TERNARY_PROBLEMS_H_
#define TESTS_NATIVE_GPU_TERNARY_PROBLEMS_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "operations/gpu_update.h"
#include "problems.h"

namespace problems {

namespace gpu = terngrad_gpu;

// Scalers of every kind; those of special floats are not negative.
inline std::vector<float> AnyScalers(size_t count) {
  std::vector<float> scalers;
  for (size_t i = 0; i < count; ++i) {
    scalers.push_back(std::abs(Draw(0, 9) ? Normal() : SpecialFloat()));
  }
  return scalers;
}

// Words of encoders, or sometimes others.
inline Array<uint32_t> AnyTernaryWords(int64_t count) {
  Array<uint32_t> words(new uint32_t[count]);
  for (int64_t k = 0; k < count; ++k) {
    words[k] = Draw(0, 3) ? Draw(0, 3486784400) : Bits();
  }
  return words;
}

inline bool RequantizeAgrees(uint64_t seed, const terngrad::Kernels* cpu) {
  Bucket bucket = AnyBucket();
  if (Draw(0, 1)) bucket.Add(Draw(1 << 14, 1 << 17));
  const bool is_base3 = Draw(0, 1), clips = Draw(0, 1);
  const terngrad::Digits digits = {is_base3 ? 3 : 4, is_base3 ? 20 : 16};
  const int64_t num_words = gpu::CeilDivide(bucket.total, digits.places);
  const terngrad::Key key = AnyKey();
  const Array<uint32_t> words = AnyTernaryWords(num_words);
  const std::vector<float> own = AnyScalers(bucket.sizes.size());
  std::vector<float> shared = own;
  std::vector<terngrad::Target> targets;
  std::vector<terngrad::Source> sources;
  for (size_t i = 0; i < own.size(); ++i) {
    shared[i] *= Draw(0, 3) ? 1.0f + std::abs(Normal()) : 1.0f;
    float* const data = bucket.memory[i].get();
    targets.push_back({data, bucket.sizes[i], own[i]});
    sources.push_back({data, bucket.sizes[i],
                       clips ? own[i] : std::numeric_limits<float>::infinity(),
                       terngrad::Factor(shared[i])});
  }
  const int32_t* const payload = reinterpret_cast<int32_t*>(words.get());
  cpu->decode_sum(&payload, 1, digits, 1.0f, num_words, 0, num_words,
                  targets.data(), targets.size());
  Array<int32_t> expected(new int32_t[num_words]);
  cpu->encode(sources.data(), sources.size(), digits, key, num_words, 0,
              num_words, expected.get());
  std::vector<gpu::Variable> many;
  const gpu::Variables table = bucket.Table(gpu::Unit::kElements, &many);
  const gpu::Coding coding = {digits.radix, digits.places, key.stratified,
                              num_words};
  Array<uint32_t> received(new uint32_t[num_words]());
  emulator::Launch(seed, gpu::CeilDivide(num_words, gpu::kThreads),
                   gpu::kThreads,
                   is_base3 ? gpu::terngrad_ternary_requantize_base3
                            : gpu::terngrad_ternary_requantize_two_bit,
                   table, own.data(), clips, shared.data(),
                   GpuKey(key), coding, words.get(), received.get());
  return Report(!std::memcmp(expected.get(), received.get(),
                             num_words * sizeof(int32_t)),
                "requantize");
}

// Variables to update, twice.
struct Updates {
  Bucket bucket;  // Its sizes.
  std::vector<float> scalers;
  // Of each variable: a parameter, a velocity and an average, for the CPU and
  // for the GPU; those that an update has not are null.
  std::vector<Array<float>> memory[2][3];
  terngrad::Rates rates;

  float* At(int device, int kind, size_t i) const {
    return memory[device][kind][i].get();
  }
};

inline Updates AnyUpdates() {
  Updates problem = {AnyBucket(), {}, {}, {}};
  // Then all elements of some blocks of threads are in one variable.
  if (Draw(0, 1)) problem.bucket.Add(Draw(1 << 14, 1 << 17));
  problem.scalers = AnyScalers(problem.bucket.sizes.size());
  const bool moves = Draw(0, 1), averages = Draw(0, 1), tiny = !Draw(0, 3);
  for (float& scaler : problem.scalers) {
    if (tiny && Draw(0, 3)) scaler = std::abs(TinyFloat());
  }
  for (const int64_t size : problem.bucket.sizes) {
    for (int kind = 0; kind < 3; ++kind) {
      const bool has = size && (kind == 0 || (kind == 1 ? moves : averages));
      Array<float> values(has ? new float[size]() : nullptr);
      Array<float> copy(has ? new float[size]() : nullptr);
      for (int64_t k = 0; has && k < size; ++k) {
        values[k] = tiny          ? TinyFloat()
                    : Draw(0, 99) ? Normal()
                                  : SpecialFloat();
        copy[k] = values[k];
      }
      problem.memory[0][kind].push_back(std::move(values));
      problem.memory[1][kind].push_back(std::move(copy));
    }
  }
  problem.rates = {Draw(0, 9) ? std::abs(Normal()) : 1e-40f, 0.9f,
                   Draw(0, 3) ? 0.99f : 1e-40f};
  return problem;
}

// The gradients of all elements, and where the CPU's kernels decode them to.
struct Decoded {
  std::vector<float> gradients;
  std::vector<terngrad::Target> targets;

  explicit Decoded(const Updates& problem) : gradients(problem.bucket.total) {
    float* data = gradients.data();
    for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
      const int64_t size = problem.bucket.sizes[i];
      targets.push_back({data, size, problem.scalers[i]});
      data += size;
    }
  }
};

// For gradients that are decoded.
inline std::vector<terngrad::UpdatedVariable> CpuTable(const Updates& problem) {
  std::vector<terngrad::UpdatedVariable> all;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    all.push_back({problem.At(0, 0, i), problem.At(0, 1, i),
                   problem.At(0, 2, i), problem.bucket.sizes[i], 1.0f});
  }
  return all;
}

inline gpu::UpdateRates GpuRates(const terngrad::Rates& rates, int roundings) {
  return {rates.learning_rate, rates.decay, rates.momentum, roundings};
}

inline gpu::UpdatedBucket GpuTable(const Updates& problem) {
  gpu::UpdatedBucket bucket;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    bucket.Add(problem.At(1, 0, i), problem.At(1, 1, i), problem.At(1, 2, i),
               problem.bucket.sizes[i]);
  }
  return bucket;
}

inline gpu::UpdatedVariables TableOf(const gpu::UpdatedBucket& bucket) {
  gpu::UpdatedVariables table = bucket.Table();
  table.many = bucket.variables.data();
  return table;
}

inline bool UpdatesAgree(const Updates& problem, const char* kernel) {
  bool same = true;
  for (int kind = 0; kind < 3; ++kind) {
    for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
      same &= !problem.At(0, kind, i) ||
              Same(problem.At(0, kind, i), problem.At(1, kind, i),
                   problem.bucket.sizes[i]);
    }
  }
  return Report(same, kernel);
}

// A range of [0, count), and often all of it.
inline std::pair<int64_t, int64_t> AnyRange(int64_t count) {
  if (Draw(0, 1)) return {0, count};
  const int64_t first = Draw(0, count);
  return {first, Draw(0, count - first)};
}

// What the CPU's kernel does with an element, with roundings that only GPUs
// have.
inline void UpdateElement(const terngrad::Rates& rates, int roundings,
                          float step, float* parameter, float* velocity,
                          float* average) {
  const auto add = [&](float a, float b, float c, int rounding) {
    return roundings & rounding ? a * b + c : std::fma(a, b, c);
  };
  if (velocity) {
    step = add(*velocity, rates.momentum, step, gpu::kRoundsMomentum);
    *velocity = step;
  }
  *parameter = add(step, -rates.learning_rate, *parameter, gpu::kRoundsRate);
  if (!average) return;
  const float share = 1.0f - rates.decay;
  *average = roundings & gpu::kRoundsAverage
                 ? std::fma(share, *parameter, *average * rates.decay)
                 : add(*average, rates.decay, share * *parameter,
                       gpu::kRoundsShares);
}

// Updates the elements [begin, end) by gradients, with the CPU's kernel or
// roundings that only GPUs have. As in XLA's update for GPUs, subnormal numbers
// are what they are.
inline void UpdateByGradients(const Updates& problem,
                              const terngrad::Kernels* cpu, int roundings,
                              const std::vector<float>& gradients,
                              int64_t begin, int64_t end) {
  if (!roundings) {
    const auto variables = CpuTable(problem);
    WithSubnormal([&] {
      cpu->fused_update_of_sums(gradients.data() + begin,
                                terngrad::SumType::kFloat, 1.0f, problem.rates,
                                begin, begin, end, variables.data(),
                                variables.size());
    });
    return;
  }
  int64_t start = 0;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    const int64_t size = problem.bucket.sizes[i];
    WithSubnormal([&] {
      const auto element = [&](int kind, int64_t k) {
        float* const all = problem.At(0, kind, i);
        return all ? all + k : nullptr;
      };
      for (int64_t k = 0; k < size; ++k) {
        if (start + k < begin || start + k >= end) continue;
        UpdateElement(problem.rates, roundings, gradients[start + k],
                      element(0, k), element(1, k), element(2, k));
      }
    });
    start += size;
  }
}

// Often none; otherwise any, with those that exclude each other.
inline int AnyRoundings() { return Draw(0, 3) ? Draw(0, 15) : 0; }

inline bool UpdateAgrees(uint64_t seed, const terngrad::Kernels* cpu) {
  const Updates problem = AnyUpdates();
  const int64_t total = problem.bucket.total;
  const bool is_base3 = Draw(0, 1);
  const terngrad::Digits digits = {is_base3 ? 3 : 4, is_base3 ? 20 : 16};
  const int64_t num_words = gpu::CeilDivide(total, digits.places);
  const std::pair<int64_t, int64_t> range = AnyRange(num_words);
  const int64_t first = range.first, count = range.second;
  const int64_t workers = Draw(0, 9) ? Draw(1, 5) : Draw(63, 70);
  const float scale = Draw(0, 1) ? 1.0f / workers : 1.0f;
  std::vector<Array<uint32_t>> memory, copies;
  std::vector<const uint32_t*> payloads;
  std::vector<const int32_t*> cpu_payloads;
  for (int64_t r = 0; r < workers; ++r) {
    memory.push_back(AnyTernaryWords(num_words));
    // The GPU's memory ends with the words of the range.
    copies.emplace_back(new uint32_t[count]);
    std::copy_n(memory[r].get() + first, count, copies[r].get());
    payloads.push_back(copies[r].get());
    cpu_payloads.push_back(reinterpret_cast<const int32_t*>(memory[r].get()));
  }
  const int roundings = AnyRoundings();
  Decoded decoded(problem);
  cpu->decode_sum(cpu_payloads.data(), workers, digits, scale, num_words, first,
                  first + count, decoded.targets.data(),
                  decoded.targets.size());
  for (int place = 0; place < digits.places; ++place) {
    const int64_t begin = place * num_words + first;
    const int64_t end = std::min(begin + count, total);
    if (begin < end) {
      UpdateByGradients(problem, cpu, roundings, decoded.gradients, begin, end);
    }
  }
  const gpu::UpdatedBucket bucket = GpuTable(problem);
  gpu::Payloads some = gpu::PayloadsAt(payloads);
  some.many = payloads.data();
  const gpu::UpdateRates rates = GpuRates(problem.rates, roundings);
  emulator::Launch(
      seed, gpu::CeilDivide(count, gpu::kThreads), gpu::kThreads,
      is_base3 ? gpu::terngrad_update_base3 : gpu::terngrad_update_two_bit,
      TableOf(bucket), some, problem.scalers.data(), scale, rates, num_words,
      first, count);
  return UpdatesAgree(problem, "update");
}

template <typename Sum>
bool UpdateOfSumsAgrees(uint64_t seed, const terngrad::Kernels* cpu,
                        terngrad::SumType type,
                        void (*kernel)(const gpu::UpdatedVariables, const Sum*,
                                       const float*, float,
                                       const gpu::UpdateRates, gpu::int64,
                                       gpu::int64)) {
  const Updates problem = AnyUpdates();
  const int64_t total = problem.bucket.total;
  const std::pair<int64_t, int64_t> range = AnyRange(total);
  const int64_t first = range.first, count = range.second;
  const float scale = Draw(0, 1) ? 1.0f / 3 : 1.0f;
  const bool tiny = type == terngrad::SumType::kFloat && !Draw(0, 3);
  Array<Sum> all(new Sum[total]), sums(new Sum[count]);
  for (int64_t k = 0; k < total; ++k) {
    all[k] = static_cast<Sum>(tiny ? TinyFloat() : Draw(-99, 99));
  }
  std::copy_n(all.get() + first, count, sums.get());
  const int roundings = AnyRoundings();
  Decoded decoded(problem);
  cpu->scale_sums(all.get(), type, scale, first, first + count,
                  decoded.targets.data(), decoded.targets.size());
  if (count) {
    UpdateByGradients(problem, cpu, roundings, decoded.gradients, first,
                      first + count);
  }
  const gpu::UpdatedBucket bucket = GpuTable(problem);
  const gpu::UpdateRates rates = GpuRates(problem.rates, roundings);
  emulator::Launch(seed, gpu::CeilDivide(count, gpu::kThreads * gpu::kScaled),
                   gpu::kThreads, kernel, TableOf(bucket), sums.get(),
                   problem.scalers.data(), scale, rates, first, count);
  return UpdatesAgree(problem, "update of sums");
}

inline bool AnyUpdateOfSumsAgrees(uint64_t seed, const terngrad::Kernels* cpu) {
  switch (Draw(0, 2)) {
    case 0:
      return UpdateOfSumsAgrees(seed, cpu, terngrad::SumType::kInt8,
                                gpu::terngrad_update_int8);
    case 1:
      return UpdateOfSumsAgrees(seed, cpu, terngrad::SumType::kInt32,
                                gpu::terngrad_update_int32);
    default:
      return UpdateOfSumsAgrees(seed, cpu, terngrad::SumType::kFloat,
                                gpu::terngrad_update_float);
  }
}

}  // namespace problems

#endif  // TESTS_NATIVE_GPU_TERNARY_PROBLEMS_H_
