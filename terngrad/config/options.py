"""Declares options: dataclass fields that are also command-line flags.

The declaration of an option holds everything about it. `cli.flags` makes the
flag. Processes compare the options that they must share. A resumed run compares
its options with those in the checkpoint.

A configuration is a dataclass. Its fields are options, or parts: dataclasses of
options. Code reads an option through its part, as in `config.model.net`. Flags,
processes and checkpoints use the option's name alone, so two parts of one
configuration never have options of the same name.
"""

import dataclasses
import math
from collections.abc import Collection
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple
from typing import TypeVar

if TYPE_CHECKING:
  from _typeshed import DataclassInstance

  _Config = TypeVar('_Config', bound=DataclassInstance)

from slim import errors as data_errors
from terngrad import aliases
from terngrad import errors

# Which processes must have the same value; see `option`.
LOCAL, RUN, WORKERS = 'local', 'run', 'workers'
# What happens when a run resumes with another value; see `option`.
REFUSED, LOGGED, IGNORED = 'refused', 'logged', 'ignored'
__getattr__ = aliases.renamed_names(
  __name__,
  KEPT='REFUSED',
  TOLD='LOGGED',
  FREE='IGNORED',
  OWN='LOCAL',
  Part='ConfigPart',
)

# Headings of `--help`, in its order. The name of a part is the default group of
# its options.
GROUPS = {
  'data': 'Data',
  'shards': 'Shards and how they are written',
  'model': 'Model',
  'run': 'Run',
  'start': 'Pretrained values',
  'devices': 'Devices and nodes',
  'cluster': 'Several processes',
  'optimizer': 'Optimizer and learning rate',
  'codes': 'Gradient codes',
}
# The default of `on_resume` is `LOGGED` in these groups, otherwise `IGNORED`.
_LOGGED_GROUPS = ('data', 'model', 'optimizer', 'codes')


# Types of an option's value.
Value = bool | int | float | str | tuple[str, ...]


class Option(NamedTuple):
  """Everything about one option; `option` describes most fields.

  Attributes:
    name: name of the field and of the flag.
    part: field of the configuration that holds the option; '' if the option is
      a field of the configuration itself.
  """

  default: Value
  help: str
  group: str
  shared: str
  on_resume: str
  repeated: bool
  least: float = -math.inf
  most: float = math.inf
  short: str = ''
  name: str = ''
  part: str = ''


def option(
  default: Value,
  description: str,
  group: str = '',
  *,
  shared: str = RUN,
  on_resume: str = '',
  repeated: bool = False,
  least: float = -math.inf,
  most: float = math.inf,
  short: str = '',
) -> Any:
  """Declares a dataclass field that is also a command-line flag.

  Args:
    default: the default. Its type is the type of the flag; a tuple makes a flag
      that takes a list.
    description: text for --help.
    group: key of `GROUPS`. '' means the group of the part, or 'data' if the
      option belongs to no part.
    shared: which processes must have the same value. `RUN`: all equal processes
      of a run. `WORKERS`: also the workers of parameter servers. `LOCAL`: each
      process may have another value.
    on_resume: what happens when a run resumes with another value. `REFUSED`: an
      error. `LOGGED`: the log says that the result is no longer bit-identical.
      `IGNORED`: nothing. '' means the default of the group.
    repeated: True if a list is given by repeating the flag instead of by
      commas.
    least: smallest valid number. `ConfigPart.validate` checks this and `most`,
      except for the default, which is always valid.
    most: largest valid number.
    short: one letter, a second name of the flag; '' for none.

  Returns:
    A dataclass field.
  """
  declared = Option(
    default, description, group, shared, on_resume, repeated, least, most, short
  )
  return dataclasses.field(default=default, metadata={'option': declared})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigPart:
  """Base class of the parts of a configuration: related options."""

  def validate(self) -> None:
    """Checks the options that can be checked without the other parts.

    Raises:
      errors.ConfigError: an option has an invalid value; the message names the
        first such option.
    """
    for declared in fields(self):
      value = getattr(self, declared.name)
      is_changed = value != declared.default
      if is_changed and declared.most < math.inf:
        in_range(declared.name, value, declared.least, declared.most)
      elif is_changed and declared.least > -math.inf:
        at_least(declared.name, value, declared.least)


def part(kind: type[ConfigPart]) -> Any:
  """Declares a configuration field that holds a part.

  The field's name is the default group of the part's options; see `GROUPS`.
  """
  return dataclasses.field(default_factory=kind)


def fields(
  config: 'DataclassInstance | type[DataclassInstance]',
) -> list[Option]:
  """Lists the options of a configuration or of its class, part by part."""
  parts = [
    (field.name, dataclasses.fields(field.default_factory))
    if dataclasses.is_dataclass(field.default_factory)
    else ('', (field,))
    for field in dataclasses.fields(config)
  ]
  return [
    _option(name, field)
    for name, members in parts
    for field in members
    if field.metadata
  ]


def _option(part_name: str, field: dataclasses.Field[Any]) -> Option:
  declared: Option = field.metadata['option']
  group = declared.group or part_name or 'data'
  default = LOGGED if group in _LOGGED_GROUPS else IGNORED
  return declared._replace(
    name=field.name,
    part=part_name,
    group=group,
    on_resume=declared.on_resume or default,
  )


def by_name(config: 'DataclassInstance') -> dict[str, Any]:
  """Returns the value of every option, by its name."""
  return {o.name: _value(config, o) for o in fields(config)}


def _value(config: 'DataclassInstance', declared: Option) -> Any:
  return getattr(getattr(config, declared.part, config), declared.name)


def build(kind: 'type[_Config]', /, **values: Any) -> '_Config':
  """Builds a configuration of class `kind` from values by option name.

  Other options keep their defaults.

  Raises:
    errors.ConfigError: the configuration has no option of this name.
  """
  return replace(kind(), **values)


def replace(config: '_Config', /, **values: Any) -> '_Config':
  """Copies a configuration with new values, given by option name.

  Raises:
    errors.ConfigError: the configuration has no option of this name.
  """
  parts = {option.name: option.part for option in fields(config)}
  for name in [n for n in values if n not in parts]:
    hint = data_errors.did_you_mean(name, parts, ' See --help.')
    raise errors.ConfigError(
      f'{name}: expected an option of {type(config).__name__}, received an '
      f'unknown name.{hint}'
    )
  changes = {name: v for name, v in values.items() if not parts[name]}
  for owner in filter(None, {parts[name] for name in values}):
    members = {name: v for name, v in values.items() if parts[name] == owner}
    changes[owner] = dataclasses.replace(getattr(config, owner), **members)
  return dataclasses.replace(config, **changes)


def validate_parts(config: 'DataclassInstance') -> None:
  """Validates every part; raises `errors.ConfigError` for the first error."""
  for name in filter(None, dict.fromkeys(o.part for o in fields(config))):
    getattr(config, name).validate()


def values(
  config: 'DataclassInstance', key: str, *wanted: str
) -> dict[str, Any]:
  """Returns the values of some options by name, selected by declaration.

  Args:
    config: a configuration.
    key: 'shared' or 'on_resume', an argument of `option`.
    *wanted: values of that argument. Options declared with one of them are
      returned.
  """
  chosen = [o for o in fields(config) if getattr(o, key) in wanted]
  return {o.name: _value(config, o) for o in chosen}


def is_default(config: 'DataclassInstance', name: str) -> bool:
  """Returns whether the value of an option equals its default."""
  (declared,) = (o for o in fields(config) if o.name == name)
  return bool(_value(config, declared) == declared.default)


def refuse(is_wrong: bool, message: str) -> None:
  """Raises `errors.ConfigError` with `message` if `is_wrong`."""
  if is_wrong:
    raise errors.ConfigError(message)


def choice(name: str, value: str, known: Collection[str]) -> None:
  """Raises `errors.ConfigError` unless `value` is in `known`."""
  if value not in known:
    hint = data_errors.did_you_mean(value, known, ' Use one of these.')
    raise errors.ConfigError(
      f'{name}: expected one of {", ".join(sorted(known))}, received '
      f'{value!r}.{hint}'
    )


def at_least(name: str, value: float, lowest: float) -> None:
  """Raises `errors.ConfigError` unless `lowest` <= `value` < infinity."""
  refuse(
    # Written so that NaN fails.
    not lowest <= value < float('inf'),
    f'{name}: expected a number >= {lowest}, received {value}. Set '
    f'--{name}={lowest} or more.',
  )


def folder(name: str, value: str) -> None:
  """Raises `errors.ConfigError` if the folder name `value` is empty."""
  refuse(
    not value,
    f'{name}: expected a folder, received none. Give --{name}=FOLDER.',
  )


def in_range(name: str, value: float, lowest: float, highest: float) -> None:
  """Raises `errors.ConfigError` unless `lowest` <= `value` <= `highest`."""
  refuse(
    not lowest <= value <= highest,
    f'{name}: expected a number from {lowest} to {highest}, received '
    f'{value}. Set --{name} to a number in this range.',
  )
