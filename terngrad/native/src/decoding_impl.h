// Words and sums to values, which are written to tensors or update variables.
//
// A part of kernels_impl.h, included after the vector types.

// --- output of values

// Writes the values to a variable.
template <typename Values>
TERNGRAD_INLINE void Put(const Values& values, const Target& target,
                         int64_t offset, int64_t size, Rates) {
  float* to = target.data + offset;
  ForVectors(size, [&](int64_t i, int64_t lanes) {
    __builtin_prefetch(to + i + kBlockWords, 1);
    StoreSome(to + i, values(i, lanes), lanes);
  });
}

template <bool kMomentum, bool kAverages, typename Values>
void Update(const Values& values, const UpdatedVariable& variable,
            int64_t offset, int64_t size, Rates rates) {
  const Floats momentum = Floats{} + rates.momentum;
  const Floats minus_rate = -(Floats{} + rates.learning_rate);
  const Floats decay = Floats{} + rates.decay;
  const Floats rest = Floats{} + (1.0f - rates.decay);
  ForVectors(size, [&](int64_t i, int64_t lanes) {
    const int64_t at = offset + i;
    __builtin_prefetch(variable.parameter + at + kBlockWords, 1);
    Floats step = values(i, lanes);
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

// Updates a variable with the values.
template <typename Values>
TERNGRAD_INLINE void Put(const Values& values, const UpdatedVariable& variable,
                         int64_t offset, int64_t size, Rates rates) {
  const bool averages = variable.average;
  const auto update = variable.velocity
                          ? (averages ? Update<true, true, Values>
                                      : Update<true, false, Values>)
                          : (averages ? Update<false, true, Values>
                                      : Update<false, false, Values>);
  update(values, variable, offset, size, rates);
}

// --- decode

// Both 16-bit halves of the totals are computed in parallel: digit i of a word
// is added in the low half of total i, digit i + places / 2 in its high half.

// Splits a vector of words into (word mod 3^10, word / 3^10). Words from 3^20
// on are corrupted; only their lowest 20 digits are read, as in the TensorFlow
// code, because the quotients would not fit in 16 bits.
TERNGRAD_INLINE void AddTrits(Words word, Halves* totals) {
  const Words rest = word - 3486784401U;
  word = word < rest ? word : rest;
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

TERNGRAD_INLINE Words LoadPairs(const uint32_t* sums, int64_t lanes) {
  if (lanes == kLanes) return Load<Words>(sums);
  Words pairs = {};
  std::memcpy(&pairs, sums, sizeof(uint32_t) * lanes);
  return pairs;
}

// Sums of codes times scaler times scale, from the half of `pairs` at bit
// `shift`.
struct OfPairs {
  const uint32_t* pairs;
  int shift;
  int32_t num_payloads;
  float scaler;
  float scale;

  TERNGRAD_INLINE Floats operator()(int64_t i, int64_t lanes) const {
    const Words both = LoadPairs(pairs + i, lanes);
    const Ints codes = Bits<Ints>((both >> shift) & 0xffffU) - num_payloads;
    return __builtin_convertvector(codes, Floats) * scaler * scale;
  }
};

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
            const OfPairs values = {pairs + at, shift,
                                    static_cast<int32_t>(num_payloads),
                                    variable.scaler, scale};
            Put(values, variable, offset, size, rates);
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

void DecodeAndUpdate(const int32_t* const* payloads, int64_t num_payloads,
                     Digits digits, float scale, Rates rates, int64_t num_words,
                     int64_t first, int64_t begin, int64_t end,
                     const UpdatedVariable* variables, int64_t num_variables) {
  const auto decode = digits.radix == 3 ? DecodeRange<3, 20, UpdatedVariable>
                                        : DecodeRange<4, 16, UpdatedVariable>;
  decode(payloads, num_payloads, scale, rates, num_words, first, begin, end,
         variables, num_variables);
}

// --- sums that were added before

// Sums without unpacking, times scaler times scale.
template <typename Sum>
struct OfSums {
  typedef Sum Some __attribute__((vector_size(sizeof(Sum) * kLanes)));
  const Sum* sums;
  float scaler;
  float scale;

  TERNGRAD_INLINE Floats operator()(int64_t i, int64_t lanes) const {
    Some some = {};
    std::memcpy(&some, sums + i, sizeof(Sum) * lanes);
    return __builtin_convertvector(some, Floats) * scaler * scale;
  }
};

template <typename Sum, typename Variable>
void ScaleRange(const void* sums, float scale, Rates rates, int64_t first,
                int64_t begin, int64_t end, const Variable* variables,
                int64_t num_variables) {
  const Sum* const from = static_cast<const Sum*>(sums) + (begin - first);
  Cursor().Walk(variables, num_variables, begin, end - begin,
                [&](const Variable& variable, int64_t offset, int64_t at,
                    int64_t size) {
                  const OfSums<Sum> values = {from + at, variable.scaler,
                                              scale};
                  Put(values, variable, offset, size, rates);
                });
}

template <typename Variable>
void Scale(const void* sums, SumType type, float scale, Rates rates,
           int64_t first, int64_t begin, int64_t end,
           const Variable* variables, int64_t num_variables) {
  const auto range = type == SumType::kInt8    ? ScaleRange<int8_t, Variable>
                     : type == SumType::kInt32 ? ScaleRange<int32_t, Variable>
                                               : ScaleRange<float, Variable>;
  range(sums, scale, rates, first, begin, end, variables, num_variables);
}

void ScaleSums(const void* sums, SumType type, float scale, int64_t begin,
               int64_t end, const Target* targets, int64_t num_targets) {
  Scale(sums, type, scale, {}, 0, begin, end, targets, num_targets);
}

void ScaleAndUpdate(const void* sums, SumType type, float scale, Rates rates,
                    int64_t first, int64_t begin, int64_t end,
                    const UpdatedVariable* variables, int64_t num_variables) {
  Scale(sums, type, scale, rates, first, begin, end, variables, num_variables);
}
