"""Definition of a sweep: variants, seeds and flags, read from an .ini file.

The file states differences from the defaults only.

- `[sweep]` names the data set whose programs run (`program`), the seeds
  (`seeds`; 1 without this line, none if it is empty), the variant that others
  are compared with (`baseline`) and, if runs have several processes, the flags
  of `terngrad launch` (`launch`). `rates = searched` says that learning rates
  were searched for each variant, so that variants with different ones are
  ranked together.
- `[flags]` holds the trainer's flags for all runs, one per line.
- `[eval]` holds the evaluator's flags, one per line. `[eval NAME]` scores every
  run once more, with its flags after those of `[eval]`, and adds a column
  `accuracy_NAME` to the table.
- `[seeds]` sets the seeds, or none, of the variants that match a pattern.
- `[baselines]` sets their baselines in the same way. In both sections the last
  matching pattern applies.
- Every other section is an axis. Its lines `NAME = FLAGS` are the values on the
  axis. The variants are all combinations of the axes' values, such as
  `ternary_8`.

For example:

    [sweep]
    program = mnist
    seeds = 1 2 3
    baseline = float32_2

    [flags]
    --max_steps = 2000

    [codec]
    float32 = --codec=identity
    ternary = --codec=ternary --quantize_logits

    [workers]
    2 = --num_nodes=2
    64 = --num_nodes=64

    [seeds]
    float32_64 =
    ternary_64 = 1

    [baselines]
    *_64 = float32_64

A --flagfile is replaced by the flags in that file, so that the rows of runs
have them. Its path is relative to the definition's directory.
"""

import configparser
import fnmatch
import functools
import itertools
import os
import pathlib
import shlex
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

from terngrad import errors

FILE_NAME = 'sweep.ini'
_EVAL = 'eval'
# A folder's name has at most 255 bytes, of which `_seed` and a seed take some.
_LONGEST_NAME = 230
_RESERVED = ('sweep', 'flags', _EVAL, 'seeds', 'baselines')
_KEYS = {'program', 'seeds', 'baseline', 'launch', 'rates'}
_SEARCHED = 'searched'
# The programs' flags accept one dash too.
_FLAG_FILES = '--flagfile', '-flagfile'

# The lines of a section: keys and their values, if any.
_Section = Mapping[str, str | None]
_Value = TypeVar('_Value')


class Cell(NamedTuple):
  """One run of a sweep.

  Attributes:
    variant: the names of the axes' values, joined by '_'.
    seed: seed of the run.
    flags: the trainer's arguments: those of all runs, then the variant's.
    launch: arguments of `terngrad launch`; () if the run is not launched.
  """

  variant: str
  seed: int
  flags: tuple[str, ...]
  launch: tuple[str, ...] = ()

  @property
  def name(self) -> str:
    """Name of the run's directory."""
    return f'{self.variant}_seed{self.seed}'


class Definition(NamedTuple):
  """A sweep.

  Attributes:
    folder: directory of the definition.
    program: data set of the trainer and the evaluator, as for `train`.
    baselines: maps variants to the variants they are compared with.
    scoring: the evaluator's arguments for each score. '' is the score by which
      variants are compared; other scores are additional columns.
    cells: all runs, ordered by seed and then by variant, so that the variants
      of one seed can be compared early.
    has_searched_rates: whether learning rates were searched for each variant.
  """

  folder: pathlib.Path
  program: str
  baselines: dict[str, str]
  scoring: dict[str, tuple[str, ...]]
  cells: list[Cell]
  has_searched_rates: bool = False

  @property
  def evaluation(self) -> str:
    """The data set and the evaluator's arguments for each score, as text."""
    scores = (
      f'{name} {shlex.join(words)}'.strip()
      for name, words in self.scoring.items()
    )
    return f'{self.program}: {"; ".join(scores)}'.strip()


def read(
  path: str | os.PathLike[str],
  seeds: Sequence[int] = (),
  only: Sequence[str] = (),
  extra_flags: Sequence[str] = (),
) -> Definition:
  """Reads the definition of a sweep.

  Args:
    path: path of the file, or of a directory that holds it as `FILE_NAME`.
    seeds: replace the file's seeds, except for variants that have no seeds.
    only: patterns of the variants to keep. Empty: all.
    extra_flags: additional arguments of every training run.

  Raises:
    errors.ConfigError: the file cannot be read or is invalid.
  """
  if (path := pathlib.Path(path)).is_dir():
    path /= FILE_NAME
  sections = _sections(path)
  settings = _settings(path, sections)
  common = _arguments(path, sections.get('flags', {}))
  extra_flags = _read_files(path, extra_flags)
  variants = _variants(path, sections)
  baselines = _baselines(path, sections, settings.get('baseline'), variants)
  seeds_by_variant = _by_pattern(
    path,
    sections,
    'seeds',
    settings.get('seeds', '1') or '',
    variants,
    functools.partial(_numbers, path),
  )
  chosen = {
    variant: (tuple(seeds) if seeds and found else found)
    for variant, found in seeds_by_variant.items()
    if not only or any(fnmatch.fnmatchcase(variant, text) for text in only)
  }
  launch = _split(path, 'launch', settings.get('launch'))
  cells = [
    Cell(variant, seed, (*common, *variants[variant], *extra_flags), launch)
    for seed in dict.fromkeys(itertools.chain(*chosen.values()))
    for variant, found in chosen.items()
    if seed in found
  ]
  if not cells:
    raise errors.ConfigError(
      f'{path}: expected at least one run, received no variant with seeds '
      f'that matches --only={" or ".join(only) or "*"}. Change --only, or add '
      f'seeds to one of {", ".join(variants)}.'
    )
  return Definition(
    path.parent,
    settings.get('program') or 'mnist',
    baselines,
    _scoring(path, sections),
    cells,
    settings.get('rates') == _SEARCHED,
  )


def _sections(path: pathlib.Path) -> dict[str, _Section]:
  """Returns {section: {key: text or None}} of a file."""
  parser = configparser.ConfigParser(
    allow_no_value=True,
    delimiters=('=',),
    comment_prefixes=('#',),
    interpolation=None,
    default_section='',
  )
  parser.optionxform = str  # type: ignore[method-assign, assignment]  # As Python's manual does.
  try:
    parser.read_string(path.read_text(encoding='utf-8-sig'), os.fspath(path))
  except (AttributeError, OSError, ValueError, configparser.Error) as error:
    reason = ' '.join(str(error).split())
    if isinstance(error, AttributeError):  # a bug of configparser
      reason = 'an indented line after a line without "="'
    raise errors.ConfigError(
      f'{path}: expected the definition of a sweep, received "{reason}". See '
      'experiments/lenet_codecs/sweep.ini for an example.'
    ) from error
  return {name: dict(parser[name]) for name in parser.sections()}


def _settings(path: pathlib.Path, sections: Mapping[str, _Section]) -> _Section:
  """Returns the section `[sweep]`, or raises for unknown keys and values."""
  settings = sections.get('sweep', {})
  if unknown := sorted({*settings} - _KEYS):
    raise errors.ConfigError(
      f'{path}: expected {", ".join(sorted(_KEYS))} in [sweep], received '
      f'{", ".join(unknown)}. Write flags for all runs in [flags].'
    )
  if (rates := settings.get('rates', _SEARCHED)) != _SEARCHED:
    raise errors.ConfigError(
      f'{path}: expected rates = {_SEARCHED} in [sweep] or no such line, '
      f'received rates = {rates}. Write learning rates in the sections of '
      'flags.'
    )
  return settings


def _arguments(path: pathlib.Path, section: _Section) -> tuple[str, ...]:
  """Returns a section's flags, one `--name = value` per line, as arguments."""
  for name in section:
    if not name.startswith('--'):
      raise errors.ConfigError(
        f'{path}: expected one flag per line, as `--name = value`, received '
        f'{name!r}.'
      )
  words = [
    name if value is None else f'{name}={value}'
    for name, value in section.items()
  ]
  return _read_files(path, words)


def _scoring(
  path: pathlib.Path, sections: Mapping[str, _Section]
) -> dict[str, tuple[str, ...]]:
  """Returns {score: the evaluator's arguments}; '' is the score of `[eval]`."""
  common_flags = _arguments(path, sections.get(_EVAL, {}))
  found = {'': common_flags}
  for section, flags in sections.items():
    if not section.startswith(f'{_EVAL} '):
      continue
    name = section.removeprefix(_EVAL).strip()
    if not name.isidentifier() or name in found:
      raise errors.ConfigError(
        f'{path}: expected sections [{_EVAL} NAME] with different names of '
        f'letters, digits and _, received [{section}]. Rename it.'
      )
    found[name] = (*common_flags, *_arguments(path, flags))
  return found


def _variants(
  path: pathlib.Path, sections: Mapping[str, _Section]
) -> dict[str, tuple[str, ...]]:
  """Returns {variant: its arguments} for all combinations of axis values."""
  axes = [
    values
    for name, values in sections.items()
    if name not in _RESERVED and not name.startswith(f'{_EVAL} ')
  ]
  if not axes:
    raise errors.ConfigError(
      f'{path}: expected a section with one variant per line, as `NAME = '
      f'FLAGS`, received {", ".join(sections) or "no section"}. Add one.'
    )
  found: dict[str, tuple[str, ...]] = {}
  for values in itertools.product(*(axis.items() for axis in axes)):
    name = '_'.join(key for key, _ in values)
    if '/' in name or not name.isprintable() or name.startswith('.'):
      raise errors.ConfigError(
        f'{path}: expected variant names that are valid folder names, received '
        f'{name!r}. Remove "/", a "." at the start, and unprintable characters.'
      )
    if len(name.encode()) > _LONGEST_NAME:
      raise errors.ConfigError(
        f'{path}: expected variant names of at most {_LONGEST_NAME} bytes, '
        f'which are names of folders, received {name!r}. Shorten the names on '
        'an axis.'
      )
    if name in found:
      raise errors.ConfigError(
        f'{path}: expected a different name for each variant, received {name} '
        'twice. Rename a value on an axis.'
      )
    words = [w for _, text in values for w in _split(path, name, text)]
    found[name] = _read_files(path, words)
  return found


def _read_files(
  path: pathlib.Path, words: Sequence[str], around: Sequence[pathlib.Path] = ()
) -> tuple[str, ...]:
  """Replaces each --flagfile by the flags in the file, one per line.

  Args:
    path: of the definition.
    words: arguments.
    around: the flag files that contain them.
  """
  found: list[str] = []
  rest = iter(words)
  for word in rest:
    name, equals, text = word.partition('=')
    if name not in _FLAG_FILES:
      found.append(word)
      continue
    file = path.parent / os.path.expanduser(text if equals else next(rest, ''))
    try:
      if file in around:
        raise ValueError('it contains itself')
      lines = [one.strip() for one in file.read_text('utf-8').splitlines()]
    except (OSError, RecursionError, ValueError) as error:
      raise errors.ConfigError(
        f'{path}: expected as {name} a file in UTF-8 with one flag per line, '
        f'received {file} ({error}). Check the path, which is relative to '
        f'{path.parent}.'
      ) from error
    flags = [one for one in lines if one and not one.startswith(('#', '//'))]
    found += _read_files(path, flags, (*around, file))
  return tuple(found)


def _split(path: pathlib.Path, name: str, text: str | None) -> tuple[str, ...]:
  """Splits a line of flags into arguments, with shell quoting."""
  try:
    return tuple(shlex.split(text or ''))
  except ValueError as error:
    raise errors.ConfigError(
      f'{path}: expected flags for {name}, quoted as in a shell, received '
      f'"{error}". Check the quotation marks.'
    ) from error


def _baselines(
  path: pathlib.Path,
  sections: Mapping[str, _Section],
  default: str | None,
  variants: Collection[str],
) -> dict[str, str]:
  """Returns {variant: its baseline} for the variants that have one."""

  def read_text(text: str) -> str:
    if text and text not in variants:
      raise errors.ConfigError(
        f'{path}: expected a variant as baseline, received {text!r}. Choose '
        f'one of {", ".join(variants)}.'
      )
    return text

  found = _by_pattern(
    path, sections, 'baselines', default or '', variants, read_text
  )
  return {variant: baseline for variant, baseline in found.items() if baseline}


def _by_pattern(
  path: pathlib.Path,
  sections: Mapping[str, _Section],
  name: str,
  default: str,
  variants: Collection[str],
  read_text: Callable[[str], _Value],
) -> dict[str, _Value]:
  """Returns {variant: value} from the last matching pattern, or the default."""
  found = dict.fromkeys(variants, read_text(default))
  for pattern, text in sections.get(name, {}).items():
    matched = fnmatch.filter(variants, pattern)
    if not matched:
      raise errors.ConfigError(
        f'{path}: expected patterns in [{name}] that match a variant, received '
        f'{pattern!r}, which matches none of {", ".join(variants)}.'
      )
    found |= dict.fromkeys(matched, read_text(text or ''))
  return found


def _numbers(path: pathlib.Path, text: str) -> tuple[int, ...]:
  try:
    return tuple(int(word) for word in text.replace(',', ' ').split())
  except ValueError as error:
    raise errors.ConfigError(
      f'{path}: expected seeds as integers, received {text!r}.'
    ) from error
