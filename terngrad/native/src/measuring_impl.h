// The numbers of a group of elements that its scales depend on.
//
// A part of kernels_impl.h, included after the vector types.
// gpu/groups_measure.h has the same for GPUs.

template <typename Of>
TERNGRAD_INLINE double SumWide(const float* data, int64_t size, Of of) {
  constexpr int kHalf = kLanes / 2;
  Doubles sums[kSums / kHalf] = {};
  const auto add = [&](const float* from) {
    for (int k = 0; k < kSums / kHalf; ++k) {
      sums[k] += of(__builtin_convertvector(Load<HalfFloats>(from + k * kHalf),
                                            Doubles));
    }
  };
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    __builtin_prefetch(data + i + 512);
    __builtin_prefetch(data + i + 528);
    add(data + i);
  }
  if (i < size) {
    float rest[kSums] = {};
    std::memcpy(rest, data + i, sizeof(float) * (size - i));
    add(rest);
  }
  double lanes[kSums];
  std::memcpy(lanes, sums, sizeof(lanes));
  double total = 0.0;
  for (int lane = 0; lane < kSums; ++lane) total += lanes[lane];
  return total;
}

// Calls join(k, values) for vectors of all elements; k alternates between 0 and
// 1. The last vector is padded with copies of the first element.
template <typename Join>
TERNGRAD_INLINE void ForAll(const float* data, int64_t size, Join join) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    __builtin_prefetch(data + i + 512);
    join(0, Load<Floats>(data + i));
    join(1, Load<Floats>(data + i + kLanes));
  }
  for (; i < size; i += kLanes) {
    Floats values = Floats{} + data[0];
    const int64_t lanes = std::min<int64_t>(kLanes, size - i);
    std::memcpy(&values, data + i, sizeof(float) * lanes);
    join(0, values);
  }
}

Extent Measure(const float* data, int64_t size, const GroupCode& code) {
  Extent extent = {data[0], data[0], 0.0};
  if (code.kind == GroupKind::kSigns) {
    typedef int64_t Longs __attribute__((vector_size(4 * kLanes)));
    extent.sum = SumWide(data, size, [](Doubles wide) {
      return Bits<Doubles>(Bits<Longs>(wide) & 0x7fffffffffffffff);
    });
  } else if (code.is_norm) {
    extent.sum = SumWide(data, size, [](Doubles wide) { return wide * wide; });
  } else if (code.kind == GroupKind::kSteps) {
    Ints most[2] = {};
    ForAll(data, size, [&](int k, Floats values) {
      const Ints magnitude = Bits<Ints>(values) & 0x7fffffff;
      most[k] = most[k] < magnitude ? magnitude : most[k];
    });
    most[0] = most[0] < most[1] ? most[1] : most[0];
    int32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits = std::max(bits, most[0][i]);
    std::memcpy(&extent.largest, &bits, sizeof(bits));
  } else {
    Floats least[2] = {Floats{} + data[0], Floats{} + data[0]};
    Floats most[2] = {least[0], least[1]};
    Ints is_nan[2] = {};
    ForAll(data, size, [&](int k, Floats values) {
      least[k] = Min(least[k], values);
      most[k] = Max(most[k], values);
      is_nan[k] |= values != values;
    });
    least[0] = Min(least[0], least[1]);
    most[0] = Max(most[0], most[1]);
    bool has_nan = false;
    for (int i = 0; i < kLanes; ++i) {
      extent.least = std::min(extent.least, least[0][i]);
      extent.largest = std::max(extent.largest, most[0][i]);
      has_nan |= (is_nan[0] | is_nan[1])[i] != 0;
    }
    // Comparisons with NaN forget numbers or the NaN.
    if (has_nan) {
      extent.least = extent.largest = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return extent;
}
