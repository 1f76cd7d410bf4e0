"""Stores the coding costs of this machine and these versions between plans."""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from slim.datasets.records import disk
from terngrad import native
from terngrad import user_cache
from terngrad import version
from terngrad.machine import onednn
from terngrad.machine import processor
from terngrad.measure.planning import model
from terngrad.measure.planning import parameters

# Changes with the meaning of a cost.
_FORMAT = 2


def machine() -> dict[str, str]:
  """Returns what coding costs depend on: the machine and the versions."""
  return {
    'processor': processor.name(),
    'cores': str(len(os.sched_getaffinity(0))),
    'kernels': native.instruction_set() or 'none',
    'oneDNN': 'on' if onednn.is_on() else 'off',
    'GPUs': str(len(tf.config.list_physical_devices('GPU'))),
    'terngrad': version.__version__,
    'tensorflow': tf.__version__,
    'numpy': np.__version__,
  }


def path() -> pathlib.Path:
  """Returns the file of this machine in the user's cache folder.

  Raises:
    OSError: the user has no home folder.
  """
  text = json.dumps([_FORMAT, machine()])
  name = hashlib.sha256(text.encode()).hexdigest()[:16]
  return user_cache.folder() / f'coding-{name}.json'


def read(file: pathlib.Path) -> dict[str, model.Coding]:
  """Reads stored costs by codec; {} if there is no file.

  Raises:
    OSError, ValueError: the file cannot be read, or is damaged.
  """
  try:
    fields = json.loads(file.read_text(encoding='utf-8'))
    if fields['machine'] != machine():
      raise ValueError('it belongs to another machine')
    return {
      text: parameters.read_cost(cost) for text, cost in fields['codes'].items()
    }
  except FileNotFoundError:
    return {}
  except (AttributeError, KeyError, RecursionError, TypeError) as error:
    raise ValueError(f'{type(error).__name__}: {error}') from error


def add(file: pathlib.Path, costs: Mapping[str, model.Coding]) -> None:
  """Adds costs to those of the file, which other plans may have changed.

  Raises:
    OSError: it cannot be written.
  """
  try:
    stored = read(file)
  except ValueError:
    stored = {}  # A damaged file is replaced.
  write(file, {**stored, **costs})


def write(file: pathlib.Path, costs: Mapping[str, model.Coding]) -> None:
  """Replaces the file atomically.

  Raises:
    OSError: it cannot be written.
  """
  disk.make_folder(file.parent)
  codes = {text: cost._asdict() for text, cost in costs.items()}
  text = json.dumps({'machine': machine(), 'codes': codes}, indent=1)
  disk.write_text(file, f'{text}\n')
