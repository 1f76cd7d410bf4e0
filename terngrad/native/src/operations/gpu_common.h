// Common code of the operations that launch GPU kernels on the step's stream.

#ifndef TERNGRAD_NATIVE_GPU_COMMON_H_
#define TERNGRAD_NATIVE_GPU_COMMON_H_

#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu_driver.h"
#include "gpu_host.h"
#include "ops_common.h"
#include "tensorflow/core/framework/device_base.h"
#include "xla/stream_executor/stream.h"

namespace terngrad {

// Registers a kernel for GPUs; and with a label for CPUs, where tests run it
// with a driver of theirs. No graph asks for the label by itself.
#define TERNGRAD_REGISTER_GPU_KERNEL(name, kernel)                            \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_GPU), kernel); \
  TERNGRAD_REGISTER_EMULATED_KERNEL(name, kernel)

// The same for an encoder, whose key is in the host's memory.
#define TERNGRAD_REGISTER_GPU_ENCODER(name, kernel)                    \
  REGISTER_KERNEL_BUILDER(                                             \
      Name(name).Device(tensorflow::DEVICE_GPU).HostMemory("key"),     \
      kernel);                                                         \
  TERNGRAD_REGISTER_EMULATED_KERNEL(name, kernel)

#define TERNGRAD_REGISTER_EMULATED_KERNEL(name, kernel)                     \
  REGISTER_KERNEL_BUILDER(                                                  \
      Name(name).Device(tensorflow::DEVICE_CPU).Label("terngrad_emulated"), \
      kernel)

// CUDA's stream of the operation; null on a CPU.
inline void* StreamOf(OpKernelContext* context) {
  tensorflow::DeviceContext* const device = context->op_device_context();
  return device ? device->stream()->platform_specific_handle().stream : nullptr;
}

inline absl::Status StatusOf(const std::string& error) {
  return error.empty() ? absl::OkStatus()
                       : absl::InternalError("GPU kernels: " + error);
}

// The address of an argument of a launch.
template <typename Argument>
void* AddressOf(const Argument& argument) {
  return const_cast<void*>(static_cast<const void*>(&argument));
}

// Launches kernels for one operation, and holds memory of the device while it
// does. Memory that is freed then is given to later work of the stream only.
class Launcher {
 public:
  explicit Launcher(OpKernelContext* context) : context_(context) {}
  Launcher(const Launcher&) = delete;

  // Launches a kernel with arguments of exactly the types of its parameters.
  template <typename... Arguments>
  absl::Status Launch(terngrad_gpu::Function function, int64_t grid,
                      const Arguments&... arguments) {
    return StatusOf(terngrad_gpu::Launch(StreamOf(context_), function, grid,
                                         {AddressOf(arguments)...}));
  }

  template <typename T>
  absl::Status Allocate(int64_t count, T** data) {
    Tensor memory;
    TF_RETURN_IF_ERROR(context_->allocate_temp(
        tensorflow::DT_INT8,
        TensorShape({static_cast<int64_t>(count * sizeof(T))}), &memory));
    *data = static_cast<T*>(memory.data());
    memory_.push_back(std::move(memory));
    return absl::OkStatus();
  }

  // Copies elements in the device's memory.
  absl::Status Copy(float* to, const float* from, int64_t count) {
    return StatusOf(terngrad_gpu::CopyOnGpu(StreamOf(context_), to, from,
                                            count * sizeof(float)));
  }

  // The table of variables at these addresses.
  absl::Status MakeTable(const std::vector<const float*>& data,
                         const std::vector<int64_t>& sizes,
                         terngrad_gpu::Unit unit,
                         terngrad_gpu::Variables* table) {
    std::vector<terngrad_gpu::Variable> all;
    *table = {};
    for (size_t i = 0; i < data.size(); ++i) {
      terngrad_gpu::Append(data[i], sizes[i], unit, table, &all);
    }
    return Copy(all, terngrad_gpu::kFewVariables, &table->many);
  }

  // The table of payloads at these addresses.
  absl::Status MakeTable(const std::vector<const int32_t*>& data,
                         terngrad_gpu::Payloads* table) {
    std::vector<const terngrad_gpu::uint32*> all;
    for (const int32_t* payload : data) {
      all.push_back(reinterpret_cast<const terngrad_gpu::uint32*>(payload));
    }
    *table = terngrad_gpu::PayloadsAt(all);
    return Copy(all, terngrad_gpu::kFewPayloads, &table->many);
  }

  // The table of a bucket of variables with more than addresses and sizes.
  template <typename Bucket, typename Table>
  absl::Status MakeTable(const Bucket& bucket, Table* table) {
    *table = bucket.Table();
    return Copy(bucket.variables, std::size(table->few), &table->many);
  }

  // The table of a bucket of few elements.
  absl::Status MakeTable(const terngrad_gpu::SparseBucket& bucket,
                         terngrad_gpu::SparseVariables* table) {
    *table = bucket.Table();
    return Copy(bucket.variables, terngrad_gpu::kFewSparse, &table->many);
  }

  // Allocates the outputs of a list.
  absl::Status AllocateOutputs(const char* name,
                               const std::vector<TensorShape>& shapes,
                               std::vector<const float*>* data,
                               std::vector<int64_t>* sizes) {
    tensorflow::OpOutputList outputs;
    TF_RETURN_IF_ERROR(context_->output_list(name, &outputs));
    for (size_t i = 0; i < shapes.size(); ++i) {
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(outputs.allocate(i, shapes[i], &output));
      data->push_back(output->flat<float>().data());
      sizes->push_back(output->NumElements());
    }
    return absl::OkStatus();
  }

  // Allocates the outputs of a list, and makes their table.
  absl::Status MakeOutputs(const char* name,
                           const std::vector<TensorShape>& shapes,
                           terngrad_gpu::Variables* table) {
    std::vector<const float*> data;
    std::vector<int64_t> sizes;
    TF_RETURN_IF_ERROR(AllocateOutputs(name, shapes, &data, &sizes));
    return MakeTable(data, sizes, terngrad_gpu::Unit::kElements, table);
  }

 private:
  // Copies a table to the device if it has more entries than travel with a
  // launch.
  template <typename T>
  absl::Status Copy(const std::vector<T>& table, size_t few, const T** many) {
    if (table.size() <= few) return absl::OkStatus();
    T* data = nullptr;
    TF_RETURN_IF_ERROR(Allocate(table.size(), &data));
    *many = data;
    return StatusOf(terngrad_gpu::CopyToGpu(
        StreamOf(context_), data, table.data(), table.size() * sizeof(T)));
  }

  OpKernelContext* const context_;
  std::vector<Tensor> memory_;
};

// Numbers in the device's memory that are 0 before each launch of an operation:
// its kernels count in them and set them to 0 again. Launches of an operation
// follow each other on one stream.
class Counters {
 public:
  // `held` keeps the memory until it is gone: another thread may call with
  // another count meanwhile.
  absl::Status Get(OpKernelContext* context, int64_t count, Tensor* held,
                   int** numbers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (memory_.NumElements() != count) {
      TF_RETURN_IF_ERROR(context->allocate_temp(
          tensorflow::DT_INT32, TensorShape({count}), &memory_));
      const std::vector<int> zeros(count);
      TF_RETURN_IF_ERROR(StatusOf(
          terngrad_gpu::CopyToGpu(StreamOf(context), memory_.data(),
                                  zeros.data(), count * sizeof(int))));
    }
    *held = memory_;
    *numbers = static_cast<int*>(memory_.data());
    return absl::OkStatus();
  }

 private:
  std::mutex mutex_;
  Tensor memory_;
};

// Reads the attribute `sizes`.
inline absl::Status ReadSizes(OpKernelConstruction* context,
                              std::vector<int64_t>* sizes) {
  TF_RETURN_IF_ERROR(context->GetAttr("sizes", sizes));
  for (const int64_t size : *sizes) {
    if (size < 0) {
      return InvalidArgument("sizes: expected >= 0, received ", size);
    }
  }
  return absl::OkStatus();
}

// Whether words have 20 digits of base 3; otherwise they have 16 of base 4.
// Other words are not decoded.
inline absl::Status ReadDecodedDigits(OpKernelConstruction* context,
                                      bool* is_base3) {
  Digits digits;
  TF_RETURN_IF_ERROR(ReadDigits(context, &digits));
  *is_base3 = digits.radix == 3 && digits.places == 20;
  if (*is_base3 || (digits.radix == 4 && digits.places == 16)) {
    return absl::OkStatus();
  }
  return InvalidArgument("expected radix 3 with 20 places or 4 with 16, "
                         "received radix ",
                         digits.radix, " and places ", digits.places);
}

// The input of this name, which must have `count` numbers.
template <typename T>
absl::Status ReadNumbers(OpKernelContext* context, const char* name,
                         int64_t count, const T** numbers) {
  const Tensor* tensor;
  TF_RETURN_IF_ERROR(context->input(name, &tensor));
  if (tensor->NumElements() != count) {
    return InvalidArgument(name, ": expected ", count, ", received ",
                           tensor->NumElements());
  }
  *numbers = tensor->flat<T>().data();
  return absl::OkStatus();
}

// The number of this name, which is in the host's memory.
inline absl::Status ReadNumber(OpKernelContext* context, const char* name,
                               float* number) {
  const float* numbers;
  TF_RETURN_IF_ERROR(ReadNumbers(context, name, 1, &numbers));
  *number = *numbers;
  return absl::OkStatus();
}

// The input `key`, which is in the host's memory: two numbers and, with strata,
// the stratum.
inline absl::Status ReadKey(OpKernelContext* context, terngrad_gpu::Key* key) {
  const Tensor* tensor;
  TF_RETURN_IF_ERROR(ReadKey(context, &tensor));
  const auto numbers = tensor->flat<uint32_t>();
  if (numbers.size() > 3) {
    return InvalidArgument("key: expected 2 or 3 numbers, received ",
                           numbers.size());
  }
  *key = {numbers(0), numbers(1), numbers.size() > 2 ? numbers(2) : 0};
  return absl::OkStatus();
}

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_GPU_COMMON_H_
