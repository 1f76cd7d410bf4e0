"""Fingerprints: properties that all tasks of a run must share.

They are compared before the run begins.
"""

import json
import os
import platform
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from terngrad import native
from terngrad import version
from terngrad.machine import onednn

_MAX_FIELDS = 256


class MismatchError(ValueError):
  """Two tasks that cannot work on one run."""


def fingerprint(**choices: Any) -> dict[str, str]:
  """Returns the fields that tasks compare.

  Replicas stay bit-identical only if all tasks decode and update with the same
  code. A run is equal to that of another layout only with equal threads and
  equal kernels.

  Args:
    **choices: fields that the run adds, values with a short str: net, codec,
      number of variables and of elements, seed, ...

  Returns:
    The fields, in the order of comparison.
  """
  threads = tf.config.threading.get_intra_op_parallelism_threads()
  fields = {
    'terngrad': version.__version__,
    'tensorflow': tf.__version__,
    'machine': platform.machine(),
    'kernels': native.available(),
    'threads': threads or len(os.sched_getaffinity(0)),
    'onednn': 'on' if onednn.is_on() else 'off',
    'xla_flags': os.environ.get('XLA_FLAGS', ''),
    **choices,
  }
  return {name: str(value) for name, value in fields.items()}


def check_equal(
  expected: Mapping[str, str], received: Mapping[str, str], task: str
) -> None:
  """Compares a task's fingerprint with the chief's, which is expected.

  Raises:
    MismatchError: they differ. The message names the first field that does.
  """
  for name in dict.fromkeys([*expected, *received]):
    here, there = (f.get(name, 'nothing') for f in (expected, received))
    if here != there:
      raise MismatchError(
        f'Fingerprint: expected {name} to be {here[:200]!r} on every task, as '
        f'on the chief, received {there[:200]!r} on {task}. Install the same '
        'versions and give every task the same flags and environment.'
      )


def to_bytes(fields: Mapping[str, str], size: int) -> bytes:
  """Encodes a fingerprint as `size` bytes, for collectives.

  Raises:
    ValueError: the fields need more bytes.
  """
  data = json.dumps(dict(fields)).encode()
  if len(data) > size:
    raise ValueError(
      f'Fingerprint: expected at most {size} bytes, received {len(data)}. Put '
      'a digest of long values in it.'
    )
  return data.ljust(size)


def from_bytes(data: bytes, task: str) -> dict[str, str]:
  """Decodes the result of `to_bytes`, which another task sent.

  Raises:
    MismatchError: the bytes are not a fingerprint.
  """
  try:
    fields = json.loads(data)
    good = isinstance(fields, dict) and len(fields) <= _MAX_FIELDS
    good = good and all(isinstance(value, str) for value in fields.values())
  except (RecursionError, ValueError):
    good = False
  if not good:
    raise MismatchError(
      f'Fingerprint: expected a JSON object of strings from {task}, received '
      f'{bytes(data[:40])!r}. Another program listens there: check the '
      'addresses.'
    )
  return fields
