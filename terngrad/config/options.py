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
from typing import Any
from typing import NamedTuple

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


class Option(NamedTuple):
  """What is known of an option, see `option`; `part` may be ''."""

  default: Any
  help: str
  group: str
  shared: str
  on_resume: str
  repeated: bool
  name: str = ''
  part: str = ''


def option(
  default: Any,
  description: str,
  group: str = '',
  *,
  shared: str = RUN,
  on_resume: str = '',
  repeated: bool = False,
) -> Any:
  """A field of a configuration, which is a flag as well.

  Args:
    default: bool, int, float or str, which gives the flag its type; or a tuple
      of str, for a list.
    description: what --help says of it.
    group: of `GROUPS`; '' is that of its part, or 'data' where it is of none.
    shared: who has to be told the same: `RUN`, all equal processes of a run;
      `WORKERS`, also the workers of parameter servers, which compute by it;
      `OWN`, nobody.
    on_resume: what becomes of a run that continues with another value: `KEPT`,
      it is refused; `TOLD`, the log says that it does not end at the same bits;
      `FREE`, nothing; '' is the group's.
    repeated: a list is given by repeating the flag, not with commas.

  Returns:
    A field of a dataclass.
  """
  known = Option(default, description, group, shared, on_resume, repeated)
  return dataclasses.field(default=default, metadata={'option': known})


def part(kind: type) -> Any:
  """A field of a configuration that is a part of it, named for its group.

  Args:
    kind: frozen dataclass of options; its `validate` refuses what no other part
      decides on.

  Returns:
    A field of a dataclass.
  """
  return dataclasses.field(default_factory=kind)


def fields(config):
  """The `Option`s of a configuration, or of its class, part after part."""
  found = []
  for field in dataclasses.fields(config):
    if dataclasses.is_dataclass(field.default_factory):
      own = dataclasses.fields(field.default_factory)
      found += [_option(field.name, each) for each in own if each.metadata]
    elif field.metadata:
      found.append(_option('', field))
  return found


def _option(part_name, field):
  known = field.metadata['option']
  group = known.group or part_name or 'data'
  on_resume = known.on_resume or (TOLD if group in _TOLD_GROUPS else FREE)
  return known._replace(
    name=field.name, part=part_name, group=group, on_resume=on_resume
  )


def by_name(config):
  """What a configuration says: dict of each option's name to its value."""
  homes = {o.name: getattr(config, o.part, config) for o in fields(config)}
  return {name: getattr(home, name) for name, home in homes.items()}


def build(kind, /, **values):
  """A configuration, from the names of its options.

  Args:
    kind: class of the configuration.
    **values: of options; the others have their defaults.

  Returns:
    A `kind`.

  Raises:
    errors.ConfigError: it has no option of a name.
  """
  return replace(kind(), **values)


def replace(config, /, **values):
  """The same configuration with other values of some options; see `build`."""
  homes = {option.name: option.part for option in fields(config)}
  changes = {}
  for name, value in values.items():
    if name not in homes:
      hint = data_errors.did_you_mean(name, homes, ' See --help.')
      raise errors.ConfigError(
        f'{name}: expected an option of {type(config).__name__}, received none '
        f'of this name.{hint}'
      )
    changes.setdefault(homes[name], {})[name] = value
  own = changes.pop('', {})
  for name, given in changes.items():
    own[name] = dataclasses.replace(getattr(config, name), **given)
  return dataclasses.replace(config, **own)


def validate_parts(config):
  """Raises `errors.ConfigError` where a part of a configuration cannot be."""
  for name in dict.fromkeys(option.part for option in fields(config)):
    if name:
      getattr(config, name).validate()


def values(config, key, *wanted):
  """What a configuration says, of the options that are declared so.

  Args:
    config: value of a class of options.
    key: 'shared' or 'on_resume', see `option`.
    *wanted: what that is declared as.

  Returns:
    dict of name to value.
  """
  said = by_name(config)
  chosen = [o.name for o in fields(config) if getattr(o, key) in wanted]
  return {name: said[name] for name in chosen}


def is_default(config, name):
  """True where an option has its default, as if it had been left out."""
  defaults = {option.name: option.default for option in fields(config)}
  return by_name(config)[name] == defaults[name]


def choice(name, value, known):
  """Raises `errors.ConfigError` where a value is not among the known."""
  if value in known:
    return
  hint = data_errors.did_you_mean(value, known, ' Use one of these.')
  raise errors.ConfigError(
    f'{name}: expected one of {", ".join(sorted(known))}, received '
    f'{value!r}.{hint}'
  )


def at_least(name, value, lowest):
  """Raises `errors.ConfigError` where a number is lower, or not finite."""
  # Written so that NaN fails.
  if not lowest <= value < float('inf'):
    raise errors.ConfigError(
      f'{name}: expected a number >= {lowest}, received {value}. Set '
      f'--{name}={lowest} or more.'
    )


def folder(name, value):
  """Raises `errors.ConfigError` where no folder to write into is given."""
  if not value:
    raise errors.ConfigError(
      f'{name}: expected a folder, received none. Give --{name}=FOLDER.'
    )


def in_range(name, value, lowest, highest):
  """Raises `errors.ConfigError` where a number is not within."""
  if not lowest <= value <= highest:
    raise errors.ConfigError(
      f'{name}: expected a number from {lowest} to {highest}, received '
      f'{value}. Set --{name} within.'
    )
