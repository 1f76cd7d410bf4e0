"""Options: what each is for, who must agree on it, and what may change it.

An option is a field of a configuration and a flag of the programs at once. All
that is known of it stands where it is declared: `cli.flags` makes the flag,
equal processes and the workers of parameter servers compare what they must
share, and a run that continues compares what its checkpoint was made with.
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


class Group(NamedTuple):
  """Options that stand together in `--help`.

  Attributes:
    title: their heading.
    on_resume: see `option`, of those that do not say it themselves.
  """

  title: str
  on_resume: str = FREE


# In the order of `--help`.
GROUPS = {
  'data': Group('Data', TOLD),
  'shards': Group('Shards and how they are written'),
  'model': Group('Model', TOLD),
  'run': Group('Run'),
  'start': Group('Pretrained values'),
  'devices': Group('Devices and nodes'),
  'cluster': Group('Several processes'),
  'rate': Group('Optimizer and learning rate', TOLD),
  'codes': Group('Gradient codes', TOLD),
}


def option(
  default: Any,
  description: str,
  group: str = 'data',
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
    group: of `GROUPS`.
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
  return dataclasses.field(
    default=default,
    metadata={
      'help': description,
      'group': group,
      'shared': shared,
      'on_resume': on_resume or GROUPS[group].on_resume,
      'repeated': repeated,
    },
  )


def fields(config):
  """The options of a configuration, or of its class: fields that can be set."""
  return [f for f in dataclasses.fields(config) if f.init and f.metadata]


def values(config, key, *wanted):
  """What a configuration says, of the options that are declared so.

  Args:
    config: value of a class of options.
    key: 'shared' or 'on_resume', see `option`.
    *wanted: what that is declared as.

  Returns:
    dict of name to value.
  """
  chosen = [f for f in fields(config) if f.metadata[key] in wanted]
  return {field.name: getattr(config, field.name) for field in chosen}


def pick(kind, config):
  """Takes from a configuration what a part of a run needs.

  Args:
    kind: a NamedTuple class; each field has the name of an option, or of a
      property, of the configuration.
    config: the configuration.

  Returns:
    A `kind`.
  """
  return kind(**{name: getattr(config, name) for name in kind._fields})


def is_default(config, name):
  """True where an option has its default, as if it had been left out."""
  defaults = {f.name: f.default for f in dataclasses.fields(config)}
  return getattr(config, name) == defaults[name]


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
