"""What the programs of older names start."""

import importlib

from terngrad.cli import commands
from terngrad.cli import flags


def command(module):
  """The `command.Command` of a starter, such as 'terngrad.bin.mnist_train'."""
  path, _ = importlib.import_module(module).run.args
  return commands.load(commands.find(path))


def parse(module, words):
  """What a starter's command reads from a command line: its options."""
  return parse_words(command(module), words)


def parse_words(found, words):
  """What a `command.Command` reads from a command line: its options."""
  return flags.parse(
    found.options,
    found.defaults,
    words,
    found.words,
    flag_names=found.flag_names,
  ).values
