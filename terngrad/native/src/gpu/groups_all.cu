// Elements of groups to words, by one launch. A file of its own is compiled at
// the same time as the other kernels.

#include "groups_encode.h"
#include "groups_measure.h"

namespace terngrad_gpu {

// Scales and words in one launch, for small variables: a block of threads for
// each.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_groups_all(const __grid_constant__ GroupedVariables variables,
                        const Grouping code, const Key key, uint32* words) {
  __shared__ double sums[kWarps][kWarp];
  __shared__ Extent extents[kExtentsAlone], some[kThreads];
  __shared__ Stretch stretches[kMostDigits];
  __shared__ ToDigits groups[kMostDigits][2];
  __shared__ FirstGroup firsts[kFloatsOfWord];
  const GroupedVariable variable = AllOf(variables)[blockIdx.x];
  const int64 blocks = CeilDivided(variable.group, kExtentBlock);
  const int warp = threadIdx.x / kWarp;
  for (int64 i = warp; i < variable.num_groups * blocks; i += kWarps) {
    MeasureExtent(variable, code, i, extents, words, sums[warp]);
    __syncwarp();  // The first thread has read the sums.
  }
  if (blocks > 1) {
    for (int64 group = 0; group < variable.num_groups; ++group) {
      __syncthreads();
      Finish(variable, code, group, extents, words, some);
    }
  }
  for (int64 begin = 0; begin < variable.num_words;
       begin += kThreads * code.words) {
    __syncthreads();
    if (code.kind == kFloats) {
      EncodeFp8(variable, code, begin, words, firsts);
    } else {
      EncodeWords(variable, code, begin, key, words, stretches, groups);
    }
  }
}

}  // namespace terngrad_gpu
