// Groups of elements to scales and small integers, and back.
//
// A part of kernels_impl.h, included after the vector types.
// terngrad/codec/methods/grouped.py explains the mathematics.

// Fractions of a level have this many bits.
constexpr int kFraction = 22;

// --- vectors

// Rounds to the nearest integer, ties to even.
TERNGRAD_INLINE Ints Nearest(Floats values) {
#if defined(__AVX512F__)
  return Bits<Ints>(_mm512_cvtps_epi32(Bits<__m512>(values)));
#elif defined(__AVX2__)
  return Bits<Ints>(_mm256_cvtps_epi32(Bits<__m256>(values)));
#else
  Ints nearest;
  for (int i = 0; i < kLanes; ++i) {
    // The result of the instruction for values out of range.
    const bool fits = values[i] >= -0x1p31f && values[i] < 0x1p31f;
    nearest[i] = fits ? static_cast<int32_t>(std::nearbyint(values[i]))
                      : std::numeric_limits<int32_t>::min();
  }
  return nearest;
#endif
}

// Of NaN it makes the bound.
TERNGRAD_INLINE Floats Bounded(Floats values) {
  const Floats most = Floats{} + 0x1p126f;
  return Max(-most, Min(values, most));
}

// Division by a number unknown at compile time. Granlund and Montgomery,
// Division by Invariant Integers using Multiplication, PLDI 1994,
// figure 4.1.
class Divisor {
 public:
  explicit Divisor(uint32_t number) {
    int bits = 1;
    while ((uint64_t{1} << bits) < number) ++bits;
    factor_ = static_cast<uint32_t>(
        (((uint64_t{1} << bits) - number) << 32) / number + 1);
    shift_ = bits - 1;
  }

  TERNGRAD_INLINE Words operator()(Words words) const {
    const Words high = MultiplyHigh(words);
    return (high + ((words - high) >> 1)) >> shift_;
  }

 private:
  // The upper halves of the products with `factor_`.
  TERNGRAD_INLINE Words MultiplyHigh(Words words) const {
#if defined(__AVX512F__)
    const __m512i all = Bits<__m512i>(words);
    const __m512i factor = _mm512_set1_epi64(factor_);
    const __m512i even = _mm512_mul_epu32(all, factor);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(all, 32), factor);
    return Bits<Words>(_mm512_mask_blend_epi32(
        0xaaaa, _mm512_srli_epi64(even, 32), odd));
#elif defined(__AVX2__)
    const __m256i all = Bits<__m256i>(words);
    const __m256i factor = _mm256_set1_epi64x(factor_);
    const __m256i even = _mm256_mul_epu32(all, factor);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(all, 32), factor);
    return Bits<Words>(
        _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa));
#else
    for (int i = 0; i < kLanes; ++i) {
      words[i] = static_cast<uint32_t>((uint64_t{words[i]} * factor_) >> 32);
    }
    return words;
#endif
  }

  uint32_t factor_;
  int shift_;
};

// --- encode

// The digits of values, as in grouped.py.
template <GroupKind kKind>
struct ToDigits {
  Floats inverse;
  Floats least;
  Ints levels;
  Words second;

  ToDigits(const float* scales, const GroupCode& code, Key key) {
    const float step = scales[code.num_scales() - 1];
    inverse = Floats{} + (step > 0.0f ? 0x1p22f / step : 0.0f);
    // In a group with NaN the step is 0, and so are all digits.
    least = Floats{} + (std::isnan(scales[0]) ? 0.0f : scales[0]);
    levels = Ints{} + code.levels;
    second = Words{} + key.second;
  }

  TERNGRAD_INLINE Words operator()(Floats values, Words counters) const {
    const Ints bits = Bits<Ints>(values);
    if (kKind == GroupKind::kSigns) {
      return Bits<Words>((bits < 0) & (bits != INT32_MIN)) & 1U;
    }
    const Floats bounded = Bounded(values);
    const Floats above =
        kKind == GroupKind::kSteps
            ? Bits<Floats>(Bits<Ints>(bounded) & 0x7fffffff)
            : bounded - least;
    Ints fixed = Nearest(above * inverse);
    const Ints most = levels << kFraction;
    fixed = fixed < most ? fixed : most;
    Words random = AlmostRandom(counters, second);
    random ^= random >> 16;
    const Ints code =
        (fixed + Bits<Ints>(random >> (32 - kFraction))) >> kFraction;
    if (kKind == GroupKind::kSpans) return Bits<Words>(code);
    const Ints sign = bits >> 31;
    return Bits<Words>((code ^ sign) - sign + levels);
  }
};

// Adds the digits of data[0, size) times `power` to `words`.
template <GroupKind kKind>
TERNGRAD_INLINE void PushDigits(const ToDigits<kKind>& digits,
                                const float* data, int64_t size,
                                uint32_t counter, uint32_t power,
                                uint32_t* words) {
  constexpr uint32_t kNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                   8, 9, 10, 11, 12, 13, 14, 15};
  Words counters = Load<Words>(kNumbers) + counter;
  ForVectors(size, [&](int64_t i, int64_t lanes) {
    __builtin_prefetch(data + i + 512);
    const Words more = digits(LoadSome(data + i, lanes), counters) * power;
    counters += kLanes;
    Words word = {};
    std::memcpy(&word, words + i, sizeof(uint32_t) * lanes);
    word += more;
    std::memcpy(words + i, &word, sizeof(uint32_t) * lanes);
  });
}

template <GroupKind kKind>
void EncodeGroupRange(const float* data, int64_t size, const GroupCode& code,
                      Key key, bool measures, float* scales,
                      int64_t num_words, int64_t begin, int64_t end,
                      int32_t* out) {
  const int64_t num_groups = code.num_groups(size);
  const uint32_t nothing =
      kKind == GroupKind::kSteps ? static_cast<uint32_t>(code.levels) : 0;
  for (int64_t block = begin; block < end; block += kGroupWords) {
    const int64_t count = std::min(kGroupWords, end - block);
    alignas(64) uint32_t words[kGroupWords];
    std::memset(words, 0, sizeof(uint32_t) * count);
    uint32_t power = 1;
    for (int place = 0; place < code.places; ++place, power *= code.base) {
      const int64_t first = place * num_words + block;
      const int64_t last = std::min(first + count, size);
      int64_t i = first;
      while (i < last) {
        const int64_t group = i / code.size;
        const int64_t start = group * code.size;
        const int64_t stop = std::min(start + code.size, size);
        float own[2];
        if (measures) {
          FinishScales(Measure(data + start, stop - start, code), code,
                       stop - start, own);
        }
        for (int k = 0; k < code.num_scales(); ++k) {
          float* const scale = scales + k * num_groups + group;
          if (!measures) own[k] = *scale;
          if (measures && i == start) *scale = own[k];
        }
        const int64_t until = std::min(stop, last);
        PushDigits<kKind>(ToDigits<kKind>(own, code, key), data + i, until - i,
                          key.first + static_cast<uint32_t>(i), power,
                          words + (i - first));
        i = until;
      }
      // Elements past the end have the code 0.
      for (; i < first + count; ++i) {
        words[i - first] += nothing * power;
      }
    }
    std::memcpy(out + block, words, sizeof(uint32_t) * count);
  }
}

void EncodeGroups(const float* data, int64_t size, const GroupCode& code,
                  Key key, bool measures, float* scales, int64_t num_words,
                  int64_t begin, int64_t end, int32_t* words) {
  const auto encode = code.kind == GroupKind::kSteps
                          ? EncodeGroupRange<GroupKind::kSteps>
                      : code.kind == GroupKind::kSpans
                          ? EncodeGroupRange<GroupKind::kSpans>
                          : EncodeGroupRange<GroupKind::kSigns>;
  encode(data, size, code, key, measures, scales, num_words, begin, end, words);
}

// --- decode

// The bits of a step that `FinishScales` can return: not negative, 16
// significant bits, and small enough that its multiples are finite. Corrupted
// words are changed to such a step, as in grouped.known_step.
TERNGRAD_INLINE int32_t KnownStep(int32_t bits, int32_t most) {
  constexpr int32_t kLeast = (127 - 100) << 23;  // of 2^-100
  bits = std::min(bits & 0x7fffff00, most);
  return bits >= kLeast ? bits : 0;
}

// The bits of the largest step.
inline int32_t LargestStep(int32_t levels) {
  const float span = static_cast<float>(0x1p127 / levels);
  int32_t bits;
  std::memcpy(&bits, &span, sizeof(bits));
  return ((bits + 0xff) & ~0xff) + 0x100;
}

// Removes the lowest digits from words and returns their values.
template <GroupKind kKind>
struct FromDigits {
  Divisor divisor;
  Words base;
  int shift;  // Of a digit, where bases are powers of 2.
  Ints levels;
  int32_t most;  // Of the bits of a step.
  Floats first;
  Floats last;

  FromDigits(const GroupCode& code)
      : divisor(code.base),
        base(Words{} + code.base),
        shift(__builtin_ctz(code.base)),
        levels(Ints{} + code.levels),
        most(LargestStep(code.levels)) {}

  // As bits, because arithmetic in threads may flush subnormals to zero.
  TERNGRAD_INLINE void SetScales(const int32_t* scales, int64_t num_groups) {
    first = Bits<Floats>(Ints{} + (kKind == GroupKind::kSteps
                                       ? KnownStep(scales[0], most)
                                       : scales[0]));
    if (kKind == GroupKind::kSpans) {
      last = Bits<Floats>(Ints{} + KnownStep(scales[num_groups], most));
    }
  }

  TERNGRAD_INLINE Floats operator()(Words* words) const {
    const Words rest = kKind == GroupKind::kSteps ? divisor(*words)
                                                  : *words >> shift;
    const Ints digit = Bits<Ints>(*words - rest * base);
    *words = rest;
    if (kKind == GroupKind::kSigns) {
      return Bits<Floats>(Bits<Ints>(first) ^ (digit << 31));
    }
    if (kKind == GroupKind::kSpans) {
      return __builtin_convertvector(digit, Floats) * last + first;
    }
    return __builtin_convertvector(digit - levels, Floats) * first;
  }
};

template <GroupKind kKind>
void DecodeGroupRange(const int32_t* const* payloads, int64_t num_payloads,
                      const GroupCode& code, float scale, int64_t num_words,
                      int64_t begin, int64_t end, float* data, int64_t size) {
  const int64_t num_groups = code.num_groups(size);
  FromDigits<kKind> values(code);
  for (int64_t block = begin; block < end; block += kGroupWords) {
    const int64_t count = std::min(kGroupWords, end - block);
    alignas(64) uint32_t words[kGroupWords];
    for (int64_t r = 0; r < num_payloads; ++r) {
      const int32_t* const codes =
          payloads[r] + code.num_scales() * num_groups;
      std::memcpy(words, codes + block, sizeof(uint32_t) * count);
      const int32_t* const scales = payloads[r];
      const bool adds = r > 0;
      const bool scaled = r + 1 == num_payloads && scale != 1.0f;
      for (int place = 0; place < code.places; ++place) {
        const int64_t first = place * num_words + block;
        const int64_t last = std::min(first + count, size);
        for (int64_t i = first; i < last;) {
          const int64_t group = i / code.size;
          const int64_t until = std::min((group + 1) * code.size, last);
          values.SetScales(scales + group, num_groups);
          uint32_t* const from = words + (i - first);
          float* const to = data + i;
          ForVectors(until - i, [&](int64_t k, int64_t lanes) {
            Words some = {};
            std::memcpy(&some, from + k, sizeof(uint32_t) * lanes);
            Floats sum = values(&some);
            std::memcpy(from + k, &some, sizeof(uint32_t) * lanes);
            if (adds) sum = LoadSome(to + k, lanes) + sum;
            if (scaled) sum = sum * scale;
            StoreSome(to + k, sum, lanes);
          });
          i = until;
        }
      }
    }
  }
}

void DecodeGroups(const int32_t* const* payloads, int64_t num_payloads,
                  const GroupCode& code, float scale, int64_t num_words,
                  int64_t begin, int64_t end, float* data, int64_t size) {
  const auto decode = code.kind == GroupKind::kSteps
                          ? DecodeGroupRange<GroupKind::kSteps>
                      : code.kind == GroupKind::kSpans
                          ? DecodeGroupRange<GroupKind::kSpans>
                          : DecodeGroupRange<GroupKind::kSigns>;
  decode(payloads, num_payloads, code, scale, num_words, begin, end, data,
         size);
}
