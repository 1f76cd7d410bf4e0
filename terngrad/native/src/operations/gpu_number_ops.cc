// Moves a few numbers from the host's memory to that of the GPU.
//
// TensorFlow's own copy waits until the GPU has done all work that was launched
// before. The copy here is in the order of the stream, so the host goes on.

#include "gpu_common.h"
#include "tensorflow/core/framework/op.h"

namespace terngrad {
namespace {

class Numbers : public Kernel {
 public:
  explicit Numbers(OpKernelConstruction* context) : Kernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& numbers = context->input(0);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, numbers.shape(), &output));
    if (numbers.NumElements() == 0) return;
    OP_REQUIRES_OK(context,
                   StatusOf(terngrad_gpu::CopyToGpu(
                       StreamOf(context), output->data(), numbers.data(),
                       numbers.NumElements() * sizeof(float))));
  }
};

REGISTER_OP("TerngradGpuNumbers")
    .Input("numbers: float")
    .Output("placed: float")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

REGISTER_KERNEL_BUILDER(Name("TerngradGpuNumbers")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("numbers"),
                        Numbers);
REGISTER_KERNEL_BUILDER(Name("TerngradGpuNumbers")
                            .Device(tensorflow::DEVICE_CPU)
                            .Label("terngrad_emulated"),
                        Numbers);

}  // namespace
}  // namespace terngrad
