"""Codecs of a model's variables: one for all, or by patterns of names."""

import re
from typing import TypeAlias

from terngrad.codec import method
from terngrad.codec import policy
from terngrad.codec.methods import registry

# A codec, or a dict from regular expressions of variable names to codecs.
CodecOption: TypeAlias = str | dict[str, str]
_REMEDY = (
  "Add a last expression that matches every name to the dict: '': 'identity' "
  'sends the other variables as float32.'
)


def rules(codec: CodecOption) -> list[tuple[str, str]]:
  """Converts a codec to pairs of a regular expression and a codec.

  Raises:
    ValueError: it is neither a text nor a dict, or an expression is invalid.
  """
  if isinstance(codec, str):
    return [('', codec)]
  if isinstance(codec, dict) and codec:
    for pattern in codec:
      _check_pattern(pattern)
    return list(codec.items())
  raise ValueError(
    "codec: expected a text such as 'ternary', or a dict from regular "
    f'expressions of variable names to such texts, received {codec!r}.'
  )


def methods(
  codec: CodecOption, variables: policy.Variables, num_workers: int
) -> tuple[method.Method, ...]:
  """Returns the compression method of each variable.

  Raises:
    ValueError: no expression matches the name of a variable.
  """

  def match_name(pattern: str) -> policy.Predicate:
    return lambda spec: re.search(pattern, spec.name) is not None

  rules_with_methods = [
    (lambda spec: spec.name in variables.plain, registry.method('identity')),
    *(
      (match_name(pattern), registry.method(text, num_workers))
      for pattern, text in rules(codec)
    ),
  ]
  return policy.policy(rules_with_methods, variables.specs, _REMEDY)


def _check_pattern(pattern: str) -> None:
  """Refuses an invalid regular expression, before `fit` searches with it."""
  try:
    re.compile(pattern)
  except (re.error, TypeError) as error:
    raise ValueError(
      'codec: expected regular expressions of variable names as keys, such as '
      f"'bias|gamma', received {pattern!r} ({error}). To match a character "
      "such as ( or * itself, put a backslash before it; '' matches every name."
    ) from error
