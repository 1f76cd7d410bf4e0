"""Reads `NAME[:option=value,...]`, as flags spell codes and optimizers."""

import inspect
import pkgutil
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from slim import errors


def split(text: str) -> tuple[str, list[str]]:
  """(NAME, list of 'option=value') of a text."""
  name, _, rest = text.partition(':')
  return name, list(filter(None, rest.split(',')))


def join(name: str, options: Mapping[str, Any]) -> str:
  """The text of a name and a dict of its options."""
  items = ','.join(f'{key}={value}' for key, value in options.items())
  return f'{name}:{items}'


def check_name(
  kind: str, name: str, known: Collection[str], remark: str = ''
) -> None:
  """Raises ValueError for a name that is not known, and says which are.

  Args:
    kind: what is named, the beginning of the message: 'codec'.
    name: the name.
    known: dict or list of names.
    remark: follows the name in the message.
  """
  if name not in known:
    raise ValueError(
      f'{kind}: expected one of {", ".join(sorted(known))}, received '
      f'{name!r}{remark}.{errors.did_you_mean(name, known)}'
    )


def make(
  kind: str,
  text: str,
  makers: Mapping[str, Callable[..., Any] | str],
  numbers: bool = False,
  **otherwise: Any,
) -> Any:
  """Calls the function that a text names, with the options that it says.

  Args:
    kind: see `check_name`.
    text: 'NAME' or 'NAME:option=value,option=value'.
    makers: dict by name of functions, or of where they stand, see `resolved`; a
      value gets the type of its parameter's default.
    numbers: whether all values are numbers, for the messages.
    **otherwise: options for functions that have them, where the text does not
      say them.

  Returns:
    What the function returns.

  Raises:
    ValueError: unknown name or option, or a bad value; the message lists what
      there is.
  """
  name, items = split(text)
  check_name(kind, name, makers)
  maker = resolved(makers[name])
  known = {
    name: parameter
    for name, parameter in inspect.signature(maker).parameters.items()
    if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
  }
  options = read(f'{kind} {name}', items, known, numbers)
  given = {key: value for key, value in otherwise.items() if key in known}
  return maker(**given | options)


def read(
  kind: str,
  items: Sequence[str],
  known: Mapping[str, inspect.Parameter],
  numbers: bool = False,
) -> dict[str, Any]:
  """The values of options, by name.

  Args:
    kind: what they are of, the beginning of the messages: 'codec topk'.
    items: list of 'option=value', see `split`.
    known: dict of name to `inspect.Parameter`; a value gets the type of its
      default.
    numbers: see `make`.

  Returns:
    dict of name to value.

  Raises:
    ValueError: see `make`.
  """
  options: dict[str, Any] = {}
  for item in items:
    option, equals, value = item.partition('=')
    if option not in known or not equals or (numbers and not _is_float(value)):
      raise ValueError(
        f'{kind}: expected option={"number" if numbers else "value"} '
        f'with an option of {", ".join(known) or "none (it has no options)"}, '
        f'received {item!r}.{errors.did_you_mean(option, known)}'
      )
    if option in options:
      raise ValueError(
        f'{kind}: expected every option once, received {option} twice.'
      )
    wanted = type(known[option].default)
    try:
      options[option] = _READ.get(wanted, wanted)(value)
    except (KeyError, ValueError) as error:
      raise ValueError(
        f'{kind}: expected a {wanted.__name__} for {option}, received '
        f'{value!r}.'
      ) from error
  return options


_TRUTHS = {'true': True, '1': True, 'false': False, '0': False}
# How texts become values, where not by the type itself.
_READ: dict[type, Callable[[str], Any]] = {
  bool: lambda text: _TRUTHS[text.lower()]
}


def resolved(entry: Callable[..., Any] | str) -> Callable[..., Any]:
  """The function that a table names, by itself or as 'module:function'."""
  return pkgutil.resolve_name(entry) if isinstance(entry, str) else entry


def _is_float(text: str) -> bool:
  try:
    float(text)
  except ValueError:
    return False
  return True
