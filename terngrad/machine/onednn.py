"""oneDNN, the faster of TensorFlow's two libraries for CPUs.

By default TensorFlow switches it on only for processors with instructions for
neural networks (AVX-512 VNNI and similar). It is faster without them too:
docs/speed.md has the figures. The choice must be made before TensorFlow is
imported, so this module imports TensorFlow only in `is_on`.
"""

import os
import platform

VARIABLE = 'TF_ENABLE_ONEDNN_OPTS'
# Measured with AVX2 and with AVX-512. On ARM the same variable controls another
# library, which was not measured.
_MACHINES = ('x86_64', 'AMD64')


def prefer() -> None:
  """Switches oneDNN on, unless the environment already says 0 or 1.

  Call it before TensorFlow is imported; later it has no effect. Child processes
  inherit the choice.
  """
  if platform.machine() in _MACHINES:
    os.environ.setdefault(VARIABLE, '1')


def is_on() -> bool:
  """Returns whether TensorFlow computes with oneDNN in this process."""
  from tensorflow.python.util import _pywrap_util_port

  return _pywrap_util_port.IsMklEnabled()
