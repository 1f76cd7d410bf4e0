"""The kernels of ternary codes for each kind of device, with one interface."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.native import gpu_ops
from terngrad.native import ops


class KernelSet(NamedTuple):
  """Functions of `ops`, or those of `gpu_ops` with the same bits.

  Attributes:
    statistics, max_clipped, scale_sums: as in `ops`.
    encode_options: the class of `ops.EncodeOptions`.
    digits: the class of `ops.Digits`.
  """

  statistics: Callable[..., tuple[tf.Tensor, tf.Tensor]]
  max_clipped: Callable[..., tf.Tensor]
  scale_sums: Callable[..., list[tf.Tensor]]
  encode_options: type[ops.EncodeOptions]
  digits: type[ops.Digits]


ON_CPUS = KernelSet(
  ops.statistics,
  ops.max_clipped,
  ops.scale_sums,
  ops.EncodeOptions,
  ops.Digits,
)
ON_GPUS = KernelSet(
  gpu_ops.statistics,
  gpu_ops.max_clipped,
  gpu_ops.scale_sums,
  gpu_ops.GpuEncodeOptions,
  gpu_ops.GpuDigits,
)
