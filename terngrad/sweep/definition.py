"""What a sweep is: variants, seeds and flags, from a small file.

An .ini file states differences only. `[sweep]` says which data set's programs
run (`program`), the seeds, the variant that others are compared with
(`baseline`), and the flags of `terngrad launch` where a run is of several
processes (`launch`). `[flags]` holds the trainer's flags in all runs and
`[eval]` the evaluator's, a flag a line; `[eval NAME]` has every run scored once
more, with its flags after those of `[eval]`, for a column `accuracy_NAME` of
the table. Every other section is an axis, whose lines `NAME = FLAGS` are the
values on it; the variants of several axes are all their combinations, such as
`ternary_8`. `[seeds]` gives the variants that a pattern matches seeds of their
own, or none, and `[baselines]` gives them baselines of their own, or none; the
last pattern that matches decides:

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

A file's own --flagfile is looked for beside it.
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
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

from terngrad import errors

FILE_NAME = 'sweep.ini'
_EVAL = 'eval'
_OWN = ('sweep', 'flags', _EVAL, 'seeds', 'baselines')
_KEYS = {'program', 'seeds', 'baseline', 'launch'}

# A line of a section, and the section: keys and what they say, if anything.
_Section = Mapping[str, str | None]
_Value = TypeVar('_Value')


class Cell(NamedTuple):
  """A run.

  Attributes:
    variant: the names of its values, joined.
    seed: of the run.
    flags: words, the trainer's: those of all runs, then its own.
    launch: words, those of `terngrad launch`; (): it is not launched.
  """

  variant: str
  seed: int
  flags: tuple[str, ...]
  launch: tuple[str, ...] = ()

  @property
  def name(self) -> str:
    """Of its folder."""
    return f'{self.variant}_seed{self.seed}'


class Definition(NamedTuple):
  """A sweep.

  Attributes:
    folder: of its file, where flag files are looked for.
    program: data set of the trainer and the evaluator, as `train` names it.
    baselines: variants to those that they are compared with.
    scoring: words, the evaluator's flags, of each score; '' is the score that
      variants are compared by, other names are columns beside it.
    cells: variant after variant for every seed, so that comparisons of a seed
      come early.
  """

  folder: pathlib.Path
  program: str
  baselines: dict[str, str]
  scoring: dict[str, tuple[str, ...]]
  cells: list[Cell]

  def words(self, flags: Iterable[str]) -> list[str]:
    """Flags as a process anywhere reads them: with the paths of flag files."""
    return [self._in_place(word) for word in flags]

  def _in_place(self, word: str) -> str:
    name, equals, path = word.partition('=')
    if name.lstrip('-') != 'flagfile' or not equals:
      return word
    return f'{name}={self.folder / path}'


def read(
  path: str | os.PathLike[str],
  seeds: Sequence[int] = (),
  only: Sequence[str] = (),
  more: Sequence[str] = (),
) -> Definition:
  """Reads the definition of a sweep.

  Args:
    path: of the file, or of a folder that holds it as `FILE_NAME`.
    seeds: in place of the file's; variants that have none there stay so.
    only: patterns of variants; the others are left out. Empty: all.
    more: words, further flags of every training run.

  Raises:
    errors.ConfigError: the file cannot be read or says what cannot be.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    path /= FILE_NAME
  sections = _sections(path)
  says = _says(path, sections)
  everything = _words(path, sections.get('flags', {}))
  variants = _variants(path, sections)
  baselines = _baselines(path, sections, says.get('baseline'), variants)
  own_seeds = _by_pattern(
    path,
    sections,
    'seeds',
    says.get('seeds') or '1',
    variants,
    functools.partial(_numbers, path),
  )
  chosen = {
    variant: (tuple(seeds) if seeds and found else found)
    for variant, found in own_seeds.items()
    if not only or any(fnmatch.fnmatchcase(variant, text) for text in only)
  }
  launch = _split(path, 'launch', says.get('launch'))
  cells = [
    Cell(variant, seed, (*everything, *variants[variant], *more), launch)
    for seed in dict.fromkeys(itertools.chain(*chosen.values()))
    for variant, found in chosen.items()
    if seed in found
  ]
  if not cells:
    raise errors.ConfigError(
      f'{path}: expected runs, received none of {", ".join(variants)} with '
      f'seeds that fit {", ".join(only) or "all"}. Give seeds, or another '
      '--only.'
    )
  return Definition(
    path.parent,
    says.get('program') or 'mnist',
    baselines,
    _scoring(path, sections),
    cells,
  )


def _sections(path: pathlib.Path) -> dict[str, _Section]:
  """{section: {key: text or None}} of a file."""
  parser = configparser.ConfigParser(
    allow_no_value=True,
    delimiters=('=',),
    comment_prefixes=('#',),
    interpolation=None,
    default_section='',
  )
  parser.optionxform = str  # type: ignore[method-assign, assignment]  # As Python's manual has it.
  try:
    parser.read_string(path.read_text(encoding='utf-8-sig'), os.fspath(path))
  except (AttributeError, OSError, ValueError, configparser.Error) as error:
    said = ' '.join(str(error).split())
    if isinstance(error, AttributeError):  # configparser foresees none
      said = 'an indented line after one that has no ='
    raise errors.ConfigError(
      f'{path}: expected the definition of a sweep, received "{said}". '
      'experiments/lenet_codecs/sweep.ini is one.'
    ) from error
  return {name: dict(parser[name]) for name in parser.sections()}


def _says(path: pathlib.Path, sections: Mapping[str, _Section]) -> _Section:
  """What is of the sweep itself."""
  says = sections.get('sweep', {})
  if unknown := sorted({*says} - _KEYS):
    raise errors.ConfigError(
      f'{path}: expected {", ".join(sorted(_KEYS))} in [sweep], received '
      f'{", ".join(unknown)}. What all runs are told stands in [flags].'
    )
  return says


def _words(path: pathlib.Path, section: _Section) -> list[str]:
  """A section's flags, `--name = value` a line."""
  for name in section:
    if not name.startswith('--'):
      raise errors.ConfigError(
        f'{path}: expected flags as `--name = value`, received {name!r}.'
      )
  return [
    name if value is None else f'{name}={value}'
    for name, value in section.items()
  ]


def _scoring(
  path: pathlib.Path, sections: Mapping[str, _Section]
) -> dict[str, tuple[str, ...]]:
  """{name: the evaluator's words}; '' is that of `[eval]`."""
  always = tuple(_words(path, sections.get(_EVAL, {})))
  found = {'': always}
  for section, flags in sections.items():
    if not section.startswith(f'{_EVAL} '):
      continue
    name = section.removeprefix(_EVAL).strip()
    if not name.isidentifier() or name in found:
      raise errors.ConfigError(
        f'{path}: expected [{_EVAL} NAME] with a name of letters, digits and '
        f'_, once, received [{section}].'
      )
    found[name] = (*always, *_words(path, flags))
  return found


def _variants(
  path: pathlib.Path, sections: Mapping[str, _Section]
) -> dict[str, list[str]]:
  """{variant: its words}, all combinations of the axes' values."""
  axes = [
    values
    for name, values in sections.items()
    if name not in _OWN and not name.startswith(f'{_EVAL} ')
  ]
  if not axes:
    raise errors.ConfigError(
      f'{path}: expected a section with a variant a line, `NAME = FLAGS`, '
      f'received {", ".join(sections) or "no section"}.'
    )
  found: dict[str, list[str]] = {}
  for values in itertools.product(*(axis.items() for axis in axes)):
    name = '_'.join(key for key, _ in values)
    if '/' in name or not name.isprintable() or name.startswith('.'):
      raise errors.ConfigError(
        f'{path}: expected names of variants that can be folders, received '
        f'{name!r}.'
      )
    if name in found:
      raise errors.ConfigError(
        f'{path}: expected a name a variant, received {name} twice. Rename a '
        'value on an axis.'
      )
    found[name] = [w for _, text in values for w in _split(path, name, text)]
  return found


def _split(path: pathlib.Path, name: str, text: str | None) -> tuple[str, ...]:
  """Flags in a line, as a shell reads them, as words."""
  try:
    return tuple(shlex.split(text or ''))
  except ValueError as error:
    raise errors.ConfigError(
      f'{path}: expected flags for {name}, received "{error}".'
    ) from error


def _baselines(
  path: pathlib.Path,
  sections: Mapping[str, _Section],
  usual: str | None,
  variants: Collection[str],
) -> dict[str, str]:
  """{variant: what it is compared with}, of those that are."""

  def read_text(text: str) -> str:
    if text and text not in variants:
      raise errors.ConfigError(
        f'{path}: expected a variant as baseline, received {text!r}. There '
        f'are {", ".join(variants)}.'
      )
    return text

  found = _by_pattern(
    path, sections, 'baselines', usual or '', variants, read_text
  )
  return {variant: baseline for variant, baseline in found.items() if baseline}


def _by_pattern(
  path: pathlib.Path,
  sections: Mapping[str, _Section],
  name: str,
  usual: str,
  variants: Collection[str],
  read_text: Callable[[str], _Value],
) -> dict[str, _Value]:
  """{variant: what its text says}, the last pattern's, or else `usual`."""
  found = dict.fromkeys(variants, read_text(usual))
  for pattern, text in sections.get(name, {}).items():
    matched = fnmatch.filter(variants, pattern)
    if not matched:
      raise errors.ConfigError(
        f'{path}: expected variants for the {name} of {pattern!r}, received '
        f'none. There are {", ".join(variants)}.'
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
