// Elements of large magnitude.
//
// A part of kernels_impl.h, included after the vector types.

// Bit i is 1 if lane i of a comparison is true.
TERNGRAD_INLINE uint32_t LanesOf(Ints holds) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(Bits<__m512i>(holds));
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(Bits<__m256>(holds)));
#else
  uint32_t lanes = 0;
  for (int i = 0; i < kLanes; ++i) lanes |= holds[i] ? 1U << i : 0U;
  return lanes;
#endif
}

int64_t AtLeast(const float* data, int64_t size, int32_t least, int32_t first,
                int32_t* indices, float* values) {
  int64_t count = 0;
  const auto take = [&](int64_t i, uint32_t lanes) {
    for (; lanes; lanes &= lanes - 1) {
      const int64_t at = i + __builtin_ctz(lanes);
      indices[count] = first + static_cast<int32_t>(at);
      values[count++] = data[at];
    }
  };
  const auto found = [&](int64_t i) {
    return (Load<Ints>(data + i) & 0x7fffffff) >= least;
  };
  int64_t i = 0;
  // Few elements are selected, so four vectors are tested at once.
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    __builtin_prefetch(data + i + 512);
    const Ints a = found(i), b = found(i + kLanes);
    const Ints c = found(i + 2 * kLanes), d = found(i + 3 * kLanes);
    if (!LanesOf(a | b | c | d)) continue;
    take(i, LanesOf(a));
    take(i + kLanes, LanesOf(b));
    take(i + 2 * kLanes, LanesOf(c));
    take(i + 3 * kLanes, LanesOf(d));
  }
  for (; i < size; ++i) {
    int32_t bits;
    std::memcpy(&bits, data + i, sizeof(bits));
    take(i, (bits & 0x7fffffff) >= least ? 1U : 0U);
  }
  return count;
}
