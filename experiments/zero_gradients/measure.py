r"""Measures how far codes move elements whose gradient is always zero.

  python experiments/zero_gradients/measure.py [--only=CODE ...] [--output=FILE]

A variable of 128 x 64 elements is updated 30 times, by SGD or Adam at a
learning rate of 0.01, through `terngrad.keras.CompressedOptimizer` on one
device. Half of its rows, chosen at random, have the gradient zero; the others
are normally distributed and equal for all codes. results.csv has one row per
code and optimizer: the mean and the largest distance of an element with zero
gradient from its start, and the mean distance of the others. The seeds are
fixed.
"""

import pathlib

import keras
import numpy as np
import pandas as pd
import tqdm
from absl import app
from absl import flags

import terngrad.keras
from slim.datasets.records import disk
from terngrad.codec.methods import registry

ONLY = flags.DEFINE_multi_string('only', [], 'Codes; empty: all.')
OUTPUT = flags.DEFINE_string(
  'output',
  str(pathlib.Path(__file__).with_name('results.csv')),
  'File for the table.',
)

_ROWS, _COLUMNS = 128, 64
_STEPS, _RATE = 30, 0.01
_OPTIMIZERS = {'sgd': keras.optimizers.SGD, 'adam': keras.optimizers.Adam}
# Codes that have no zero, with what they do not send added to later gradients.
_CORRECTED = (
  'error_feedback+sign',
  'error_feedback+one_bit',
  'error_feedback+statistical',
)


def codes() -> list[str]:
  """Returns one spelling of each code, and three with error feedback."""
  return [
    *registry.list_kinds(),
    'int8',
    'signsgd',
    'dgc',
    *_CORRECTED,
  ]


def gradients() -> np.ndarray:
  """Returns the gradients of all steps, float32 [steps, rows, columns]."""
  rng = np.random.default_rng(7)
  found = rng.standard_normal([_STEPS, _ROWS, _COLUMNS], np.float32)
  # Not every second row, for which a Hadamard transform gives equal pairs and
  # rotated codes decode exact zeros.
  found[:, rng.permutation(_ROWS)[: _ROWS // 2]] = 0
  return found


def measure(code: str, optimizer: str) -> dict[str, str | float]:
  """Returns a row of the table; distances are in units of the variable."""
  inputs = gradients()
  variable = keras.Variable(np.zeros([_ROWS, _COLUMNS], np.float32))
  update = terngrad.keras.CompressedOptimizer(
    _OPTIMIZERS[optimizer](_RATE), code, seed=1
  )
  for gradient in inputs:
    update.apply_gradients([(keras.ops.convert_to_tensor(gradient), variable)])
  distances = np.abs(keras.ops.convert_to_numpy(variable))
  is_zero = ~inputs.any(axis=(0, 2))
  zeros, others = distances[is_zero], distances[~is_zero]
  return {
    'code': code,
    'optimizer': optimizer,
    'mean': float(f'{zeros.mean():.3g}'),
    'largest': float(f'{zeros.max():.3g}'),
    'mean_of_others': float(f'{others.mean():.3g}'),
  }


def main(_: list[str]) -> None:
  """Measures all codes, and writes the table."""
  cells = [(c, o) for c in ONLY.value or codes() for o in _OPTIMIZERS]
  rows = [measure(*cell) for cell in tqdm.tqdm(cells, 'codes')]
  disk.write_text(OUTPUT.value, pd.DataFrame(rows).to_csv(index=False))


if __name__ == '__main__':
  app.run(main)
