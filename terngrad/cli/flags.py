"""Command-line flags, generated from options.

Flags exist only here and in the commands. Old command lines still work: for
boolean flags, `--flag True` means `--flag=True`. Values are used as given,
except that spaces around the items of a list are removed, unless the item is
in double quotes.
"""

import dataclasses
import os
import re
import textwrap
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from absl import flags

from slim import errors as slim_errors
from terngrad.codec.methods import registry
from terngrad.config import options
from terngrad.recipes import catalog

_TRUE = ('true', 't', '1')
_FALSE = ('false', 'f', '0')

# Stands in a description for the names of all codes.
_CODECS = '{codecs}'

_HELP = ('--help', '-help', '-h', '--helpfull')

_LONGEST_NAME = 100

# Integers must fit TensorFlow's int64.
_MOST = 2**63

# Width of --help's lines, and the indentation of a flag's description.
_COLUMNS = 80
_INDENT = ' ' * 6

# An item of a list, quoted or not, and the comma that ends it.
_ITEM = re.compile(r'\s*"((?:[^"]|"")*)"\s*,|([^,]*),')


class UsageError(ValueError):
  """An invalid command line."""


class Parsed(NamedTuple):
  """A parsed command line.

  Attributes:
    values: an instance of the class of options.
    verbosity: 0, or 1 to show TensorFlow's start-up messages.
    given: names of the options that the command line sets.
  """

  values: Any
  verbosity: int
  given: frozenset[str]


class _Values(flags.FlagValues):
  """Flags whose --flagfile may name a file that ends in a space."""

  def _extract_filename(self, flagfile_str: str) -> str:
    name = os.path.expanduser(flagfile_str.partition('=')[2].rstrip('\r\n'))
    if os.path.exists(name):
      return name
    # absl does not annotate this method.
    extract = super()._extract_filename
    return str(extract(flagfile_str))  # type: ignore[no-untyped-call]


class _ListParser(flags.ListParser):
  """Parses `a, b,"c, d"`; quoted items keep their spaces and commas."""

  def parse(self, argument: str | list[str]) -> list[str]:
    if isinstance(argument, list) or '"' not in argument:
      return super().parse(argument)
    items = []
    for quoted, plain in _ITEM.findall(f'{argument},'):
      item = quoted.replace('""', '"') or plain.strip()
      if plain and item.startswith('"'):
        raise ValueError(f'expected a quote at the end of {item!r}')
      items.append(item)
    return items


def _define_list(
  name: str,
  default: list[str],
  description: str,
  flag_values: flags.FlagValues,
) -> None:
  flags.DEFINE(
    _ListParser(),
    name,
    default,
    description,
    flag_values,
    flags.CsvListSerializer(','),
  )


def asks_for_help(arguments: Sequence[str], rest: str = '') -> bool:
  """Returns whether an argument is --help, in any of absl's spellings.

  Args:
    arguments: the arguments.
    rest: name of the field for arguments after `--`, as for `parse`.
  """
  words, _ = _split(arguments, rest)
  return any(word in _HELP for word in words)


def _split(arguments: Sequence[str], rest: str) -> tuple[list[str], list[str]]:
  """Splits arguments at `--`, if the command takes the arguments after it."""
  words = list(arguments)
  if not rest or '--' not in words:
    return words, []
  index = words.index('--')
  return words[:index], words[index + 1 :]


def define(
  config_class: type, defaults: Mapping[str, Any] | None = None
) -> flags.FlagValues:
  """Creates flags from a class of options.

  Args:
    config_class: dataclass of `options.option`s. Fields that its constructor
      does not take get no flag.
    defaults: this command's defaults, by field name.

  Returns:
    The flags, one per field.

  Raises:
    ValueError: a default is for an unknown field.
  """
  defaults = dict(defaults or {})
  # absl does not annotate the constructor.
  values = _Values()  # type: ignore[no-untyped-call]
  for field in options.fields(config_class):
    default = defaults.pop(field.name, field.default)
    if isinstance(default, tuple):
      default = list(default)
    names = {'short_name': field.short} if field.short else {}
    _maker(field)(field.name, default, field.help, flag_values=values, **names)
  if defaults:
    raise ValueError(
      f'{config_class.__name__} has no field {", ".join(defaults)}.'
    )
  flags.DEFINE_multi_string(
    'flagfile', [], 'Read flags from a file, one per line.', flag_values=values
  )
  flags.DEFINE_integer('verbosity', 0, _VERBOSITY, flag_values=values)
  return values


_VERBOSITY = "Above 0: show TensorFlow's start-up messages."


def _maker(field: options.Option) -> Callable[..., Any]:
  """Returns the absl function that defines a field's flag."""
  if field.repeated:
    return flags.DEFINE_multi_string
  makers: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_boolean,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
    tuple: _define_list,
  }
  return makers[type(field.default)]


def parse(
  config_class: type,
  defaults: Mapping[str, Any],
  arguments: Sequence[str],
  positional: Sequence[str] = (),
  rest: str = '',
  flag_names: Mapping[str, str] | None = None,
) -> Parsed:
  """Parses a command line.

  Args:
    config_class: dataclass of options, as for `define`.
    defaults: this command's defaults, as for `define`.
    arguments: the arguments after the program's name.
    positional: names of the flags that the first positional arguments set.
    rest: name of a tuple field that takes the arguments after `--`.
    flag_names: maps a recipe's options to this command's flags, where they
      differ.

  Returns:
    The parsed command line; its values are a `config_class`.

  Raises:
    UsageError: an unknown flag, a stray argument or a value of the wrong type;
      the message says what was expected, what was received and what to do.
  """
  values = define(config_class, defaults)
  booleans = {name for name in values if isinstance(values[name].value, bool)}
  flag_words, rest_words = _split(arguments, rest)
  words = join_booleans(
    _read_flagfiles(values, _name_positional(flag_words, positional)), booleans
  )
  _check_names(words)
  try:
    remaining = values(['program', *words])
  except flags.UnrecognizedFlagError as error:
    raise UsageError(_unknown_message(error.flagname, values)) from error
  except flags.Error as error:
    raise UsageError(
      f'Flags: expected a value of the type of the flag, received: {error}. '
      '--help lists the types.'
    ) from error
  if len(remaining) > 1:
    raise UsageError(_stray_message(remaining[1], values))
  _expand_recipe(values, flag_names or {})
  fields = {f.name: _value(values, f) for f in options.fields(config_class)}
  parsed: Any = options.build(config_class, **fields)
  if rest:
    parsed = dataclasses.replace(parsed, **{rest: tuple(rest_words)})
  given = frozenset(name for name in fields if values[name].present)
  return Parsed(parsed, values['verbosity'].value or 0, given)


def _expand_recipe(
  values: flags.FlagValues, flag_names: Mapping[str, str]
) -> None:
  """Sets the flags of --recipe that the command line does not have.

  Commands with --codecs, a list, compare the recipe's code with those that the
  command line has.
  """
  if 'recipe' not in values or not values['recipe'].value:
    return
  try:
    found = catalog.find(values['recipe'].value)
  except ValueError as error:
    raise UsageError(str(error)) from error
  for option, value in found.flags().items():
    name = flag_names.get(option, option)
    if name in values and not values[name].present:
      values[name].value = value
  if 'codecs' in values:
    codecs = values['codecs']
    given = list(codecs.value or []) if codecs.present else []
    codecs.value = [*dict.fromkeys([found.codec, *given])]


def _check_names(words: Iterable[str]) -> None:
  """Refuses long names: absl's search for similar names is quadratic."""
  for word in words:
    size = len(word.partition('=')[0])
    if word.startswith('-') and size > _LONGEST_NAME:
      raise UsageError(
        f'Flags: expected names of at most {_LONGEST_NAME} characters, '
        f'received {word[:30]!r}..., a name of {size} characters. See --help.'
      )


def _value(values: flags.FlagValues, field: options.Option) -> Any:
  value: Any = values[field.name].value
  if isinstance(value, int) and not -_MOST <= value < _MOST:
    raise UsageError(
      f'{field.name}: expected a number from {-_MOST} to {_MOST - 1}, received '
      f'{value}. Set --{field.name} to a number in this range.'
    )
  return tuple(value) if isinstance(field.default, tuple) else value


def _name_positional(
  arguments: Sequence[str], positional: Sequence[str]
) -> list[str]:
  """Turns the positional arguments before the first flag into flags."""
  words = list(arguments)
  for i, name in enumerate(positional[: len(words)]):
    if words[i].startswith('-'):
      break
    words[i] = f'--{name}={words[i]}'
  return words


def join_booleans(words: Iterable[str], booleans: Collection[str]) -> list[str]:
  """Rewrites `--flag True` as `--flag=true`, as TensorFlow 1 programs accept.

  Only boolean flags are rewritten, and only before true, t, 1, false, f or 0 in
  any case. Arguments after `--` do not change.

  Examples:
    >>> join_booleans(['--b', 'False', '--subset', 'True'], {'b'})
    ['--b=false', '--subset', 'True']
  """
  joined: list[str] = []
  rest = list(words)
  while rest and rest[0] != '--':
    word = rest.pop(0)
    joined.append(word)
    name = word.lstrip('-')
    if not word.startswith('-') or not rest:
      continue
    if name in booleans:
      value = rest[0].lower()
      if value in (*_TRUE, *_FALSE):
        joined[-1] = f'{word}={"true" if value in _TRUE else "false"}'
        rest.pop(0)
    elif '=' not in word and name.removeprefix('no') not in booleans:
      # This flag takes a value: the next argument is never a flag.
      joined.append(rest.pop(0))
  return [*joined, *rest]


def to_words(values: Any) -> list[str]:
  """Returns the arguments that give options their values, without defaults.

  Examples:
    >>> import dataclasses
    >>> @dataclasses.dataclass(frozen=True)
    ... class Flags:
    ...   codec: tuple[str, ...] = options.option((), 'Codecs.', 'codes')
    ...   steps: int = options.option(40, 'Steps.', 'run')
    >>> to_words(Flags(codec=('topk', 'a,b')))
    ['--codec=topk,"a,b"']
  """
  words: list[str] = []
  for field in options.fields(values):
    value = getattr(values, field.name)
    if value == field.default:
      continue
    if field.repeated:
      words += [f'--{field.name}={item}' for item in value]
    elif isinstance(value, tuple):
      words.append(f'--{field.name}={",".join(map(_quote, value))}')
    else:
      words.append(f'--{field.name}={value}')
  return words


def _quote(item: str) -> str:
  """Quotes an item of a list if the parser would change it."""
  if item == item.strip() and not set(item) & {',', '"'}:
    return item
  doubled = item.replace('"', '""')
  return f'"{doubled}"'


def help_text(
  config_class: type, defaults: Mapping[str, Any], usage: str
) -> str:
  """Returns the text of --help: all flags by group, with their defaults.

  Args:
    config_class: dataclass of options, as for `define`.
    defaults: this command's defaults, as for `define`.
    usage: the first lines, which say what the command is for.
  """
  lines = [usage.rstrip(), '']
  fields = options.fields(config_class)
  for name, title in options.GROUPS.items():
    members = [f for f in fields if f.group == name]
    if members:
      shown = (_help_line(f, defaults) for f in members)
      lines += [f'{title}:', *shown, '']
  lines += [
    'Also --help, --flagfile=FILE, a file with one flag per line, and '
    '--verbosity=1,',
    "which shows TensorFlow's start-up messages, such as why it uses no GPU.",
  ]
  return '\n'.join(lines)


def _help_line(field: options.Option, defaults: Mapping[str, Any]) -> str:
  default = defaults.get(field.name, field.default)
  kind = type(field.default).__name__
  if isinstance(default, tuple):
    kind = 'repeated' if field.repeated else 'list'
    shown = (' ' if field.repeated else ',').join(default)
  else:
    shown = f"'{default}'" if isinstance(default, str) else default
  note = (
    f'; general default {field.default!r}' if default != field.default else ''
  )
  described = field.help
  if _CODECS in described:
    # Reads the metadata of all installed packages.
    described = described.replace(_CODECS, registry.describe_names())
  text = textwrap.fill(
    described,
    _COLUMNS,
    initial_indent=_INDENT,
    subsequent_indent=_INDENT,
    break_long_words=False,
    break_on_hyphens=False,
  )
  short = f', -{field.short}' if field.short else ''
  return f'  --{field.name}{short} ({kind}, {shown}{note})\n{text}'


def _read_flagfiles(
  values: flags.FlagValues, arguments: Sequence[str]
) -> list[str]:
  try:
    return values.read_flags_from_files(list(arguments), force_gnu=False)
  except (flags.Error, OSError, RecursionError, UnicodeDecodeError) as error:
    raise UsageError(
      f'flagfile: expected a file in UTF-8 with one flag per line, received: '
      f'{error}. Check the path.'
    ) from error


def _unknown_message(name: str, values: flags.FlagValues) -> str:
  # 'nofoo' may be the negation of a boolean flag.
  hint = _hint(values, name, name.removeprefix('no'))
  return (
    f'--{name}: expected a flag of this program, received an unknown name. '
    f'{hint}'
  )


def _stray_message(word: str, values: flags.FlagValues) -> str:
  hint = _hint(values, word.strip('-'))
  return f'Expected flags only, received the word {word!r}. {hint}'


def _hint(values: flags.FlagValues, *words: str) -> str:
  """Suggests a flag with a name similar to one of the words."""
  matches = (slim_errors.nearest(word, values) for word in words)
  similar = next(filter(None, matches), '')
  return f'Did you mean --{similar}?' if similar else 'See --help.'
