"""How far codes move the mean of real gradients."""

import zipfile
from typing import NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
import tqdm
from matplotlib import figure

from terngrad import errors as refusals
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.reduce import bucketing
from terngrad.reduce import workers as stepping

# What a code's error is compared with.
BASE = 'ternary'


class Errors(NamedTuple):
  """What a method does to the gradients of N workers in a first step.

  Attributes:
    bits: an element that a worker sends, counted, probes included.
    one: squared error of a worker's decoded gradient over its gradient's
      square, the mean over workers and draws; NaN where messages say nothing
      of one worker's gradient.
    one_sem: standard error of `one`, by the draws; NaN for one draw.
    mean: squared error of the decoded mean over the mean square of the workers'
      gradients: `one` / N where errors are independent and unbiased.
    mean_sem: standard error of `mean`.
    bias: the part of `mean` that is the same in all draws; estimated without
      bias, so that it may fall below 0. NaN for one draw.
    shrinkage: 1 less the length of the decoded mean along the mean gradient,
      over the latter's own; 0 if unbiased. Clipping makes it positive.
  """

  bits: float
  one: float
  one_sem: float
  mean: float
  mean_sem: float
  bias: float
  shrinkage: float


def read(path):
  """Reads a file of `report.worker_gradients`, which nobody has to trust.

  Args:
    path: of the .npz.

  Returns:
    dict of variable to float32 [workers, ...], NumPy.

  Raises:
    terngrad.errors.ConfigError: it is no such file.
  """
  try:
    with np.load(path, allow_pickle=False) as file:
      arrays = {key: np.float32(file[key]) for key in file.files}
  except (OSError, ValueError, zipfile.BadZipFile) as error:
    raise refusals.ConfigError(
      f'{path}: expected a file that dump_gradients wrote, received "{error}".'
    ) from error
  counts = {array.shape[:1] for array in arrays.values()}
  if len(counts) != 1 or counts & {(), (0,)}:
    raise refusals.ConfigError(
      f'{path}: expected arrays [workers, ...] of the same workers, received '
      f'the leading axes {sorted(counts)}. Write it with dump_gradients.'
    )
  return arrays


def errors(text, workers, draws):
  """Measures a method on the gradients of one step, its first.

  Args:
    text: as `registry.method` takes it; the number of workers is filled in.
    workers: list of v float32 [workers, ...], NumPy, the variables' gradients.
    draws: int >= 1, how often the workers send these gradients.

  Returns:
    `Errors`.

  Raises:
    terngrad.errors.ConfigError: the text names no method.
  """
  count = workers[0].shape[0]
  with refusals.as_config_error():
    found = registry.method(text, count)
  specs = [
    policy.VariableSpec(f'{i}', values.shape[1:], False)
    for i, values in enumerate(workers)
  ]
  code = bucketing.gradient_codec(specs, [found] * len(workers))
  # Eager: to compile a code takes longer than a hundred draws.
  code = bucketing.on_kernels(code)
  each = [[tf.constant(v[worker]) for v in workers] for worker in range(count)]
  flat = np.stack([code.flatten(values) for values in each]).astype(np.float64)
  aim = flat.mean(axis=0)
  energy = np.square(flat).sum() / count
  bits, one, mean, along, moved = [], [], [], [], np.zeros_like(aim)
  for draw in range(draws):
    taken = stepping.Workers(code, count).take(code, each, draw)
    bits.append(_bits(code, taken))
    one.append(_error_of_one(code, taken, flat) / energy / count)
    decoded = code.flatten(taken.means).numpy().astype(np.float64)
    moved += decoded - aim
    mean.append(np.square(decoded - aim).sum() / energy)
    along.append(decoded @ aim / (aim @ aim))
  common = np.square(moved / draws).sum() / energy
  several = draws > 1
  return Errors(
    bits=np.mean(bits),
    one=np.mean(one),
    one_sem=_standard_error(one),
    mean=np.mean(mean),
    mean_sem=_standard_error(mean),
    bias=(draws * common - np.mean(mean)) / (draws - 1) if several else np.nan,
    shrinkage=1 - np.mean(along),
  )


def _bits(code, taken):
  """Bits an element that a worker sent, the mean over the workers."""
  words = sum(
    np.mean(code.sent_words(rows, number))
    for number, rows in enumerate(taken.words)
  )
  return 32 * (words + code.num_probes) / code.num_elements


def _error_of_one(code, taken, flat):
  """The workers' squared errors, added; NaN where there are none."""
  total = 0.0
  for worker in range(len(taken.steps)):
    own = taken.estimate(code, worker)
    if own is None:
      return np.nan
    total += np.square(own.numpy() - flat[worker]).sum()
  return total


def _standard_error(values):
  """Of the mean of a list of float; NaN for one."""
  if len(values) < 2:
    return np.nan
  return np.std(values, ddof=1) / np.sqrt(len(values))


def table(files, texts, draws):
  """Measures codecs on files of gradients.

  Args:
    files: list of (name, from `read`).
    texts: codecs, see `errors`.
    draws: see `errors`.

  Returns:
    `pandas.DataFrame`, a row for each file and codec: its `Errors`, and how
    often less than that of `BASE` the error of the mean is (gain).

  Raises:
    terngrad.errors.ConfigError: a text names no method.
  """
  pairs = [(file, text) for file in files for text in texts]
  rows = []
  for (name, arrays), text in tqdm.tqdm(pairs, unit='code', disable=None):
    found = errors(text, arrays, draws)
    rows.append({'gradients': name, 'codec': text} | found._asdict())
  made = pd.DataFrame(rows)
  base = made[made['codec'] == BASE].set_index('gradients')['mean']
  made['gain'] = made['gradients'].map(base) / made['mean']
  return made


def chart(measured):
  """Error of the mean by bits, a panel a file.

  Args:
    measured: from `table`.

  Returns:
    `matplotlib.figure.Figure`.
  """
  names = list(measured['gradients'].unique())
  page = figure.Figure(figsize=(8 * len(names), 6), dpi=120, layout='tight')
  axes = page.subplots(1, len(names), squeeze=False)[0]
  for axis, name in zip(axes, names, strict=True):
    for _, row in measured[measured['gradients'] == name].iterrows():
      place = row['bits'], row['mean']
      axis.loglog(*place, 'o')
      axis.annotate(row['codec'], place, fontsize='x-small')
    axis.set_xlabel('bits an element')
    axis.set_ylabel("squared error of the mean / a worker's mean square")
    axis.set_title(name)
    axis.grid(alpha=0.3)
  return page
