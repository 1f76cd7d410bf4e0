"""Parses `NAME[:option=value,...]`, the syntax of codec and optimizer flags."""

import inspect
import pkgutil
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from slim import errors


def split(text: str) -> tuple[str, list[str]]:
  """Splits a text into NAME and a list of 'option=value'."""
  name, _, rest = text.partition(':')
  return name, list(filter(None, rest.split(',')))


def join(name: str, options: Mapping[str, Any]) -> str:
  """Returns the text of a name and its options."""
  items = ','.join(f'{key}={value}' for key, value in options.items())
  return f'{name}:{items}'


def check_name(
  kind: str, name: str, known: Collection[str], remark: str = ''
) -> None:
  """Refuses an unknown name and lists the known names.

  Args:
    kind: the kind of name, which begins the message: 'codec'.
    name: the name.
    known: known names.
    remark: follows the name in the message.

  Raises:
    ValueError: the name is not known.
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
  """Calls the function named in a text, with the options of the text.

  Args:
    kind: the kind of name, which begins the messages: 'codec'.
    text: 'NAME' or 'NAME:option=value,option=value'.
    makers: functions by name, or their locations 'module:function'. A value
      is converted to the type of its parameter's default.
    numbers: whether all values are numbers, for the messages.
    **otherwise: defaults for options that the text does not give; ignored if
      the function has no such parameter.

  Raises:
    ValueError: a name or an option is unknown, or a value is invalid. The
      message lists the known ones.
  """
  name, items = split(text)
  check_name(kind, name, makers)
  maker = resolve(makers[name])
  known = {
    name: parameter
    for name, parameter in inspect.signature(maker).parameters.items()
    if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
  }
  options = read(f'{kind} {name}', items, known, numbers)
  defaults = {key: value for key, value in otherwise.items() if key in known}
  return maker(**defaults | options)


def read(
  kind: str,
  items: Sequence[str],
  known: Mapping[str, inspect.Parameter],
  numbers: bool = False,
) -> dict[str, Any]:
  """Parses options into a dict by name.

  Args:
    kind: what the options belong to, which begins the messages: 'codec topk'.
    items: 'option=value' each, from `split`.
    known: parameters by name. A value is converted to the type of its
      parameter's default.
    numbers: whether all values are numbers, for the messages.

  Raises:
    ValueError: an option is unknown or given twice, or a value is invalid.
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
        f'{kind}: expected every option once, received {option} twice. Remove '
        'one.'
      )
    wanted = type(known[option].default)
    try:
      options[option] = _READ.get(wanted, wanted)(value)
    except (KeyError, ValueError) as error:
      raise ValueError(
        f'{kind}: expected {_WORDS.get(wanted, wanted.__name__)} for {option}, '
        f'received {value!r}. Write {option}='
        f'{_suggested(value, known[option].default)}.'
      ) from error
  return options


def _suggested(value: str, default: Any) -> str:
  """Returns the value to suggest: that of a percentage, or the default."""
  number = value.removesuffix('%')
  if isinstance(default, float) and number != value and _is_float(number):
    return f'{float(number) / 100:g}'
  return f'{str(default).lower()}, the default, or another'


_WORDS = {bool: 'true or false', float: 'a number', int: 'a whole number'}
_TRUTHS = {'true': True, '1': True, 'false': False, '0': False}
# Converters for types whose constructor does not parse texts.
_READ: dict[type, Callable[[str], Any]] = {
  bool: lambda text: _TRUTHS[text.lower()]
}


def resolve(entry: Callable[..., Any] | str) -> Callable[..., Any]:
  """Returns the function of an entry, which may be 'module:function'."""
  return pkgutil.resolve_name(entry) if isinstance(entry, str) else entry


def _is_float(text: str) -> bool:
  try:
    float(text)
  except ValueError:
    return False
  return True
