// A libcuda.so.1 without a GPU: it runs the kernels on the CPU, in the memory
// of the host, and writes what it is asked for to a list.
//
// The function that the environment variable FAKE_CUDA_FAILS names fails. With
// FAKE_CUDA_WAITS copies from the host wait for the next launch, or for
// fake_cuda_synchronize.

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "declarations.h"

namespace {

namespace gpu = terngrad_gpu;

constexpr int kFailure = 209;
constexpr int kNotReady = 600;

std::mutex mutex;  // Of the list and of copies.
using Lock = std::lock_guard<std::mutex>;
std::string calls;
int context_of_all;  // Its address is the context.
// The addresses are the modules: of kernels with names of even and odd lengths.
int modules[2];
int loaded;

struct Copy {
  uint64_t to;
  const void* from;
  size_t bytes;
};
std::deque<Copy> waiting;
size_t copied;  // The number of the others.

void Synchronize() {
  for (; !waiting.empty(); waiting.pop_front(), ++copied) {
    const Copy& copy = waiting.front();
    std::memcpy(reinterpret_cast<void*>(copy.to), copy.from, copy.bytes);
  }
}

int Record(const std::string& call) {
  calls += call + "\n";
  const char* const failing = std::getenv("FAKE_CUDA_FAILS");
  return failing && call.rfind(failing, 0) == 0 ? kFailure : 0;
}

using Run = std::function<void(unsigned grid, unsigned threads, void** values)>;

template <typename... Parameters, size_t... kIndices>
Run RunOf(void (*kernel)(Parameters...), std::index_sequence<kIndices...>) {
  return [kernel](unsigned grid, unsigned threads, void** values) {
    emulator::Launch(
        grid, grid, threads, kernel,
        *static_cast<std::remove_const_t<Parameters>*>(values[kIndices])...);
  };
}

template <typename... Parameters>
Run RunOf(void (*kernel)(Parameters...)) {
  return RunOf(kernel, std::index_sequence_for<Parameters...>());
}

#define KERNEL(name) {#name, RunOf(gpu::name)}
std::map<std::string, Run> kernels = {
    KERNEL(terngrad_statistics),
    KERNEL(terngrad_ternary_encode),
    KERNEL(terngrad_ternary_decode_base3),
    KERNEL(terngrad_ternary_decode_two_bit),
    KERNEL(terngrad_ternary_requantize_base3),
    KERNEL(terngrad_ternary_requantize_two_bit),
    KERNEL(terngrad_update_base3),
    KERNEL(terngrad_update_two_bit),
    KERNEL(terngrad_update_int8),
    KERNEL(terngrad_update_int32),
    KERNEL(terngrad_update_float),
    KERNEL(terngrad_scale_int8),
    KERNEL(terngrad_scale_int32),
    KERNEL(terngrad_scale_float),
    KERNEL(terngrad_groups_measure),
    KERNEL(terngrad_groups_finish),
    KERNEL(terngrad_groups_encode),
    KERNEL(terngrad_groups_decode),
    KERNEL(terngrad_groups_all),
    KERNEL(terngrad_fp8_encode),
    KERNEL(terngrad_fp8_decode),
    KERNEL(terngrad_natural_encode),
    KERNEL(terngrad_natural_decode),
    KERNEL(terngrad_rotated_encode),
    KERNEL(terngrad_digits_pack),
    KERNEL(terngrad_rotated_decode),
    KERNEL(terngrad_table_encode),
    KERNEL(terngrad_table_decode),
    KERNEL(terngrad_select_sample),
    KERNEL(terngrad_select_candidates),
    KERNEL(terngrad_select_digit),
    KERNEL(terngrad_select_count),
    KERNEL(terngrad_select_write),
    KERNEL(terngrad_select_pack),
    KERNEL(terngrad_select_all),
    KERNEL(terngrad_add_count),
    KERNEL(terngrad_add_unpack),
    KERNEL(terngrad_add_check),
    KERNEL(terngrad_add_elements),
    KERNEL(terngrad_add_all),
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char* fake_cuda_calls() { return calls.c_str(); }

EXPORT void fake_cuda_synchronize() {
  const Lock lock(mutex);
  Synchronize();
}

EXPORT int cuInit(unsigned) { return Record("cuInit"); }

EXPORT int cuDeviceGet(int* device, int number) {
  *device = number;
  return Record("cuDeviceGet " + std::to_string(number));
}

EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &context_of_all;
  return Record("cuDevicePrimaryCtxRetain");
}

EXPORT int cuCtxPushCurrent_v2(void* context) {
  return context == &context_of_all ? 0 : kFailure;
}

EXPORT int cuCtxPopCurrent_v2(void**) { return 0; }

EXPORT int cuModuleLoadData(void** module, const void* image) {
  *module = &modules[loaded++ % 2];
  const bool is_elf = std::memcmp(image, "\177ELF", 4) == 0;
  const int error = Record("cuModuleLoadData");
  return is_elf ? error : kFailure;
}

EXPORT int cuModuleGetFunction(void** function, void* module,
                               const char* name) {
  const auto found = kernels.find(name);
  if (module != &modules[std::strlen(name) % 2] || found == kernels.end()) {
    return kFailure;
  }
  *function = &*found;
  return 0;
}

EXPORT int cuStreamGetCtx(void*, void** context) {
  *context = &context_of_all;
  return 0;
}

EXPORT int cuLaunchKernel(void* function, unsigned grid, unsigned, unsigned,
                          unsigned threads, unsigned, unsigned, unsigned, void*,
                          void** values, void**) {
  const auto& [name, run] =
      *static_cast<std::pair<const std::string, Run>*>(function);
  const Lock lock(mutex);
  Synchronize();
  const int error = Record("cuLaunchKernel " + name);
  if (!error) run(grid, threads, values);
  return error;
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes,
                                void*) {
  const Lock lock(mutex);
  waiting.push_back({to, from, bytes});
  if (!std::getenv("FAKE_CUDA_WAITS")) Synchronize();
  return Record("cuMemcpyHtoDAsync");
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
                                void*) {
  const Lock lock(mutex);
  Synchronize();
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from),
              bytes);
  return Record("cuMemcpyDtoDAsync");
}

EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  const Lock lock(mutex);
  *memory = std::malloc(bytes);
  return Record("cuMemHostAlloc");
}

// An event is the number of the copies before it.
EXPORT int cuEventCreate(void** event, unsigned) {
  *event = new size_t(0);
  return 0;
}

EXPORT int cuEventRecord(void* event, void*) {
  const Lock lock(mutex);
  *static_cast<size_t*>(event) = copied + waiting.size();
  return 0;
}

EXPORT int cuEventQuery(void* event) {
  const Lock lock(mutex);
  return *static_cast<size_t*>(event) <= copied ? 0 : kNotReady;
}

EXPORT int cuGetErrorString(int error, const char** text) {
  *text = error == kFailure ? "a failure of the test" : "unknown";
  return 0;
}
