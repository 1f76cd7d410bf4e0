// The format of terngrad/codec/methods/sparse/elias_fano.py.

#ifndef TERNGRAD_NATIVE_INDEX_LAYOUT_H_
#define TERNGRAD_NATIVE_INDEX_LAYOUT_H_

#include <cstdint>

namespace terngrad {

// The layout of the bits of indices: bit x of a row of n bits is bit x / w of
// word x % w, w = ceil(n / 32).
struct Layout {
  static constexpr int kBits = 32;

  int64_t number;
  int64_t num_elements;
  int low_bits = 0;

  Layout(int64_t k, int64_t n) : number(k), num_elements(n) {
    while ((n / k) >> (low_bits + 1)) ++low_bits;
  }

  int64_t plane_words() const { return (number + kBits - 1) / kBits; }
  int64_t string_bits() const {
    return number + ((num_elements - 1) >> low_bits) + 1;
  }
  int64_t string_words() const { return (string_bits() + kBits - 1) / kBits; }
  int64_t num_words() const {
    return low_bits * plane_words() + string_words();
  }
};

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_INDEX_LAYOUT_H_
