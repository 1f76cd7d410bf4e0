// Blocks of elements through random signs and a Hadamard matrix, and back.
//
// A part of kernels_impl.h, which includes it where its vectors are known.
// terngrad/codec/methods/transforms has the mathematics: rotation.py, eden.py.

// --- the matrix

// The lanes of a vector, each in the place of that whose number differs in the
// bit kStride.
template <int kStride>
TERNGRAD_INLINE Floats Swapped(Floats values) {
#if defined(__AVX512F__)
  const __m512 all = Bits<__m512>(values);
  if constexpr (kStride == 1) {
    return Bits<Floats>(_mm512_permute_ps(all, 0xb1));
  } else if constexpr (kStride == 2) {
    return Bits<Floats>(_mm512_permute_ps(all, 0x4e));
  } else {
    return Bits<Floats>(
        _mm512_shuffle_f32x4(all, all, kStride == 4 ? 0xb1 : 0x4e));
  }
#elif defined(__AVX2__)
  const __m256 all = Bits<__m256>(values);
  if constexpr (kStride == 4) {
    return Bits<Floats>(_mm256_permute2f128_ps(all, all, 1));
  } else {
    return Bits<Floats>(_mm256_permute_ps(all, kStride == 1 ? 0xb1 : 0x4e));
  }
#else
  Floats swapped;
  for (int i = 0; i < kLanes; ++i) swapped[i] = values[i ^ kStride];
  return swapped;
#endif
}

// Sums of pairs of lanes in the lower of the two, differences in the other.
template <int kStride>
TERNGRAD_INLINE Floats SumsOfLanes(Floats values) {
  Ints signs = {};
  for (int i = 0; i < kLanes; ++i) signs[i] = i & kStride ? INT32_MIN : 0;
  return Swapped<kStride>(values) + Bits<Floats>(Bits<Ints>(values) ^ signs);
}

// The steps between lanes of a block of `size` elements.
TERNGRAD_INLINE Floats WithinVector(Floats values, int64_t size) {
  if (size > 1) values = SumsOfLanes<1>(values);
  if (size > 2) values = SumsOfLanes<2>(values);
  if constexpr (kLanes > 4) {
    if (size > 4) values = SumsOfLanes<4>(values);
  }
  if constexpr (kLanes > 8) {
    if (size > 8) values = SumsOfLanes<8>(values);
  }
  return values;
}

// The steps kStep, 2 kStep and so on among vectors.
template <int kRadix, int kStep = 1>
TERNGRAD_INLINE void SumsOfVectors(Floats (&parts)[kRadix]) {
#pragma GCC unroll 16
  for (int k = 0; k < kRadix; ++k) {
    if (k & kStep) continue;
    const Floats a = parts[k];
    const Floats b = parts[k + kStep];
    parts[k] = a + b;
    parts[k + kStep] = a - b;
  }
  if constexpr (2 * kStep < kRadix) SumsOfVectors<kRadix, 2 * kStep>(parts);
}

// The steps of strides `done`, 2 `done` and so on, for `kRadix` vectors at a time.
template <int kRadix>
TERNGRAD_INLINE void BetweenVectors(float* data, int64_t size, int64_t done) {
  for (int64_t start = 0; start < size; start += kRadix * done) {
    for (int64_t i = start; i < start + done; i += kLanes) {
      Floats parts[kRadix];
#pragma GCC unroll 16
      for (int k = 0; k < kRadix; ++k) {
        parts[k] = Load<Floats>(data + i + k * done);
      }
      SumsOfVectors(parts);
#pragma GCC unroll 16
      for (int k = 0; k < kRadix; ++k) Store(data + i + k * done, parts[k]);
    }
  }
}

// A power of 2 of elements times the Hadamard matrix. Sums of strides 1, 2, 4 and
// so on, in this order. Smaller blocks than a vector are filled with zeros.
void Hadamard(float* data, int64_t size) {
  // As many vectors as there are registers for.
  constexpr int kRadix = kLanes == 16 ? 16 : 8;
  for (int64_t i = 0; i < size; i += kLanes) {
    Store(data + i, WithinVector(Load<Floats>(data + i), size));
  }
  int64_t done = kLanes;
  for (; done * kRadix <= size; done *= kRadix) {
    BetweenVectors<kRadix>(data, size, done);
  }
  for (; done * 4 <= size; done *= 4) BetweenVectors<4>(data, size, done);
  if (done < size) BetweenVectors<2>(data, size, done);
}

// --- signs

// Calls visit(i, lanes, signs) for vectors of lanes of [0, size), with the highest
// bit of the random bits of the elements from `first` on: rotation.signs.
template <typename Visit>
TERNGRAD_INLINE void ForSigns(int64_t size, Key key, int64_t first,
                              Visit visit) {
  constexpr uint32_t kNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                   8, 9, 10, 11, 12, 13, 14, 15};
  Words counters = Load<Words>(kNumbers) + key.first +
                   static_cast<uint32_t>(first);
  const Words second = Words{} + key.second;
  ForVectors(size, [&](int64_t i, int64_t lanes) {
    visit(i, lanes,
          Bits<Ints>(AlmostRandom(counters, second)) & INT32_MIN);
    counters += kLanes;
  });
}

// --- encode

typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

TERNGRAD_INLINE Doubles Wide(const Floats& values, int half) {
  HalfFloats some;
  std::memcpy(&some, reinterpret_cast<const char*>(&values) +
                         half * sizeof(some), sizeof(some));
  return __builtin_convertvector(some, Doubles);
}

// Writes the digits of a rotated block, and returns its scale.
template <int kLevels, bool kWithZero>
float QuantizeBlock(const float* rotated, int64_t size,
                    const RotatedCode& code, uint8_t* digits) {
  const double square =
      SumWide(rotated, size, [](Doubles wide) { return wide * wide; });
  const double deviation = std::sqrt(square / static_cast<double>(size));
  Ints below[kLevels] = {};  // Bits of the magnitudes below a level's border.
  Floats more[kLevels] = {};  // A level less that below.
  for (int k = 1; k < kLevels; ++k) {
    const float least = static_cast<float>(code.borders[k - 1] * deviation);
    int32_t bits;
    std::memcpy(&bits, &least, sizeof(bits));
    // Zeros may have the border 0, and are not beyond it.
    below[k] = Ints{} + (std::max(bits, 1) - 1);
    more[k] =
        Floats{} + static_cast<float>(code.levels[k] - code.levels[k - 1]);
  }
  Doubles along[2] = {};
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats values = Load<Floats>(rotated + i);
    const Ints bits = Bits<Ints>(values) & INT32_MAX;
    Ints index = {};
    Floats level = Floats{} + static_cast<float>(code.levels[0]);
#pragma GCC unroll 8
    for (int k = 1; k < kLevels; ++k) {
      const Ints beyond = bits > below[k];
      index -= beyond;
      level += Bits<Floats>(beyond & Bits<Ints>(more[k]));
    }
    const Ints negative = values < 0.0f;
    const Ints digit = kWithZero ? (index ^ negative) - negative + 1
                                 : index + (negative & kLevels);
    Store(digits + i, __builtin_convertvector(digit, Bytes));
    for (int half = 0; half < 2; ++half) {
      along[half] += Wide(level, half) * Wide(Bits<Floats>(bits), half);
    }
  }
  double total = 0.0;
  for (const Doubles& sums : along) {
    for (int i = 0; i < kLanes / 2; ++i) total += sums[i];
  }
  const float scale =
      total == 0.0 ? 0.0f : static_cast<float>(square / total);
  if (kWithZero || kLevels == 1) return scale;
  // To 16 bits, so that products with levels are exact.
  int32_t bits;
  std::memcpy(&bits, &scale, sizeof(bits));
  bits = (bits + 0x80) & ~0xff;
  float coarse;
  std::memcpy(&coarse, &bits, sizeof(coarse));
  return coarse;
}

// Elements times a factor and random signs.
TERNGRAD_INLINE void FillSigned(const float* from, int64_t count, float factor,
                                Key key, int64_t first, float* to) {
  ForSigns(count, key, first, [&](int64_t i, int64_t lanes, Ints signs) {
    __builtin_prefetch(from + i + 512);
    const Floats values = LoadSome(from + i, lanes) * factor;
    StoreSome(to + i, Bits<Floats>(Bits<Ints>(values) ^ signs), lanes);
  });
}

void EncodeRotated(const Source* sources, int64_t num_sources,
                   const RotatedCode& code, Key key, int64_t begin,
                   int64_t end, float* scales, uint8_t* digits) {
  const auto quantize = code.with_zero         ? QuantizeBlock<2, true>
                        : code.num_levels == 1 ? QuantizeBlock<1, false>
                        : code.num_levels == 2 ? QuantizeBlock<2, false>
                        : code.num_levels == 4 ? QuantizeBlock<4, false>
                                               : QuantizeBlock<8, false>;
  Cursor cursor;
  alignas(64) float rotated[kRotatedBlock];
  const int64_t size = code.block;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * size;
    // What no source fills: places past the end.
    std::memset(rotated, 0, sizeof(rotated));
    cursor.Walk(
        sources, num_sources, first, size,
        [&](const Source& source, int64_t offset, int64_t done, int64_t count) {
          FillSigned(source.data + offset, count, source.factor, key,
                     first + done, rotated + done);
        });
    Hadamard(rotated, size);
    scales[block] = quantize(rotated, size, code, digits + first);
  }
}

// Digits of a word whose number fits in a byte.
template <uint32_t kBase>
constexpr int DigitsOfByte() {
  int count = 0;
  for (uint32_t number = 1; number * kBase <= 256; number *= kBase) ++count;
  return count;
}

template <uint32_t kBase>
TERNGRAD_INLINE void PackRange(const uint8_t* digits, int places,
                               int64_t num_words, int64_t begin, int64_t end,
                               int32_t* words) {
  typedef uint8_t ManyBytes __attribute__((vector_size(4 * kLanes)));
  constexpr int kDigits = DigitsOfByte<kBase>();
  uint32_t radix = 1;  // Of a byte.
  for (int k = 0; k < kDigits; ++k) radix *= kBase;
  for (int64_t i = begin; i < end; i += 4 * kLanes) {
    Words sums[4] = {};
    uint32_t power = 1;
    for (int place = 0; place < places; place += kDigits, power *= radix) {
      ManyBytes bytes = {};
#pragma GCC unroll 8
      for (int k = kDigits - 1; k >= 0; --k) {
        const uint8_t* const from = digits + (place + k) * num_words + i;
        __builtin_prefetch(from + 512);
        // Times the base, by sums: there is no product of bytes.
        const ManyBytes one = bytes;
        if (kBase == 3) bytes += one + one;
        for (uint32_t b = 2; b <= kBase && kBase != 3; b *= 2) bytes += bytes;
        bytes += Load<ManyBytes>(from);
      }
      uint8_t all[4 * kLanes];
      Store(all, bytes);
      for (int k = 0; k < 4; ++k) {
        const Bytes some = Load<Bytes>(all + k * kLanes);
        sums[k] += __builtin_convertvector(some, Words) * power;
      }
    }
    std::memcpy(words + i, sums,
                sizeof(int32_t) * std::min<int64_t>(4 * kLanes, end - i));
  }
}

void PackDigits(const uint8_t* digits, uint32_t base, int places,
                int64_t num_words, int64_t begin, int64_t end,
                int32_t* words) {
  const auto pack = base == 2   ? PackRange<2>
                    : base == 3 ? PackRange<3>
                    : base == 4 ? PackRange<4>
                                : PackRange<16>;
  pack(digits, places, num_words, begin, end, words);
}

// --- decode

// What digits stand for, times the scale of a block.
struct OfDigits {
  Floats levels;  // The first ones; magnitudes of digits below `num_levels`.
  float table[kMostLevels] = {};
  Floats scale;
  Ints last;  // The largest index.
  int sign_shift;
  bool with_zero;

  explicit OfDigits(const RotatedCode& code)
      : scale(Floats{}),
        last(Ints{} + (code.num_levels - 1)),
        sign_shift(31 - __builtin_ctz(code.num_levels)),
        with_zero(code.with_zero) {
    for (int k = 0; k < code.num_levels; ++k) {
      table[k] = static_cast<float>(code.levels[k]);
    }
    levels = Floats{};
    std::memcpy(&levels, table, std::min(sizeof(levels), sizeof(table)));
  }

  TERNGRAD_INLINE Floats operator()(Words digit) const {
    if (with_zero) {
      return __builtin_convertvector(Bits<Ints>(digit) - 1, Floats) * scale;
    }
    const Ints index = Bits<Ints>(digit) & last;
    // Digits from `num_levels` on are negative; of more than twice as many the
    // higher bits do not count.
    const Ints sign = Bits<Ints>(digit << sign_shift) & INT32_MIN;
    const Floats values = Magnitudes(index) * scale;
    return Bits<Floats>(Bits<Ints>(values) ^ sign);
  }

 private:
  TERNGRAD_INLINE Floats Magnitudes(Ints index) const {
#if defined(__AVX512F__)
    return Bits<Floats>(
        _mm512_permutexvar_ps(Bits<__m512i>(index), Bits<__m512>(levels)));
#elif defined(__AVX2__)
    return Bits<Floats>(_mm256_permutevar8x32_ps(Bits<__m256>(levels),
                                                 Bits<__m256i>(index)));
#else
    Floats values;
    for (int i = 0; i < kLanes; ++i) values[i] = table[index[i]];
    return values;
#endif
  }
};

// Writes what the digits of the elements from `first` on stand for.
TERNGRAD_INLINE void UnpackBlock(const uint32_t* words, int64_t num_words,
                                 const RotatedCode& code,
                                 const OfDigits& values, int64_t first,
                                 float* block) {
  const bool shifts = (code.base & (code.base - 1)) == 0;
  const int bits = __builtin_ctz(code.base);
  const Divisor by_base(code.base);
  for (int64_t done = 0; done < code.block;) {
    const int64_t place = (first + done) / num_words;
    const int64_t word = first + done - place * num_words;
    const int64_t count = std::min(code.block - done, num_words - word);
    const uint32_t* const from = words + word;
    float* const to = block + done;
    const auto load = [&](int64_t i, int64_t lanes) {
      Words some = {};
      std::memcpy(&some, from + i, sizeof(uint32_t) * lanes);
      return some;
    };
    if (shifts) {
      const int shift = static_cast<int>(place) * bits;
      ForVectors(count, [&](int64_t i, int64_t lanes) {
        const Words digit = (load(i, lanes) >> shift) & (code.base - 1);
        StoreSome(to + i, values(digit), lanes);
      });
    } else {
      uint32_t power = 1;
      for (int64_t k = 0; k < place; ++k) power *= code.base;
      const Divisor by_power(place ? power : 2);
      ForVectors(count, [&](int64_t i, int64_t lanes) {
        const Words some = load(i, lanes);
        const Words quotient = place ? by_power(some) : some;
        const Words digit = quotient - by_base(quotient) * code.base;
        StoreSome(to + i, values(digit), lanes);
      });
    }
    done += count;
  }
}

void DecodeRotated(const int32_t* const* payloads, int64_t num_payloads,
                   const RotatedCode& code, float scale, int64_t num_blocks,
                   int64_t num_words, int64_t begin, int64_t end,
                   const Target* targets, int64_t num_targets) {
  Cursor cursor;
  OfDigits values(code);
  alignas(64) float rotated[kRotatedBlock] = {};
  alignas(64) float sums[kRotatedBlock];
  const int64_t size = code.block;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * size;
    for (int64_t r = 0; r < num_payloads; ++r) {
      const int32_t* const payload = payloads[r];
      const Key key = {static_cast<uint32_t>(payload[0]),
                       static_cast<uint32_t>(payload[1]), false, 0};
      float own;
      std::memcpy(&own, payload + kKeyWords + block, sizeof(own));
      values.scale = Floats{} + own / static_cast<float>(size);
      UnpackBlock(reinterpret_cast<const uint32_t*>(payload) + kKeyWords +
                      num_blocks,
                  num_words, code, values, first, rotated);
      Hadamard(rotated, size);
      const bool adds = r > 0;
      ForSigns(size, key, first, [&](int64_t i, int64_t lanes, Ints signs) {
        Floats more = Bits<Floats>(
            Bits<Ints>(LoadSome(rotated + i, lanes)) ^ signs);
        if (adds) more = LoadSome(sums + i, lanes) + more;
        StoreSome(sums + i, more, lanes);
      });
    }
    cursor.Walk(targets, num_targets, first, size,
                [&](const Target& target, int64_t offset, int64_t done,
                    int64_t count) {
                  ForVectors(count, [&](int64_t i, int64_t lanes) {
                    Floats sum =
                        LoadSome(sums + done + i, lanes) * target.scaler;
                    if (scale != 1.0f) sum = sum * scale;
                    StoreSome(target.data + offset + i, sum, lanes);
                  });
                });
  }
}

// --- tables

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
  // For each cell between two integers the entry that is at it or below.
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
      cell = cell < 0 ? Ints{} : cell;  // Of what is no number.
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
