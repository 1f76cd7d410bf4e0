"""Flags of the programs, made from the fields of a configuration.

Flags exist only here and in the programs. Old command lines keep working:
`--flag True` is read like `--flag=True` for flags that are true or false.
"""

import dataclasses

from absl import flags

from slim import errors as slim_errors

_TRUE = ('true', 't', '1')
_FALSE = ('false', 'f', '0')

# Headings of `--help`, in this order.
_GROUPS = {
  'data': 'Data',
  'shards': 'Shards and how they are written',
  'model': 'Model',
  'run': 'Run',
  'start': 'Pretrained values',
  'devices': 'Devices and nodes',
  'cluster': 'Several processes',
  'rate': 'Optimizer and learning rate',
  'codes': 'Gradient codes',
}


class UsageError(ValueError):
  """A command line that cannot be read."""


def define(config_class, defaults=None):
  """Makes a set of flags from a configuration class.

  Args:
    config_class: dataclass whose fields carry 'help' and 'group' metadata;
      those that its constructor does not take are no flags.
    defaults: dict of field name to this program's own default.

  Returns:
    `absl.flags.FlagValues` with one flag a field.

  Raises:
    ValueError: a default is of no field.
  """
  defaults = dict(defaults or {})
  values = flags.FlagValues()
  makers = {
    bool: flags.DEFINE_boolean,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
  }
  for field in _fields(config_class):
    default = defaults.pop(field.name, field.default)
    makers[type(field.default)](
      field.name, default, field.metadata['help'], flag_values=values
    )
  if defaults:
    raise ValueError(
      f'{config_class.__name__} has no field {", ".join(defaults)}.'
    )
  flags.DEFINE_multi_string(
    'flagfile', [], 'Read flags from a file, one a line.', flag_values=values
  )
  return values


def parse(config_class, defaults, arguments):
  """Reads a command line into a configuration.

  Args:
    config_class: see `define`.
    defaults: see `define`.
    arguments: the words after the program's name.

  Returns:
    A `config_class`.

  Raises:
    UsageError: an unknown flag, a stray word or a value of the wrong type;
      says what was expected, what was received and what to do.
  """
  values = define(config_class, defaults)
  booleans = {name for name in values if isinstance(values[name].value, bool)}
  words = join_booleans(_read_flagfiles(values, arguments), booleans)
  try:
    rest = values(['program', *words])
  except flags.UnrecognizedFlagError as error:
    raise UsageError(_unknown(error.flagname, values)) from error
  except flags.Error as error:
    raise UsageError(
      f'Flags: expected values of their types, received: {error}. --help says '
      'the type of each.'
    ) from error
  if len(rest) > 1:
    raise UsageError(_stray(rest[1], values))
  fields = _fields(config_class)
  return config_class(**{f.name: values[f.name].value for f in fields})


def join_booleans(words, booleans):
  """Reads `--flag True` as `--flag=true`, as TensorFlow 1's programs did.

  Only for flags that are true or false, and only before true, t, 1, false, f
  or 0 in any case; words after `--` are left alone.

  >>> join_booleans(['--b', 'False', '--subset', 'True'], {'b'})
  ['--b=false', '--subset', 'True']

  Args:
    words: of a command line.
    booleans: names of the flags that are true or false.

  Returns:
    List of words.
  """
  joined = []
  rest = list(words)
  while rest:
    word = rest.pop(0)
    if word == '--':
      return [*joined, word, *rest]
    is_boolean = word.startswith('-') and word.lstrip('-') in booleans
    is_negated = word.lstrip('-').removeprefix('no') in booleans
    value = rest[0].lower() if is_boolean and rest else ''
    if value in (*_TRUE, *_FALSE):
      rest.pop(0)
      word = f'{word}={"true" if value in _TRUE else "false"}'
    elif (
      word.startswith('-')
      and '=' not in word
      and not (is_boolean or is_negated)
      and rest
    ):
      # A flag that takes a value: the value is not a flag, whatever it says.
      joined.append(word)
      word = rest.pop(0)
    joined.append(word)
  return joined


def help_text(config_class, defaults, usage):
  """What --help prints: every flag, by group, with its default.

  Args:
    config_class: see `define`.
    defaults: see `define`.
    usage: what the program is for, its first lines.

  Returns:
    str.
  """
  lines = [usage.rstrip(), '']
  fields = _fields(config_class)
  for group, title in _GROUPS.items():
    members = [f for f in fields if f.metadata['group'] == group]
    if members:
      lines += [f'{title}:', *(_help_line(f, defaults) for f in members), '']
  lines += ['Also --flagfile=FILE, a file with one flag a line, and --help.']
  return '\n'.join(lines)


def _fields(config_class):
  return [f for f in dataclasses.fields(config_class) if f.init]


def _help_line(field, defaults):
  default = defaults.get(field.name, field.default)
  shown = f"'{default}'" if isinstance(default, str) else default
  note = ''
  if default != field.default:
    note = f'; {field.default!r} in general'
  return (
    f'  --{field.name} ({type(field.default).__name__}, {shown}{note})\n'
    f'      {field.metadata["help"]}'
  )


def _read_flagfiles(values, arguments):
  try:
    return values.read_flags_from_files(list(arguments), force_gnu=False)
  except flags.Error as error:
    raise UsageError(
      f'flagfile: expected a file with one flag a line, received: {error}. '
      'Check the path.'
    ) from error


def _unknown(name, values):
  names = list(values)
  # 'nofoo' may be meant as the opposite of a boolean flag.
  near = slim_errors.nearest(name, names) or slim_errors.nearest(
    name.removeprefix('no'), names
  )
  hint = f'Did you mean --{near}?' if near else 'See --help.'
  return f'--{name}: expected a flag of this program, received none. {hint}'


def _stray(word, values):
  near = slim_errors.nearest(word.strip('-'), values)
  hint = f'Did you mean --{near}?' if near else 'See --help.'
  return f'Expected flags only, received the word {word!r}. {hint}'
