"""The GPU kernels as functions on tensors; not under XLA.

They have the arguments, results and bits of the functions with the same names
in `ops`. They need `gpu.available()` and tensors on a GPU.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad import native
from terngrad.native import ops


class GpuEncodeOptions(ops.EncodeOptions):
  """The options of `encode` on GPUs."""

  def _kernel(self) -> Any:
    return native.library().terngrad_gpu_encode


class GpuDigits(ops.Digits):
  """The digits of words on GPUs."""

  def _kernel(self) -> Any:
    return native.library().terngrad_gpu_decode_sum


def statistics(
  gradients: Sequence[tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
  """Computes standard deviations and largest magnitudes, in two launches."""
  result = native.library().terngrad_gpu_statistics(
    gradients=gradients, clip_factor=0.0
  )
  return result.stddev, result.max_abs


def max_clipped(
  gradients: Sequence[tf.Tensor], clip_factor: float
) -> tf.Tensor:
  """Computes the largest magnitude of each clipped gradient."""
  return (
    native.library()
    .terngrad_gpu_statistics(gradients=gradients, clip_factor=clip_factor)
    .clipped
  )


def norms(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
  """Computes the Euclidean norm of each gradient."""
  return (
    native.library()
    .terngrad_gpu_statistics(gradients=gradients, clip_factor=0.0)
    .norms
  )


def scale_sums(
  sums: tf.Tensor,
  scalers: tf.Tensor,
  shapes: Sequence[Sequence[int]],
  scale: float = 1.0,
) -> list[tf.Tensor]:
  """Scales sums of codes that were unpacked and added before, in one pass."""
  return native.library().terngrad_gpu_scale_sums(
    sums=sums, scalers=scalers, V=len(shapes), shapes=shapes, scale=scale
  )
