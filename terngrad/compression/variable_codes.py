"""Codecs of a model's variables: one for all, or by patterns of names."""

import re
from collections.abc import Sequence
from typing import TypeAlias

from terngrad.codec import method
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.methods import updates

# A codec, or a dict from regular expressions of variable names to codecs.
CodecOption: TypeAlias = str | dict[str, str]
_REMEDY = (
  "Add a last expression that matches every name to the dict: '': 'identity' "
  'sends the other variables as float32.'
)


def rules(codec: CodecOption) -> list[tuple[str, str]]:
  """Converts a codec to pairs of a regular expression and a codec.

  Raises:
    ValueError: it is neither a text nor a dict of texts, or an expression is
      invalid.
  """
  if isinstance(codec, str):
    return [('', codec)]
  if (
    isinstance(codec, dict)
    and codec
    and all(isinstance(text, str) for text in codec.values())
  ):
    for pattern in codec:
      _check_pattern(pattern)
    return list(codec.items())
  raise ValueError(
    "codec: expected a text such as 'ternary', or a dict from regular "
    f'expressions of variable names to such texts, received {codec!r}. To use '
    'a class of your own, register it as an entry point in the group '
    'terngrad.codecs and pass its name (docs/add_a_codec.md).'
  )


def parse(text: str, num_workers: int) -> method.Method:
  """Builds the method of a text.

  Raises:
    ValueError: the text names no method, or one that needs float32 steps first.
  """
  made = registry.method(text, num_workers)
  if made.float_steps:
    raise ValueError(
      'codec: expected a code that is the same in all steps, received '
      f'{text!r}, whose first {made.float_steps} steps are float32. Use it '
      'with terngrad.Trainer or as --codec of a training program.'
    )
  return made


def methods(
  codec: CodecOption, variables: policy.Variables, num_workers: int
) -> tuple[method.Method, ...]:
  """Returns the compression method of each variable.

  Raises:
    ValueError: no expression matches the name of a variable, or only some
      variables would get updates.
  """

  def match_name(pattern: str) -> policy.Predicate:
    return lambda spec: re.search(pattern, spec.name) is not None

  rules_with_methods = [
    (lambda spec: spec.name in variables.plain, registry.method('identity')),
    *(
      (match_name(pattern), parse(text, num_workers))
      for pattern, text in rules(codec)
    ),
  ]
  chosen = policy.policy(rules_with_methods, variables.specs, _REMEDY)
  return updates.complete(chosen)


def check_sparse(codec: CodecOption, names: Sequence[str]) -> None:
  """Refuses sparse gradients, which are not encoded, beside updates.

  Args:
    codec: of the model.
    names: of the variables with sparse gradients.

  Raises:
    ValueError: there are some, and a method makes updates.
  """
  for _, text in rules(codec) if names else ():
    if registry.method(text, 1).makes_updates:
      raise ValueError(
        f'codec: expected dense gradients with {text}, which makes updates and '
        f'not gradients, received sparse ones of {", ".join(names)}. Use '
        'another code, or an embedding whose gradient is dense.'
      )


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
