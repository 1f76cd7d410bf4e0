#include "gpu_driver.h"

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "gpu/tables.h"

namespace terngrad_gpu {
namespace {

constexpr const char* kNames[] = {
    "terngrad_statistics",
    "terngrad_ternary_encode",
    "terngrad_ternary_decode_base3",
    "terngrad_ternary_decode_two_bit",
    "terngrad_ternary_requantize_base3",
    "terngrad_ternary_requantize_two_bit",
    "terngrad_update_base3",
    "terngrad_update_two_bit",
    "terngrad_update_int8",
    "terngrad_update_int32",
    "terngrad_update_float",
    "terngrad_scale_int8",
    "terngrad_scale_int32",
    "terngrad_scale_float",
    "terngrad_groups_measure",
    "terngrad_groups_finish",
    "terngrad_groups_encode",
    "terngrad_groups_decode",
    "terngrad_groups_all",
    "terngrad_fp8_encode",
    "terngrad_fp8_decode",
    "terngrad_natural_encode",
    "terngrad_natural_decode",
    "terngrad_rotated_encode",
    "terngrad_digits_pack",
    "terngrad_rotated_decode",
    "terngrad_table_encode",
    "terngrad_table_decode",
    "terngrad_select_sample",
    "terngrad_select_candidates",
    "terngrad_select_digit",
    "terngrad_select_count",
    "terngrad_select_write",
    "terngrad_select_pack",
    "terngrad_select_all",
    "terngrad_add_count",
    "terngrad_add_unpack",
    "terngrad_add_check",
    "terngrad_add_elements",
    "terngrad_add_all",
};
constexpr int kFunctions = static_cast<int>(Function::kCount);
static_assert(sizeof(kNames) / sizeof(*kNames) == kFunctions, "a name each");

// CUDA's driver API: opaque pointers, and error numbers with 0 for success.
using Handle = void*;

struct Driver {
  int (*init)(unsigned flags);
  int (*device_get)(int* device, int number);
  int (*retain_context)(Handle* context, int device);
  int (*push_context)(Handle context);
  int (*pop_context)(Handle* context);
  int (*load_module)(Handle* module, const void* image);
  int (*get_function)(Handle* function, Handle module, const char* name);
  int (*stream_context)(Handle stream, Handle* context);
  int (*launch)(Handle function, unsigned grid_x, unsigned grid_y,
                unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_bytes, Handle stream,
                void** arguments, void** extra);
  int (*copy_to_gpu)(uint64_t to, const void* from, size_t bytes,
                     Handle stream);
  int (*copy_on_gpu)(uint64_t to, uint64_t from, size_t bytes, Handle stream);
  int (*allocate_pinned)(void** memory, size_t bytes, unsigned flags);
  int (*create_event)(Handle* event, unsigned flags);
  int (*record_event)(Handle event, Handle stream);
  int (*query_event)(Handle event);
  int (*error_string)(int error, const char** text);
};

constexpr int kNotReady = 600;
constexpr unsigned kWithoutTime = 2;  // Of an event.

std::mutex mutex;  // Of what follows.
Driver driver;
bool is_open = false;
std::map<Handle, std::array<Handle, kFunctions>> functions_of_context;

// Pinned memory of the host, and the event after which a copy has read it.
struct Staging {
  void* memory;
  size_t size;
  Handle event;
};
std::mutex staging_mutex;  // Of what follows.
// It is used again and never freed.
std::map<Handle, std::vector<Staging>> stagings_of_context;

// Opens the driver, once. It stays open until the process ends.
std::string Open() {
  if (is_open) return "";
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
  std::string missing;
  const auto find = [&](auto* function, const char* name) {
    void* const found = dlsym(library, name);
    if (!found) missing = std::string("libcuda.so.1 lacks ") + name;
    *reinterpret_cast<void**>(function) = found;
  };
  find(&driver.init, "cuInit");
  find(&driver.device_get, "cuDeviceGet");
  find(&driver.retain_context, "cuDevicePrimaryCtxRetain");
  find(&driver.push_context, "cuCtxPushCurrent_v2");
  find(&driver.pop_context, "cuCtxPopCurrent_v2");
  find(&driver.load_module, "cuModuleLoadData");
  find(&driver.get_function, "cuModuleGetFunction");
  find(&driver.stream_context, "cuStreamGetCtx");
  find(&driver.launch, "cuLaunchKernel");
  find(&driver.copy_to_gpu, "cuMemcpyHtoDAsync_v2");
  find(&driver.copy_on_gpu, "cuMemcpyDtoDAsync_v2");
  find(&driver.allocate_pinned, "cuMemHostAlloc");
  find(&driver.create_event, "cuEventCreate");
  find(&driver.record_event, "cuEventRecord");
  find(&driver.query_event, "cuEventQuery");
  find(&driver.error_string, "cuGetErrorString");
  if (!missing.empty()) {
    dlclose(library);
    return missing;
  }
  is_open = true;
  return "";
}

// The text of an error of `name`, or an empty string.
std::string ErrorOf(const char* name, int error) {
  if (error == 0) return "";
  const char* text = nullptr;
  driver.error_string(error, &text);
  return std::string(name) + ": " + (text ? text : std::to_string(error));
}

// Makes a context current in this thread while it exists.
class Current {
 public:
  explicit Current(Handle context)
      : error_(ErrorOf("cuCtxPushCurrent", driver.push_context(context))) {}
  ~Current() {
    Handle context;
    if (error_.empty()) driver.pop_context(&context);
  }
  Current(const Current&) = delete;

  const std::string& error() const { return error_; }

 private:
  const std::string error_;
};

// The kernel of a name, from the one of the modules that has it.
std::string Get(const std::vector<Handle>& modules, const char* name,
                Handle* function) {
  int error = 0;
  for (const Handle module : modules) {
    error = driver.get_function(function, module, name);
    if (error == 0) break;
  }
  return ErrorOf(name, error);
}

std::string Load(int number, const void* const* cubins, int count) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::string error = Open();
  if (!error.empty()) return error;
  int device;
  Handle context;
  error = ErrorOf("cuInit", driver.init(0));
  if (error.empty()) {
    error = ErrorOf("cuDeviceGet", driver.device_get(&device, number));
  }
  if (error.empty()) {
    // TensorFlow uses the same context, which is never released.
    error = ErrorOf("cuDevicePrimaryCtxRetain",
                    driver.retain_context(&context, device));
  }
  if (!error.empty()) return error;
  // Other threads read an entry without the mutex, so that none may change.
  if (functions_of_context.count(context)) return "";
  const Current current(context);
  if (!current.error().empty()) return current.error();
  std::vector<Handle> modules(count);
  for (int i = 0; i < count && error.empty(); ++i) {
    error = ErrorOf("cuModuleLoadData",
                    driver.load_module(&modules[i], cubins[i]));
  }
  std::array<Handle, kFunctions> functions;
  for (int i = 0; i < kFunctions && error.empty(); ++i) {
    error = Get(modules, kNames[i], &functions[i]);
  }
  if (error.empty()) functions_of_context.emplace(context, functions);
  return error;
}

// The context of a stream and its kernels.
std::string Find(void* stream, Handle* context,
                 const std::array<Handle, kFunctions>** functions) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_open) return "no GPU kernels are loaded";
  const std::string error =
      ErrorOf("cuStreamGetCtx", driver.stream_context(stream, context));
  if (!error.empty()) return error;
  const auto found = functions_of_context.find(*context);
  if (found == functions_of_context.end()) {
    return "no GPU kernels are loaded for this GPU";
  }
  // Entries of a map keep their addresses, and none is ever removed.
  *functions = &found->second;
  return "";
}

// Finds memory of at least `bytes` that no copy will read, or allocates it.
std::string FindStaging(Handle context, size_t bytes, Staging* found) {
  constexpr size_t kLeast = 4096;
  std::vector<Staging>& all = stagings_of_context[context];
  for (const Staging& one : all) {
    if (one.size < bytes) continue;
    const int error = driver.query_event(one.event);
    if (error == kNotReady) continue;
    *found = one;
    return ErrorOf("cuEventQuery", error);
  }
  Staging added = {nullptr, kLeast, nullptr};
  while (added.size < bytes) added.size *= 2;
  std::string error =
      ErrorOf("cuEventCreate", driver.create_event(&added.event, kWithoutTime));
  if (error.empty()) {
    error = ErrorOf("cuMemHostAlloc",
                    driver.allocate_pinned(&added.memory, added.size, 0));
  }
  if (error.empty()) all.push_back(added);
  *found = added;
  return error;
}

}  // namespace

std::string Launch(void* stream, Function function, int64_t grid,
                   std::vector<void*> arguments) {
  if (grid == 0) return "";
  Handle context;
  const std::array<Handle, kFunctions>* functions;
  const std::string error = Find(stream, &context, &functions);
  if (!error.empty()) return error;
  const Current current(context);
  if (!current.error().empty()) return current.error();
  const int index = static_cast<int>(function);
  return ErrorOf(
      kNames[index],
      driver.launch((*functions)[index], static_cast<unsigned>(grid), 1, 1,
                    kThreads, 1, 1, 0, stream, arguments.data(), nullptr));
}

std::string CopyToGpu(void* stream, void* to, const void* from, size_t bytes) {
  Handle context;
  const std::array<Handle, kFunctions>* functions;
  std::string error = Find(stream, &context, &functions);
  if (!error.empty()) return error;
  const Current current(context);
  if (!current.error().empty()) return current.error();
  // The driver may read memory that is not pinned later, and pinned memory it
  // does.
  const std::lock_guard<std::mutex> lock(staging_mutex);
  Staging staging;
  error = FindStaging(context, bytes, &staging);
  if (!error.empty()) return error;
  std::memcpy(staging.memory, from, bytes);
  error = ErrorOf("cuMemcpyHtoDAsync",
                  driver.copy_to_gpu(reinterpret_cast<uint64_t>(to),
                                     staging.memory, bytes, stream));
  if (!error.empty()) return error;
  return ErrorOf("cuEventRecord", driver.record_event(staging.event, stream));
}

std::string CopyOnGpu(void* stream, void* to, const void* from, size_t bytes) {
  Handle context;
  const std::array<Handle, kFunctions>* functions;
  const std::string error = Find(stream, &context, &functions);
  if (!error.empty()) return error;
  const Current current(context);
  if (!current.error().empty()) return current.error();
  return ErrorOf("cuMemcpyDtoDAsync",
                 driver.copy_on_gpu(reinterpret_cast<uint64_t>(to),
                                    reinterpret_cast<uint64_t>(from), bytes,
                                    stream));
}

}  // namespace terngrad_gpu

extern "C" __attribute__((visibility("default"))) const char* terngrad_gpu_load(
    int device, const void* const* cubins, int count) {
  static thread_local std::string error;
  error = terngrad_gpu::Load(device, cubins, count);
  return error.empty() ? nullptr : error.c_str();
}
