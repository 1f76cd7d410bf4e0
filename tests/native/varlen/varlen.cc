// bitmap_sign, and what the statuses mean: see varlen.h and
// terngrad/codec/stages/bitmap.py.
#include "varlen.h"

#include <algorithm>

#include "varlen_common.h"

namespace {

using terngrad::AllZero;
using terngrad::Ceil;
using terngrad::kMaxElements;

constexpr size_t kPlaces = 32;  // elements of a word of the bitmap

}  // namespace

const char* terngrad_varlen_message(int status) {
  switch (status) {
    case kTerngradOk:
      return "no error";
    case kTerngradTooMany:
      return "expected at most 2**28 elements, received more";
    case kTerngradCapacity:
      return "expected room for as many words as the capacity, received less";
    case kTerngradBadCode:
      return "expected codes of -1, 0 and 1, received another";
    case kTerngradLength:
      return "expected as many words as the first says, received others";
    case kTerngradHeader:
      return "expected a first word that an encoder writes, received another";
    case kTerngradDigit:
      return "expected words below 3**20, received one above";
    case kTerngradBlocks:
      return "expected blocks as long as their table says, received others";
    case kTerngradTail:
      return "expected zeros past the end, received something else";
    case kTerngradNotShortest:
      return "expected codes as the encoder writes them, received others";
    default:
      return "unknown status";
  }
}

size_t terngrad_bitmap_sign_capacity(size_t count) {
  return count > kMaxElements ? 0 : 1 + 2 * Ceil(count, kPlaces);
}

int terngrad_bitmap_sign_encode(const int8_t* codes, size_t count,
                                uint32_t* words, size_t capacity,
                                size_t* used) {
  if (count > kMaxElements) return kTerngradTooMany;
  if (capacity < terngrad_bitmap_sign_capacity(count)) return kTerngradCapacity;
  std::fill_n(words, capacity, 0u);
  const size_t width = Ceil(count, kPlaces);
  size_t signs = 0;
  for (size_t j = 0; j < width; ++j) {
    for (size_t place = 0; place < kPlaces; ++place) {
      const size_t i = place * width + j;
      const int code = i < count ? codes[i] : 0;
      if (code < -1 || code > 1) return kTerngradBadCode;
      if (code == 0) continue;
      words[1 + j] |= uint32_t{1} << place;
      // At most 32 a word: within the capacity.
      words[1 + width + signs / 32] |= uint32_t{code < 0} << (signs % 32);
      ++signs;
    }
  }
  *used = 1 + width + Ceil(signs, 32);
  words[0] = static_cast<uint32_t>(*used);
  return kTerngradOk;
}

int terngrad_bitmap_sign_decode(const uint32_t* words, size_t num_words,
                                int8_t* codes, size_t count) {
  if (count > kMaxElements) return kTerngradTooMany;
  const size_t width = Ceil(count, kPlaces);
  if (num_words < 1 || num_words > 1 + 2 * width || words[0] > num_words) {
    return kTerngradLength;
  }
  const size_t used = words[0];
  if (used < 1 + width) return kTerngradHeader;
  if (!AllZero(words, used, num_words)) return kTerngradTail;
  size_t signs = 0;
  for (size_t j = 0; j < width; ++j) {
    for (size_t place = 0; place < kPlaces; ++place) {
      const size_t i = place * width + j;
      const bool nonzero = words[1 + j] >> place & 1;
      if (i >= count) {
        if (nonzero) return kTerngradTail;
        continue;
      }
      codes[i] = 0;
      if (!nonzero) continue;
      const size_t word = 1 + width + signs / 32;
      if (word >= used) return kTerngradHeader;
      codes[i] = words[word] >> (signs % 32) & 1 ? -1 : 1;
      ++signs;
    }
  }
  if (used != 1 + width + Ceil(signs, 32)) return kTerngradHeader;
  return signs % 32 == 0 || words[used - 1] >> (signs % 32) == 0
             ? kTerngradOk
             : kTerngradTail;
}
