// The GPU kernels on the CPU, against the CPU's kernels, to the bit.
//
//   kernels_test SEED TRIALS

#include "emulator.h"
//
#include "gpu/statistics.cu"
#include "gpu/ternary.cu"
//
#include "problems.h"

namespace {

namespace gpu = terngrad_gpu;
using emulator::Launch;
using problems::Array;
using problems::Bucket;
using problems::Draw;

const terngrad::Kernels* cpu;

bool StatisticsAgree(uint64_t seed) {
  Bucket bucket = problems::AnyBucket();
  const int64_t count = bucket.sizes.size();
  const int kind = Draw(0, 4);
  for (int64_t i = 0; i < count; ++i) {
    // Not around zero, so that the order of the sums shows.
    const float mean = static_cast<float>(Draw(-3, 3));
    for (int64_t k = 0; k < bucket.sizes[i]; ++k) {
      bucket.memory[i][k] = kind == 0   ? mean
                            : kind == 1 ? 1e-40f * k
                                        : problems::Normal() + mean;
      if (kind == 2 && Draw(0, 4000) == 0) {
        bucket.memory[i][k] = problems::SpecialFloat();
      }
      if (kind == 3) bucket.memory[i][k] *= std::ldexp(1.0f, Draw(-126, 100));
    }
  }
  const float clip_factor = Draw(0, 3) ? 2.5f : 0.0f;
  std::vector<float> expected(3 * count), received(3 * count, -1.0f);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = bucket.sizes[i], block = terngrad::kStatisticsBlock;
    std::vector<terngrad::Partial> partials;
    for (int64_t from = 0; from < size; from += block) {
      partials.push_back(cpu->statistics(bucket.memory[i].get() + from,
                                         std::min(block, size - from)));
    }
    float* const one = &expected[i];
    terngrad::FinishStatistics(partials.data(), partials.size(), size, one,
                               one + count);
    one[2 * count] = terngrad::Clipped(one[0], one[count], clip_factor);
  }
  std::vector<gpu::Variable> many;
  const gpu::Variables table =
      bucket.Table(gpu::Unit::kStatisticsBlocks, &many);
  Array<gpu::Partial> partials(new gpu::Partial[table.total]);
  Launch(seed, table.total, gpu::kThreads, gpu::terngrad_statistics_blocks,
         table, partials.get());
  Launch(seed, count, gpu::kThreads, gpu::terngrad_statistics_finish, table,
         partials.get(), clip_factor, &received[0], &received[count],
         &received[2 * count]);
  return problems::Report(
      problems::Same(expected.data(), received.data(), 3 * count),
      "statistics");
}

// Variables of hundreds of blocks, by their partial sums alone.
bool FinishAgrees(uint64_t seed) {
  gpu::Variables table = {};
  std::vector<gpu::Variable> many;
  std::vector<float> expected, received(9, -1.0f);
  std::vector<terngrad::Partial> partials;
  std::vector<gpu::Partial> given;
  for (int i = 0; i < 3; ++i) {
    const int64_t blocks = Draw(0, 1) ? Draw(0, 3) : Draw(255, 600);
    const int64_t size =
        std::max<int64_t>(0, blocks * gpu::kStatisticsBlock - Draw(0, 999));
    gpu::Append(nullptr, size, gpu::Unit::kStatisticsBlocks, &table, &many);
    partials.clear();
    for (int64_t b = 0; b < blocks; ++b) {
      const double sum = problems::Normal() * std::ldexp(1.0, Draw(-60, 60));
      const float most = std::abs(problems::Normal());
      partials.push_back({sum, sum * sum, most});
      given.push_back({sum, sum * sum, __float_as_int(most)});
    }
    float stddev, max_abs;
    terngrad::FinishStatistics(partials.data(), blocks, size, &stddev, &max_abs);
    expected.insert(expected.end(), {stddev, max_abs,
                                     terngrad::Clipped(stddev, max_abs, 2.0f)});
  }
  Launch(seed, 3, gpu::kThreads, gpu::terngrad_statistics_finish, table,
         given.data(), 2.0f, &received[0], &received[3], &received[6]);
  bool same = true;
  for (int i = 0; i < 9; ++i) {
    same &= problems::Same(&expected[i], &received[i / 3 + 3 * (i % 3)], 1);
  }
  return problems::Report(same, "finish");
}

struct Words {
  Bucket bucket;
  terngrad::Digits digits;
  std::vector<float> limits, scalers;
  int64_t num_words;
};

// Variables with elements, scalers and limits of every kind.
Words AnyWords(terngrad::Key key, int places) {
  Words problem = {problems::AnyBucket(), {3, places}, {}, {}, 0};
  problem.digits.radix = places == 20 ? 3 : places == 16 ? 4 : Draw(5, 9);
  int64_t at = 0;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    const bool edges = Draw(0, 1);
    for (int64_t k = 0; k < problem.bucket.sizes[i]; ++k, ++at) {
      problem.bucket.memory[i][k] =
          edges           ? problems::EdgeOf(problems::BitsOf(key, at), key)
          : Draw(0, 9)    ? problems::Normal()
          : Draw(0, 1)    ? problems::AnyBits()
                          : problems::SpecialFloat();
    }
    const float any = Draw(0, 5) ? std::abs(problems::Normal())
                                 : std::abs(problems::SpecialFloat());
    const float tiny[] = {0x1p-100f, 0x1.fffffep-101f, 0x1p-99f};
    problem.scalers.push_back(edges        ? 8388608.0f
                              : Draw(0, 9) ? any
                                           : tiny[Draw(0, 2)]);
    problem.limits.push_back(edges        ? 1e9f
                             : Draw(0, 5) ? 2.0f * std::abs(problems::Normal())
                                          : problems::SpecialFloat());
  }
  problem.num_words = gpu::CeilDivide(problem.bucket.total, places);
  return problem;
}

bool EncodeAgrees(uint64_t seed) {
  const terngrad::Key key = problems::AnyKey();
  const int places[] = {20, 16, 10};
  const Words problem = AnyWords(key, places[Draw(0, 2)]);
  const bool clips = Draw(0, 1);
  const int64_t num_words = problem.num_words;
  std::vector<terngrad::Source> sources;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    sources.push_back({problem.bucket.memory[i].get(), problem.bucket.sizes[i],
                       clips ? problem.limits[i]
                             : std::numeric_limits<float>::infinity(),
                       terngrad::Factor(problem.scalers[i])});
  }
  Array<int32_t> expected(new int32_t[num_words]);
  Array<uint32_t> received(new uint32_t[num_words]());
  cpu->encode(sources.data(), sources.size(), problem.digits, key, num_words, 0,
              num_words, expected.get());
  std::vector<gpu::Variable> many;
  const gpu::Variables table = problem.bucket.Table(gpu::Unit::kElements, &many);
  const bool has_stratum = key.stratum != 0;
  std::vector<uint32_t> numbers = {key.first, key.second};
  if (has_stratum) numbers.push_back(key.stratum);
  const gpu::Coding coding = {problem.digits.radix, problem.digits.places,
                              key.stratified, num_words};
  Launch(seed, gpu::CeilDivide(num_words, gpu::kThreads), gpu::kThreads,
         gpu::terngrad_ternary_encode, table,
         clips ? problem.limits.data() : nullptr, problem.scalers.data(),
         numbers.data(), has_stratum, coding, received.get());
  return problems::Report(std::memcmp(expected.get(), received.get(),
                                      num_words * sizeof(int32_t)) == 0,
                          "encode");
}

// What a bucket of targets holds, and what it must hold.
bool TargetsAgree(const Words& problem, const std::vector<Array<float>>& expected,
                  const char* kernel) {
  bool same = true;
  for (size_t i = 0; i < expected.size(); ++i) {
    same &= problems::Same(expected[i].get(), problem.bucket.memory[i].get(),
                           problem.bucket.sizes[i]);
  }
  return problems::Report(same, kernel);
}

std::vector<Array<float>> MakeTargets(const Words& problem,
                                      std::vector<terngrad::Target>* targets) {
  std::vector<Array<float>> expected;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    const int64_t size = problem.bucket.sizes[i];
    expected.emplace_back(new float[size]());
    targets->push_back({expected.back().get(), size, problem.scalers[i]});
  }
  return expected;
}

bool DecodeAgrees(uint64_t seed) {
  const int places = Draw(0, 1) ? 20 : 16;
  const Words problem = AnyWords({}, places);
  const int64_t num_words = problem.num_words;
  const int64_t count = Draw(0, 9) ? Draw(1, 9) : Draw(63, 70);
  const float scale = Draw(0, 1) ? 1.0f / count : 1.0f;
  std::vector<Array<uint32_t>> memory;
  std::vector<const uint32_t*> payloads;
  std::vector<const int32_t*> cpu_payloads;
  for (int64_t r = 0; r < count; ++r) {
    memory.emplace_back(new uint32_t[num_words]);
    for (int64_t k = 0; k < num_words; ++k) {
      // Words of an encoder, or for base 4 without its digit 3, or others.
      memory.back()[k] = Draw(0, 3) ? Draw(0, 3486784400) : problems::Bits();
    }
    payloads.push_back(memory.back().get());
    cpu_payloads.push_back(reinterpret_cast<const int32_t*>(payloads.back()));
  }
  std::vector<terngrad::Target> targets;
  const std::vector<Array<float>> expected = MakeTargets(problem, &targets);
  cpu->decode_sum(cpu_payloads.data(), count, problem.digits, scale, num_words,
                  0, num_words, targets.data(), targets.size());
  std::vector<gpu::Variable> many;
  const gpu::Variables table = problem.bucket.Table(gpu::Unit::kElements, &many);
  gpu::Payloads some = gpu::PayloadsAt(payloads);
  some.many = payloads.data();
  Launch(seed, gpu::CeilDivide(num_words, gpu::kThreads), gpu::kThreads,
         places == 20 ? gpu::terngrad_ternary_decode_base3
                      : gpu::terngrad_ternary_decode_two_bit,
         table, some, problem.scalers.data(), scale, num_words);
  return TargetsAgree(problem, expected, "decode");
}

template <typename Sum>
bool SumsAgree(uint64_t seed, terngrad::SumType type,
               void (*kernel)(const gpu::Variables, const Sum*, const float*,
                              float)) {
  const Words problem = AnyWords({}, 20);
  const int64_t total = problem.bucket.total;
  const float scale = Draw(0, 1) ? 1.0f / 3 : 1.0f;
  Array<Sum> sums(new Sum[total]);
  for (int64_t k = 0; k < total; ++k) sums[k] = static_cast<Sum>(Draw(-99, 99));
  std::vector<terngrad::Target> targets;
  const std::vector<Array<float>> expected = MakeTargets(problem, &targets);
  cpu->scale_sums(sums.get(), type, scale, 0, total, targets.data(),
                  targets.size());
  std::vector<gpu::Variable> many;
  const gpu::Variables table = problem.bucket.Table(gpu::Unit::kElements, &many);
  Launch(seed, gpu::CeilDivide(total, gpu::kThreads * gpu::kScaled),
         gpu::kThreads, kernel, table, sums.get(), problem.scalers.data(),
         scale);
  return TargetsAgree(problem, expected, "sums");
}

bool AnySumsAgree(uint64_t seed) {
  switch (Draw(0, 2)) {
    case 0:
      return SumsAgree(seed, terngrad::SumType::kInt8, gpu::terngrad_scale_int8);
    case 1:
      return SumsAgree(seed, terngrad::SumType::kInt32,
                       gpu::terngrad_scale_int32);
    default:
      return SumsAgree(seed, terngrad::SumType::kFloat,
                       gpu::terngrad_scale_float);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (!problems::FlushSubnormal()) return 3;
  problems::source.seed(std::strtoull(argv[1], nullptr, 10));
  const int64_t trials = std::strtoll(argv[2], nullptr, 10);
  cpu = terngrad::Find("generic");
  for (int64_t trial = 0; trial < trials; ++trial) {
    if (!StatisticsAgree(trial) || !FinishAgrees(trial) ||
        !EncodeAgrees(trial) || !DecodeAgrees(trial) || !AnySumsAgree(trial)) {
      std::printf("in trial %lld\n", static_cast<long long>(trial));
      return 1;
    }
  }
  std::printf("%lld trials\n", static_cast<long long>(trials));
  return 0;
}
