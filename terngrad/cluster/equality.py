"""Tests by digests whether the replicas of a run are bit-identical."""

import hashlib
from collections.abc import Sequence

import numpy as np

from terngrad import errors


def digest(array: np.ndarray) -> np.ndarray:
  """Returns a digest of an array's bytes, int32 [4]."""
  data = hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16)
  return np.frombuffer(data.digest(), np.int32)


def check(
  digests: Sequence[np.ndarray], names: Sequence[str], replicas: Sequence[str]
) -> None:
  """Compares the digests of all replicas with those of the first.

  Args:
    digests: for each replica [variables, ...].
    names: names of the variables.
    replicas: names of the replicas: 'worker 1', or their devices.

  Raises:
    errors.TrainingError: two replicas differ. The message names the variable
      and the replicas.
  """
  for replica, received in zip(replicas, digests, strict=True):
    differs = np.not_equal(received, digests[0]).reshape(len(names), -1)
    differing = np.flatnonzero(differs.any(axis=1))
    if differing.size:
      raise errors.TrainingError(
        f'Replicas: expected {names[differing[0]]} on {replica} to equal that '
        f'on {replicas[0]} to the bit, received other bits. The program or a '
        'machine has a defect. Continue from the last checkpoint, which is '
        'valid, and report this.'
      )
