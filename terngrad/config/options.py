"""Options: what each is for, who must agree on it, and what may change it.

An option is a field of a dataclass and a flag of the programs at once. All that
is known of it stands where it is declared: `cli.flags` makes the flag, equal
processes and the workers of parameter servers compare what they must share, and
a run that continues compares what its checkpoint was made with.

A configuration is a dataclass of parts, which are dataclasses of options, or of
options themselves. Code takes an option from its part, as `config.model.net`;
flags, processes and checkpoints know it by its name alone, so no two parts of a
configuration have options of one name.
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
from terngrad import errors

# Who has to be told the same.
OWN, RUN, WORKERS = 'own', 'run', 'workers'
# What becomes of a run that continues with another value.
KEPT, TOLD, FREE = 'kept', 'told', 'free'


# Headings of `--help`, in its order; a part has the name of its group.
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
# Groups whose options are `TOLD` where they do not say more; others are `FREE`.
_TOLD_GROUPS = ('data', 'model', 'optimizer', 'codes')


# What a flag can say.
Value = bool | int | float | str | tuple[str, ...]


class Option(NamedTuple):
  """What is known of an option, see `option`; `part` may be ''."""

  default: Value
  help: str
  group: str
  shared: str
  on_resume: str
  repeated: bool
  least: float = -math.inf
  most: float = math.inf
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
) -> Any:
  """A field of a configuration, which is a flag as well.

  Args:
    default: it gives the flag its type; a tuple is for a list.
    description: what --help says of it.
    group: of `GROUPS`; '' is that of its part, or 'data' where it is of none.
    shared: who has to be told the same: `RUN`, all equal processes of a run;
      `WORKERS`, also the workers of parameter servers, which compute by it;
      `OWN`, nobody.
    on_resume: what becomes of a run that continues with another value: `KEPT`,
      it is refused; `TOLD`, the log says that it does not end at the same bits;
      `FREE`, nothing; '' is the group's.
    repeated: a list is given by repeating the flag, not with commas.
    least: the lowest value of a number but its default, in a `Part`.
    most: the highest.

  Returns:
    A field of a dataclass.
  """
  known = Option(
    default, description, group, shared, on_resume, repeated, least, most
  )
  return dataclasses.field(default=default, metadata={'option': known})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
  """The options of one idea, the base class of the parts of a configuration."""

  def validate(self) -> None:
    """Refuses what no other part decides on.

    Raises:
      errors.ConfigError: for the first option out of its range.
    """
    for known in fields(self):
      value = getattr(self, known.name)
      is_given = value != known.default
      if is_given and known.most < math.inf:
        in_range(known.name, value, known.least, known.most)
      elif is_given and known.least > -math.inf:
        at_least(known.name, value, known.least)


def part(kind: type[Part]) -> Any:
  """A field of a configuration that is a part of it, named for its group."""
  return dataclasses.field(default_factory=kind)


def fields(
  config: 'DataclassInstance | type[DataclassInstance]',
) -> list[Option]:
  """The options of a configuration, or of its class, part after part."""
  parts = [
    (field.name, dataclasses.fields(field.default_factory))
    if dataclasses.is_dataclass(field.default_factory)
    else ('', (field,))
    for field in dataclasses.fields(config)
  ]
  return [
    _option(name, field)
    for name, own in parts
    for field in own
    if field.metadata
  ]


def _option(part_name: str, field: dataclasses.Field[Any]) -> Option:
  known: Option = field.metadata['option']
  group = known.group or part_name or 'data'
  on_resume = known.on_resume or (TOLD if group in _TOLD_GROUPS else FREE)
  return known._replace(
    name=field.name, part=part_name, group=group, on_resume=on_resume
  )


def by_name(config: 'DataclassInstance') -> dict[str, Any]:
  """What a configuration says: dict of each option's name to its value."""
  return {o.name: _value(config, o) for o in fields(config)}


def _value(config: 'DataclassInstance', known: Option) -> Any:
  return getattr(getattr(config, known.part, config), known.name)


def build(kind: 'type[_Config]', /, **values: Any) -> '_Config':
  """A configuration, from the names of its options.

  Args:
    kind: class of the configuration.
    **values: of options; the others have their defaults.

  Raises:
    errors.ConfigError: it has no option of a name.
  """
  return replace(kind(), **values)


def replace(config: '_Config', /, **values: Any) -> '_Config':
  """The same configuration with other values of some options; see `build`."""
  homes = {option.name: option.part for option in fields(config)}
  for name in [n for n in values if n not in homes]:
    hint = data_errors.did_you_mean(name, homes, ' See --help.')
    raise errors.ConfigError(
      f'{name}: expected an option of {type(config).__name__}, received none '
      f'of this name.{hint}'
    )
  changes = {name: v for name, v in values.items() if not homes[name]}
  for home in filter(None, {homes[name] for name in values}):
    own = {name: v for name, v in values.items() if homes[name] == home}
    changes[home] = dataclasses.replace(getattr(config, home), **own)
  return dataclasses.replace(config, **changes)


def validate_parts(config: 'DataclassInstance') -> None:
  """Raises `errors.ConfigError` where a part of a configuration cannot be."""
  for name in filter(None, dict.fromkeys(o.part for o in fields(config))):
    getattr(config, name).validate()


def values(
  config: 'DataclassInstance', key: str, *wanted: str
) -> dict[str, Any]:
  """What a configuration says, of the options that are declared so.

  Args:
    config: value of a class of options.
    key: 'shared' or 'on_resume', see `option`.
    *wanted: what that is declared as.
  """
  chosen = [o for o in fields(config) if getattr(o, key) in wanted]
  return {o.name: _value(config, o) for o in chosen}


def is_default(config: 'DataclassInstance', name: str) -> bool:
  """True where an option has its default, as if it had been left out."""
  (known,) = (o for o in fields(config) if o.name == name)
  return bool(_value(config, known) == known.default)


def refuse(is_wrong: bool, message: str) -> None:
  """Raises `errors.ConfigError` with a message where something is wrong."""
  if is_wrong:
    raise errors.ConfigError(message)


def choice(name: str, value: str, known: Collection[str]) -> None:
  """Raises `errors.ConfigError` where a value is not among the known."""
  if value not in known:
    hint = data_errors.did_you_mean(value, known, ' Use one of these.')
    raise errors.ConfigError(
      f'{name}: expected one of {", ".join(sorted(known))}, received '
      f'{value!r}.{hint}'
    )


def at_least(name: str, value: float, lowest: float) -> None:
  """Raises `errors.ConfigError` where a number is lower, or not finite."""
  refuse(
    # Written so that NaN fails.
    not lowest <= value < float('inf'),
    f'{name}: expected a number >= {lowest}, received {value}. Set '
    f'--{name}={lowest} or more.',
  )


def folder(name: str, value: str) -> None:
  """Raises `errors.ConfigError` where no folder to write into is given."""
  refuse(
    not value,
    f'{name}: expected a folder, received none. Give --{name}=FOLDER.',
  )


def in_range(name: str, value: float, lowest: float, highest: float) -> None:
  """Raises `errors.ConfigError` where a number is not within."""
  refuse(
    not lowest <= value <= highest,
    f'{name}: expected a number from {lowest} to {highest}, received '
    f'{value}. Set --{name} within.',
  )
