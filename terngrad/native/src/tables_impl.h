// Rotated blocks to the entries of a table, and sums of entries back.
//
// A part of kernels_impl.h, included after the vector types.
// terngrad/codec/methods/transforms/thc.py explains the mathematics.

// Entry `index` of 16.
TERNGRAD_INLINE Ints Entries(const int32_t* table, Ints index) {
#if defined(__AVX512F__)
  return Bits<Ints>(_mm512_permutexvar_epi32(
      Bits<__m512i>(index), _mm512_loadu_si512(table)));
#elif defined(__AVX2__)
  return Bits<Ints>(_mm256_i32gather_epi32(table, Bits<__m256i>(index), 4));
#else
  Ints found;
  for (int i = 0; i < kLanes; ++i) found[i] = table[index[i]];
  return found;
#endif
}

void EncodeTable(const float* data, int64_t size, const TableCode& code,
                 const float* factors, const float* inverses, Key signs,
                 Key draws, int64_t begin, int64_t end, uint8_t* digits) {
  constexpr int kShift = 32 - kTableFraction;
  const Floats limit =
      Floats{} + static_cast<float>(kTableGrid << kTableFraction);
  const Ints last = Ints{} + (2 * kTableGrid - 1);
  // For each cell between two integers, the largest entry at or below it.
  int32_t lower[2][kTableEntries];
  int32_t widths[kTableEntries] = {};
  for (int cell = 0, entry = 0; cell < 2 * kTableEntries; ++cell) {
    while (entry + 2 < kTableEntries &&
           code.entries[entry + 1] <= cell - kTableGrid) {
      ++entry;
    }
    lower[cell / kTableEntries][cell % kTableEntries] = entry;
  }
  for (int k = 0; k + 1 < kTableEntries; ++k) {
    widths[k] = code.entries[k + 1] - code.entries[k];
  }
  constexpr uint32_t kNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                   8, 9, 10, 11, 12, 13, 14, 15};
  const Words second = Words{} + draws.second;
  alignas(64) float rotated[kRotatedBlock];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * code.block;
    const int64_t count = std::min(code.block, size - first);
    std::memset(rotated, 0, sizeof(rotated));
    FillSigned(data + first, count, factors[block], signs, first, rotated);
    Hadamard(rotated, code.block);
    const Floats inverse = Floats{} + inverses[block];
    Words counters = Load<Words>(kNumbers) + draws.first +
                     static_cast<uint32_t>(first);
    for (int64_t i = 0; i < code.block; i += kLanes) {
      const Floats scaled = Load<Floats>(rotated + i) * inverse;
      const Ints fixed = Nearest(Max(-limit, Min(limit, scaled)));
      Ints cell = (fixed >> kTableFraction) + kTableGrid;
      cell = cell < last ? cell : last;
      cell = cell < 0 ? Ints{} : cell;  // For NaN.
      const Ints low = cell & (kTableEntries - 1);
      const Ints index = cell < kTableEntries ? Entries(lower[0], low)
                                              : Entries(lower[1], low);
      const Ints above =
          fixed - (Entries(code.entries, index) << kTableFraction);
      const Ints draw = Bits<Ints>(AlmostRandom(counters, second) >> kShift);
      counters += kLanes;
      const Ints digit = index - (draw * Entries(widths, index) < above);
      Store(digits + first + i, __builtin_convertvector(digit, Bytes));
    }
  }
}

void DecodeTable(const int32_t* sums, int64_t size, int64_t block_size,
                 const float* factors, Key signs, int64_t begin, int64_t end,
                 float* data) {
  alignas(64) float rows[kRotatedBlock] = {};
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * block_size;
    ForVectors(block_size, [&](int64_t i, int64_t lanes) {
      Ints some = {};
      std::memcpy(&some, sums + first + i, sizeof(int32_t) * lanes);
      StoreSome(rows + i, __builtin_convertvector(some, Floats), lanes);
    });
    Hadamard(rows, block_size);
    FillSigned(rows, std::min(block_size, size - first), factors[block], signs,
               first, data + first);
  }
}
