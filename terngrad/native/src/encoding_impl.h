// Statistics, and values to words.
//
// A part of kernels_impl.h, included after the vector types.

// --- statistics

// The number of parallel partial sums, for any width of a vector.
constexpr int kSums = 32;

struct Sums {
  Doubles sum[2 * kSums / kLanes];
  Doubles squares[2 * kSums / kLanes];
  Ints max_abs[kSums / kLanes];  // As bits, which order as magnitudes do.
};

TERNGRAD_INLINE void Add(const float* data, Sums* sums) {
  for (int i = 0; i < 2 * kSums / kLanes; ++i) {
    const Doubles wide = __builtin_convertvector(
        Load<HalfFloats>(data + i * (kLanes / 2)), Doubles);
    sums->sum[i] += wide;
    sums->squares[i] += wide * wide;
  }
  for (int i = 0; i < kSums / kLanes; ++i) {
    const Ints magnitude = Load<Ints>(data + i * kLanes) & 0x7fffffff;
    Ints& most = sums->max_abs[i];
    most = most < magnitude ? magnitude : most;
  }
}

Partial Statistics(const float* data, int64_t size) {
  Sums sums = {};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    // Prefetches 2 KiB ahead, half a page.
    __builtin_prefetch(data + i + 512);
    __builtin_prefetch(data + i + 528);
    Add(data + i, &sums);
  }
  if (i < size) {
    float rest[kSums] = {};
    std::memcpy(rest, data + i, sizeof(float) * (size - i));
    Add(rest, &sums);
  }
  double sum[kSums], squares[kSums];
  float max_abs[kSums];
  std::memcpy(sum, sums.sum, sizeof(sum));
  std::memcpy(squares, sums.squares, sizeof(squares));
  std::memcpy(max_abs, sums.max_abs, sizeof(max_abs));
  Partial total = {};
  for (int lane = 0; lane < kSums; ++lane) {
    total.sum += sum[lane];
    total.squares += squares[lane];
    total.max_abs = std::max(total.max_abs, max_abs[lane]);
  }
  return total;
}

// --- encode

// random_bits.element_bits without its last step, bits ^ (bits >> 16).
// `counter` is the position plus the first word of the key.
TERNGRAD_INLINE Words AlmostRandom(Words counter, Words second) {
  Words bits = (counter ^ (counter >> 16)) * 0x7feb352dU;
  bits += second;
  return (bits ^ (bits >> 15)) * 0x846ca68bU;
}

// Adds code * power to a vector of words, with the codes of ternary.quantize or
// of quantize_in_strata.
template <bool kStratified>
TERNGRAD_INLINE Words AddCodes(Words words, Floats values, Floats limit,
                               Floats factor, Words random, Words stratum,
                               Words power) {
  const Ints bits = Bits<Ints>(values);
  if (kStratified) {
    random = (random ^ (random >> 16)) + stratum;
    random ^= ~Bits<Words>(bits >> 31);
  }
  // NaN is preserved and gives the code 0.
  const Floats magnitude = Min(limit, Bits<Floats>(bits & 0x7fffffff));
  const Floats scaled = magnitude * factor;
#if defined(__AVX512F__)
  // draw + 0.5 <= scaled, as 1 + draw / 2^23 <= 1 + scaled / 2^23 - 2^-24. The
  // left side is exact; the right one is rounded down, to the same grid.
  const __m512 draw = Bits<__m512>(
      (kStratified ? random >> 9 : (random >> 9) ^ (random >> 25)) |
      0x3f800000U);
  const __m512 bound = _mm512_fmadd_round_ps(
      Bits<__m512>(scaled), _mm512_set1_ps(0x1p-23f),
      _mm512_set1_ps(1.0f - 0x1p-24f),
      _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  const __mmask16 fires = _mm512_cmp_ps_mask(draw, bound, _CMP_LE_OQ);
  const __mmask16 minus = _mm512_mask_cmp_ps_mask(
      _mm512_movepi32_mask(Bits<__m512i>(bits)), draw, bound, _CMP_LE_OQ);
  __m512i sums = Bits<__m512i>(words);
  sums = _mm512_mask_add_epi32(sums, fires, sums, Bits<__m512i>(power));
  sums = _mm512_mask_sub_epi32(sums, minus, sums,
                               Bits<__m512i>(power + power));
  return Bits<Words>(sums);
#else
  const Ints draw = Bits<Ints>(
      (kStratified ? random : random ^ (random >> 16)) >> 9);
  const Ints fires = __builtin_convertvector(draw, Floats) + 0.5f <= scaled;
  const Words sign = Bits<Words>(bits >> 31);
  return words + (((power ^ sign) - sign) & Bits<Words>(fires));
#endif
}

// Adds codes of source.data[offset, offset + size) times `power` to `words`.
template <bool kStratified>
TERNGRAD_INLINE void Push(const Source& source, int64_t offset, int64_t size,
                          uint32_t counter, Key key, uint32_t power,
                          uint32_t* words) {
  static_assert(kLanes <= 16, "as many numbers as lanes");
  constexpr uint32_t kNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                   8, 9, 10, 11, 12, 13, 14, 15};
  const float* data = source.data + offset;
  const Floats limit = Floats{} + source.limit;
  // If the limit is NaN, all codes are 0, as in the TensorFlow code.
  const bool valid = source.limit == source.limit;
  const Floats factor = Floats{} + (valid ? source.factor : 0.0f);
  const Words seconds = Words{} + key.second;
  const Words stratum = Words{} + key.stratum;
  const Words powers = Words{} + power;
  Words counters = Load<Words>(kNumbers) + counter;
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    // Prefetches this digit's elements of the next block of words.
    __builtin_prefetch(data + i + kBlockWords);
    Store(words + i,
          AddCodes<kStratified>(Load<Words>(words + i), Load<Floats>(data + i),
                                limit, factor, AlmostRandom(counters, seconds),
                                stratum, powers));
    counters += kLanes;
  }
  if (i < size) {
    const size_t bytes = sizeof(float) * (size - i);
    Floats values = {};
    Words word = {};
    std::memcpy(&values, data + i, bytes);
    std::memcpy(&word, words + i, bytes);
    word = AddCodes<kStratified>(word, values, limit, factor,
                                 AlmostRandom(counters, seconds), stratum,
                                 powers);
    std::memcpy(words + i, &word, bytes);
  }
}

template <bool kStratified>
void EncodeRange(const Source* sources, int64_t num_sources, Digits digits,
                 Key key, int64_t num_words, int64_t begin, int64_t end,
                 int32_t* out) {
  Cursor cursors[kMaxPlaces];
  for (int64_t block = begin; block < end; block += kBlockWords) {
    const int64_t count = std::min(kBlockWords, end - block);
    alignas(64) uint32_t words[kBlockWords] = {};
    uint32_t power = 1, ones = 0;
    for (int place = 0; place < digits.places; ++place) {
      const int64_t position = place * num_words + block;
      const uint32_t counter = static_cast<uint32_t>(position) + key.first;
      // Elements past the end have the code 0.
      cursors[place].Walk(
          sources, num_sources, position, count,
          [&](const Source& source, int64_t offset, int64_t at, int64_t size) {
            Push<kStratified>(source, offset, size,
                              counter + static_cast<uint32_t>(at), key, power,
                              words + at);
          });
      ones += power;
      power *= static_cast<uint32_t>(digits.radix);
    }
    // A digit is its code plus one.
    for (int64_t i = 0; i < count; ++i) words[i] += ones;
    std::memcpy(out + block, words, sizeof(int32_t) * count);
  }
}

void Encode(const Source* sources, int64_t num_sources, Digits digits, Key key,
            int64_t num_words, int64_t begin, int64_t end, int32_t* out) {
  const auto encode = key.stratified ? EncodeRange<true> : EncodeRange<false>;
  encode(sources, num_sources, digits, key, num_words, begin, end, out);
}
