"""How far codes move the mean of real gradients."""

import functools
import zipfile
from typing import NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
import tqdm
from matplotlib import figure

from terngrad import errors as refusals
from terngrad.codec import bucketing
from terngrad.codec import gradients
from terngrad.codec import one_round
from terngrad.codec import policy
from terngrad.codec.methods import registry

# What a code's error is compared with.
BASE = 'ternary'


class Errors(NamedTuple):
  """What a code does to the gradients of N workers.

  Attributes:
    bits: an element that a worker sends, probes included.
    one: squared error of a worker's decoded gradient over its gradient's
      square, the mean over workers and draws.
    mean: squared error of the decoded mean over the mean square of the workers'
      gradients: `one` / N where errors are independent and unbiased.
    shrinkage: 1 less the length of the decoded mean along the mean gradient,
      over the latter's own; 0 if unbiased. Clipping makes it positive.
  """

  bits: float
  one: float
  mean: float
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
  """Measures a codec on the gradients of one step.

  Args:
    text: as `registry.parse` takes it; the number of workers is filled in.
    workers: list of v float32 [workers, ...], NumPy, the variables' gradients.
    draws: int >= 1, how often the workers send these gradients.

  Returns:
    `Errors`.

  Raises:
    terngrad.errors.ConfigError: the text names no codec.
  """
  count = workers[0].shape[0]
  with refusals.as_config_error():
    codec = registry.parse(text, count)
  code = bucketing.gradient_codec(
    [
      policy.VariableSpec(f'{i}', values.shape[1:], False)
      for i, values in enumerate(workers)
    ],
    [codec] * len(workers),
  )
  send, decode, probe = (
    tf.function(functools.partial(function, code), jit_compile=True)
    for function in (_send, _decode, one_round.probe)
  )
  each = [[tf.constant(v[worker]) for v in workers] for worker in range(count)]
  flat = np.stack([code.flatten(values) for values in each]).astype(np.float64)
  own = [probe(values) for values in each]
  shared = gradients.agree(tf.stack(own))
  aim = flat.mean(axis=0)
  energy = np.square(flat).sum() / count
  one, mean, along = 0.0, 0.0, 0.0
  for draw in range(draws):
    step = tf.constant(draw, tf.int64)
    words = [
      send(each[worker], own[worker], shared, step, tf.constant(worker))
      for worker in range(count)
    ]
    for worker, payload in enumerate(words):
      decoded = decode(payload[tf.newaxis], shared).numpy()
      one += np.square(decoded - flat[worker]).sum() / energy
    decoded = decode(tf.stack(words), shared).numpy()
    mean += np.square(decoded - aim).sum() / energy
    along += decoded @ aim / (aim @ aim)
  return Errors(
    bits=code.bits(count) / code.num_elements,
    one=one / draws / count,
    mean=mean / draws,
    shrinkage=1 - along / draws,
  )


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
    terngrad.errors.ConfigError: a text names no codec.
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


def _send(code, values, own, shared, step, worker):
  keys = code.keys(1, step, worker)
  return one_round.encode(code, values, own, shared, keys)


def _decode(code, words, shared):
  return code.flatten(one_round.decode_mean(code, [words], shared))
