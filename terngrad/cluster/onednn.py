"""oneDNN, the faster of two libraries that TensorFlow has for CPUs.

TensorFlow switches it on by itself only on processors with instructions for
neural networks (AVX-512 VNNI and its like). It is faster without them too:
docs/speed.md has the figures. This module loads no TensorFlow until asked what
is on, because the choice must be made before TensorFlow is imported.
"""

import os
import platform

VARIABLE = 'TF_ENABLE_ONEDNN_OPTS'
# Measured with AVX2 and with AVX-512. TensorFlow for ARM has another library
# behind the same variable, which was not measured.
_MACHINES = ('x86_64', 'AMD64')


def prefer() -> None:
  """Switches oneDNN on, unless the environment says 0 or 1 already.

  To be called before TensorFlow is imported; later it has no effect. Child
  processes inherit the choice.
  """
  if platform.machine() in _MACHINES:
    os.environ.setdefault(VARIABLE, '1')


def is_on() -> bool:
  """Whether TensorFlow computes with oneDNN in this process."""
  from tensorflow.python.util import _pywrap_util_port

  return _pywrap_util_port.IsMklEnabled()
