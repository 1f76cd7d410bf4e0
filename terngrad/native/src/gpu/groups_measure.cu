// The scales of groups of elements, in launches of their own.

#include "groups_measure.h"

namespace terngrad_gpu {

// A warp for each block of kExtentBlock elements of a group: writes the scales
// of groups of one block, and the extents of the blocks of larger groups.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_groups_measure(const __grid_constant__ GroupedVariables variables,
                            const Grouping code, Extent* extents,
                            uint32* words) {
  __shared__ double sums[kWarps][kWarp];
  const int warp = threadIdx.x / kWarp;
  const int64 number = static_cast<int64>(blockIdx.x) * kWarps + warp;
  if (number >= variables.extents) return;
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::extent, number);
  MeasureExtent(variable, code, number - variable.extent,
                extents + variable.extent, words, sums[warp]);
}

// Joins the extents of the blocks of a large group; a block of threads for each
// group.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_groups_finish(const __grid_constant__ GroupedVariables variables,
                           const Grouping code, const Extent* extents,
                           uint32* words) {
  __shared__ Extent some[kThreads];
  const GroupedVariable variable =
      FindBy(variables, &GroupedVariable::finish, blockIdx.x);
  Finish(variable, code, blockIdx.x - variable.finish,
         extents + variable.extent, words, some);
}

}  // namespace terngrad_gpu
