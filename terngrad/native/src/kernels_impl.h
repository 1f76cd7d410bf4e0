// The kernels, compiled once per instruction set. The including file defines
// the namespace TERNGRAD_ISA and is compiled with the flags of that set.
//
// Vectors are the vector extensions of GCC and Clang, as wide as a register:
// TERNGRAD_LANES is 16 for AVX-512, 8 for AVX2, 4 for SSE and NEON. Results are
// bit-identical: every operation is exact or correctly rounded, and only exact
// products may be contracted with a sum by the compiler.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "kernels.h"

namespace terngrad {
namespace TERNGRAD_ISA {
namespace {

#include "vectors_impl.h"
#include "encoding_impl.h"
#include "decoding_impl.h"
#include "measuring_impl.h"
#include "grouping_impl.h"
#include "rotation_impl.h"
#include "levels_impl.h"
#include "tables_impl.h"
#include "selection_impl.h"

}  // namespace

extern const Kernels kKernels;
const Kernels kKernels = {TERNGRAD_ISA_NAME, Statistics,      Encode,
                          DecodeSum,         DecodeAndUpdate, ScaleSums,
                          ScaleAndUpdate,    Measure,         EncodeGroups,
                          DecodeGroups,      EncodeRotated,   PackDigits,
                          DecodeRotated,     EncodeTable,     DecodeTable,
                          AtLeast};

}  // namespace TERNGRAD_ISA
}  // namespace terngrad
