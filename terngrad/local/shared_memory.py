"""Arrays and states in memory that a process shares with its helper.

Anonymous files (memfd_create(2)) hold them. They have no name, so nothing
remains after a crash, and the size of /dev/shm does not limit them: in a
container it often is 64 MB. `multiprocessing.shared_memory` has both problems.
"""

import io
import math
import mmap
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

Shapes = Sequence[Sequence[int]]


class SharedArrays:
  """float32 arrays for both directions.

  Attributes:
    descriptor: of the anonymous file.
    inputs: float32 arrays from the training process to its helper.
    outputs: float32 arrays in the opposite direction, of the same shapes.
  """

  def __init__(self, shapes: Shapes, descriptor: int | None = None) -> None:
    """Maps the file into this process.

    Args:
      shapes: of the arrays.
      descriptor: of the file that another process made; None makes a file.
    """
    sizes = [math.prod(shape) for shape in shapes]
    size = max(1, 8 * sum(sizes))
    if descriptor is None:
      descriptor = os.memfd_create('terngrad_arrays')
      os.ftruncate(descriptor, size)
    self.descriptor = descriptor
    memory = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
    floats = memory[: 8 * sum(sizes)].view(np.float32)
    self.inputs, self.outputs = (
      [
        part.reshape(shape)
        for part, shape in zip(
          np.split(half, np.cumsum(sizes)[:-1]), shapes, strict=True
        )
      ]
      for half in np.split(floats, 2)
    )


def write_states(descriptor: int, states: Mapping[str, np.ndarray]) -> None:
  """Replaces the content of an anonymous file by arrays."""
  named: dict[str, Any] = {**states}
  with _open(descriptor) as file:
    file.truncate(0)
    np.savez(file, **named)


def read_states(descriptor: int) -> dict[str, np.ndarray]:
  """Reads all arrays of an anonymous file."""
  with _open(descriptor) as file, np.load(file, allow_pickle=False) as stored:
    return dict(stored)


def _open(descriptor: int) -> io.BufferedRandom:
  # Both processes share the position of the file.
  os.lseek(descriptor, 0, os.SEEK_SET)
  return os.fdopen(descriptor, 'r+b', closefd=False)
