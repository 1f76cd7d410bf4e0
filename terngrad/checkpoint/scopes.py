"""Scopes of variables, for --trainable_scopes and similar flags."""

from collections.abc import Sequence

from terngrad import errors
from terngrad.checkpoint import tf1_names


def members(
  flag: str, scopes: str, net: str, names: Sequence[str]
) -> list[str]:
  """Returns the variables in a list of scopes.

  Args:
    flag: the flag that gave the scopes, for the error message.
    scopes: 'InceptionV3/Logits,InceptionV3/AuxLogits', in TF-Slim's names or
      ours; may be empty.
    net: name in `slim.nets.factory.NETS`.
    names: names of variables.

  Returns:
    The `names` that are in one of the scopes, in their order.

  Raises:
    errors.ConfigError: a scope contains no variable.
  """
  found: set[str] = set()
  for scope in filter(None, (part.strip() for part in scopes.split(','))):
    matches = {n for n in names if tf1_names.is_in_scope(net, n, scope)}
    if not matches:
      layers = list(dict.fromkeys(name.split('/')[0] for name in names))
      raise errors.ConfigError(
        f'{flag}: expected scopes of {net}, received {scope}, in which it has '
        f'no variables. Name layers such as {", ".join(layers[-3:])}, or use '
        "TF-Slim's names of them."
      )
    found |= matches
  return [name for name in names if name in found]
