// The kernels themselves, compiled once for each instruction set: the including
// file defines TERNGRAD_ISA, a namespace, and is compiled with its flags.
//
// Vectors are the compilers' own (GCC and Clang) and as wide as a register:
// TERNGRAD_LANES is 16 for AVX-512, 8 for AVX2, 4 for SSE and NEON. All compute
// the same bits: every operation is exact or correctly rounded, and the only
// products that a compiler may contract with a sum are exact.

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
