// Fills the tables of tables.h.

#ifndef TERNGRAD_NATIVE_GPU_HOST_H_
#define TERNGRAD_NATIVE_GPU_HOST_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu/tables.h"

namespace terngrad_gpu {

inline int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

  // Adds a variable; `group_size` is 0 for one group.
  void Add(const float* data, int64_t size, const Grouping& code,
           int64_t group_size) {
    if (size == 0) return;
    const int64_t group = group_size ? std::min(group_size, size) : size;
    variables.push_back({const_cast<float*>(data), size, elements, group, words,
                         code_blocks, extents, finishes});
    const int64_t groups = CeilDivide(size, group);
    const int64_t num_words = CeilDivide(size, code.places);
    const int64_t blocks = CeilDivide(group, kExtentBlock);
    elements += size;
    words += code.num_scales * groups + num_words;
    code_blocks += CeilDivide(num_words, kThreads);
    extents += groups * blocks;
    finishes += blocks > 1 ? groups : 0;
  }

  // Adds a variable of words of exponents and of signs; see natural.cu.
  void AddNatural(const float* data, int64_t size) {
    if (size == 0) return;
    const int64_t exponents = CeilDivide(size, 4), signs = CeilDivide(size, 32);
    variables.push_back({const_cast<float*>(data), size, elements, size, words,
                         code_blocks, extents, finishes});
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
  Grouping code = {kind, is_norm, levels, base, places, 1, 0, 0, 0};
  code.num_scales = kind == kSpans ? 2 : 1;
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

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_HOST_H_
