// Payloads of any words through every decoder of every set of kernels: no access
// out of bounds, nothing undefined, and all sets give the same bits. Memory is
// allocated to the byte, so that a sanitizer sees an access beyond it.
//
//   payloads_test SEED COUNT
//
// COUNT payloads are decoded by each set, each into tensors and by an update.

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels.h"

namespace {

using terngrad::GroupCode;
using terngrad::GroupKind;
using terngrad::Kernels;
using terngrad::SumType;

// Unlike a vector's, the memory ends where the elements do.
template <typename T>
using Array = std::unique_ptr<T[]>;

std::mt19937_64 random_source;

uint32_t Any() { return static_cast<uint32_t>(random_source()); }

// Its slight bias does no harm, and it takes a tenth of a distribution's time.
int64_t Draw(int64_t from, int64_t to) {
  return from + static_cast<int64_t>(random_source() % (to - from + 1));
}

constexpr uint32_t kEdges[] = {0,          1,          0x7fffffff, 0x80000000,
                               0xffffffff, 3486784400, 3486784401, 0x7f800000,
                               0xff800000, 0x7fc00000, 0x00800000, 0x55555555};

// Words of any bits, all alike, mostly zeros, or of the edges.
Array<int32_t> AnyWords(int64_t count) {
  Array<int32_t> words(new int32_t[count]);
  const int kind = Draw(0, 4);
  const uint32_t one = Any();
  for (int64_t k = 0; k < count; ++k) {
    const uint32_t word = kind == 0   ? Any()
                          : kind == 1 ? one
                          : kind == 2 ? (Draw(0, 15) ? 0 : Any())
                          : kind == 3 ? kEdges[Draw(0, std::size(kEdges) - 1)]
                                      : Any() % 3486784401U;  // an encoder's
    words[k] = static_cast<int32_t>(word);
  }
  return words;
}

float AnyNumber() {
  const uint32_t bits = Draw(0, 3) ? 0x3f000000 + Any() % 0x1000000 : Any();
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// What decodes: digits of two packings, groups of three kinds, sums of three.
enum Decoder { kTrits, kPairs, kSteps, kSpans, kSigns, kInt8, kInt32, kFloat };
constexpr int kNumDecoders = 8;
constexpr const char* kNames[] = {"trits", "pairs", "steps", "spans",
                                  "signs", "int8",  "int32", "float"};

struct Problem {
  Decoder decoder;
  std::vector<int64_t> sizes;
  std::vector<float> scalers;
  int64_t total = 0;
  float scale;
  int64_t num_words = 0;
  GroupCode code = {};
  std::vector<Array<int32_t>> payloads;
  int64_t cut = 0;    // The words, or elements, are decoded in two ranges.
  bool momentum, averages;
};

GroupCode AnyCode(GroupKind kind, int64_t size) {
  const int bits = 1 << Draw(0, 3);
  const int levels = kind == GroupKind::kSteps   ? Draw(1, 255)
                     : kind == GroupKind::kSpans ? (1 << bits) - 1
                                                 : 1;
  const uint32_t base =
      kind == GroupKind::kSteps ? 2 * levels + 1 : levels + 1;
  int places = 1;
  for (uint64_t all = base; all * base <= uint64_t{1} << 32; all *= base) {
    ++places;
  }
  const int64_t group = Draw(0, 1) ? Draw(1, size) : size;
  return {kind, false, levels, base, places, group};
}

Problem MakeProblem() {
  Problem problem;
  problem.decoder = static_cast<Decoder>(Draw(0, kNumDecoders - 1));
  const Decoder decoder = problem.decoder;
  const bool grouped = kSteps <= decoder && decoder <= kSigns;
  const int64_t most = Draw(0, 63) ? 200 : 12000;
  const int variables = grouped ? 1 : Draw(1, 4);
  for (int i = 0; i < variables; ++i) {
    problem.sizes.push_back(Draw(grouped, most / variables));
    problem.scalers.push_back(AnyNumber());
    problem.total += problem.sizes.back();
  }
  problem.scale = Draw(0, 1) ? 1.0f : AnyNumber();
  problem.momentum = Draw(0, 1);
  problem.averages = Draw(0, 1);
  const int64_t total = problem.total;
  int64_t length;
  if (grouped) {
    problem.code = AnyCode(static_cast<GroupKind>(decoder - kSteps), total);
    const int64_t places = problem.code.places;
    problem.num_words = (total + places - 1) / places;
    length = problem.num_words +
             problem.code.num_scales() * problem.code.num_groups(total);
  } else if (decoder <= kPairs) {
    const int64_t places = decoder == kTrits ? 20 : 16;
    length = problem.num_words = (total + places - 1) / places;
  } else {
    problem.num_words = total;  // a place each
    length = decoder == kInt8 ? (total + 3) / 4 : total;
  }
  problem.cut = Draw(0, problem.num_words);
  const int64_t count = decoder >= kInt8 ? 1 : Draw(1, 4);
  for (int64_t r = 0; r < count; ++r) {
    problem.payloads.push_back(AnyWords(length));
  }
  return problem;
}

// The sums, of just their bytes.
Array<char> SumsOf(const Problem& problem) {
  const int64_t bytes = problem.total * (problem.decoder == kInt8 ? 1 : 4);
  Array<char> sums(new char[bytes]);
  if (bytes) std::memcpy(sums.get(), problem.payloads[0].get(), bytes);
  return sums;
}

// Appends the tensors that a problem decodes to.
void Decode(const Kernels& kernels, const Problem& problem,
            const std::vector<const int32_t*>& payloads, const char* sums,
            std::vector<float>* result) {
  std::vector<Array<float>> memory;
  std::vector<terngrad::Target> targets;
  for (size_t i = 0; i < problem.sizes.size(); ++i) {
    memory.emplace_back(new float[problem.sizes[i]]);
    targets.push_back(
        {memory[i].get(), problem.sizes[i], problem.scalers[i]});
  }
  const int64_t ranges[][2] = {{0, problem.cut},
                               {problem.cut, problem.num_words}};
  for (const auto& [begin, end] : ranges) {
    if (problem.decoder <= kPairs) {
      const terngrad::Digits digits = {problem.decoder == kTrits ? 3 : 4,
                                       problem.decoder == kTrits ? 20 : 16};
      kernels.decode_sum(payloads.data(), payloads.size(), digits,
                         problem.scale, problem.num_words, begin, end,
                         targets.data(), targets.size());
    } else if (problem.decoder <= kSigns) {
      kernels.decode_groups(payloads.data(), payloads.size(), problem.code,
                            problem.scale, problem.num_words, begin, end,
                            memory[0].get(), problem.total);
    } else {
      kernels.scale_sums(sums, static_cast<SumType>(problem.decoder - kInt8),
                         problem.scale, begin, end, targets.data(),
                         targets.size());
    }
  }
  for (const auto& target : targets) {
    result->insert(result->end(), target.data, target.data + target.size);
  }
}

// Appends what an update makes of parameters, velocities and averages; a piece
// of the payloads at a time, as they come.
void Update(const Kernels& kernels, const Problem& problem,
            const std::vector<const int32_t*>& payloads, const char* sums,
            std::vector<float>* result) {
  std::vector<Array<float>> memory;
  std::vector<terngrad::UpdatedVariable> variables;
  for (size_t i = 0; i < problem.sizes.size(); ++i) {
    const int64_t size = problem.sizes[i];
    std::array<float*, 3> at;
    for (float*& to : at) {
      memory.emplace_back(new float[size]);
      to = memory.back().get();
      for (int64_t k = 0; k < size; ++k) to[k] = 1.5f - 0.25f * (k % 13);
    }
    variables.push_back({at[0], problem.momentum ? at[1] : nullptr,
                         problem.averages ? at[2] : nullptr, size,
                         problem.scalers[i]});
  }
  const terngrad::Rates rates = {0.01f, 0.9f, 0.99f};
  const int64_t ranges[][2] = {{0, problem.cut},
                               {problem.cut, problem.num_words}};
  for (const auto& [begin, end] : ranges) {
    if (problem.decoder <= kPairs) {
      // Copied, so that a word before or behind the piece would be seen.
      std::vector<Array<int32_t>> pieces;
      std::vector<const int32_t*> piece;
      for (const int32_t* words : payloads) {
        pieces.emplace_back(new int32_t[end - begin]);
        std::copy(words + begin, words + end, pieces.back().get());
        piece.push_back(pieces.back().get());
      }
      const terngrad::Digits digits = {problem.decoder == kTrits ? 3 : 4,
                                       problem.decoder == kTrits ? 20 : 16};
      kernels.fused_update(piece.data(), piece.size(), digits, problem.scale,
                           rates, problem.num_words, begin, begin, end,
                           variables.data(), variables.size());
    } else {
      const int64_t width = problem.decoder == kInt8 ? 1 : 4;
      Array<char> piece(new char[width * (end - begin)]);
      std::copy(sums + width * begin, sums + width * end, piece.get());
      kernels.fused_update_of_sums(
          piece.get(), static_cast<SumType>(problem.decoder - kInt8),
          problem.scale, rates, begin, begin, end, variables.data(),
          variables.size());
    }
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    const float* const from = memory[i].get();
    result->insert(result->end(), from, from + problem.sizes[i / 3]);
  }
}

std::vector<float> Run(const Kernels& kernels, const Problem& problem) {
  std::vector<const int32_t*> payloads;
  for (const auto& words : problem.payloads) payloads.push_back(words.get());
  const Array<char> sums =
      problem.decoder >= kInt8 ? SumsOf(problem) : Array<char>();
  std::vector<float> result;
  Decode(kernels, problem, payloads, sums.get(), &result);
  if (problem.decoder <= kPairs || problem.decoder >= kInt8) {
    Update(kernels, problem, payloads, sums.get(), &result);
  }
  return result;
}

// Equal to the bit; any NaN is like any other.
bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float))) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const uint64_t seed = std::strtoull(argv[1], nullptr, 10);
  const int64_t wanted = std::strtoll(argv[2], nullptr, 10);
  std::vector<const Kernels*> sets;
  for (const char* name : {"generic", "avx2", "avx512"}) {
    if (const Kernels* kernels = terngrad::Find(name)) {
      sets.push_back(kernels);
      std::printf("%s\n", kernels->name);
    }
  }
  int64_t counts[kNumDecoders] = {};
  int64_t count = 0;
  for (uint64_t trial = 0; count < wanted; ++trial) {
    random_source.seed(seed * 0x9e3779b97f4a7c15ULL + trial);
    const Problem problem = MakeProblem();
    const std::vector<float> expected = Run(*sets[0], problem);
    for (size_t i = 1; i < sets.size(); ++i) {
      if (Same(Run(*sets[i], problem), expected)) continue;
      std::printf("trial %" PRIu64 ": %s differs from %s for %s\n", trial,
                  sets[i]->name, sets[0]->name, kNames[problem.decoder]);
      return 1;
    }
    counts[problem.decoder] += problem.payloads.size();
    count += problem.payloads.size();
  }
  for (int i = 0; i < kNumDecoders; ++i) {
    std::printf("%s %" PRId64 "\n", kNames[i], counts[i]);
  }
  return 0;
}
