"""Loads the GPU kernels, when a codec is made for GPUs.

NVIDIA's runtime compiler compiles them for the card that is there, and its
driver loads them. On a machine without a GPU none of both is opened. Where
something is missing, the codecs run as XLA compiles them, and the log has one
line with the reason.
"""

import ctypes
import functools

import tensorflow as tf
from absl import logging

from terngrad import native
from terngrad.native import cubins
from terngrad.native import nvrtc


def available() -> bool:
  """Returns True if all GPUs that TensorFlow uses have the kernels."""
  return unavailable_reason() is None


@functools.cache
def unavailable_reason() -> str | None:
  """Returns why the GPU kernels are not used; None if they are.

  The first call loads them.
  """
  if not native.available():
    return native.unavailable_reason()
  devices = tf.config.get_visible_devices('GPU')
  if not devices:
    return 'TensorFlow sees no GPU.'
  try:
    for device in devices:
      _load(device)
  except (nvrtc.CompilerError, OSError) as error:
    logging.warning(
      'The GPU kernels are not used, XLA compiles the codes instead: %s', error
    )
    return str(error)
  return None


def _load(device: tf.config.PhysicalDevice) -> None:
  """Loads the kernels for one GPU.

  Raises:
    nvrtc.CompilerError: they cannot be compiled.
    OSError: CUDA's driver cannot load them.
  """
  details = tf.config.experimental.get_device_details(device)
  capability = details.get('compute_capability')
  if capability is None:
    raise OSError(
      f'{device.name}: expected an NVIDIA GPU, received one without a compute '
      'capability. Hide it with CUDA_VISIBLE_DEVICES to use the others.'
    )
  major, minor = capability
  codes = cubins.cubins(10 * major + minor)
  load = ctypes.CDLL(str(native.library_path())).terngrad_gpu_load
  load.restype = ctypes.c_char_p
  number = int(device.name.rpartition(':')[2])
  error = load(number, (ctypes.c_char_p * len(codes))(*codes), len(codes))
  if error:
    raise OSError(
      f"{device.name}: expected that CUDA's driver loads the kernels, received "
      f'{error.decode()}. Install a newer driver (docs/gpu.md).'
    )
