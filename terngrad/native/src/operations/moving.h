// The variables that operations update: parameters, velocities and moving
// averages.

#ifndef TERNGRAD_NATIVE_MOVING_H_
#define TERNGRAD_NATIVE_MOVING_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels.h"
#include "ops_common.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace terngrad {

// Copies `count` elements in the memory of a device.
using CopyFloats =
    std::function<absl::Status(float* to, const float* from, int64_t count)>;

inline absl::Status CopyOnHost(float* to, const float* from, int64_t count) {
  std::copy_n(from, count, to);
  return absl::OkStatus();
}

// Variables that are locked while an operation writes them.
class Variables {
 public:
  // Locks the variables that are `context`'s inputs of these names.
  absl::Status Lock(OpKernelContext* context,
                    std::initializer_list<const char*> names) {
    for (const char* name : names) {
      OpInputList handles;
      TF_RETURN_IF_ERROR(context->input_list(name, &handles));
      for (const Tensor& handle : handles) {
        if (handle.NumElements() != 1) {
          return InvalidArgument(name, ": expected one handle per tensor, ",
                                 "received ", handle.NumElements());
        }
        tensorflow::core::RefCountPtr<tensorflow::Var> variable;
        TF_RETURN_IF_ERROR(tensorflow::LookupResource(
            context, handle.flat<tensorflow::ResourceHandle>()(0),
            &variable));
        variables_.push_back(std::move(variable));
      }
    }
    std::vector<tensorflow::mutex*> order;
    for (const auto& variable : variables_) order.push_back(variable->mu());
    std::sort(order.begin(), order.end());
    if (std::adjacent_find(order.begin(), order.end()) != order.end()) {
      return InvalidArgument("variables: expected distinct ones, received ",
                             "one twice");
    }
    for (tensorflow::mutex* each : order) locks_.emplace_back(*each);
    return absl::OkStatus();
  }

  // Returns writable data of variable `index`; copied if it has other readers.
  absl::Status Open(OpKernelContext* context, int64_t index,
                    const TensorShape& shape, const CopyFloats& copy_floats,
                    float** data) {
    Tensor* const now = variables_[index]->tensor();
    if (!variables_[index]->is_initialized ||
        now->dtype() != tensorflow::DT_FLOAT || now->shape() != shape) {
      return InvalidArgument("variable ", index, ": expected float32 ",
                             shape.DebugString(), ", received ",
                             now->DebugString(0));
    }
    if (!now->RefCountIsOne()) {
      Tensor copy;
      TF_RETURN_IF_ERROR(
          context->allocate_temp(tensorflow::DT_FLOAT, shape, &copy));
      TF_RETURN_IF_ERROR(copy_floats(copy.flat<float>().data(),
                                     now->flat<float>().data(),
                                     now->NumElements()));
      *now = std::move(copy);
    }
    *data = now->flat<float>().data();
    return absl::OkStatus();
  }

 private:
  // Declared before the locks, which must be destroyed first.
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<std::unique_lock<tensorflow::mutex>> locks_;
};

// The locked variables that an operation writes.
struct Held {
  Variables variables;
  std::vector<UpdatedVariable> updated;
  Rates rates;
};

// The attributes and inputs of an operation that updates variables.
class Moving {
 public:
  Moving(OpKernelConstruction* context, const std::vector<TensorShape>& shapes)
      : shapes_(shapes) {
    OP_REQUIRES_OK(context, context->GetAttr("momentum", &momentum_));
    OP_REQUIRES_OK(context, context->GetAttr("num_velocities", &velocities_));
    OP_REQUIRES_OK(context, context->GetAttr("num_averages", &averages_));
    int64_t variables;
    OP_REQUIRES_OK(context, context->GetAttr("V", &variables));
    const int64_t count = shapes_.size();
    OP_REQUIRES(context, variables == count,
                InvalidArgument("parameters: expected ", count, ", received ",
                                variables));
    for (const int64_t number : {velocities_, averages_}) {
      OP_REQUIRES(context, number == 0 || number == count,
                  InvalidArgument("velocities and averages: expected none or ",
                                  count, ", received ", number));
    }
  }

  // Locks the variables; `scalers` has one scaler per variable.
  absl::Status Open(OpKernelContext* context, const float* scalers,
                    Held* held) const {
    const Tensor* rate;
    const Tensor* decay;
    TF_RETURN_IF_ERROR(context->input("learning_rate", &rate));
    TF_RETURN_IF_ERROR(context->input("decay", &decay));
    if (rate->NumElements() != 1 || decay->NumElements() != 1) {
      return InvalidArgument("learning_rate and decay: expected scalars, ",
                             "received ", rate->shape().DebugString(), " and ",
                             decay->shape().DebugString());
    }
    held->rates = {rate->flat<float>()(0), momentum_, decay->flat<float>()(0)};
    TF_RETURN_IF_ERROR(OpenVariables(context, CopyOnHost, held));
    for (size_t i = 0; i < shapes_.size(); ++i) {
      held->updated[i].scaler = scalers[i];
    }
    return absl::OkStatus();
  }

  // Locks the variables; sets neither scalers nor rates.
  absl::Status OpenVariables(OpKernelContext* context,
                             const CopyFloats& copy_floats,
                             Held* held) const {
    Variables& variables = held->variables;
    TF_RETURN_IF_ERROR(
        variables.Lock(context, {"parameters", "velocities", "averages"}));
    const int64_t count = shapes_.size();
    held->updated.assign(count, UpdatedVariable{});
    for (int64_t i = 0; i < count; ++i) {
      UpdatedVariable& d = held->updated[i];
      const TensorShape& shape = shapes_[i];
      d.size = shape.num_elements();
      TF_RETURN_IF_ERROR(
          variables.Open(context, i, shape, copy_floats, &d.parameter));
      if (velocities_) {
        TF_RETURN_IF_ERROR(variables.Open(context, count + i, shape,
                                          copy_floats, &d.velocity));
      }
      if (averages_) {
        TF_RETURN_IF_ERROR(variables.Open(context, count + velocities_ + i,
                                          shape, copy_floats, &d.average));
      }
    }
    return absl::OkStatus();
  }

  float momentum() const { return momentum_; }

 private:
  const std::vector<TensorShape> shapes_;
  float momentum_;
  int64_t velocities_;
  int64_t averages_;
};

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_MOVING_H_
