// Kernels of codes of rotated blocks, against the CPU's kernels.

#ifndef TESTS_NATIVE_GPU_ROTATED_PROBLEMS_H_
#define TESTS_NATIVE_GPU_ROTATED_PROBLEMS_H_

#include <algorithm>
#include <vector>

#include "operations/gpu_rotation.h"
#include "problems.h"

namespace problems {

namespace gpu = terngrad_gpu;

// As the operations choose it.
inline int64_t BlockOf(int64_t size) {
  int64_t block = terngrad::kRotatedBlock;
  while (block / 2 >= size && block > 1) block /= 2;
  return block;
}

// Elements around 0, with some large ones, zeros, or very small ones. Few are
// not finite, and often none.
inline void FillForRotation(float* data, int64_t size) {
  const int kind = Draw(0, 4);
  const float unit = std::ldexp(1.0f, Draw(-2, 2));
  for (int64_t i = 0; i < size; ++i) {
    data[i] = kind == 0          ? 0.0f
              : kind == 1        ? std::ldexp(Normal(), Draw(-149, -120))
              : Draw(0, 99) == 0 ? 100.0f * Normal()
                                 : unit * Normal();
    if (kind == 2 && Draw(0, 9)) data[i] = Draw(0, 1) ? 0.0f : -0.0f;
  }
  for (int64_t i = size && !Draw(0, 3) ? Draw(1, 3) : 0; i > 0; --i) {
    data[Draw(0, size - 1)] = NotFinite();
  }
}

// The codes of eden and eden3, and one whose borders are 0.
inline terngrad::RotatedCode AnyRotatedCode(int64_t size) {
  terngrad::RotatedCode code = {};
  const int kind = Draw(0, 4);
  code.with_zero = kind == 0;
  code.num_levels = kind == 0 ? 2 : 1 << (kind - 1);
  code.base = kind == 0 ? 3 : kind == 3 ? 16 : 1U << kind;
  code.places = kind == 0 ? 20 : 32 / __builtin_ctz(code.base);
  const double step = Draw(0, 9) ? 0.4 : 0.0;
  for (int k = 0; k < code.num_levels; ++k) {
    code.levels[k] = code.with_zero         ? k
                     : code.num_levels == 1 ? 1
                                            : 8 + 30 * k + Draw(0, 20);
    if (k > 0) code.borders[k - 1] = step * (k + 0.7);
  }
  code.block = BlockOf(size);
  return code;
}

inline Bucket AnyRotatedBucket() {
  Bucket bucket;
  switch (Draw(0, 9)) {
    case 0:
      for (int i = 0; i < 140; ++i) bucket.Add(Draw(0, 60));
      break;
    case 1:
    case 2:
      bucket.Add(1 << Draw(0, 11));
      break;
    case 3:
    case 4:
      bucket.Add(Draw(1, 40));
      break;
    case 5:
      // One place of the words has all digits of many blocks.
      bucket.Add(Draw(40000, 160000));
      bucket.Add(Draw(0, 9000));
      break;
    default:
      for (int64_t i = Draw(1, 3); i > 0; --i) {
        bucket.Add(Draw(0, 1) ? Draw(0, 9000) : 4096 * Draw(1, 2));
      }
  }
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    FillForRotation(bucket.memory[i].get(), bucket.sizes[i]);
  }
  return bucket;
}

// The words of digits by the CPU's kernel, whose digits need room.
inline std::vector<int32_t> PackedBy(const terngrad::Kernels* cpu,
                                     std::vector<uint8_t> digits,
                                     const gpu::Packing& packing) {
  digits.resize(packing.num_digits);
  digits.resize(packing.num_words * packing.places + 64,
                static_cast<uint8_t>(packing.fill));
  std::vector<int32_t> words(packing.num_words);
  cpu->pack_digits(digits.data(), packing.base, packing.places,
                   packing.num_words, 0, packing.num_words, words.data());
  return words;
}

// Packs by the GPU's kernel; the digits are in memory that ends with them.
inline void PackOnGpu(uint64_t seed, const unsigned char* digits,
                      const gpu::Packing& packing, uint32_t* words) {
  emulator::Launch(seed, gpu::CeilDivide(packing.num_words, gpu::kThreads),
                   gpu::kThreads, gpu::terngrad_digits_pack, digits, packing,
                   words);
}

inline bool RotatedEncodeAgrees(uint64_t seed, const terngrad::Kernels* cpu) {
  const Bucket bucket = AnyRotatedBucket();
  const terngrad::RotatedCode code = AnyRotatedCode(bucket.total);
  const int64_t blocks = gpu::CeilDivide(bucket.total, code.block);
  const gpu::Packing packing = gpu::PackingOf(code, blocks);
  const terngrad::Key key = {Bits(), Bits(), false, 0};
  std::vector<terngrad::Source> sources;
  std::vector<float> factors;
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    factors.push_back(std::ldexp(1.0f, Draw(-3, 3)));
    sources.push_back(
        {bucket.memory[i].get(), bucket.sizes[i], 0.0f, factors[i]});
  }
  std::vector<float> scales(blocks);
  std::vector<uint8_t> digits(packing.num_digits + 64);
  cpu->encode_rotated(sources.data(), sources.size(), code, key, 0, blocks,
                      scales.data(), digits.data());
  const std::vector<int32_t> expected = PackedBy(cpu, digits, packing);
  Array<uint32_t> received(
      new uint32_t[gpu::kKeyWords + blocks + packing.num_words]());
  Array<unsigned char> found(new unsigned char[packing.num_digits]);
  std::vector<gpu::Variable> many;
  const gpu::Variables table = bucket.Table(gpu::Unit::kElements, &many);
  const uint32_t numbers[] = {key.first, key.second};
  emulator::Launch(seed, blocks, gpu::kThreads, gpu::terngrad_rotated_encode,
                   table, factors.data(), &code.borders[0], GpuKey(key),
                   gpu::RotatingOf(code, blocks), received.get(), found.get());
  uint32_t* const words = received.get() + gpu::kKeyWords + blocks;
  PackOnGpu(seed, found.get(), packing, words);
  const bool same =
      !blocks ||
      (HasOneNan(scales.data(), blocks) &&
       !std::memcmp(received.get(), numbers, sizeof(numbers)) &&
       !std::memcmp(received.get() + gpu::kKeyWords, scales.data(),
                    blocks * sizeof(float)) &&
       !std::memcmp(words, expected.data(),
                    packing.num_words * sizeof(uint32_t)));
  return Report(same, "encode of rotated blocks");
}

inline bool RotatedDecodeAgrees(uint64_t seed, const terngrad::Kernels* cpu) {
  const Bucket bucket = AnyRotatedBucket();
  const terngrad::RotatedCode code = AnyRotatedCode(bucket.total);
  const int64_t blocks = gpu::CeilDivide(bucket.total, code.block);
  const gpu::Packing packing = gpu::PackingOf(code, blocks);
  const int64_t count = Draw(0, 19) ? Draw(1, 4) : Draw(64, 66);
  const float scale = Draw(0, 1) ? 1.0f / count : 1.0f;
  std::vector<Array<uint32_t>> memory;
  std::vector<const uint32_t*> payloads;
  std::vector<const int32_t*> cpu_payloads;
  for (int64_t r = 0; r < count; ++r) {
    const int64_t words = gpu::kKeyWords + blocks + packing.num_words;
    memory.emplace_back(new uint32_t[words]);
    // Mostly scales of encoders, and words of all kinds.
    for (int64_t k = 0; k < words; ++k) {
      const bool is_scale = k >= gpu::kKeyWords && k < gpu::kKeyWords + blocks;
      const float borders[] = {0x1p-100f, 0x1.fffffep-101f, 0x1p100f};
      const float some = Draw(0, 7) ? std::abs(Normal()) : borders[Draw(0, 2)];
      memory[r][k] = is_scale && Draw(0, 3) ? __float_as_int(some) : Bits();
    }
    payloads.push_back(memory[r].get());
    cpu_payloads.push_back(reinterpret_cast<const int32_t*>(payloads[r]));
  }
  std::vector<terngrad::Target> targets;
  std::vector<Array<float>> expected;
  std::vector<float> factors;
  for (const int64_t size : bucket.sizes) {
    factors.push_back(Draw(0, 9) ? std::ldexp(1.0f, Draw(-30, 3)) : Normal());
    expected.emplace_back(new float[size]());
    targets.push_back({expected.back().get(), size, factors.back()});
  }
  cpu->decode_rotated(cpu_payloads.data(), count, code, scale, blocks,
                      packing.num_words, 0, blocks, targets.data(),
                      targets.size());
  std::vector<gpu::Variable> many;
  const gpu::Variables table = bucket.Table(gpu::Unit::kElements, &many);
  gpu::Payloads some = gpu::PayloadsAt(payloads);
  some.many = payloads.data();
  emulator::Launch(seed, blocks, gpu::kThreads, gpu::terngrad_rotated_decode,
                   table, some, factors.data(), gpu::RotatingOf(code, blocks),
                   gpu::UnpackingOf(code, blocks), scale);
  bool same = true;
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    same &= Same(expected[i].get(), bucket.memory[i].get(), bucket.sizes[i]);
  }
  return Report(same, "decode of rotated blocks");
}

// Variables that are rotated separately, their factors and their keys.
struct Separate {
  Bucket bucket;
  gpu::RotatedBucket table;
  std::vector<float> factors, inverses;
  std::vector<uint32_t> signs, draws;

  gpu::RotatedVariables Table() const {
    gpu::RotatedVariables all = table.Table();
    all.many = table.variables.data();
    return all;
  }

  terngrad::Key KeyOf(const std::vector<uint32_t>& keys, size_t i) const {
    return {keys[2 * i], keys[2 * i + 1], false, 0};
  }
};

inline Separate AnySeparate() {
  Separate problem = {AnyRotatedBucket(), {}, {}, {}, {}, {}};
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    const int64_t size = problem.bucket.sizes[i];
    problem.table.Add(problem.bucket.memory[i].get(), size, BlockOf(size));
    for (int k = 0; k < 2; ++k) {
      problem.signs.push_back(Bits());
      problem.draws.push_back(Bits());
    }
  }
  for (int64_t b = 0; b < problem.table.blocks; ++b) {
    problem.factors.push_back(std::ldexp(1.0f, Draw(-3, 3)));
    // Of a few table units for a standard deviation; or one far too large.
    problem.inverses.push_back(Draw(0, 9) ? std::ldexp(1.0f, Draw(9, 16))
                                          : 1e30f);
  }
  return problem;
}

// A rising table from -15 to 15; not all have the entry 0.
inline std::vector<int32_t> AnyTable() {
  std::vector<int32_t> inner;
  for (int value = 1 - gpu::kTableGrid; value < gpu::kTableGrid; ++value) {
    inner.push_back(value);
  }
  std::shuffle(inner.begin(), inner.end(), source);
  inner.resize(gpu::kTableEntries - 2);
  inner.insert(inner.end(), {-gpu::kTableGrid, gpu::kTableGrid});
  std::sort(inner.begin(), inner.end());
  return inner;
}

inline bool TableEncodeAgrees(uint64_t seed, const terngrad::Kernels* cpu) {
  const Separate problem = AnySeparate();
  const std::vector<int32_t> entries = AnyTable();
  terngrad::TableCode code;
  std::copy(entries.begin(), entries.end(), code.entries);
  const int64_t total = problem.table.digits;
  std::vector<uint8_t> digits(total + 64);
  int64_t block = 0, digit = 0;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    const int64_t size = problem.bucket.sizes[i];
    code.block = BlockOf(size);
    const int64_t count = gpu::CeilDivide(size, code.block);
    cpu->encode_table(problem.bucket.memory[i].get(), size, code,
                      problem.factors.data() + block,
                      problem.inverses.data() + block,
                      problem.KeyOf(problem.signs, i),
                      problem.KeyOf(problem.draws, i), 0, count,
                      digits.data() + digit);
    block += count;
    digit += count * code.block;
  }
  const uint32_t fill = Draw(0, 15);
  const gpu::Packing packing = {16, 8, fill, total, gpu::CeilDivide(total, 8)};
  const std::vector<int32_t> expected = PackedBy(cpu, digits, packing);
  Array<unsigned char> found(new unsigned char[total]);
  Array<uint32_t> received(new uint32_t[packing.num_words]);
  emulator::Launch(seed, problem.table.blocks, gpu::kThreads,
                   gpu::terngrad_table_encode, problem.Table(),
                   gpu::EntriesOf(entries.data()), problem.factors.data(),
                   problem.inverses.data(), problem.signs.data(),
                   problem.draws.data(), found.get());
  PackOnGpu(seed, found.get(), packing, received.get());
  return Report(std::equal(expected.begin(), expected.end(),
                           reinterpret_cast<int32_t*>(received.get())),
                "encode by a table");
}

inline bool TableDecodeAgrees(uint64_t seed, const terngrad::Kernels* cpu) {
  const Separate problem = AnySeparate();
  Array<int32_t> sums(new int32_t[problem.table.digits]);
  const bool any = Draw(0, 9) == 0;
  for (int64_t k = 0; k < problem.table.digits; ++k) {
    sums[k] = any ? static_cast<int32_t>(Bits()) : Draw(-60, 60);
  }
  std::vector<Array<float>> expected;
  int64_t block = 0, digit = 0;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    const int64_t size = problem.bucket.sizes[i], length = BlockOf(size);
    const int64_t count = gpu::CeilDivide(size, length);
    expected.emplace_back(new float[size]());
    cpu->decode_table(sums.get() + digit, size, length,
                      problem.factors.data() + block,
                      problem.KeyOf(problem.signs, i), 0, count,
                      expected[i].get());
    block += count;
    digit += count * length;
  }
  emulator::Launch(seed, problem.table.blocks, gpu::kThreads,
                   gpu::terngrad_table_decode, problem.Table(), sums.get(),
                   problem.factors.data(), problem.signs.data());
  bool same = true;
  for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
    same &= Same(expected[i].get(), problem.bucket.memory[i].get(),
                 problem.bucket.sizes[i]);
  }
  return Report(same, "decode by a table");
}

}  // namespace problems

#endif  // TESTS_NATIVE_GPU_ROTATED_PROBLEMS_H_
