// Fills the tables of tables.h.

#ifndef TERNGRAD_NATIVE_GPU_HOST_H_
#define TERNGRAD_NATIVE_GPU_HOST_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu/tables.h"
#include "index_layout.h"

namespace terngrad_gpu {

inline int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The numbers in which terngrad_statistics counts: for each variable one for
// each kThreads blocks.
inline int64_t NumEnded(const Variables& variables) {
  return variables.total / kThreads + variables.count;
}

// What `Variable::start` counts.
enum class Unit { kElements, kStatisticsBlocks };

// Adds a variable after those of the table. `many` has all of them.
inline void Append(const float* data, int64_t size, Unit unit,
                   Variables* variables, std::vector<Variable>* many) {
  const Variable variable = {const_cast<float*>(data), size, variables->total};
  variables->total +=
      unit == Unit::kElements ? size : CeilDivide(size, kStatisticsBlock);
  if (variables->count < kFewVariables) {
    variables->few[variables->count] = variable;
  }
  ++variables->count;
  many->push_back(variable);
}

// The table of payloads at these addresses; its `many` is not set.
inline Payloads PayloadsAt(const std::vector<const uint32*>& payloads) {
  Payloads table = {};
  table.count = static_cast<int>(payloads.size());
  std::copy_n(payloads.begin(), std::min(table.count, kFewPayloads), table.few);
  return table;
}

// The tables and sizes of a bucket that is coded in groups.
struct GroupedBucket {
  std::vector<GroupedVariable> variables;
  int64_t elements = 0;
  int64_t words = 0;        // Of a payload.
  int64_t code_blocks = 0;  // Blocks of threads that code words.
  int64_t extents = 0;      // Blocks of kExtentBlock elements.
  int64_t finishes = 0;     // Groups of more than one of them.
  bool is_small = true;     // A block of threads can encode each variable.

  // Adds a variable; `group_size` is 0 for one group.
  void Add(const float* data, int64_t size, const Grouping& code,
           int64_t group_size) {
    if (size == 0) return;
    const int64_t group = group_size ? std::min(group_size, size) : size;
    const int64_t groups = CeilDivide(size, group);
    const int64_t num_words = CeilDivide(size, code.places);
    variables.push_back({const_cast<float*>(data), size, elements, group,
                         groups, num_words, words, code_blocks, extents,
                         finishes});
    const int64_t blocks = CeilDivide(group, kExtentBlock);
    elements += size;
    words += code.num_scales * groups + num_words;
    code_blocks += CeilDivide(num_words, kThreads * code.words);
    extents += groups * blocks;
    finishes += blocks > 1 ? groups : 0;
    is_small &= groups * blocks <= kExtentsAlone && num_words <= kWordsAlone;
  }

  // Adds a variable of words of exponents and of signs; see natural.cu.
  void AddNatural(const float* data, int64_t size) {
    if (size == 0) return;
    const int64_t exponents = CeilDivide(size, 4), signs = CeilDivide(size, 32);
    variables.push_back({const_cast<float*>(data), size, elements, size, 1,
                         exponents, words, code_blocks, extents, finishes});
    elements += size;
    words += exponents + signs;
    code_blocks +=
        CeilDivide(exponents, kThreads) + CeilDivide(signs, kThreads);
  }

  // The table; its `many` is not set.
  GroupedVariables Table() const {
    GroupedVariables table = {};
    table.count = static_cast<int>(variables.size());
    table.extents = extents;
    std::copy_n(variables.begin(), std::min(table.count, kFewGrouped),
                table.few);
    return table;
  }
};

// The parameters of a code; `base` has a word's digits.
inline Grouping MakeGrouping(GroupedKind kind, bool is_norm, int levels,
                             uint32_t base, int places) {
  Grouping code = {kind, is_norm, levels, base, places, 1, 1, 0, 0, 0};
  code.num_scales = kind == kSpans ? 2 : 1;
  // So that a thread waits for as many elements at a time as with many places.
  if (kind != kFloats && 2 * places <= kBatch) code.words = 2;
  if (kind == kSteps) {
    int bits = 1;
    while ((uint64_t{1} << bits) < base) ++bits;
    code.factor = static_cast<uint32_t>(
        (((uint64_t{1} << bits) - base) << 32) / base + 1);
    code.shift = bits - 1;
  } else {
    code.shift = __builtin_ctz(base);
  }
  const float span = static_cast<float>(0x1p127 / levels);
  std::memcpy(&code.largest_step, &span, sizeof(span));
  code.largest_step = ((code.largest_step + 0xff) & ~0xff) + 0x100;
  return code;
}

// The tables and sizes of vectors of which few elements are sent.
struct SparseBucket {
  SparseKind kind;
  std::vector<SparseVariable> variables;
  int64_t words = 0;    // Of a payload.
  int64_t entries = 0;  // Sent elements.
  int64_t chunks = 0;
  int vectors = 0;
  bool is_small = true;  // No vector has more than kChunksAlone chunks.

  // Adds variables of `sizes`: a vector of each, or for kPairs one of all, with
  // a number of sent elements for each vector.
  SparseBucket(SparseKind kind_of_words, const std::vector<const float*>& data,
               const std::vector<int64_t>& sizes,
               const std::vector<int64_t>& numbers)
      : kind(kind_of_words) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0) continue;
      if (kind != kPairs || variables.empty()) first_ = variables.size();
      Append(data[i], sizes[i]);
      if (kind != kPairs) Close(numbers[i]);
    }
    if (kind == kPairs) Close(numbers[0]);
  }

  // The table; its `many` is not set.
  SparseVariables Table() const {
    SparseVariables table = {};
    table.count = static_cast<int>(variables.size());
    table.kind = kind;
    std::copy_n(variables.begin(), std::min(table.count, kFewSparse),
                table.few);
    return table;
  }

 private:
  void Append(const float* data, int64_t size) {
    SparseVariable one = {};
    one.data = const_cast<float*>(data);
    one.size = size;
    one.start = variables.size() == first_
                    ? 0
                    : variables.back().start + variables.back().size;
    one.chunk = static_cast<int>(chunks);
    variables.push_back(one);
    chunks += CeilDivide(size, kChunk);
  }

  // Completes the variables of a vector, of which `number` elements are sent.
  void Close(int64_t number) {
    const int64_t from = words;
    if (kind == kPairs) words += 1 + 2 * number;
    if (variables.size() == first_) return;
    const SparseVariable& last = variables.back();
    const int64_t elements = last.start + last.size;
    const terngrad::Layout layout(number, elements);
    const int first = variables[first_].chunk;
    for (size_t i = first_; i < variables.size(); ++i) {
      SparseVariable& one = variables[i];
      one.elements = elements;
      one.number = number;
      one.words = from;
      one.entry = entries;
      one.first = first;
      one.chunks = static_cast<int>(chunks) - first;
      one.vector = vectors;
      one.low_bits = layout.low_bits;
      one.string_bits = static_cast<uint32_t>(layout.string_bits());
    }
    ++vectors;
    entries += number;
    is_small &= chunks - first <= kChunksAlone;
    if (kind == kLists) words += 2 * number;
    if (kind == kSignedIndices) {
      words += 1 + layout.plane_words() + layout.num_words();
    }
  }

  size_t first_ = 0;  // Of the last vector.
};

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_HOST_H_
