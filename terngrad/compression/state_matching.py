"""Matches saved states to the variables of a model.

A state is saved under the index of its variable among all trained variables.
The index changes if a layer is frozen or replaced. So the paths and shapes of
all trained variables are saved too.
"""

import collections
import re
from collections.abc import Sequence
from typing import TypeAlias

from terngrad.codec import policy

# The suffix that Keras appends to the second layer or model of a name.
_NUMBER = re.compile(r'_\d+$')
_Specs: TypeAlias = Sequence[policy.VariableSpec]


def match(saved: _Specs, present: _Specs) -> dict[int, int]:
  """Maps the saved variables to the present ones.

  A variable matches the saved one of the same path and shape, if the path is
  unique. The number that Keras appends to the name of the whole model is
  ignored.

  All variables are matched by position instead if count, order and shapes agree
  and one of two conditions holds. Either no path matches; or the matched
  variables keep their positions and the other paths differ only in numbers that
  Keras appended. A model that is built again in one process has `dense_1`
  instead of `dense`.

  Returns:
    dict from the saved index of a variable to its present index. It is empty if
    only appended numbers differ and the match is ambiguous.
  """
  by_path = _by_path(saved, present)
  if [spec.shape for spec in saved] != [spec.shape for spec in present]:
    return by_path
  by_position = {index: index for index in range(len(present))}
  if not by_path:
    return by_position
  if _drop_numbers(saved) != _drop_numbers(present):
    return by_path
  if by_path.items() <= by_position.items():
    return by_position
  # [dense_1, dense_2] is now [dense_2, dense_3]: either the model was built
  # again, or one layer was removed and another added.
  return by_path if len(by_path) == len(present) else {}


def _by_path(saved: _Specs, present: _Specs) -> dict[int, int]:
  """Matches by paths and shapes only."""
  old_paths, new_paths = _paths(saved), _paths(present)
  if _root(saved) and _root(saved) == _root(present):
    old_paths, new_paths = (
      [_drop_root(path) for path in paths] for paths in (old_paths, new_paths)
    )
  positions = _unique(new_paths)
  return {
    index: positions[path]
    for path, index in _unique(old_paths).items()
    if path in positions
    and saved[index].shape == present[positions[path]].shape
  }


def _paths(specs: _Specs) -> list[str]:
  return [spec.name for spec in specs]


def _unique(paths: Sequence[str]) -> dict[str, int]:
  """Returns the position of each path that occurs once."""
  counts = collections.Counter(paths)
  return {p: i for i, p in enumerate(paths) if p and counts[p] == 1}


def _root(specs: _Specs) -> str | None:
  """Returns the model name that begins all paths, without number; or None."""
  roots = {path.partition('/')[0] for path in _paths(specs) if '/' in path}
  whole = len(roots) == 1 and all('/' in path for path in _paths(specs))
  return _NUMBER.sub('', roots.pop()) if whole else None


def _drop_root(path: str) -> str:
  return path.partition('/')[2]


def _drop_numbers(specs: _Specs) -> list[list[str]]:
  """Splits paths into names without the numbers that Keras appends."""
  return [
    [_NUMBER.sub('', name) for name in path.split('/')]
    for path in _paths(specs)
  ]
