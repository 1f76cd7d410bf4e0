// Every set of kernels against every other, on buckets of random variables, with
// the work spread over threads at random. Memory is allocated to the byte, so
// that a sanitizer sees an access beyond it.
//
//   kernels_test SEED TRIALS

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels.h"
#include "spread.h"

namespace {

using terngrad::Digits;
using terngrad::Kernels;

// Unlike a vector's, the memory ends where the elements do.
template <typename T>
using Array = std::unique_ptr<T[]>;

std::mt19937_64 random_source;

int64_t Draw(int64_t from, int64_t to) {
  return std::uniform_int_distribution<int64_t>(from, to)(random_source);
}

float AnyFloat() {
  switch (Draw(0, 9)) {
    case 0: {
      const uint32_t bits = static_cast<uint32_t>(random_source());
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
    case 1:
      return 0.0f;
    case 2:
      return std::numeric_limits<float>::quiet_NaN();
    case 3:
      return Draw(0, 1) ? 2.5f : -2.5f;
    default:
      return std::normal_distribution<float>()(random_source);
  }
}

// Changes few elements to NaN or infinity, and often none.
void AddNotFinite(float* data, int64_t size) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {kNan, -kNan, kInfinity, -kInfinity};
  for (int64_t i = Draw(0, 3) ? 0 : Draw(1, 3); i > 0; --i) {
    data[Draw(0, size - 1)] = values[Draw(0, 3)];
  }
}

// Runs `work` on threads; all of it must be done when `Spread` returns.
void OnThreads(int64_t total,
               const std::function<void(int64_t, int64_t)>& work) {
  std::vector<std::thread> threads;
  std::atomic<int64_t> done{0};
  terngrad::Spread(
      total, Draw(1, total / 3 + 1), 4,
      [&](std::function<void()> closure) {
        threads.emplace_back(std::move(closure));
      },
      [&](int64_t begin, int64_t end) {
        work(begin, end);
        done += end - begin;
      });
  const int64_t done_then = done;
  for (std::thread& thread : threads) thread.join();
  if (done_then != total || done != total) {
    std::printf("%" PRId64 " of %" PRId64 " were done\n", done_then, total);
    std::exit(1);
  }
}

// The random bits of an element, as terngrad/codec/stages/random_bits.py has them; the
// upper 23 decide.
uint32_t BitsOf(terngrad::Key key, uint32_t position) {
  uint32_t bits = position + key.first;
  bits = (bits ^ (bits >> 16)) * 0x7feb352dU + key.second;
  bits = (bits ^ (bits >> 15)) * 0x846ca68bU;
  return bits ^ (bits >> 16);
}

// The draw of a value of this sign, where draws are in strata.
uint32_t InStratum(uint32_t bits, terngrad::Key key, bool negative) {
  bits += key.stratum;
  return negative ? bits : ~bits;
}

// A value that fires, or does not, by the last bit: with a factor of 1.
float EdgeOf(uint32_t bits, terngrad::Key key) {
  const bool negative = Draw(0, 1);
  if (key.stratified) bits = InStratum(bits, key, negative);
  const float edge = static_cast<float>(bits >> 9) + 0.5f;
  const float to = Draw(0, 1) ? 0.0f : 1e9f;
  const float value = Draw(0, 1) ? edge : std::nextafter(edge, to);
  return negative ? -value : value;
}

struct Result {
  std::vector<int32_t> words;
  std::vector<float> floats;
};

struct Problem {
  Digits digits;
  terngrad::Key key;
  std::vector<Array<float>> data;
  std::vector<terngrad::Source> sources;
  std::vector<float> scalers;
  std::vector<Array<int32_t>> noise;  // Payloads of any bits.
  int64_t num_words = 0;
};

Problem MakeProblem() {
  Problem problem;
  problem.digits = Draw(0, 1) ? Digits{3, 20} : Digits{4, 16};
  problem.key = {static_cast<uint32_t>(random_source()),
                 static_cast<uint32_t>(random_source()), Draw(0, 1) == 1,
                 static_cast<uint32_t>(random_source())};
  int64_t total = 0;
  const int64_t count = Draw(1, 5);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t most[] = {3, 70, 700, 40000};
    const int64_t size = Draw(0, most[Draw(0, 3)]);
    Array<float> data(new float[size]);
    const bool edges = Draw(0, 1);
    for (int64_t k = 0; k < size; ++k) {
      data[k] = edges ? EdgeOf(BitsOf(problem.key, total + k), problem.key)
                      : AnyFloat();
    }
    const float scaler = edges ? 8388608.0f : std::abs(AnyFloat());
    const float limit = edges ? 1e9f : std::abs(AnyFloat());
    problem.sources.push_back({data.get(), size, limit, 8388608.0f / scaler});
    problem.scalers.push_back(scaler);
    problem.data.push_back(std::move(data));
    total += size;
  }
  const int64_t places = problem.digits.places;
  problem.num_words = (total + places - 1) / places;
  for (int64_t r = Draw(0, 9); r > 0; --r) {
    Array<int32_t> words(new int32_t[problem.num_words]);
    // Words that an encoder could have written: below 3^20.
    for (int64_t k = 0; k < problem.num_words; ++k) {
      words[k] = static_cast<int32_t>(
          static_cast<uint32_t>(Draw(0, 3486784400)));
    }
    problem.noise.push_back(std::move(words));
  }
  return problem;
}

Result Run(const Kernels& kernels, const Problem& problem) {
  Result result;
  const int64_t count = problem.sources.size();
  for (int64_t i = 0; i < count; ++i) {
    const terngrad::Source& source = problem.sources[i];
    const int64_t block = terngrad::kStatisticsBlock;
    std::vector<terngrad::Partial> partials((source.size + block - 1) / block);
    OnThreads(partials.size(), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        partials[b] = kernels.statistics(
            source.data + b * block, std::min(block, source.size - b * block));
      }
    });
    float stddev, max_abs;
    terngrad::FinishStatistics(partials.data(), partials.size(), source.size,
                               &stddev, &max_abs);
    result.floats.push_back(stddev);
    result.floats.push_back(max_abs);
  }
  const int64_t num_words = problem.num_words;
  Array<int32_t> words(new int32_t[num_words]);
  OnThreads(num_words, [&](int64_t begin, int64_t end) {
    kernels.encode(problem.sources.data(), count, problem.digits, problem.key,
                   num_words, begin, end, words.get());
  });
  result.words.assign(words.get(), words.get() + num_words);
  std::vector<const int32_t*> payloads = {words.get()};
  for (const auto& noise : problem.noise) payloads.push_back(noise.get());
  std::vector<Array<float>> sums;
  std::vector<terngrad::Target> targets;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = problem.sources[i].size;
    sums.emplace_back(new float[size]);
    targets.push_back({sums.back().get(), size, problem.scalers[i]});
  }
  OnThreads(num_words, [&](int64_t begin, int64_t end) {
    kernels.decode_sum(payloads.data(), payloads.size(), problem.digits,
                       1.0f / payloads.size(), num_words, begin, end,
                       targets.data(), count);
  });
  // Twice, with momentum and averages by turns.
  const auto any = [&](int64_t size, float start) {
    Array<float> values(new float[size]);
    for (int64_t k = 0; k < size; ++k) values[k] = start / (k + 1);
    return values;
  };
  for (const bool momentum : {false, true}) {
    for (const bool averages : {false, true}) {
      std::vector<Array<float>> memory;
      std::vector<terngrad::UpdatedVariable> variables;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t size = problem.sources[i].size;
        for (float start : {0.5f, -2.0f, 3.0f}) {
          memory.push_back(any(size, start));
        }
        const Array<float>* at = &memory[3 * i];
        variables.push_back({at[0].get(), momentum ? at[1].get() : nullptr,
                             averages ? at[2].get() : nullptr, size,
                             problem.scalers[i]});
      }
      for (int time = 0; time < 2; ++time) {
        // The second time in two pieces.
        const int64_t first = time ? num_words / 3 : num_words;
        for (const bool rest : {false, true}) {
          std::vector<const int32_t*> piece = payloads;
          const int64_t from = rest ? first : 0;
          for (const int32_t*& words : piece) words += from;
          const int64_t length = rest ? num_words - first : first;
          OnThreads(length, [&](int64_t begin, int64_t end) {
            kernels.fused_update(piece.data(), piece.size(), problem.digits,
                                 1.0f / piece.size(), {0.01f, 0.9f, 0.99f},
                                 num_words, from, from + begin, from + end,
                                 variables.data(), count);
          });
        }
      }
      for (int64_t i = 0; i < 3 * count; ++i) {
        const int64_t size = problem.sources[i / 3].size;
        result.floats.insert(result.floats.end(), memory[i].get(),
                             memory[i].get() + size);
      }
    }
  }
  for (const auto& target : targets) {
    result.floats.insert(result.floats.end(), target.data,
                         target.data + target.size);
  }
  return result;
}

struct GroupProblem {
  terngrad::GroupCode code;
  terngrad::Key key;
  Array<float> data;
  int64_t size;
  bool measures;
};

GroupProblem MakeGroupProblem() {
  GroupProblem problem;
  const int kind = Draw(0, 2);
  const int bits = 1 << Draw(0, 3);
  const int levels = kind == 0 ? Draw(1, 255) : kind == 1 ? (1 << bits) - 1 : 1;
  const uint32_t base = kind == 0 ? 2 * levels + 1 : levels + 1;
  int places = 1;
  for (uint64_t all = base; all * base <= uint64_t{1} << 32; all *= base) {
    ++places;
  }
  const int64_t most[] = {3, 700, 40000};
  problem.size = Draw(1, most[Draw(0, 2)]);
  const int64_t group = Draw(0, 1) ? Draw(1, problem.size) : problem.size;
  problem.code = {static_cast<terngrad::GroupKind>(kind),
                  kind == 0 && Draw(0, 1) == 1, levels, base, places, group};
  problem.key = {static_cast<uint32_t>(random_source()),
                 static_cast<uint32_t>(random_source()), false, 0};
  problem.measures = group <= terngrad::kGroupWords && Draw(0, 1);
  problem.data.reset(new float[problem.size]);
  std::normal_distribution<float> normal;
  for (int64_t k = 0; k < problem.size; ++k) {
    problem.data[k] = Draw(0, 9) ? normal(random_source)
                                 : std::ldexp(normal(random_source),
                                              static_cast<int>(Draw(-140, 120)));
  }
  AddNotFinite(problem.data.get(), problem.size);
  return problem;
}

// The words of a variable, what they and any other codes decode to, and its
// elements from some magnitude on.
Result Run(const Kernels& kernels, const GroupProblem& problem) {
  const terngrad::GroupCode& code = problem.code;
  const float* const data = problem.data.get();
  const int64_t size = problem.size, groups = code.num_groups(size);
  const int64_t scales = code.num_scales() * groups;
  const int64_t num_words = (size + code.places - 1) / code.places;
  Array<int32_t> words(new int32_t[scales + num_words]);
  float* const own = reinterpret_cast<float*>(words.get());
  for (int64_t g = 0; g < groups && !problem.measures; ++g) {
    const int64_t from = g * code.size, length = std::min(code.size, size - from);
    const terngrad::Extent extent = kernels.extent(data + from, length, code);
    float found[2];
    terngrad::FinishScales(extent, code, length, found);
    for (int k = 0; k < code.num_scales(); ++k) own[k * groups + g] = found[k];
  }
  OnThreads(num_words, [&](int64_t begin, int64_t end) {
    kernels.encode_groups(data, size, code, problem.key, problem.measures, own,
                          num_words, begin, end, words.get() + scales);
  });
  Result result;
  result.words.assign(words.get(), words.get() + scales + num_words);
  Array<int32_t> noise(new int32_t[scales + num_words]);
  for (int64_t k = 0; k < scales + num_words; ++k) {
    // Any codes, of scales that an encoder makes.
    const uint32_t other = static_cast<uint32_t>(words[k]) * 0x7feb352dU + 1;
    noise[k] = k < scales ? words[k] : static_cast<int32_t>(other);
  }
  const int32_t* const payloads[] = {words.get(), noise.get(), words.get()};
  for (const int64_t count : {1, 3}) {
    Array<float> sums(new float[size]);
    OnThreads(num_words, [&](int64_t begin, int64_t end) {
      kernels.decode_groups(payloads, count, code, 1.0f / count, num_words,
                            begin, end, sums.get(), size);
    });
    result.floats.insert(result.floats.end(), sums.get(), sums.get() + size);
  }
  Array<int32_t> indices(new int32_t[size]);
  Array<float> values(new float[size]);
  const int64_t found = kernels.at_least(data, size, 0x3f800000, 7,
                                         indices.get(), values.get());
  result.words.insert(result.words.end(), indices.get(), indices.get() + found);
  result.floats.insert(result.floats.end(), values.get(), values.get() + found);
  return result;
}

struct RotatedProblem {
  terngrad::RotatedCode code;
  terngrad::Key key;
  std::vector<Array<float>> memory;
  std::vector<terngrad::Source> sources;
  std::vector<int64_t> sizes;
  int64_t total = 0;
  float scale;
};

RotatedProblem MakeRotatedProblem() {
  RotatedProblem problem;
  problem.code = {};
  const int kind = Draw(0, 4);
  problem.code.with_zero = kind == 4;
  problem.code.num_levels = kind == 4 ? 2 : 1 << kind;
  int32_t level = problem.code.with_zero ? 0 : Draw(1, 9);
  for (int k = 0; k < problem.code.num_levels; ++k) {
    problem.code.levels[k] = level;
    level += problem.code.with_zero ? 1 : Draw(1, 30);
    if (k) problem.code.borders[k - 1] = 0.3 * k + 0.001 * Draw(0, 99);
  }
  const uint32_t bases[] = {2, 4, 16, 16, 3};
  const int32_t places[] = {32, 16, 8, 8, 20};
  problem.code.base = bases[kind];
  problem.code.places = places[kind];
  problem.key = {static_cast<uint32_t>(random_source()),
                 static_cast<uint32_t>(random_source()), false, 0};
  problem.scale = Draw(0, 1) ? 1.0f : 1.0f / 3;
  const int64_t most[] = {9, 700, 30000};
  const int64_t limit = most[Draw(0, 2)];
  for (int64_t i = Draw(1, 3); i > 0; --i) {
    const int64_t size = Draw(i == 1, limit);
    problem.memory.emplace_back(new float[size]);
    for (int64_t k = 0; k < size; ++k) {
      problem.memory.back()[k] =
          Draw(0, 9) ? std::normal_distribution<float>()(random_source) : 0.0f;
    }
    if (size) AddNotFinite(problem.memory.back().get(), size);
    problem.sources.push_back({problem.memory.back().get(), size, 0.0f,
                               std::ldexp(1.0f, Draw(-9, 9))});
    problem.sizes.push_back(size);
    problem.total += size;
  }
  problem.code.block = terngrad::kRotatedBlock;
  while (problem.code.block / 2 >= problem.total && problem.code.block > 1) {
    problem.code.block /= 2;
  }
  return problem;
}

// The words of a bucket, and what they and any others decode to.
Result Run(const Kernels& kernels, const RotatedProblem& problem) {
  const terngrad::RotatedCode& code = problem.code;
  const int64_t blocks = (problem.total + code.block - 1) / code.block;
  const int64_t num_words =
      (blocks * code.block + code.places - 1) / code.places;
  const int64_t head = terngrad::kKeyWords + blocks;
  const int64_t room = num_words * code.places + 64;
  Array<uint8_t> digits(new uint8_t[room]());
  Array<int32_t> words(new int32_t[head + num_words]);
  words[0] = static_cast<int32_t>(problem.key.first);
  words[1] = static_cast<int32_t>(problem.key.second);
  OnThreads(blocks, [&](int64_t begin, int64_t end) {
    kernels.encode_rotated(
        problem.sources.data(), problem.sources.size(), code, problem.key,
        begin, end,
        reinterpret_cast<float*>(words.get() + terngrad::kKeyWords),
        digits.get());
  });
  std::memset(digits.get() + blocks * code.block, code.with_zero ? 1 : 0,
              room - blocks * code.block);
  OnThreads(num_words, [&](int64_t begin, int64_t end) {
    kernels.pack_digits(digits.get(), code.base, code.places, num_words, begin,
                        end, words.get() + head);
  });
  Result result;
  result.words.assign(words.get(), words.get() + head + num_words);
  Array<int32_t> noise(new int32_t[head + num_words]);
  for (int64_t k = 0; k < head + num_words; ++k) {
    // Any key and codes, and a few scales that no encoder makes.
    const uint32_t other = static_cast<uint32_t>(words[k]) * 0x7feb352dU + 1;
    const bool is_scale = terngrad::kKeyWords <= k && k < head;
    noise[k] =
        is_scale && other % 16 ? words[k] : static_cast<int32_t>(other);
  }
  const int32_t* const payloads[] = {words.get(), noise.get(), words.get()};
  for (const int64_t count : {1, 3}) {
    std::vector<Array<float>> memory;
    std::vector<terngrad::Target> targets;
    for (const int64_t size : problem.sizes) {
      memory.emplace_back(new float[size]);
      targets.push_back({memory.back().get(), size, 0.25f});
    }
    OnThreads(blocks, [&](int64_t begin, int64_t end) {
      kernels.decode_rotated(payloads, count, code, problem.scale, blocks,
                             num_words, begin, end, targets.data(),
                             targets.size());
    });
    for (const auto& target : targets) {
      result.floats.insert(result.floats.end(), target.data,
                           target.data + target.size);
    }
  }
  return result;
}

struct TableProblem {
  terngrad::TableCode code;
  terngrad::Key signs, draws;
  Array<float> data;
  std::vector<float> factors, inverses;
  int64_t size;
};

TableProblem MakeTableProblem() {
  TableProblem problem;
  std::vector<int32_t> inner;
  for (int32_t k = -14; k < 15; ++k) inner.push_back(k);
  std::shuffle(inner.begin(), inner.end(), random_source);
  std::sort(inner.begin(), inner.begin() + 14);
  std::copy(inner.begin(), inner.begin() + 14, problem.code.entries + 1);
  problem.code.entries[0] = -15;
  problem.code.entries[15] = 15;
  for (terngrad::Key* key : {&problem.signs, &problem.draws}) {
    *key = {static_cast<uint32_t>(random_source()),
            static_cast<uint32_t>(random_source()), false, 0};
  }
  const int64_t most[] = {9, 700, 30000};
  problem.size = Draw(1, most[Draw(0, 2)]);
  problem.code.block = terngrad::kRotatedBlock;
  while (problem.code.block / 2 >= problem.size && problem.code.block > 1) {
    problem.code.block /= 2;
  }
  problem.data.reset(new float[problem.size]);
  for (int64_t k = 0; k < problem.size; ++k) {
    problem.data[k] = Draw(0, 99)
                          ? std::normal_distribution<float>()(random_source)
                          : AnyFloat();
  }
  for (int64_t k = 0; k < problem.size; k += problem.code.block) {
    problem.factors.push_back(std::ldexp(1.0f, Draw(-9, 9)));
    problem.inverses.push_back(0.01f * Draw(0, 999999));
  }
  return problem;
}

// The numbers of a variable's entries, and what they rotate back to as integers.
Result Run(const Kernels& kernels, const TableProblem& problem) {
  const int64_t blocks = problem.factors.size();
  const int64_t padded = blocks * problem.code.block;
  Array<uint8_t> digits(new uint8_t[padded + 64]());
  OnThreads(blocks, [&](int64_t begin, int64_t end) {
    kernels.encode_table(problem.data.get(), problem.size, problem.code,
                         problem.factors.data(), problem.inverses.data(),
                         problem.signs, problem.draws, begin, end,
                         digits.get());
  });
  Result result;
  result.words.assign(digits.get(), digits.get() + padded);
  Array<int32_t> sums(new int32_t[padded]);
  for (int64_t k = 0; k < padded; ++k) sums[k] = digits[k] - 7;
  result.floats.resize(problem.size);
  OnThreads(blocks, [&](int64_t begin, int64_t end) {
    kernels.decode_table(sums.get(), problem.size, problem.code.block,
                         problem.factors.data(), problem.signs, begin, end,
                         result.floats.data());
  });
  return result;
}

// Equal to the bit; any NaN is like any other.
bool Same(const Result& a, const Result& b) {
  if (a.words != b.words || a.floats.size() != b.floats.size()) return false;
  for (size_t i = 0; i < a.floats.size(); ++i) {
    if (std::isnan(a.floats[i]) && std::isnan(b.floats[i])) continue;
    if (std::memcmp(&a.floats[i], &b.floats[i], sizeof(float))) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  random_source.seed(std::strtoull(argv[1], nullptr, 10));
  const int64_t trials = std::strtoll(argv[2], nullptr, 10);
  std::vector<const Kernels*> sets;
  for (const char* name : {"generic", "avx2", "avx512"}) {
    if (const Kernels* kernels = terngrad::Find(name)) {
      sets.push_back(kernels);
      std::printf("%s\n", kernels->name);
    }
  }
  const auto agree = [&](const auto& problem, int64_t trial) {
    const Result expected = Run(*sets[0], problem);
    for (const Kernels* kernels : sets) {
      if (!Same(Run(*kernels, problem), expected)) {
        std::printf("trial %" PRId64 ": %s differs from %s\n", trial,
                    kernels->name, sets[0]->name);
        return false;
      }
    }
    return true;
  };
  for (int64_t trial = 0; trial < trials; ++trial) {
    if (!agree(MakeProblem(), trial)) return 1;
    if (!agree(MakeGroupProblem(), trial)) return 1;
    if (!agree(MakeRotatedProblem(), trial)) return 1;
    if (!agree(MakeTableProblem(), trial)) return 1;
  }
  std::printf("%" PRId64 " trials\n", trials);
  return 0;
}
