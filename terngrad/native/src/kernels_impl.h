// The kernels themselves, compiled once for each instruction set: the including
// file defines TERNGRAD_ISA, a namespace, and is compiled with its flags.
//
// Vectors are the compilers' own (GCC and Clang) and as wide as a register:
// TERNGRAD_LANES is 16 for AVX-512, 8 for AVX2, 4 for SSE and NEON. All compute
// the same bits: every operation is exact or correctly rounded, and the only
// products that a compiler may contract with a sum are exact.

#include <algorithm>
#include <cmath>
#include <cstring>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "kernels.h"

namespace terngrad {
namespace TERNGRAD_ISA {
namespace {

constexpr int kLanes = TERNGRAD_LANES;

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(4 * kLanes)));
typedef float HalfFloats __attribute__((vector_size(2 * kLanes)));
typedef double Doubles __attribute__((vector_size(4 * kLanes)));

#define TERNGRAD_INLINE inline __attribute__((always_inline))

template <typename Vector>
TERNGRAD_INLINE Vector Load(const void* from) {
  Vector value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename Vector>
TERNGRAD_INLINE void Store(void* to, Vector value) {
  std::memcpy(to, &value, sizeof(value));
}

template <typename To, typename From>
TERNGRAD_INLINE To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same number of bits");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// a < b ? a : b. Compilers do not take this for the instruction that it is.
TERNGRAD_INLINE Floats Min(Floats a, Floats b) {
#if defined(__AVX512F__)
  return Bits<Floats>(_mm512_min_ps(Bits<__m512>(a), Bits<__m512>(b)));
#elif defined(__AVX2__)
  return Bits<Floats>(_mm256_min_ps(Bits<__m256>(a), Bits<__m256>(b)));
#else
  return a < b ? a : b;
#endif
}

// a * b + c, rounded once. Written out: which of two products a compiler would
// contract with their sum is its own choice.
TERNGRAD_INLINE Floats MultiplyAdd(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return Bits<Floats>(
      _mm512_fmadd_ps(Bits<__m512>(a), Bits<__m512>(b), Bits<__m512>(c)));
#elif defined(__FMA__)
  return Bits<Floats>(
      _mm256_fmadd_ps(Bits<__m256>(a), Bits<__m256>(b), Bits<__m256>(c)));
#else
  // Slow where there is no instruction for it; XLA does not fuse there either, so
  // terngrad/training/descents.py does without.
  for (int i = 0; i < kLanes; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
#endif
}

// --- statistics

// Sums run side by side in so many lanes whatever the width of the vectors is.
constexpr int kSums = 32;

struct Sums {
  Doubles sum[2 * kSums / kLanes];
  Doubles squares[2 * kSums / kLanes];
  Ints max_abs[kSums / kLanes];  // As bits: they order like the magnitudes.
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
    // As far ahead as the block before the next of the processor's pages.
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

// --- variables

// Where the elements of a bucket lie: finds, for runs of positions that only
// move forward, the variables that they belong to.
class Cursor {
 public:
  // Stands at variable 0, before any position.
  Cursor() : index_(0), start_(0) {}

  // Calls visit(i, offset, done, size) for the pieces of positions
  // [position, position + count) that lie in variable i, `done` positions from
  // the first; none beyond the bucket's end.
  template <typename Variable, typename Visit>
  TERNGRAD_INLINE void Walk(const Variable* variables,
                               int64_t num_variables, int64_t position,
                               int64_t count, Visit visit) {
    int64_t done = 0;
    while (done < count) {
      while (index_ < num_variables &&
             position + done >= start_ + variables[index_].size) {
        start_ += variables[index_].size;
        ++index_;
      }
      if (index_ == num_variables) return;
      const int64_t offset = position + done - start_;
      const int64_t size =
          std::min(count - done, variables[index_].size - offset);
      visit(variables[index_], offset, done, size);
      done += size;
    }
  }

 private:
  int64_t index_;
  int64_t start_;
};

// --- encode

// random_bits.element_bits, but for the last step, bits ^ (bits >> 16);
// `counter` is the position plus the key's first word.
TERNGRAD_INLINE Words AlmostRandom(Words counter, Words second) {
  Words bits = (counter ^ (counter >> 16)) * 0x7feb352dU;
  bits += second;
  return (bits ^ (bits >> 15)) * 0x846ca68bU;
}

// Adds code * power to a vector of words; the codes are ternary.quantize's, by
// magnitude and sign, or quantize_in_strata's.
template <bool kStratified>
TERNGRAD_INLINE Words AddCodes(Words words, Floats values, Floats limit,
                               Floats factor, Words random, Words stratum,
                               Words power) {
  const Ints bits = Bits<Ints>(values);
  if (kStratified) {
    random = (random ^ (random >> 16)) + stratum;
    random ^= ~Bits<Words>(bits >> 31);
  }
  // A NaN stays, and then does not fire.
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
  // A limit that is not a number lets nothing fire, here as in the twin.
  const bool valid = source.limit == source.limit;
  const Floats factor = Floats{} + (valid ? source.factor : 0.0f);
  const Words seconds = Words{} + key.second;
  const Words stratum = Words{} + key.stratum;
  const Words powers = Words{} + power;
  Words counters = Load<Words>(kNumbers) + counter;
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    // What this place needs for the next block of words.
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
      // Past the end stands the code 0.
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

// --- decode

// The 16-bit halves of a vector of words are worked on side by side: place i of
// a word is summed in the low half of total i, place i + places / 2 in the high
// half.

// A vector of words as the pairs of numbers (word mod 3^10, word / 3^10).
TERNGRAD_INLINE void AddTrits(Words word, Halves* totals) {
  const Words high = word / 59049U;
  const Halves pairs = Bits<Halves>((word - high * 59049U) | (high << 16));
  const Halves upper = pairs / 243;
  const Halves quarters[2] = {pairs - upper * 243, upper};
  for (int quarter = 0; quarter < 2; ++quarter) {
    // Five trits as a fraction of 2^14: multiplying by 3 brings the next, the
    // highest first, above bit 14. The fraction of q must lie between q and
    // q + 1 times 2^14 / 3^5 = 67.42..: 67.5 q + 1, rounded down, does for all.
    Halves fraction = ((quarters[quarter] * 270) >> 2) + 1;
    for (int place = 4; place >= 0; --place) {
      fraction = fraction + fraction + fraction;
      totals[5 * quarter + place] += fraction >> 14;
      fraction &= 0x3fff;
    }
  }
}

TERNGRAD_INLINE void AddPairs(Words word, Halves* totals) {
  for (int place = 0; place < 8; ++place) {
    totals[place] += Bits<Halves>((word >> (2 * place)) & 0x00030003U);
  }
}

template <int kRadix, int kPlaces>
TERNGRAD_INLINE void SumDigits(const int32_t* const* payloads,
                               int64_t num_payloads, int64_t from,
                               int64_t lanes, uint32_t* sums) {
  Halves totals[kPlaces / 2] = {};
  for (int64_t r = 0; r < num_payloads; ++r) {
    Words word = {};
    if (lanes == kLanes) {
      word = Load<Words>(payloads[r] + from);
    } else {
      std::memcpy(&word, payloads[r] + from, sizeof(int32_t) * lanes);
    }
    if (kRadix == 3) {
      AddTrits(word, totals);
    } else {
      AddPairs(word, totals);
    }
  }
  for (int i = 0; i < kPlaces / 2; ++i) {
    Store(sums + i * kBlockWords, totals[i]);
  }
}

// Sums of codes times scaler times scale, from the halves of `pairs` that lie
// `shift` bits up.
struct Dequantize {
  int shift;
  int32_t num_payloads;
  float scaler;
  float scale;

  TERNGRAD_INLINE Floats operator()(Words pairs) const {
    const Ints codes = Bits<Ints>((pairs >> shift) & 0xffffU) - num_payloads;
    return __builtin_convertvector(codes, Floats) * scaler * scale;
  }
};

TERNGRAD_INLINE Floats LoadSome(const float* from, int64_t lanes) {
  if (lanes == kLanes) return Load<Floats>(from);
  Floats values = {};
  std::memcpy(&values, from, sizeof(float) * lanes);
  return values;
}

TERNGRAD_INLINE void StoreSome(float* to, Floats values, int64_t lanes) {
  if (lanes == kLanes) {
    Store(to, values);
  } else {
    std::memcpy(to, &values, sizeof(float) * lanes);
  }
}

// Calls visit(i, lanes) for vectors of lanes of [0, size): kLanes but for the
// last.
template <typename Visit>
TERNGRAD_INLINE void ForVectors(int64_t size, Visit visit) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) visit(i, kLanes);
  if (i < size) visit(i, size - i);
}

TERNGRAD_INLINE Words LoadPairs(const uint32_t* sums, int64_t lanes) {
  if (lanes == kLanes) return Load<Words>(sums);
  Words pairs = {};
  std::memcpy(&pairs, sums, sizeof(uint32_t) * lanes);
  return pairs;
}

// A variable gets its sums.
TERNGRAD_INLINE void Put(const uint32_t* sums, const Dequantize& value,
                         const Target& target, int64_t offset, int64_t size,
                         Rates) {
  float* to = target.data + offset;
  ForVectors(size, [&](int64_t i, int64_t lanes) {
    __builtin_prefetch(to + i + kBlockWords, 1);
    StoreSome(to + i, value(LoadPairs(sums + i, lanes)), lanes);
  });
}

template <bool kMomentum, bool kAverages>
void Descend(const uint32_t* sums, const Dequantize& value,
             const Descent& variable, int64_t offset, int64_t size,
             Rates rates) {
  const Floats momentum = Floats{} + rates.momentum;
  const Floats minus_rate = -(Floats{} + rates.learning_rate);
  const Floats decay = Floats{} + rates.decay;
  const Floats rest = Floats{} + (1.0f - rates.decay);
  ForVectors(size, [&](int64_t i, int64_t lanes) {
    const int64_t at = offset + i;
    __builtin_prefetch(variable.parameter + at + kBlockWords, 1);
    Floats step = value(LoadPairs(sums + i, lanes));
    if (kMomentum) {
      __builtin_prefetch(variable.velocity + at + kBlockWords, 1);
      step = MultiplyAdd(LoadSome(variable.velocity + at, lanes), momentum,
                         step);
      StoreSome(variable.velocity + at, step, lanes);
    }
    const Floats parameter =
        MultiplyAdd(step, minus_rate, LoadSome(variable.parameter + at, lanes));
    StoreSome(variable.parameter + at, parameter, lanes);
    if (kAverages) {
      __builtin_prefetch(variable.average + at + kBlockWords, 1);
      StoreSome(variable.average + at,
                MultiplyAdd(LoadSome(variable.average + at, lanes), decay,
                            rest * parameter),
                lanes);
    }
  });
}

// A variable is moved by its sums.
TERNGRAD_INLINE void Put(const uint32_t* sums, const Dequantize& value,
                         const Descent& variable, int64_t offset, int64_t size,
                         Rates rates) {
  const bool averages = variable.average;
  const auto descend =
      variable.velocity
          ? (averages ? Descend<true, true> : Descend<true, false>)
          : (averages ? Descend<false, true> : Descend<false, false>);
  descend(sums, value, variable, offset, size, rates);
}

template <int kRadix, int kPlaces, typename Variable>
void DecodeRange(const int32_t* const* payloads, int64_t num_payloads,
                 float scale, Rates rates, int64_t num_words, int64_t first,
                 int64_t begin, int64_t end, const Variable* variables,
                 int64_t num_variables) {
  Cursor cursors[kPlaces];
  alignas(64) uint32_t sums[kPlaces / 2 * kBlockWords];
  for (int64_t block = begin; block < end; block += kBlockWords) {
    const int64_t count = std::min(kBlockWords, end - block);
    for (int64_t i = 0; i < count; i += kLanes) {
      SumDigits<kRadix, kPlaces>(payloads, num_payloads, block - first + i,
                                 std::min<int64_t>(kLanes, count - i),
                                 sums + i);
    }
    for (int place = 0; place < kPlaces; ++place) {
      const uint32_t* pairs = sums + place % (kPlaces / 2) * kBlockWords;
      const int shift = place < kPlaces / 2 ? 0 : 16;
      cursors[place].Walk(
          variables, num_variables, place * num_words + block, count,
          [&](const Variable& variable, int64_t offset, int64_t at,
              int64_t size) {
            const Dequantize value = {shift, static_cast<int32_t>(num_payloads),
                                      variable.scaler, scale};
            Put(pairs + at, value, variable, offset, size, rates);
          });
    }
  }
}

void DecodeSum(const int32_t* const* payloads, int64_t num_payloads,
               Digits digits, float scale, int64_t num_words, int64_t begin,
               int64_t end, const Target* targets, int64_t num_targets) {
  const auto decode =
      digits.radix == 3 ? DecodeRange<3, 20, Target> : DecodeRange<4, 16, Target>;
  decode(payloads, num_payloads, scale, {}, num_words, 0, begin, end, targets,
         num_targets);
}

void DecodeAndDescend(const int32_t* const* payloads, int64_t num_payloads,
                      Digits digits, float scale, Rates rates,
                      int64_t num_words, int64_t first, int64_t begin,
                      int64_t end, const Descent* variables,
                      int64_t num_variables) {
  const auto decode = digits.radix == 3 ? DecodeRange<3, 20, Descent>
                                        : DecodeRange<4, 16, Descent>;
  decode(payloads, num_payloads, scale, rates, num_words, first, begin, end,
         variables, num_variables);
}

}  // namespace

extern const Kernels kKernels;
const Kernels kKernels = {TERNGRAD_ISA_NAME, Statistics, Encode, DecodeSum,
                          DecodeAndDescend};

}  // namespace TERNGRAD_ISA
}  // namespace terngrad
