// What the packings of variable length share; no part of their interface.
#ifndef TERNGRAD_NATIVE_VARLEN_COMMON_H_
#define TERNGRAD_NATIVE_VARLEN_COMMON_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace terngrad {

constexpr size_t kMaxElements = size_t{1} << 28;

inline size_t Ceil(size_t count, size_t parts) { return (count + parts - 1) / parts; }

inline bool AllZero(const uint32_t* words, size_t begin, size_t end) {
  return std::all_of(words + begin, words + end,
                     [](uint32_t word) { return word == 0; });
}

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_VARLEN_COMMON_H_
