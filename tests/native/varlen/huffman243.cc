// huffman243: see varlen.h and terngrad/codec/stages/huffman.py.
#include <algorithm>

#include "huffman_table.h"
#include "varlen.h"
#include "varlen_common.h"

namespace {

using terngrad::AllZero;
using terngrad::Ceil;
using terngrad::kLongest;
using terngrad::kMaxElements;
using terngrad::kSteps;
using terngrad::kSymbols;
using terngrad::kTrits;
using terngrad::MakeTable;
using terngrad::Table;

constexpr size_t kBlock = 512;    // symbols
constexpr size_t kRaw = 4;        // symbols of a word without a code
constexpr uint32_t kZeros = 121;  // the symbol of five zeros

// The table for a density of nonzero / size, as the encoder chooses it.
int BestStep(uint64_t nonzero, uint64_t size) {
  const uint64_t step = (2 * kSteps * nonzero + size) / (2 * size);
  return static_cast<int>(
      std::min<uint64_t>(std::max<uint64_t>(step, 1), kSteps - 1));
}

// Symbol j of `width`, 0 to 242, and how many of its trits are not 0; -1 for a
// code that is none.
int SymbolAt(const int8_t* codes, size_t count, size_t width, size_t j,
             uint64_t* nonzero) {
  int symbol = 0;
  for (size_t place = kTrits; place-- > 0;) {
    const size_t i = place * width + j;
    const int code = i < count ? codes[i] : 0;
    if (code < -1 || code > 1) return -1;
    symbol = 3 * symbol + code + 1;
    *nonzero += code != 0;
  }
  return symbol;
}

// False where the symbol says that an element past the end is not 0.
bool PutSymbol(int symbol, size_t j, size_t width, int8_t* codes, size_t count,
               uint64_t* nonzero) {
  for (size_t place = 0; place < kTrits; ++place, symbol /= 3) {
    const size_t i = place * width + j;
    const int code = symbol % 3 - 1;
    *nonzero += code != 0;
    if (i < count) {
      codes[i] = static_cast<int8_t>(code);
    } else if (code != 0) {
      return false;
    }
  }
  return true;
}

// Words of the payload by `table`, header and table of blocks included.
size_t CodedWords(const int8_t* codes, size_t count, size_t width,
                  const Table& table) {
  size_t words = 1 + Ceil(Ceil(width, kBlock), 4);
  uint64_t unused = 0;
  for (size_t begin = 0; begin < width; begin += kBlock) {
    size_t bits = 0;
    for (size_t j = begin; j < std::min(begin + kBlock, width); ++j) {
      bits += table.lengths[SymbolAt(codes, count, width, j, &unused)];
    }
    words += Ceil(bits, 32);
  }
  return words;
}

// `words` are zeros, and as many as `CodedWords` says.
void WriteCoded(const int8_t* codes, size_t count, size_t width,
                const Table& table, uint32_t* words) {
  size_t word = 1 + Ceil(Ceil(width, kBlock), 4);
  uint64_t unused = 0;
  for (size_t begin = 0; begin < width; begin += kBlock) {
    const size_t first = word;
    uint64_t pending = 0;
    int held = 0;
    for (size_t j = begin; j < std::min(begin + kBlock, width); ++j) {
      const int symbol = SymbolAt(codes, count, width, j, &unused);
      pending = pending << table.lengths[symbol] | table.values[symbol];
      held += table.lengths[symbol];
      if (held >= 32) {
        held -= 32;
        words[word++] = static_cast<uint32_t>(pending >> held);
      }
    }
    if (held > 0) words[word++] = static_cast<uint32_t>(pending << (32 - held));
    const size_t block = begin / kBlock;
    words[1 + block / 4] |= static_cast<uint32_t>(word - first)
                            << (8 * (block % 4));
  }
}

void WriteRaw(const int8_t* codes, size_t count, size_t width,
              uint32_t* words) {
  const size_t body = Ceil(width, kRaw);
  uint64_t unused = 0;
  for (size_t i = 0; i < body; ++i) {
    uint32_t word = 0;
    for (size_t place = kRaw; place-- > 0;) {
      const size_t j = place * body + i;
      const uint32_t symbol =
          j < width ? SymbolAt(codes, count, width, j, &unused) : kZeros;
      word = word * kSymbols + symbol;
    }
    words[1 + i] = word;
  }
}

int DecodeRaw(const uint32_t* words, size_t used, size_t width, int8_t* codes,
              size_t count) {
  const size_t body = Ceil(width, kRaw);
  if (used != 1 + body) return kTerngradHeader;
  uint64_t nonzero = 0;
  for (size_t i = 0; i < body; ++i) {
    uint32_t word = words[1 + i];
    for (size_t place = 0; place < kRaw; ++place, word /= kSymbols) {
      const uint32_t symbol = word % kSymbols;
      const size_t j = place * body + i;
      if (j < width) {
        if (!PutSymbol(symbol, j, width, codes, count, &nonzero)) {
          return kTerngradTail;
        }
      } else if (symbol != kZeros) {
        return kTerngradTail;
      }
    }
    if (word != 0) return kTerngradDigit;
  }
  if (width == 0) return kTerngradOk;
  Table table;
  MakeTable(BestStep(nonzero, kTrits * width), &table);
  return CodedWords(codes, count, width, table) <= 1 + body
             ? kTerngradNotShortest
             : kTerngradOk;
}

// Decodes the symbols `begin` to `end` - 1 from words[0] to words[length - 1].
int DecodeBlock(const uint32_t* words, size_t length, const Table& table,
                size_t begin, size_t end, size_t width, int8_t* codes,
                size_t count, uint64_t* nonzero) {
  uint64_t pending = 0;
  int held = 0;
  size_t read = 0;
  for (size_t j = begin; j < end; ++j) {
    if (held < kLongest && read < length) {
      pending = pending << 32 | words[read++];
      held += 32;
    }
    // Past the block's end come zeros.
    const uint64_t window =
        held >= kLongest ? pending >> (held - kLongest)
                         : pending << (kLongest - held);
    const uint16_t found = table.lookup[window & ((1 << kLongest) - 1)];
    held -= found % 16;
    if (held < 0) return kTerngradBlocks;
    if (!PutSymbol(found / 16, j, width, codes, count, nonzero)) {
      return kTerngradTail;
    }
  }
  if (read != length || held >= 32) return kTerngradBlocks;
  return (pending & ((uint64_t{1} << held) - 1)) == 0 ? kTerngradOk
                                                      : kTerngradTail;
}

int DecodeCoded(const uint32_t* words, size_t used, size_t width, int step,
                int8_t* codes, size_t count) {
  const size_t blocks = Ceil(width, kBlock);
  size_t word = 1 + Ceil(blocks, 4);
  if (width == 0 || used > 1 + Ceil(width, kRaw) || used < word) {
    return kTerngradHeader;
  }
  Table table;
  MakeTable(step, &table);
  uint64_t nonzero = 0;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t length = words[1 + block / 4] >> (8 * (block % 4)) & 255;
    if (length > used - word) return kTerngradBlocks;
    const size_t begin = block * kBlock;
    const int status =
        DecodeBlock(words + word, length, table, begin,
                    std::min(begin + kBlock, width), width, codes, count,
                    &nonzero);
    if (status != kTerngradOk) return status;
    word += length;
  }
  if (word != used) return kTerngradBlocks;
  if (blocks % 4 != 0 && words[1 + blocks / 4] >> (8 * (blocks % 4)) != 0) {
    return kTerngradTail;
  }
  return BestStep(nonzero, kTrits * width) == step ? kTerngradOk
                                                   : kTerngradNotShortest;
}

}  // namespace

size_t terngrad_huffman243_capacity(size_t count) {
  return count > kMaxElements ? 0 : 1 + Ceil(Ceil(count, kTrits), kRaw);
}

int terngrad_huffman243_encode(const int8_t* codes, size_t count,
                               uint32_t* words, size_t capacity,
                               size_t* used) {
  if (count > kMaxElements) return kTerngradTooMany;
  if (capacity < terngrad_huffman243_capacity(count)) return kTerngradCapacity;
  std::fill_n(words, capacity, 0u);
  const size_t width = Ceil(count, kTrits);
  uint64_t nonzero = 0;
  for (size_t j = 0; j < width; ++j) {
    if (SymbolAt(codes, count, width, j, &nonzero) < 0) return kTerngradBadCode;
  }
  *used = 1 + Ceil(width, kRaw);
  words[0] = static_cast<uint32_t>(*used);
  if (width == 0) return kTerngradOk;
  const int step = BestStep(nonzero, kTrits * width);
  Table table;
  MakeTable(step, &table);
  const size_t coded = CodedWords(codes, count, width, table);
  if (coded <= *used) {
    *used = coded;
    words[0] = static_cast<uint32_t>(coded) | static_cast<uint32_t>(step) << 24;
    WriteCoded(codes, count, width, table, words);
  } else {
    WriteRaw(codes, count, width, words);
  }
  return kTerngradOk;
}

int terngrad_huffman243_decode(const uint32_t* words, size_t num_words,
                               int8_t* codes, size_t count) {
  if (count > kMaxElements) return kTerngradTooMany;
  const size_t width = Ceil(count, kTrits);
  if (num_words < 1 || num_words > 1 + Ceil(width, kRaw)) {
    return kTerngradLength;
  }
  const size_t used = words[0] & 0xFFFFFF;
  const int step = static_cast<int>(words[0] >> 24);
  if (used < 1 || used > num_words) return kTerngradLength;
  if (step >= kSteps) return kTerngradHeader;
  if (!AllZero(words, used, num_words)) return kTerngradTail;
  return step == 0 ? DecodeRaw(words, used, width, codes, count)
                   : DecodeCoded(words, used, width, step, codes, count);
}

int terngrad_huffman243_lengths(int step, uint8_t* lengths) {
  if (step < 1 || step >= kSteps) return kTerngradHeader;
  terngrad::MakeLengths(step, lengths);
  return kTerngradOk;
}
