"""Distributions of real gradients before and after a code, by variable."""

import functools
import math
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib import figure

from terngrad import errors
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.reduce import bucketing
from terngrad.reduce import workers

# Rows of the chart: the largest variables.
_SHOWN = 6
_BINS = 101
# Standard deviations to either side of a gradient's chart.
_SPAN = 5

# float32, by the variable's name, of one worker.
_Gradients = Mapping[str, np.ndarray]


def coded(text: str, gradients: _Gradients) -> dict[str, np.ndarray]:
  """What a worker's gradients arrive as.

  Args:
    text: a code of one message, as `--codec` spells it.
    gradients: float32, by name, of one worker.

  Returns:
    float32, by name.

  Raises:
    terngrad.errors.ConfigError: the text names no such code.
  """
  with errors.as_config_error():
    codec = registry.parse(text, 1)
  specs = [policy.VariableSpec(n, v.shape, False) for n, v in gradients.items()]
  code = bucketing.gradient_codec(specs, [codec] * len(specs))

  @functools.partial(tf.function, jit_compile=True)
  def there_and_back(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return workers.Workers(code, 1).take(code, [values], 0).means

  found = there_and_back([tf.constant(v) for v in gradients.values()])
  return {n: value.numpy() for n, value in zip(gradients, found, strict=True)}


def clipped(gradients: _Gradients, factor: float) -> dict[str, np.ndarray]:
  """Gradients clipped at standard deviations of each variable, as the paper."""
  return {
    name: np.clip(values, -factor * values.std(), factor * values.std())
    for name, values in gradients.items()
  }


def table(
  gradients: _Gradients, arrived: _Gradients, factor: float
) -> pd.DataFrame:
  """What clipping and coding do to each variable.

  Args:
    gradients: float32, by name, of one worker.
    arrived: the same, from `coded`.
    factor: see `clipped`.

  Returns:
    A row a variable: elements; the part of them beyond the
    clip; the length and the angle in degrees, to the gradient's own, of what is
    clipped and of what arrives; the part that arrives as 0.
  """
  rows = []
  for name, cut in clipped(gradients, factor).items():
    values, code = gradients[name], arrived[name]
    rows.append(
      {
        'variable': name,
        'elements': values.size,
        'beyond the clip': float(np.mean(values != cut)),
        'length, clipped': _length(cut, values),
        'angle, clipped': _angle(cut, values),
        'length, coded': _length(code, values),
        'angle, coded': _angle(code, values),
        'zeros, coded': float(np.mean(code == 0)),
      }
    )
  return pd.DataFrame(rows)


def chart(
  gradients: _Gradients, arrived: _Gradients, factor: float
) -> figure.Figure:
  """Histograms before and after, of the largest variables.

  Args:
    gradients: see `table`.
    arrived: see `table`.
    factor: see `table`.

  Returns:
    A row a variable; counts by powers of ten.
  """
  largest = sorted(gradients, key=lambda n: -gradients[n].size)[:_SHOWN]
  columns: dict[str, _Gradients] = {
    'gradient': gradients,
    f'clipped at {factor:g} standard deviations': clipped(gradients, factor),
    'as it arrives': arrived,
  }
  drawn = figure.Figure(
    figsize=(4 * len(columns), 2.2 * len(largest)), layout='constrained'
  )
  grid = drawn.subplots(len(largest), len(columns), squeeze=False)
  for row, name in zip(grid, largest, strict=True):
    span = _SPAN * float(gradients[name].std()) or 1.0
    span = max(span, float(np.abs(arrived[name]).max()))
    for axes, (title, values) in zip(row, columns.items(), strict=True):
      axes.hist(values[name].ravel(), _BINS, range=(-span, span), log=True)
      axes.set_title(f'{name}: {title}', fontsize='small')
      axes.set_ylim(bottom=0.5)
      axes.locator_params(axis='x', nbins=5)
      axes.ticklabel_format(axis='x', style='sci', scilimits=(0, 0))
  return drawn


def _length(values: np.ndarray, others: np.ndarray) -> float:
  """The norm of values over that of others; NaN beside zeros."""
  own, norm = (np.linalg.norm(v.astype(np.float64)) for v in (values, others))
  return float(own / norm) if norm else math.nan


def _angle(values: np.ndarray, others: np.ndarray) -> float:
  """Degrees between two arrays, NaN where one is zero."""
  values, others = (v.ravel().astype(np.float64) for v in (values, others))
  norms = np.linalg.norm(values) * np.linalg.norm(others)
  cosine = np.clip(values @ others / norms, -1, 1) if norms else math.nan
  return float(np.degrees(np.arccos(cosine)))
