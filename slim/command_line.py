"""What slim's programs share: flags, exit codes, and one line an error.

Exit codes: 0 done; 1 the data cannot be used; 2 a bad command line, nothing was
written; 130 stopped by ctrl-c.
"""

import dataclasses
import os
import pathlib
import sys
from collections import abc
from typing import Any

# What TensorFlow logs about devices is of no use to programs that use none. It
# reads this when it is imported. (TensorFlow 2.21 logs some of it even so.)
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import tensorflow as tf
from absl import logging

from slim import errors
from slim.datasets.records import shard_manifest
from slim.datasets.records import sharding
from terngrad.program import flags

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130

_HELP = ('--help', '-help', '-h', '--helpfull')


def option(default: Any, text: str, group: str = 'data') -> Any:
  """A field of a configuration, which becomes a flag.

  Args:
    default: a bool, int, float or str, which gives the flag its type.
    text: what --help says of it.
    group: of the flag, see `terngrad.program.flags`.
  """
  return dataclasses.field(
    default=default, metadata={'help': text, 'group': group}
  )


@dataclasses.dataclass(frozen=True)
class Writing:
  """The flags of every program that writes shards."""

  num_threads: int = option(
    0, 'Threads that check and encode; 0: one a core.', 'shards'
  )
  skip_corrupt: bool = option(
    False, 'Leave unreadable images out instead of failing.', 'shards'
  )
  overwrite: bool = option(
    False, 'Replace the shards of another conversion.', 'shards'
  )
  verify: bool = option(
    False, 'Write nothing: read every record and check it.', 'shards'
  )

  @property
  def options(self) -> sharding.Options:
    """How to write."""
    return sharding.Options(self.num_threads, self.skip_corrupt, self.overwrite)


@dataclasses.dataclass(frozen=True)
class TwoSplits(Writing):
  """The flags of a program that writes two splits."""

  train_shards: int = option(2, 'Files of the training split.', 'shards')
  validation_shards: int = option(2, 'Files of the validation split.', 'shards')

  @property
  def names(self) -> dict[str, tuple[str, ...]]:
    """File names by split."""
    return {
      'train': sharding.file_names('train', self.train_shards),
      'validation': sharding.file_names('validation', self.validation_shards),
    }


def run(
  usage: str,
  config_class: type,
  act: abc.Callable[[Any], None],
  first: str = '',
) -> int:
  """Reads the command line and does what it asks for.

  Args:
    usage: the program's name, a colon and what it is for; more lines may
      follow.
    config_class: dataclass of `option`s.
    act: gets such a configuration. Raises `flags.UsageError` for flags that
      contradict each other.
    first: the flag that a first word without its name is the value of.

  Returns:
    The exit code.
  """
  name = usage.partition(':')[0]
  arguments = sys.argv[1:]
  if any(word in _HELP for word in arguments):
    say(flags.help_text(config_class, {}, usage))
    return DONE
  if first and arguments and not arguments[0].startswith('-'):
    arguments[0] = f'--{first}={arguments[0]}'

  def parse_and_act():
    config = flags.parse(config_class, {}, arguments)
    # Images are encoded on the CPU; a training on the GPU may need its memory.
    tf.config.set_visible_devices([], 'GPU')
    act(config)

  return _exit_code(name, parse_and_act)


def run_words(
  usage: str, act: abc.Callable[..., None], fewest: int, most: int
) -> int:
  """As `run`, for a program whose arguments are words without names.

  Args:
    usage: as for `run`.
    act: gets the words.
    fewest: number of words.
    most: number of words.

  Returns:
    The exit code.
  """
  words = sys.argv[1:]
  if any(word in _HELP for word in words):
    say(usage.rstrip())
    return DONE

  def check_and_act():
    flag = next((word for word in words if word.startswith('-')), None)
    if flag or not fewest <= len(words) <= most:
      raise flags.UsageError(
        f'Expected {fewest} to {most} words; received '
        f'{f"the flag {flag}" if flag else len(words)}. See --help.'
      )
    act(*words)

  return _exit_code(usage.partition(':')[0], check_and_act)


def _exit_code(name: str, act: abc.Callable[[], None]) -> int:
  logging.use_absl_handler()
  logging.set_verbosity(logging.INFO)
  try:
    act()
  except (flags.UsageError, errors.UnknownNameError) as error:
    return complain(name, error, REFUSED)
  except errors.DataError as error:
    return complain(name, error, FAILED)
  except KeyboardInterrupt:
    return complain(name, 'stopped; the same command continues.', INTERRUPTED)
  return DONE


def require(config: Any, *names: str) -> None:
  """Refuses flags without a value.

  Raises:
    terngrad.program.flags.UsageError: one of them is ''; names it.
  """
  for name in names:
    if not getattr(config, name):
      raise flags.UsageError(
        f'--{name}: expected a value; received none. See --help.'
      )


def say(line: str) -> None:
  """Prints a line at once, so that a log can be followed."""
  sys.stdout.write(f'{line}\n')
  sys.stdout.flush()


def complain(name: str, error: Any, code: int) -> int:
  """Prints an error with the program's name; returns the exit code."""
  sys.stderr.write(f'{name}: {error}\n')
  return code


def report(folder: str, done: sharding.Report) -> None:
  """Says what a conversion did.

  Args:
    folder: that it wrote into.
    done: its report.
  """
  counts = ', '.join(f'{n} {split}' for split, n in done.counts.items())
  if done.skipped:
    listed = '\n  '.join(done.skipped)
    say(f'Left out {len(done.skipped)} unreadable images:\n  {listed}')
  if done.written:
    say(f'Wrote {folder}: {counts}; source: {done.source}.')
  else:
    say(
      f'Kept the complete files in {folder}: {counts}. Give --overwrite to '
      'write them again.'
    )


def verify(folder: str) -> None:
  """Reads every record of a folder and says that all is well.

  Args:
    folder: with shards.json.

  Raises:
    slim.errors.DataError: it is not.
  """
  found = shard_manifest.verify(folder)
  counts = ', '.join(f'{n} {split}' for split, n in found.counts.items())
  say(f'Verified {folder}: {counts}, in {len(found.names)} shards.')


def build(config: Any, plan: sharding.Plan) -> None:
  """Writes what is planned, and says so as the builders of 2017 did.

  Args:
    config: a `Writing` with output_directory.
    plan: what to write.

  Raises:
    slim.errors.DataError: as `slim.datasets.records.sharding.write`.
  """
  folder = config.output_directory
  done = sharding.write(pathlib.Path(folder), plan, config.options)
  report(folder, done)
  total = sum(done.counts.values())
  say(f'Finished writing all {total} images in data set.')
