// Loads compiled GPU kernels and launches them, by CUDA's driver, which is
// opened when the first kernels are loaded. Nothing is linked.

#ifndef TERNGRAD_NATIVE_GPU_DRIVER_H_
#define TERNGRAD_NATIVE_GPU_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace terngrad_gpu {

// In the order of their names in driver.cc.
enum class Function {
  kStatistics,
  kTernaryEncode,
  kTernaryDecodeBase3,
  kTernaryDecodeTwoBit,
  kRequantizeBase3,
  kRequantizeTwoBit,
  kUpdateBase3,
  kUpdateTwoBit,
  kUpdateInt8,
  kUpdateInt32,
  kUpdateFloat,
  kScaleInt8,
  kScaleInt32,
  kScaleFloat,
  kGroupsMeasure,
  kGroupsFinish,
  kGroupsEncode,
  kGroupsDecode,
  kGroupsAll,
  kFp8Encode,
  kFp8Decode,
  kNaturalEncode,
  kNaturalDecode,
  kRotatedEncode,
  kDigitsPack,
  kRotatedDecode,
  kTableEncode,
  kTableDecode,
  kSelectSample,
  kSelectCandidates,
  kSelectDigit,
  kSelectCount,
  kSelectWrite,
  kSelectPack,
  kSelectAll,
  kAddCount,
  kAddUnpack,
  kAddCheck,
  kAddElements,
  kAddAll,
  kCount,
};

// Launches a kernel with `grid` blocks on a stream of CUDA's driver. Returns an
// error, or an empty string. `arguments` are the addresses of its arguments,
// which are read before it returns.
std::string Launch(void* stream, Function function, int64_t grid,
                   std::vector<void*> arguments);

// Copies to the GPU's memory, in the order of the stream. `from` is read before
// it returns.
std::string CopyToGpu(void* stream, void* to, const void* from, size_t bytes);

// Copies within the GPU's memory, in the order of the stream.
std::string CopyOnGpu(void* stream, void* to, const void* from, size_t bytes);

}  // namespace terngrad_gpu

// For ctypes: loads the kernels of all cubins for the GPU of this number.
// Returns an error, which the next call changes, or nullptr.
extern "C" const char* terngrad_gpu_load(int device, const void* const* cubins,
                                         int count);

#endif  // TERNGRAD_NATIVE_GPU_DRIVER_H_
