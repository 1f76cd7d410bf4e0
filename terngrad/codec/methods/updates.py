"""Variables beside those whose method makes updates in place of gradients."""

from collections.abc import Sequence

from terngrad.codec import method as methods


def complete(chosen: Sequence[methods.Method]) -> tuple[methods.Method, ...]:
  """Lets all variables of a model get updates, if some do.

  Args:
    chosen: the method of each variable.

  Returns:
    The same; but if a method makes updates, its `in_float` in place of methods
    that send float32.

  Raises:
    ValueError: another method makes no updates.
  """
  first = next((m for m in chosen if m.makes_updates), None)
  if first is None:
    return tuple(chosen)
  others = {id(m): m for m in chosen if not m.makes_updates}
  for other in others.values():
    if not other.traits.lossless:
      raise ValueError(
        f'codec: expected the same code for all variables beside {first.name}, '
        f'which makes updates and not gradients, received {other.name}. Leave '
        'out its rule, or send its variables as float32 by identity.'
      )
  in_float = {key: first.in_float(other) for key, other in others.items()}
  return tuple(in_float.get(id(m), m) for m in chosen)


def float_steps(chosen: Sequence[methods.Method]) -> int:
  """Returns how many first steps of a run must be float32 steps."""
  return max((method.float_steps for method in chosen), default=0)
