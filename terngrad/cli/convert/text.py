"""Writes text as shards of tokens."""

import dataclasses
import pathlib

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli.convert import writing
from terngrad.config import options

convert_text = lazy.module('slim.datasets.text.convert_text')
documents = lazy.module('slim.datasets.text.documents')
sharding = lazy.module('slim.datasets.records.sharding')

USAGE = """\
{program}: writes text as shards of tokens, for language models.

  {program} --output_directory=D
  {program} --source=notes.txt,docs --suffixes=.md,.txt --output_directory=D

Without --source it takes the sources of this Python's standard library, a text
that every machine has. The text is cut into 90 % for training, 5 % for
validation and 5 % for the test. Of folders it leaves out binary files, hidden
files and links to folders. The command prints the digest of the text; pass it
to the trainer as --corpus, which then refuses any other text.
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertTextFlags(writing.Writing):
  """The flags of `terngrad convert text`."""

  source: tuple[str, ...] = option(
    (),
    'Files and folders, separated by commas; empty: the standard library of '
    'this Python.',
  )
  output_directory: str = option('', 'Folder to write into.')
  suffixes: tuple[str, ...] = option(
    (), 'Ends of the names of files to read in folders; empty: all files.'
  )
  tokenizer: str = option(
    'bytes',
    'bytes, which takes every file as it is; or bpe, byte pairs of UTF-8 that '
    'are chosen on the training text (the extra text).',
  )
  vocabulary_size: int = option(4096, 'Largest number of tokens of bpe.')
  sequence_length: int = option(256, 'Tokens of a training sequence.')
  train_shards: int = option(2, 'Files of the training split.', 'shards')
  given: frozenset[str] = frozenset()  # the flags of the command line


def act(values: ConvertTextFlags) -> None:
  """Converts the text.

  Raises:
    slim.errors.DataError: the text cannot be used.
    terngrad.cli.flags.UsageError: a flag would have no effect.
  """
  command.require_beside(
    values,
    'vocabulary_size',
    '--tokenizer=bpe',
    values.tokenizer != 'bytes',
    'bytes, which has a fixed size',
  )
  command.require_beside(values, 'suffixes', '--source', bool(values.source))
  if values.source:
    corpus = documents.read(
      values.source, values.suffixes, values.output_directory
    )
  else:
    corpus = documents.read_standard_library()
  if corpus.left_out:
    command.say(f'Left out {corpus.left_out} binary files.')
  layout = convert_text.TextLayout(
    values.tokenizer,
    values.vocabulary_size,
    values.sequence_length,
    values.train_shards,
  )
  plan = convert_text.plan(corpus, layout)
  folder = pathlib.Path(values.output_directory)
  done = sharding.write(folder, plan, values.options)
  writing.report(values.output_directory, done)
  size = sum(map(len, corpus.documents))
  command.say(
    f'Text of {size} bytes in {len(corpus.documents)} documents, '
    f'{len(plan.class_names)} tokens; --corpus={corpus.digest}'
  )


COMMAND = writing.converter(
  USAGE, ConvertTextFlags, act, folder='output_directory', given='given'
)
