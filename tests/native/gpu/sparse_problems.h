// Few elements: selection and addition on the GPU against plain code.
//
// The operations for CPUs, in sparse_ops.cc and index_ops.cc, need TensorFlow;
// test_gpu_ops.py compares with them.

#ifndef TESTS_NATIVE_GPU_SPARSE_PROBLEMS_H_
#define TESTS_NATIVE_GPU_SPARSE_PROBLEMS_H_

#include <algorithm>
#include <numeric>

#include "emulator.h"
#include "problems.h"

namespace sparse {

namespace gpu = terngrad_gpu;
using emulator::Launch;
using problems::Array;
using problems::Draw;

inline int32_t MagnitudeOf(float value) {
  return __float_as_int(value) & INT32_MAX;
}

// A vector of elements: the largest, in rising order of their indices; of equal
// ones the first.
inline std::vector<int32_t> Largest(const terngrad::Kernels* cpu,
                                    const std::vector<float>& all,
                                    int64_t number, int32_t floor) {
  std::vector<int32_t> found(all.size());
  std::vector<float> values(all.size());
  found.resize(cpu->at_least(all.data(), all.size(), floor, 0, found.data(),
                             values.data()));
  std::stable_sort(found.begin(), found.end(), [&](int32_t a, int32_t b) {
    return MagnitudeOf(all[a]) > MagnitudeOf(all[b]);
  });
  if (found.size() > static_cast<size_t>(number)) found.resize(number);
  std::sort(found.begin(), found.end());
  return found;
}

// Rows of bits: bit x is bit x / w of word x % w.
struct BitRow {
  uint32_t* words;
  int64_t width;

  void Set(int64_t x) { words[x % width] |= 1U << (x / width); }
  bool At(int64_t x) const { return words[x % width] >> (x / width) & 1; }
};

// The words of stc.
inline void PackSigned(const std::vector<int32_t>& indices,
                       const std::vector<float>& all, double sum,
                       uint32_t* words) {
  const int64_t number = indices.size();
  const terngrad::Layout layout(number, all.size());
  const float mean = static_cast<float>(sum * (1.0 / number));
  std::memcpy(words, &mean, sizeof(mean));
  const int64_t width = layout.plane_words();
  const BitRow signs = {words + 1, width};
  BitRow string = {words + 1 + width * (1 + layout.low_bits),
                   layout.string_words()};
  for (int64_t i = 0; i < number; ++i) {
    if (__float_as_int(all[indices[i]]) < 0) BitRow(signs).Set(i);
    for (int bit = 0; bit < layout.low_bits; ++bit) {
      BitRow plane = {words + 1 + width * (1 + bit), width};
      if (indices[i] >> bit & 1) plane.Set(i);
    }
    string.Set((indices[i] >> layout.low_bits) + i);
  }
}

// Words that are floats whose sums may have another order are compared as such.
inline bool NearlySame(uint32_t a, uint32_t b) {
  const float x = __int_as_float(a), y = __int_as_float(b);
  return a == b || (std::isnan(x) && std::isnan(y)) ||
         std::abs(static_cast<int64_t>(a) - b) <= 1;
}

// The elements of a bucket, by vector: of each variable, or of all.
inline std::vector<std::vector<float>> VectorsOf(const problems::Bucket& bucket,
                                                 gpu::SparseKind kind) {
  std::vector<std::vector<float>> vectors;
  for (size_t i = 0; i < bucket.sizes.size(); ++i) {
    if (bucket.sizes[i] == 0) continue;
    if (kind != gpu::kPairs || vectors.empty()) vectors.emplace_back();
    const float* const data = bucket.memory[i].get();
    vectors.back().insert(vectors.back().end(), data, data + bucket.sizes[i]);
  }
  return vectors;
}

// `SampledElement` of candidates.h.
inline int64_t Sampled(uint32_t part, int64_t stride) {
  uint32_t bits = (part ^ (part >> 16)) * 0x7feb352dU;
  bits = (bits ^ (bits >> 15)) * 0x846ca68bU;
  return part * stride + (static_cast<uint64_t>(bits) * stride >> 32);
}

inline void Fill(float* data, int64_t size) {
  const int kind = Draw(0, 7);
  const int64_t stride = size / 4096 + 1;
  const int64_t every = Draw(1, 3);
  for (int64_t i = 0; i < size; ++i) {
    switch (kind) {
      case 0:  // Ties.
        data[i] = static_cast<float>(Draw(-2, 2));
        break;
      case 1:  // Few are larger than those of which some are sent.
        data[i] = Draw(0, 199) ? -1.0f : 3.0f;
        break;
      case 2:  // The sample is not like the others.
        data[i] = i / stride % every == 0 && i == Sampled(i / stride, stride)
                      ? 5.0f
                      : 1e-3f * problems::Normal();
        break;
      case 3:
        data[i] = Draw(0, 300) ? Draw(-1, 0) * 0.0f : problems::Normal();
        break;
      case 4:
        data[i] = Draw(0, 3) ? problems::AnyBits() : problems::SpecialFloat();
        break;
      case 5:  // Equal but for the last bits.
        data[i] = __int_as_float(0x3f800000 + Draw(0, 3000));
        break;
      default:
        data[i] = problems::Normal();
    }
  }
}

// A bucket, the number of elements that are sent, and the words.
struct Problem {
  gpu::SparseKind kind;
  problems::Bucket bucket;
  std::vector<int64_t> numbers;
  int32_t floor = 0;

  gpu::SparseBucket Table(const std::vector<Array<float>>& memory) const {
    std::vector<const float*> data;
    for (const Array<float>& one : memory) data.push_back(one.get());
    return gpu::SparseBucket(kind, data, bucket.sizes, numbers);
  }
};

inline Problem AnyProblem() {
  Problem problem = {static_cast<gpu::SparseKind>(Draw(0, 2)), {}, {}, 0};
  const bool many = Draw(0, 19) == 0;
  for (int64_t i = many ? Draw(35, 40) : Draw(1, 3); i > 0; --i) {
    const int64_t large = Draw(0, 3) ? 8192 : 16384 + 8192 * Draw(0, 1);
    problem.bucket.Add(many           ? Draw(0, 40)
                       : Draw(0, 2)   ? problems::AnySize() % 9000
                       : Draw(0, 1)   ? large + Draw(-2, 2)
                                      : Draw(0, 17000));
    Fill(problem.bucket.memory.back().get(), problem.bucket.sizes.back());
  }
  const int64_t divisors[] = {1, 2, 3, 5, 5, 100, 1000};
  const auto number_of = [&](int64_t size) {
    const int64_t all = size / divisors[Draw(0, 6)] + Draw(0, 2);
    return size ? std::clamp<int64_t>(all, 1, size) : 0;
  };
  if (problem.kind == gpu::kPairs) {
    problem.numbers = {number_of(problem.bucket.total)};
    const float above = Draw(0, 1) ? 0.0f : 1.5f;
    problem.floor = std::max(MagnitudeOf(above), 1);
  } else {
    for (const int64_t size : problem.bucket.sizes) {
      problem.numbers.push_back(number_of(size));
    }
  }
  return problem;
}

// The words of all vectors; `loose` has the indices of mean magnitudes.
inline std::vector<uint32_t> Expected(const terngrad::Kernels* cpu,
                                      const Problem& problem,
                                      const gpu::SparseBucket& table,
                                      std::vector<int64_t>* loose) {
  std::vector<uint32_t> words(table.words);
  const auto vectors = VectorsOf(problem.bucket, problem.kind);
  for (const gpu::SparseVariable& variable : table.variables) {
    // The variables of one vector are written more than once.
    const std::vector<float>& all = vectors[variable.vector];
    const std::vector<int32_t> found =
        Largest(cpu, all, variable.number, problem.floor);
    uint32_t* out = &words[variable.words];
    if (problem.kind == gpu::kSignedIndices) {
      loose->push_back(variable.words);
      double sum = 0.0;
      for (const int32_t i : found) {
        const double wide = all[i];
        sum += std::abs(wide);
      }
      PackSigned(found, all, sum, out);
    }
    if (problem.kind == gpu::kPairs) *out++ = found.size();
    for (size_t i = 0; i < found.size(); ++i) {
      const uint32_t bits = __float_as_int(all[found[i]]);
      if (problem.kind == gpu::kPairs) {
        *out++ = found[i];
        *out++ = bits;
      } else if (problem.kind == gpu::kLists) {
        out[i] = found[i];
        out[variable.number + i] = bits;
      }
    }
  }
  return words;
}

// Memory that ends where it must, with any contents.
template <typename T>
Array<T> Memory(int64_t count) {
  Array<T> memory(new T[count]);
  std::memset(static_cast<void*>(memory.get()), 0xa5, count * sizeof(T));
  return memory;
}

inline Array<uint32_t> Select(uint64_t seed, const gpu::SparseBucket& bucket,
                              int32_t floor, bool alone) {
  gpu::SparseVariables table = bucket.Table();
  table.many = bucket.variables.data();
  const auto selections = Memory<gpu::Selection>(bucket.vectors);
  const auto masks = Memory<uint32_t>(bucket.chunks * gpu::kThreads);
  const auto counts = Memory<gpu::ChunkCounts>(bucket.chunks);
  const auto sums = Memory<double>(bucket.chunks);
  const auto sent = Memory<uint32_t>(bucket.entries);
  auto words = Memory<uint32_t>(bucket.words);
  const gpu::Selecting to = {selections.get(), masks.get(), counts.get(),
                             sums.get(),       sent.get(),  words.get(),
                             floor};
  const auto launch = [&](int64_t grid, auto kernel, const auto&... more) {
    Launch(seed, grid, gpu::kThreads, kernel, table, to, more...);
  };
  if (alone) {
    launch(bucket.vectors, gpu::terngrad_select_all);
    return words;
  }
  launch(bucket.vectors, gpu::terngrad_select_sample);
  launch(bucket.chunks, gpu::terngrad_select_candidates);
  launch(bucket.chunks, gpu::terngrad_select_digit, 1);
  launch(bucket.chunks, gpu::terngrad_select_digit, 2);
  launch(bucket.chunks, gpu::terngrad_select_count);
  launch(bucket.chunks, gpu::terngrad_select_write);
  if (bucket.kind == gpu::kSignedIndices) {
    launch(bucket.chunks, gpu::terngrad_select_pack);
  }
  return words;
}

inline bool SelectionAgrees(const terngrad::Kernels* cpu, uint64_t seed) {
  const Problem problem = AnyProblem();
  const gpu::SparseBucket table = problem.Table(problem.bucket.memory);
  std::vector<int64_t> loose;
  const std::vector<uint32_t> expected =
      Expected(cpu, problem, table, &loose);
  const bool alone = Draw(0, 1);
  const Array<uint32_t> received = Select(seed, table, problem.floor, alone);
  bool same = true;
  // A bucket without elements is a copy of the host.
  for (int64_t k = 0; table.vectors && k < table.words; ++k) {
    const bool is_mean = std::count(loose.begin(), loose.end(), k) > 0;
    same &= is_mean ? NearlySame(expected[k], received[k])
                    : expected[k] == received[k];
  }
  return problems::Report(same, "selection");
}

// --- addition

// The indices and values of a vector's words; an index may be out of range.
struct Sent {
  std::vector<int64_t> indices;
  std::vector<float> values;
};

inline Sent Unpack(const gpu::SparseVariable& vector, gpu::SparseKind kind,
                   const uint32_t* words) {
  Sent sent;
  const int64_t number = vector.number;
  const terngrad::Layout layout(number, vector.elements);
  const int64_t width = layout.plane_words();
  const auto at = [&](int64_t from) {
    return const_cast<uint32_t*>(words + from);
  };
  std::vector<int64_t> ones;
  const BitRow string = {at(1 + width * (1 + layout.low_bits)),
                         layout.string_words()};
  for (int64_t x = 0; kind == gpu::kSignedIndices && x < layout.string_bits();
       ++x) {
    if (string.At(x)) ones.push_back(x);
  }
  ones.resize(std::max<size_t>(ones.size(), number), INT32_MAX);
  for (int64_t i = 0; i < number; ++i) {
    if (kind == gpu::kLists) {
      sent.indices.push_back(static_cast<int32_t>(words[i]));
      sent.values.push_back(__int_as_float(words[number + i]));
    } else if (kind == gpu::kPairs) {
      const bool used = i < static_cast<int32_t>(words[0]);
      const int32_t index = words[1 + 2 * i];
      sent.indices.push_back(used ? index : -1);
      sent.values.push_back(__int_as_float(words[2 + 2 * i]));
    } else {
      int64_t index = (ones[i] - i) << layout.low_bits;
      for (int bit = 0; bit < layout.low_bits; ++bit) {
        const BitRow plane = {at(1 + width * (1 + bit)), width};
        index |= static_cast<int64_t>(plane.At(i)) << bit;
      }
      const float magnitude = __int_as_float(words[0]);
      sent.indices.push_back(index);
      const bool negative = BitRow{at(1), width}.At(i);
      sent.values.push_back(negative ? -magnitude : magnitude);
    }
  }
  return sent;
}

// Words of an encoder, or damaged ones.
inline void Damage(int64_t count, uint32_t* words) {
  for (int64_t k = Draw(1, 20); k > 0; --k) {
    uint32_t* const one = words + Draw(0, Draw(0, 1) ? count - 1 : 0);
    *one = Draw(0, 1) ? problems::Bits() >> Draw(0, 31)
                      : words[Draw(0, count - 1)];
  }
}

inline void Add(uint64_t seed, const gpu::SparseBucket& bucket,
                const std::vector<const uint32_t*>& rows, float scale,
                bool alone) {
  gpu::SparseVariables table = bucket.Table();
  table.many = bucket.variables.data();
  gpu::Payloads payloads = gpu::PayloadsAt(rows);
  payloads.many = rows.data();
  const bool packed = bucket.kind == gpu::kSignedIndices;
  const int64_t count = packed ? rows.size() : 0;
  const auto ones = Memory<int>(count * 2 * bucket.chunks);
  const auto indices = Memory<int>(count * bucket.entries);
  const auto disorder = Memory<unsigned char>(bucket.chunks);
  const gpu::Adding with = {packed ? ones.get() : nullptr,
                            packed ? indices.get() : nullptr,
                            disorder.get(),
                            bucket.entries,
                            2 * bucket.chunks,
                            scale};
  const auto launch = [&](int64_t grid, auto kernel) {
    Launch(seed, grid, gpu::kThreads, kernel, table, payloads, with);
  };
  if (alone) {
    launch(bucket.vectors, gpu::terngrad_add_all);
    return;
  }
  if (packed) {
    launch(bucket.chunks, gpu::terngrad_add_count);
    launch(bucket.chunks, gpu::terngrad_add_unpack);
  }
  launch(bucket.chunks, gpu::terngrad_add_check);
  launch(bucket.chunks, gpu::terngrad_add_elements);
}

inline bool AdditionAgrees(const terngrad::Kernels* cpu, uint64_t seed) {
  Problem problem = AnyProblem();
  const int64_t count = Draw(0, 9) ? Draw(1, 4) : Draw(31, 70);
  const float scale = Draw(0, 1) ? 1.0f / count : 1.0f;
  const bool damaged = Draw(0, 2) == 0;
  std::vector<Array<uint32_t>> memory;
  std::vector<const uint32_t*> rows;
  const gpu::SparseBucket table = problem.Table(problem.bucket.memory);
  for (int64_t r = 0; r < count; ++r) {
    if (r < 3) {
      for (size_t i = 0; i < problem.bucket.sizes.size(); ++i) {
        Fill(problem.bucket.memory[i].get(), problem.bucket.sizes[i]);
      }
    }
    std::vector<int64_t> loose;
    memory.emplace_back(new uint32_t[table.words]);
    const auto words = Expected(cpu, problem, table, &loose);
    std::copy(words.begin(), words.end(), memory[r].get());
    if (damaged && table.words) Damage(table.words, memory[r].get());
    rows.push_back(memory[r].get());
  }
  std::vector<std::vector<float>> expected;
  for (const auto& vector : VectorsOf(problem.bucket, problem.kind)) {
    expected.emplace_back(vector.size());
  }
  for (const uint32_t* row : rows) {
    int last = -1;
    for (const gpu::SparseVariable& variable : table.variables) {
      if (variable.vector == last) continue;
      last = variable.vector;
      std::vector<float>& sums = expected[last];
      const Sent sent = Unpack(variable, problem.kind, row + variable.words);
      for (size_t i = 0; i < sent.indices.size(); ++i) {
        const int64_t at = sent.indices[i];
        if (at >= 0 && at < variable.elements) sums[at] += sent.values[i];
      }
    }
  }
  Add(seed, table, rows, scale, Draw(0, 1));
  const auto received = VectorsOf(problem.bucket, problem.kind);
  bool same = true;
  for (size_t i = 0; i < received.size(); ++i) {
    for (float& sum : expected[i]) sum = scale == 1.0f ? sum : sum * scale;
    same &= problems::Same(expected[i].data(), received[i].data(),
                           received[i].size());
  }
  return problems::Report(same, "addition");
}

}  // namespace sparse

#endif  // TESTS_NATIVE_GPU_SPARSE_PROBLEMS_H_
