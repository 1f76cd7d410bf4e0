// The codes of huffman243, as terngrad/codec/stages/huffman_tables.py makes them.
#ifndef TERNGRAD_NATIVE_HUFFMAN_TABLE_H_
#define TERNGRAD_NATIVE_HUFFMAN_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace terngrad {

constexpr size_t kTrits = 5;      // of a symbol
constexpr int kSymbols = 243;     // 3**5
constexpr int kLongest = 12;      // bits of a code word
constexpr int kSteps = 64;        // of the density

struct Table {
  uint8_t lengths[kSymbols];
  uint16_t values[kSymbols];
  // 16 * symbol + length of the code word that a 12-bit number begins with.
  uint16_t lookup[1 << kLongest];
};

inline int NonzeroTrits(int symbol) {
  int count = 0;
  for (size_t i = 0; i < kTrits; ++i, symbol /= 3) count += symbol % 3 != 1;
  return count;
}

// Package-merge (Larmore and Hirschberg, JACM 37, 1990), ties by the symbol.
inline void MakeLengths(int step, uint8_t* lengths) {
  struct Item {
    uint64_t weight;
    bool package;
  };
  uint64_t weights[kSymbols];
  uint8_t order[kSymbols];
  for (int symbol = 0; symbol < kSymbols; ++symbol) {
    const int nonzero = NonzeroTrits(symbol);
    uint64_t weight = 1;
    for (int i = 0; i < static_cast<int>(kTrits); ++i) {
      weight *= i < nonzero ? step : 2 * (kSteps - step);
    }
    weights[symbol] = weight;
    order[symbol] = static_cast<uint8_t>(symbol);
    lengths[symbol] = 0;
  }
  std::stable_sort(order, order + kSymbols, [&](uint8_t a, uint8_t b) {
    return weights[a] < weights[b];
  });
  constexpr int kMerged = 2 * kSymbols;
  Item merged[kLongest][kMerged];
  int sizes[kLongest];
  for (int round = 0; round < kLongest; ++round) {
    const int packages = round == 0 ? 0 : sizes[round - 1] / 2;
    int leaf = 0, package = 0, size = 0;
    while (leaf < kSymbols || package < packages) {
      const Item* pair = round == 0 ? nullptr : merged[round - 1] + 2 * package;
      const bool take =
          package < packages &&
          (leaf == kSymbols ||
           pair[0].weight + pair[1].weight < weights[order[leaf]]);
      merged[round][size++] =
          take ? Item{pair[0].weight + pair[1].weight, true}
               : Item{weights[order[leaf]], false};
      take ? ++package : ++leaf;
    }
    sizes[round] = size;
  }
  int taken = 2 * (kSymbols - 1);
  for (int round = kLongest - 1; round >= 0; --round) {
    int packages = 0;
    for (int i = 0; i < taken; ++i) packages += merged[round][i].package;
    for (int i = 0; i < taken - packages; ++i) ++lengths[order[i]];
    taken = 2 * packages;
  }
}

// `step` is 1 to 63.
inline void MakeTable(int step, Table* table) {
  MakeLengths(step, table->lengths);
  uint32_t value = 0;
  for (int length = 1; length <= kLongest; ++length) {
    value *= 2;
    for (int symbol = 0; symbol < kSymbols; ++symbol) {
      if (table->lengths[symbol] != length) continue;
      table->values[symbol] = static_cast<uint16_t>(value);
      const int shift = kLongest - length;
      // The code is complete: code words are below 2**length.
      std::fill_n(table->lookup + (value << shift), 1 << shift,
                  static_cast<uint16_t>(16 * symbol + length));
      ++value;
    }
  }
}

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_HUFFMAN_TABLE_H_
