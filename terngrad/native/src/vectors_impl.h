// Vectors as wide as a register, and ranges of variables.
//
// A part of kernels_impl.h, included after the vector types.

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

// a < b ? a : b. Compilers do not translate this expression to the instruction.
TERNGRAD_INLINE Floats Min(Floats a, Floats b) {
#if defined(__AVX512F__)
  return Bits<Floats>(_mm512_min_ps(Bits<__m512>(a), Bits<__m512>(b)));
#elif defined(__AVX2__)
  return Bits<Floats>(_mm256_min_ps(Bits<__m256>(a), Bits<__m256>(b)));
#else
  return a < b ? a : b;
#endif
}

// a > b ? a : b, likewise.
TERNGRAD_INLINE Floats Max(Floats a, Floats b) {
#if defined(__AVX512F__)
  return Bits<Floats>(_mm512_max_ps(Bits<__m512>(a), Bits<__m512>(b)));
#elif defined(__AVX2__)
  return Bits<Floats>(_mm256_max_ps(Bits<__m256>(a), Bits<__m256>(b)));
#else
  return a > b ? a : b;
#endif
}

// a * b + c, rounded once. Explicit, because of two products a compiler may
// contract either one with their sum.
TERNGRAD_INLINE Floats MultiplyAdd(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return Bits<Floats>(
      _mm512_fmadd_ps(Bits<__m512>(a), Bits<__m512>(b), Bits<__m512>(c)));
#elif defined(__FMA__)
  return Bits<Floats>(
      _mm256_fmadd_ps(Bits<__m256>(a), Bits<__m256>(b), Bits<__m256>(c)));
#else
  // Slow without such an instruction. XLA does not fuse in this case either, so
  // terngrad/step/fused_updates.py does not use it.
  for (int i = 0; i < kLanes; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
#endif
}

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

// Calls visit(i, lanes) for vectors that cover [0, size). `lanes` is kLanes,
// or less for the last vector.
template <typename Visit>
TERNGRAD_INLINE void ForVectors(int64_t size, Visit visit) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) visit(i, kLanes);
  if (i < size) visit(i, size - i);
}

// --- variables

// Finds the variables of ranges of a bucket's elements. Ranges must be in
// ascending order.
class Cursor {
 public:
  // Starts at variable 0.
  Cursor() : index_(0), start_(0) {}

  // Splits the elements [position, position + count) by variable and calls
  // visit(i, offset, done, size) for the piece in variable i, which begins at
  // element position + done. Elements past the bucket's end are skipped.
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
