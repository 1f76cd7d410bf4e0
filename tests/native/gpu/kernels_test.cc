// The GPU kernels on the CPU, against the CPU's kernels, to the bit.
//
//   kernels_test SEED TRIALS

#include "declarations.h"
#include "float_problems.h"
#include "problems.h"
#include "rotated_problems.h"
#include "sparse_problems.h"
#include "ternary_problems.h"

namespace {

namespace gpu = terngrad_gpu;
using emulator::Launch;
using problems::Array;
using problems::Bucket;
using problems::Draw;

const terngrad::Kernels* cpu;

// As the operation TerngradNorms computes it.
float NormOf(const std::vector<terngrad::Partial>& partials) {
  double squares = 0.0;
  for (const terngrad::Partial& partial : partials) squares += partial.squares;
  constexpr double kMost = std::numeric_limits<float>::max();
  return std::isfinite(squares)
             ? static_cast<float>(std::min(std::sqrt(squares), kMost))
             : std::numeric_limits<float>::quiet_NaN();
}

bool StatisticsAgree(uint64_t seed) {
  Bucket bucket = problems::AnyBucket();
  // More blocks than a block of threads adds at a time.
  if (seed % 10 == 0) {
    bucket.Add(gpu::kStatisticsBlock * (gpu::kThreads + Draw(0, 1)) -
               Draw(0, 99));
  }
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
  std::vector<float> expected(4 * count), received(4 * count, -1.0f);
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
    one[3 * count] = NormOf(partials);
  }
  std::vector<gpu::Variable> many;
  const gpu::Variables table =
      bucket.Table(gpu::Unit::kStatisticsBlocks, &many);
  Array<gpu::Partial> partials(new gpu::Partial[table.total]);
  std::vector<int> ended(gpu::NumEnded(table));
  const gpu::StatisticsOutputs to = {&received[0], &received[count],
                                     &received[2 * count],
                                     &received[3 * count], clip_factor};
  Launch(seed, std::max<int64_t>(table.total, 1), gpu::kThreads,
         gpu::terngrad_statistics, table, partials.get(), ended.data(), to);
  bool same = problems::Same(expected.data(), received.data(), 4 * count);
  for (const int number : ended) same &= number == 0;
  return problems::Report(same, "statistics");
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
          edges        ? problems::EdgeOf(problems::BitsOf(key, at), key)
          : Draw(0, 9) ? problems::Normal()
          : Draw(0, 1) ? problems::AnyBits()
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
    sources.push_back(
        {problem.bucket.memory[i].get(), problem.bucket.sizes[i],
         clips ? problem.limits[i] : std::numeric_limits<float>::infinity(),
         terngrad::Factor(problem.scalers[i])});
  }
  Array<int32_t> expected(new int32_t[num_words]);
  Array<uint32_t> received(new uint32_t[num_words]());
  cpu->encode(sources.data(), sources.size(), problem.digits, key, num_words, 0,
              num_words, expected.get());
  std::vector<gpu::Variable> many;
  const gpu::Variables table =
      problem.bucket.Table(gpu::Unit::kElements, &many);
  const gpu::Coding coding = {problem.digits.radix, problem.digits.places,
                              key.stratified, num_words};
  Launch(seed, gpu::CeilDivide(num_words, gpu::kThreads), gpu::kThreads,
         gpu::terngrad_ternary_encode, table,
         clips ? problem.limits.data() : nullptr, problem.scalers.data(),
         problems::GpuKey(key), coding, received.get());
  return problems::Report(std::memcmp(expected.get(), received.get(),
                                      num_words * sizeof(int32_t)) == 0,
                          "encode");
}

// What a bucket of targets holds, and what it must hold.
bool TargetsAgree(const Words& problem,
                  const std::vector<Array<float>>& expected,
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
  const gpu::Variables table =
      problem.bucket.Table(gpu::Unit::kElements, &many);
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
  const gpu::Variables table =
      problem.bucket.Table(gpu::Unit::kElements, &many);
  Launch(seed, gpu::CeilDivide(total, gpu::kThreads * gpu::kScaled),
         gpu::kThreads, kernel, table, sums.get(), problem.scalers.data(),
         scale);
  return TargetsAgree(problem, expected, "sums");
}

// A code of groups, and the same for the GPU.
struct Groups {
  terngrad::GroupCode code;
  gpu::Grouping grouping;
  int64_t group_size;  // 0 for one group.
};

Groups AnyGroups(int kind) {
  const int bits = 1 << Draw(0, 3);
  const int levels = kind == 0 ? Draw(1, 255) : kind == 1 ? (1 << bits) - 1 : 1;
  const uint32_t base = kind == 0 ? 2 * levels + 1 : levels + 1;
  int places = 1;
  for (uint64_t all = base; all * base <= uint64_t{1} << 32; all *= base) {
    ++places;
  }
  const bool is_norm = kind == 0 && Draw(0, 1);
  const int64_t sizes[] = {0, 1, 7, 256, 300, 512, 20000};
  return {{static_cast<terngrad::GroupKind>(kind), is_norm, levels, base,
           places, 0},
          gpu::MakeGrouping(static_cast<gpu::GroupedKind>(kind), is_norm,
                            levels, base, places),
          sizes[Draw(0, 6)]};
}

// The words of one variable, by the CPU's kernels.
void EncodeGroups(const float* data, int64_t size, terngrad::GroupCode code,
                  terngrad::Key key, int32_t* words) {
  const int64_t groups = code.num_groups(size);
  float* const scales = reinterpret_cast<float*>(words);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t from = g * code.size,
                  length = std::min(code.size, size - from);
    std::vector<terngrad::Extent> extents;
    for (int64_t at = 0; at < length; at += terngrad::kExtentBlock) {
      extents.push_back(
          cpu->extent(data + from + at,
                      std::min(terngrad::kExtentBlock, length - at), code));
    }
    float found[2];
    terngrad::FinishScales(terngrad::Joined(extents.data(), extents.size()),
                           code, length, found);
    for (int k = 0; k < code.num_scales(); ++k) {
      scales[k * groups + g] = found[k];
    }
  }
  const int64_t num_words = gpu::CeilDivide(size, code.places);
  cpu->encode_groups(data, size, code, key, false, scales, num_words, 0,
                     num_words, words + code.num_scales() * groups);
}

float AnyElement(int kind, float mean) {
  switch (kind) {
    case 0:
      return mean;
    case 1:
      return problems::Normal() * std::ldexp(1.0f, Draw(-140, 126));
    case 2:
      return Draw(0, 9) ? problems::Normal() : Draw(-1, 1) * 0.0f;
    default:
      return problems::Normal() + mean;
  }
}

// Sizes for a code of groups, and its groups.
enum class Sized { kAny, kLarge, kAlone };

Bucket GroupedSizes(Sized sized, Groups* groups) {
  Bucket bucket;
  if (sized == Sized::kLarge) {
    groups->group_size = 0;
    bucket.Add(gpu::kExtentBlock * (gpu::kThreads + 40) - Draw(0, 99));
  } else if (sized == Sized::kAlone) {
    // Large groups, of the most words for one launch or one more.
    groups->group_size = 20000 * Draw(0, 1);
    bucket.Add(gpu::kWordsAlone * groups->grouping.places + Draw(-1, 1));
    bucket.Add(20000 - Draw(0, 99));
  } else if (groups->group_size == 1 || groups->group_size == 7) {
    // A warp for each group: enough for several blocks, and no more.
    for (int64_t i = Draw(1, 3); i > 0; --i) bucket.Add(Draw(0, 600));
    // The most groups for one launch, or one more.
    if (Draw(0, 3) == 0) {
      bucket.Add(gpu::kExtentsAlone * groups->group_size + Draw(0, 1));
    }
  } else {
    bucket = problems::AnyBucket();
    if (Draw(0, 3) == 0) {
      bucket.Add(gpu::kWordsAlone * groups->grouping.places + Draw(0, 1));
    }
  }
  return bucket;
}

bool GroupsAgree(uint64_t seed) {
  // More blocks than a block of threads joins at a time: of sums and of ranges.
  const bool is_large = seed % 10 == 0;
  const bool is_alone = seed % 10 == 5;
  int code_kind = Draw(0, 2);
  if (is_alone) code_kind = gpu::kSpans;
  if (is_large) code_kind = seed % 20 == 0 ? gpu::kSigns : gpu::kSpans;
  Groups groups = AnyGroups(code_kind);
  const Bucket bucket = GroupedSizes(is_large   ? Sized::kLarge
                                     : is_alone ? Sized::kAlone
                                                : Sized::kAny,
                                     &groups);
  const terngrad::Key key = {problems::Bits(), problems::Bits(), false, 0};
  gpu::GroupedBucket table;
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    // Far from 0, so that an extent that is read too early shows.
    const int kind = is_alone ? 5 : Draw(0, 5);
    const float mean = is_alone ? 9.0f : static_cast<float>(Draw(-3, 3));
    for (int64_t k = 0; k < bucket.sizes[i]; ++k) {
      bucket.memory[i][k] = AnyElement(kind, mean);
    }
    if (kind == 4 && bucket.sizes[i]) {
      bucket.memory[i][Draw(0, bucket.sizes[i] - 1)] = problems::NotFinite();
    }
    table.Add(bucket.memory[i].get(), bucket.sizes[i], groups.grouping,
              groups.group_size);
  }
  const int64_t count = Draw(1, 4);
  std::vector<Array<uint32_t>> memory;
  std::vector<const uint32_t*> payloads;
  for (int64_t r = 0; r < count; ++r) {
    memory.emplace_back(new uint32_t[table.words]);
    for (int64_t k = 0; k < table.words; ++k) memory[r][k] = problems::Bits();
    payloads.push_back(memory[r].get());
  }
  gpu::GroupedVariables variables = table.Table();
  variables.many = table.variables.data();
  Array<gpu::Extent> extents(new gpu::Extent[table.extents]);
  Launch(seed, gpu::CeilDivide(table.extents, gpu::kWarps), gpu::kThreads,
         gpu::terngrad_groups_measure, variables, groups.grouping,
         extents.get(), memory[0].get());
  Launch(seed, table.finishes, gpu::kThreads, gpu::terngrad_groups_finish,
         variables, groups.grouping, extents.get(), memory[0].get());
  Launch(seed, table.code_blocks, gpu::kThreads, gpu::terngrad_groups_encode,
         variables, groups.grouping, problems::GpuKey(key), memory[0].get());
  bool same = true;
  const float scale = Draw(0, 1) ? 1.0f / count : 1.0f;
  std::vector<Array<float>> expected_sums;
  int64_t words = 0, elements = 0;
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    const int64_t size = bucket.sizes[i];
    expected_sums.emplace_back(new float[size]);
    if (size == 0) continue;
    terngrad::GroupCode code = groups.code;
    code.size = groups.group_size ? std::min(groups.group_size, size) : size;
    const int64_t num_words = gpu::CeilDivide(size, code.places);
    const int64_t all = code.num_scales() * code.num_groups(size) + num_words;
    Array<int32_t> expected(new int32_t[all]);
    EncodeGroups(
        bucket.memory[i].get(), size, code,
        {key.first + static_cast<uint32_t>(elements), key.second, false, 0},
        expected.get());
    same &= problems::HasOneNan(expected.get(),
                                code.num_scales() * code.num_groups(size));
    same &= std::memcmp(expected.get(), memory[0].get() + words,
                        all * sizeof(uint32_t)) == 0;
    std::vector<const int32_t*> some;
    for (const uint32_t* payload : payloads) {
      some.push_back(reinterpret_cast<const int32_t*>(payload + words));
    }
    cpu->decode_groups(some.data(), count, code, scale, num_words, 0, num_words,
                       expected_sums[i].get(), size);
    words += all;
    elements += size;
  }
  if (!problems::Report(same, "encode of groups") ||
      !problems::AloneAgrees(seed, table, variables, groups.grouping,
                             problems::GpuKey(key), memory[0].get())) {
    return false;
  }
  gpu::Payloads some = gpu::PayloadsAt(payloads);
  some.many = payloads.data();
  Launch(seed, table.code_blocks, gpu::kThreads, gpu::terngrad_groups_decode,
         variables, some, groups.grouping, scale);
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    same &= problems::Same(expected_sums[i].get(), bucket.memory[i].get(),
                           bucket.sizes[i]);
  }
  return problems::Report(same, "decode of groups");
}

bool AnySumsAgree(uint64_t seed) {
  switch (Draw(0, 2)) {
    case 0:
      return SumsAgree(seed, terngrad::SumType::kInt8,
                       gpu::terngrad_scale_int8);
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
    if (!StatisticsAgree(trial) || !EncodeAgrees(trial) ||
        !DecodeAgrees(trial) || !AnySumsAgree(trial) || !GroupsAgree(trial) ||
        !problems::Fp8Agrees(trial) ||
        !problems::NaturalAgrees(trial) ||
        !problems::RequantizeAgrees(trial, cpu) ||
        !problems::UpdateAgrees(trial, cpu) ||
        !problems::AnyUpdateOfSumsAgrees(trial, cpu) ||
        !problems::RotatedEncodeAgrees(trial, cpu) ||
        !problems::RotatedDecodeAgrees(trial, cpu) ||
        !problems::TableEncodeAgrees(trial, cpu) ||
        !problems::TableDecodeAgrees(trial, cpu) ||
        !sparse::SelectionAgrees(cpu, trial) ||
        !sparse::AdditionAgrees(cpu, trial)) {
      std::printf("in trial %lld\n", static_cast<long long>(trial));
      return 1;
    }
  }
  std::printf("%lld trials\n", static_cast<long long>(trials));
  return 0;
}
