// Random signs, the Hadamard transform, and packing of digits in bytes, for
// codes of rotated blocks.
//
// A part of kernels_impl.h, included after the vector types.
// terngrad/codec/methods/transforms/rotation.py explains the mathematics.

// --- the matrix

// Swaps lanes whose indices differ in the bit kStride.
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

// Writes the sum of a pair of lanes to the lower lane, the difference to the
// other.
template <int kStride>
TERNGRAD_INLINE Floats SumsOfLanes(Floats values) {
  Ints signs = {};
  for (int i = 0; i < kLanes; ++i) signs[i] = i & kStride ? INT32_MIN : 0;
  return Swapped<kStride>(values) + Bits<Floats>(Bits<Ints>(values) ^ signs);
}

// The transform steps within a vector, for a block of `size` elements.
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

// The transform steps kStep, 2 kStep and so on among vectors.
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

// The transform steps of strides `done`, 2 `done` and so on, on `kRadix`
// vectors at a time.
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

// Multiplies 2^k elements by the Hadamard matrix, with strides 1, 2, 4 and so
// on, in this order. Blocks smaller than a vector are padded with zeros.
void Hadamard(float* data, int64_t size) {
  // As many vectors as fit in registers.
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

// Calls visit(i, lanes, signs) for vectors that cover [0, size). `signs` are
// the highest random bits of the elements from `first` on, as in
// rotation.signs.
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

// Multiplies elements by a factor and random signs.
TERNGRAD_INLINE void FillSigned(const float* from, int64_t count, float factor,
                                Key key, int64_t first, float* to) {
  ForSigns(count, key, first, [&](int64_t i, int64_t lanes, Ints signs) {
    __builtin_prefetch(from + i + 512);
    const Floats values = LoadSome(from + i, lanes) * factor;
    StoreSome(to + i, Bits<Floats>(Bits<Ints>(values) ^ signs), lanes);
  });
}

// --- digits

typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

// The number of digits that fit in a byte.
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
        // Multiplies by the base with additions: there is no product of bytes.
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
