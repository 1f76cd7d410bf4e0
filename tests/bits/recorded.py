"""What was recorded, as JSON beside the tests."""

import hashlib
import json
import pathlib

import numpy as np
import pytest

from tests.bits import machine

_FOLDER = pathlib.Path(__file__).parent


def digest(replicas):
  """The digest of what all replicas hold.

  Args:
    replicas: list of uint32 [elements], equal to each other.

  Returns:
    str, the first 16 hexadecimal digits of the SHA-256.
  """
  first, *others = replicas
  for other in others:
    np.testing.assert_array_equal(first, other)
  return hashlib.sha256(first.tobytes()).hexdigest()[:16]


def read(name):
  """All that a file holds, a dict; empty where there is none."""
  path = _FOLDER / f'{name}.json'
  return json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}


def of_this_machine(name):
  """What a file holds for this kind of machine; skips a test without any."""
  everything = read(name)
  kind = machine.kind()
  if kind not in everything:
    pytest.skip(
      f'recorded on {"; ".join(everything)}, this is {kind}: other processors '
      'round sums of products in another order'
    )
  return everything[kind]


def add(name, values):
  """Adds what was recorded on this kind of machine.

  Args:
    name: of the file.
    values: dict of name to digest.
  """
  everything = read(name)
  everything.setdefault(machine.kind(), {}).update(values)
  write(name, everything)


def write(name, everything):
  """Replaces what a file holds."""
  path = _FOLDER / f'{name}.json'
  text = json.dumps(everything, indent=1, sort_keys=True)
  path.write_text(text + '\n', encoding='utf-8')
