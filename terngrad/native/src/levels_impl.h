// Rotated blocks to a few levels and a scale each, and back.
//
// A part of kernels_impl.h, included after the vector types.
// terngrad/codec/methods/transforms/eden.py explains the mathematics.

// --- encode

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
  Ints below[kLevels] = {};  // Bits of the largest magnitude below a level.
  Floats more[kLevels] = {};  // Differences between adjacent levels.
  for (int k = 1; k < kLevels; ++k) {
    const float least = static_cast<float>(code.borders[k - 1] * deviation);
    int32_t bits;
    std::memcpy(&bits, &least, sizeof(bits));
    // A border may be 0; zeros are not above it. Nothing is above NaN.
    below[k] =
        Ints{} + (std::isnan(least) ? INT32_MAX : std::max(bits, 1) - 1);
    more[k] =
        Floats{} + static_cast<float>(code.levels[k] - code.levels[k - 1]);
  }
  // Sums of every 16th element, for any width of a vector.
  constexpr int kAlong = 16;
  Doubles along[2 * kAlong / kLanes] = {};
  const auto quantize = [&](int64_t i, Doubles* sums) {
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
      sums[half] += Wide(level, half) * Wide(Bits<Floats>(bits), half);
    }
  };
  for (int64_t i = 0; i < size; i += kAlong) {
    for (int k = 0; k < kAlong && i + k < size; k += kLanes) {
      quantize(i + k, along + 2 * k / kLanes);
    }
  }
  double lanes[kAlong];
  std::memcpy(lanes, along, sizeof(lanes));
  double total = 0.0;
  for (const double lane : lanes) total += lane;
  const float scale =
      total == 0.0 ? 0.0f : static_cast<float>(square / total);
  // Processors make NaNs of different bits.
  if (std::isnan(scale)) return std::numeric_limits<float>::quiet_NaN();
  if (!code.is_coarse()) return scale;
  // Round to 16 bits, so that products with levels are exact.
  int32_t bits;
  std::memcpy(&bits, &scale, sizeof(bits));
  bits = (bits + 0x80) & ~0xff;
  float coarse;
  std::memcpy(&coarse, &bits, sizeof(coarse));
  return coarse;
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
    // Elements past the end have no source.
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

// --- decode

// The scale of a block, bounded as in lloyd_max.Levels, divided by the size of
// a block. Products with levels are exact and finite, even for corrupted words.
TERNGRAD_INLINE float KnownScale(int32_t bits, const RotatedCode& code) {
  constexpr int32_t kLeast = (127 - 100) << 23, kMost = (127 + 100) << 23;
  bits = std::min(bits & (code.is_coarse() ? 0x7fffff00 : INT32_MAX), kMost);
  if (bits < kLeast) bits = 0;
  float scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return scale / static_cast<float>(code.block);
}

// Converts digits to values, times the scale of a block.
struct OfDigits {
  float table[16] = {};  // Magnitudes; one per lane of the widest vector.
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
  }

  TERNGRAD_INLINE Floats operator()(Words digit) const {
    if (with_zero) {
      return __builtin_convertvector(Bits<Ints>(digit) - 1, Floats) * scale;
    }
    const Ints index = Bits<Ints>(digit) & last;
    // Digits from `num_levels` on are negative. Higher bits of corrupted digits
    // are ignored.
    const Ints sign = Bits<Ints>(digit << sign_shift) & INT32_MIN;
    const Floats values = Magnitudes(index) * scale;
    return Bits<Floats>(Bits<Ints>(values) ^ sign);
  }

 private:
  TERNGRAD_INLINE Floats Magnitudes(Ints index) const {
#if defined(__AVX512F__)
    return Bits<Floats>(
        _mm512_permutexvar_ps(Bits<__m512i>(index), _mm512_loadu_ps(table)));
#elif defined(__AVX2__)
    return Bits<Floats>(_mm256_permutevar8x32_ps(_mm256_loadu_ps(table),
                                                 Bits<__m256i>(index)));
#else
    Floats values;
    for (int i = 0; i < kLanes; ++i) values[i] = table[index[i]];
    return values;
#endif
  }
};

// Writes the values of the digits from element `first` on.
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
      values.scale = Floats{} + KnownScale(payload[kKeyWords + block], code);
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
