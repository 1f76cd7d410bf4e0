"""Shared parts of the commands that write data sets.

Their exit codes: 0 done; 1 the data cannot be used; 2 an invalid command line,
nothing was written; 130 stopped by Ctrl-C.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

if TYPE_CHECKING:
  from slim.datasets.records import sharding as sharding_types

shard_manifest = lazy.module('slim.datasets.records.shard_manifest')
sharding = lazy.module('slim.datasets.records.sharding')
tf = lazy.module('tensorflow')

option = options.option


@dataclasses.dataclass(frozen=True)
class Writing:
  """The flags of every command that writes shards."""

  num_threads: int = option(
    0, 'Threads that check and encode; 0: one per core.', 'shards'
  )
  skip_corrupt: bool = option(
    False, 'Skip unreadable images instead of failing.', 'shards'
  )
  overwrite: bool = option(
    False, 'Replace another conversion, and files with the new names.', 'shards'
  )
  verify: bool = option(
    False, 'Write nothing: read every record and check it.', 'shards'
  )

  @property
  def options(self) -> 'sharding_types.ConversionOptions':
    """The options of writing shards."""
    return sharding.ConversionOptions(
      self.num_threads, self.skip_corrupt, self.overwrite
    )


@dataclasses.dataclass(frozen=True)
class TwoSplits(Writing):
  """The flags of a command that writes two splits."""

  train_shards: int = option(2, 'Files of the training split.', 'shards')
  validation_shards: int = option(2, 'Files of the validation split.', 'shards')

  @property
  def names(self) -> dict[str, tuple[str, ...]]:
    """File names by split."""
    return {
      'train': sharding.file_names('train', self.train_shards),
      'validation': sharding.file_names('validation', self.validation_shards),
    }


def converter(
  usage: str,
  options_class: type,
  act: Callable[[Any], None],
  words: tuple[str, ...] = (),
  required: tuple[str, ...] = (),
  folder: str = '',
  given: str = '',
) -> command.Command:
  """Declares a conversion command, which runs on the CPU.

  Args:
    usage: as in `command.Command`.
    options_class: `options` of `command.Command`.
    act: as in `command.Command`.
    words: as in `command.Command`.
    required: as in `command.Command`.
    folder: option of a `Writing` that names the directory of the shards. It is
      required, and with --verify its shards are verified instead.
    given: as in `command.Command`.
  """

  def on_the_cpu(values: Any) -> None:
    # Images are encoded on the CPU; leave the GPU's memory to training.
    tf.config.set_visible_devices([], 'GPU')
    if folder and values.verify:
      verify(getattr(values, folder))
    else:
      act(values)

  return command.Command(
    usage,
    options_class,
    on_the_cpu,
    words=words,
    required=(folder, *required) if folder else required,
    given=given,
    is_converter=True,
  )


def report(folder: str, done: 'sharding_types.Report') -> None:
  """Logs the result of a conversion.

  Args:
    folder: the output directory.
    done: the conversion's report.
  """
  counts = ', '.join(f'{n} {split}' for split, n in done.counts.items())
  report_skipped(done.skipped)
  if done.written:
    command.say(f'Wrote {folder}: {counts}; source: {done.source}.')
  else:
    command.say(
      f'Kept the complete files in {folder}: {counts}. Give --overwrite to '
      'write them again.'
    )


def report_skipped(skipped: Sequence[str]) -> None:
  """Logs the unreadable files that were skipped, if any."""
  if skipped:
    listed = '\n  '.join(skipped)
    command.say(f'Left out {len(skipped)} unreadable images:\n  {listed}')


def verify(folder: str) -> None:
  """Reads every record in a directory and logs that all are intact.

  Args:
    folder: directory with shards.json.

  Raises:
    slim.errors.DataError: a record is damaged or missing.
  """
  found = shard_manifest.verify(folder)
  counts = ', '.join(f'{n} {split}' for split, n in found.counts.items())
  command.say(f'Verified {folder}: {counts}, in {len(found.names)} shards.')


def build(config: Any, plan: 'sharding_types.ConversionPlan') -> None:
  """Writes the planned shards, and logs it as the builders of 2017 did.

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
  command.say(f'Finished writing all {total} images in data set.')
