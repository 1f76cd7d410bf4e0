"""Which saved state belongs to which variable of a model.

States are saved by the number of their variable among all that are trained.
That number changes when a layer is frozen or exchanged, so the paths and shapes
of all trained variables are saved too.
"""

import collections
import json
import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from terngrad.codec import policy

# What Keras appends to the second layer, or model, of a name.
_NUMBER = re.compile(r'_\d+$')
_Specs: TypeAlias = Sequence[policy.VariableSpec]


def encode(specs: Sequence[policy.VariableSpec]) -> np.ndarray:
  """Paths and shapes of all trained variables, as a checkpoint keeps them.

  Returns:
    uint8 [bytes], JSON in UTF-8.
  """
  listed = [[spec.name, list(spec.shape)] for spec in specs]
  return np.frombuffer(json.dumps(listed).encode(), np.uint8)


def decode(array: np.ndarray) -> tuple[policy.VariableSpec, ...]:
  """What was given to `encode`."""
  listed = json.loads(np.asarray(array, np.uint8).tobytes().decode())
  return tuple(policy.VariableSpec(path, tuple(s)) for path, s in listed)


def match(saved: _Specs, present: _Specs) -> dict[int, int]:
  """Finds the present variables among the saved ones.

  A variable is found by its path and shape, where no other has that path. The
  number that Keras appends to the name of a whole model does not count. Where
  no path is found, or the found ones keep their positions and the others differ
  only in such numbers, all are matched by position, if number, order and shapes
  agree: a model that is built again in one process has `dense_1` for `dense`.

  Returns:
    dict of the saved number of a variable to its present one.
  """
  by_path = _by_path(saved, present)
  if [spec.shape for spec in saved] != [spec.shape for spec in present]:
    return by_path
  by_position = {index: index for index in range(len(present))}
  if not by_path:
    return by_position
  if _unnumbered(saved) != _unnumbered(present):
    return by_path
  if by_path.items() <= by_position.items():
    return by_position
  # [dense_1, dense_2] is now [dense_2, dense_3]: either built again, or one
  # layer went and another came.
  return by_path if len(by_path) == len(present) else {}


def _by_path(saved: _Specs, present: _Specs) -> dict[int, int]:
  """`match` by paths and shapes alone."""
  then, now = _paths(saved), _paths(present)
  if _root(saved) and _root(saved) == _root(present):
    then, now = ([_cut(path) for path in paths] for paths in (then, now))
  places = _unique(now)
  return {
    index: places[path]
    for path, index in _unique(then).items()
    if path in places and saved[index].shape == present[places[path]].shape
  }


def _paths(specs: _Specs) -> list[str]:
  return [spec.name for spec in specs]


def _unique(paths: Sequence[str]) -> dict[str, int]:
  """Dict of a path to its position, of those that stand there once."""
  counts = collections.Counter(paths)
  return {p: i for i, p in enumerate(paths) if p and counts[p] == 1}


def _root(specs: _Specs) -> str | None:
  """The name of the model, that all paths begin with, unnumbered; or None."""
  roots = {path.partition('/')[0] for path in _paths(specs) if '/' in path}
  whole = len(roots) == 1 and all('/' in path for path in _paths(specs))
  return _NUMBER.sub('', roots.pop()) if whole else None


def _cut(path: str) -> str:
  return path.partition('/')[2]


def _unnumbered(specs: _Specs) -> list[list[str]]:
  """Paths without the numbers that Keras appends to names."""
  return [
    [_NUMBER.sub('', name) for name in path.split('/')]
    for path in _paths(specs)
  ]
