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
      is converted to the type of its parameter, see `read`.
    numbers: whether all values are numbers, for the messages.
    **otherwise: defaults for options that the text does not give; ignored if
      the function has no such parameter.

  Raises:
    ValueError: a name or an option is unknown, a value is invalid, or an option
      without a default is missing. The message lists the known ones.
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
  options = defaults | options
  for option, parameter in known.items():
    if parameter.default is parameter.empty and option not in options:
      raise ValueError(
        f'{kind} {name}: expected a value for {option}, which has no default, '
        f'received none. Write {name}:{option}=VALUE.'
      )
  return maker(**options)


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
      parameter's default if that is bool, int, float or str, else to the
      annotated one.
    numbers: whether all values are numbers, for the messages.

  Raises:
    ValueError: an option is unknown or given twice, its parameter has none of
      these types, or a value is invalid.
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
    wanted = _type_name(known[option])
    if wanted not in _READ:
      raise ValueError(
        f'{kind}: expected {option} to have a default or an annotation of type '
        f'{", ".join(_READ)}, received "{known[option]}". Give `{option}` a '
        f'default number, such as `{option}=0.1`, where it is defined.'
      )
    try:
      options[option] = _READ[wanted](value)
    except (KeyError, ValueError) as error:
      raise ValueError(
        f'{kind}: expected {_WORDS[wanted]} for {option}, received {value!r}. '
        f'Write {option}={_suggested(value, known[option], wanted)}.'
      ) from error
  return options


def _type_name(parameter: inspect.Parameter) -> str:
  """Returns the name of a parameter's type, that of its default if usable."""
  of_default = type(parameter.default).__name__
  if of_default in _READ:
    return of_default
  annotation = parameter.annotation
  if isinstance(annotation, type):
    return annotation.__name__
  return str(annotation).removesuffix(' | None')


def _suggested(value: str, parameter: inspect.Parameter, wanted: str) -> str:
  """Returns the value to suggest: that of a percentage, or the default."""
  number = value.removesuffix('%')
  if wanted == 'float' and number != value and _is_float(number):
    return f'{float(number) / 100:g}'
  if type(parameter.default).__name__ != wanted:
    return f'{_EXAMPLES[wanted]}, for example'
  return f'{str(parameter.default).lower()}, the default, or another'


_WORDS = {'bool': 'true or false', 'float': 'a number', 'int': 'a whole number'}
_EXAMPLES = {'bool': 'true', 'float': '0.1', 'int': '1'}
_TRUTHS = {'true': True, '1': True, 'false': False, '0': False}
# Converters by the name of the type.
_READ: dict[str, Callable[[str], Any]] = {
  'bool': lambda text: _TRUTHS[text.lower()],
  'float': float,
  'int': int,
  'str': str,
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
