"""Error that codecs add to the mean of real gradients."""

import os
import zipfile
import zlib
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
import tqdm

from terngrad import errors as refusals
from terngrad.codec import method as methods
from terngrad.measure import gradient_codecs
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from terngrad.reduce import workers as stepping

# The codec that errors are compared with.
BASE = 'ternary'


class Errors(NamedTuple):
  """Errors of a method on the gradients of N workers, in a first step.

  Attributes:
    bits: bits per element that a worker sends, including probes.
    one: squared error of a worker's decoded gradient relative to its gradient's
      square, mean over workers and draws. A method without `estimate` decodes
      the words of this worker alone; NaN if it has several rounds.
    one_sem: standard error of `one` over the draws; NaN for one draw.
    mean: squared error of the decoded mean relative to the mean square of the
      workers' gradients: `one` / N if errors are independent and unbiased.
    mean_sem: standard error of `mean`.
    bias: the part of `mean` that is common to all draws. The estimate is
      unbiased, so it may be below 0. NaN for one draw.
    shrinkage: 1 minus the decoded mean's component along the mean gradient,
      relative to the mean gradient's norm; 0 if unbiased. Clipping makes it
      positive.
  """

  bits: float
  one: float
  one_sem: float
  mean: float
  mean_sem: float
  bias: float
  shrinkage: float


# Also a file of a single array (TypeError), a damaged member, and one whose
# header claims more than the memory.
_UNREADABLE = (
  *(OSError, EOFError, ValueError, TypeError, MemoryError),
  *(zipfile.BadZipFile, zlib.error),
)


def read(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
  """Reads a file of `report.worker_gradients`, without unpickling objects.

  Returns:
    By variable float32 [workers, ...].

  Raises:
    terngrad.errors.ConfigError: the file is not such a file.
  """
  try:
    with np.load(path, allow_pickle=False) as file:
      loaded = {key: file[key] for key in file.files}
    kinds = {array.dtype.kind for array in loaded.values()}
    if not kinds <= {*'fiu'}:
      raise ValueError(f'arrays of kinds {sorted(kinds)}, not numbers')
    arrays = {key: np.float32(array) for key, array in loaded.items()}
  except _UNREADABLE as error:
    raise refusals.ConfigError(
      f'{path}: expected a file of `terngrad report gradients`, received '
      f'"{error}". Write one with this command, or correct the path.'
    ) from error
  counts = {array.shape[:1] for array in arrays.values()}
  if len(counts) != 1 or counts & {(), (0,)}:
    raise refusals.ConfigError(
      f'{path}: expected arrays [workers, ...] with the same number of '
      f'workers, received the leading axes {sorted(counts)}. Write the file '
      'with `terngrad report gradients`.'
    )
  return arrays


def _check(name: str, arrays: Iterable[np.ndarray]) -> None:
  """Refuses gradients to which errors cannot be relative."""
  with np.errstate(invalid='ignore'):
    means = [values.mean(axis=0, dtype=np.float64) for values in arrays]
  norm = np.sqrt(sum(np.square(mean).sum() for mean in means))
  if not 0 < norm < np.inf:
    raise refusals.ConfigError(
      f'gradients: expected a mean gradient with a finite norm above 0, '
      f'received {name} with {norm:g}. Write gradients of another step with '
      '`terngrad report gradients`.'
    )


def errors(text: str, workers: list[np.ndarray], draws: int) -> Errors:
  """Measures a method on the gradients of one step, taken as its first step.

  Args:
    text: method, as for `registry.method`; the number of workers is filled in.
    workers: the gradients of the variables, each float32 [workers, ...].
    draws: >= 1, number of times that the workers send these gradients.

  Raises:
    terngrad.errors.ConfigError: the text names no method.
  """
  count = workers[0].shape[0]
  shapes = [values.shape[1:] for values in workers]
  with refusals.as_config_error():
    code = gradient_codecs.build(text, shapes, count)
  # Eager: compiling a codec takes longer than a hundred draws.
  code = bucketing.on_kernels(code)
  each = [[tf.constant(v[worker]) for v in workers] for worker in range(count)]
  flat = np.stack([code.flatten(values) for values in each]).astype(np.float64)
  exact_mean = flat.mean(axis=0)
  energy = np.square(flat).sum() / count
  rows, error_sum = [], np.zeros_like(exact_mean)
  for draw in range(draws):
    taken = stepping.Workers(code, count).take(code, each, draw)
    decoded = code.flatten(taken.means).numpy().astype(np.float64)
    error_sum += decoded - exact_mean
    rows.append(
      {
        'bits': _bits(code, taken),
        'one': _error_of_one(code, taken, flat) / energy / count,
        'mean': np.square(decoded - exact_mean).sum() / energy,
        'along': decoded @ exact_mean / (exact_mean @ exact_mean),
      }
    )
  found = pd.DataFrame(rows)
  means, standard_errors = found.mean(skipna=False), found.sem(skipna=False)
  common = np.square(error_sum / draws).sum() / energy
  excess = draws * common - means['mean']
  return Errors(
    bits=means['bits'],
    one=means['one'],
    one_sem=standard_errors['one'],
    mean=means['mean'],
    mean_sem=standard_errors['mean'],
    bias=excess / (draws - 1) if draws > 1 else np.nan,
    shrinkage=1 - means['along'],
  )


def _bits(code: gradients.GradientCodec, taken: stepping.StepOutcome) -> float:
  """Returns the sent bits per element, averaged over the workers."""
  words = sum(
    np.mean(code.sent_words(rows, number))
    for number, rows in enumerate(taken.words)
  )
  return 32 * (words + code.num_probes) / code.num_elements


def _error_of_one(
  code: gradients.GradientCodec, taken: stepping.StepOutcome, flat: np.ndarray
) -> float:
  """Returns the sum of the workers' squared errors; NaN if not available."""
  total = 0.0
  for worker, gradient in enumerate(flat):
    estimate = taken.estimate(code, worker)
    if estimate is None:
      estimate = _decode_alone(code, taken, worker)
    if estimate is None:
      return np.nan
    total += np.square(estimate.numpy() - gradient).sum()
  return total


def _decode_alone(
  code: gradients.GradientCodec, taken: stepping.StepOutcome, worker: int
) -> tf.Tensor | None:
  """Decodes a worker's words of a first step as the mean of one worker.

  Returns:
    float32 [elements], as `GradientCodec.flatten`; None for several rounds, in
    which a worker's words depend on the other workers.
  """
  messages = code.messages(0)
  if code.num_rounds > 1 or any(m.combine == methods.SCATTER for m in messages):
    return None
  step = taken.steps[worker]._replace(num_workers=1, worker=None, keys=None)
  piece = methods.Piece(0, [taken.words[0][worker : worker + 1]])
  received = [methods.payloads(messages, [piece])]
  shared = stepping.Workers(code, 1).shared
  return code.flatten(code.decode(received, shared, step)[0])


def notes(measured: pd.DataFrame) -> list[str]:
  """Returns a line for each codec of `table` whose `one` is unknown."""
  unknown = measured[measured['one'].isna()]['codec'].unique()
  return [
    f'{text}: one is unknown. The words of its later rounds depend on all '
    "workers, so they determine only the mean. If one worker's words do "
    'determine its gradient, define estimate in the class, and set estimates = '
    'True and estimated_round (docs/add_a_codec.md).'
    for text in unknown
  ]


def table(
  files: Iterable[tuple[str, list[np.ndarray]]],
  texts: Sequence[str],
  draws: int,
) -> pd.DataFrame:
  """Measures codecs on files of gradients.

  Args:
    files: pairs (name, arrays from `read`); the names differ.
    texts: codecs, as for `errors`; a repeated one is measured once.
    draws: number of draws, as for `errors`.

  Returns:
    One row for each file and codec: its `Errors`, and `gain`, the error of the
    mean with `BASE` divided by the codec's.

  Raises:
    terngrad.errors.ConfigError: a text names no method, or the mean gradient of
      a file is 0 or not finite.
  """
  files = [*files]
  for name, arrays in files:
    _check(name, arrays)
  pairs = [(file, text) for file in files for text in dict.fromkeys(texts)]
  made = pd.DataFrame(
    {'gradients': name, 'codec': text, **errors(text, arrays, draws)._asdict()}
    for (name, arrays), text in tqdm.tqdm(pairs, unit='code', disable=None)
  )
  base = made[made['codec'] == BASE].set_index('gradients')['mean']
  made['gain'] = made['gradients'].map(base) / made['mean']
  return made
