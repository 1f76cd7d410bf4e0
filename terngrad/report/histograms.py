"""Distributions of gradients before and after coding, by variable."""

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
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from terngrad.reduce import workers

# Maximum number of chart rows: the largest variables are shown.
_SHOWN = 6
_BINS = 101
# Standard deviations shown on each side of zero.
_SPAN = 5

# float32 gradients of one worker, by the variable's name.
_Gradients = Mapping[str, np.ndarray]


def encode_and_decode(
  text: str, gradients: _Gradients
) -> dict[str, np.ndarray]:
  """Encodes and decodes one worker's gradients.

  Args:
    text: a codec with a single message, in the syntax of `--codec`.
    gradients: float32, by name, of one worker.

  Returns:
    The decoded gradients: float32, by name.

  Raises:
    terngrad.errors.ConfigError: the text names no such codec, or a gradient is
      empty or not finite.
  """
  for name, values in gradients.items():
    if not values.size or not np.isfinite(values).all():
      raise errors.ConfigError(
        f'gradients: expected finite numbers of each variable, received '
        f'{"others" if values.size else "none"} of {name}. Write gradients of '
        'another step with `terngrad report gradients`.'
      )
  with errors.as_config_error():
    codec = registry.parse(text, 1)
  specs = [policy.VariableSpec(n, v.shape, False) for n, v in gradients.items()]
  # Kernels need no compilation, and their bits are equal.
  code = bucketing.on_kernels(
    bucketing.gradient_codec(specs, [codec] * len(specs))
  )

  @tracing.function
  def round_trip(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return workers.Workers(code, 1).take(code, [values], 0).means

  found = round_trip([tf.constant(v) for v in gradients.values()])
  return {n: value.numpy() for n, value in zip(gradients, found, strict=True)}


def clipped(gradients: _Gradients, factor: float) -> dict[str, np.ndarray]:
  """Clips each variable at `factor` standard deviations, as in the paper.

  0 does not clip, as in the trainers.
  """
  if not factor:
    return dict(gradients)
  return {
    name: np.clip(values, -factor * values.std(), factor * values.std())
    for name, values in gradients.items()
  }


def table(
  gradients: _Gradients, decoded: _Gradients, factor: float
) -> pd.DataFrame:
  """Measures how clipping and coding change each variable's gradient.

  Args:
    gradients: float32, by name, of one worker.
    decoded: decoded gradients, from `encode_and_decode`.
    factor: clipping limit in standard deviations, as in `clipped`.

  Returns:
    One row per variable: number of elements; fraction of elements beyond the
    clipping limit; for the clipped and the decoded gradient, the norm relative
    to the gradient's norm and the angle to the gradient in degrees; fraction of
    elements decoded as 0.
  """
  rows = []
  for name, cut in clipped(gradients, factor).items():
    values, code = gradients[name], decoded[name]
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
  gradients: _Gradients, decoded: _Gradients, factor: float
) -> figure.Figure:
  """Draws histograms of the largest variables, before and after coding.

  Args:
    gradients: float32, by name, of one worker.
    decoded: decoded gradients, from `encode_and_decode`.
    factor: clipping limit in standard deviations, as in `clipped`.

  Returns:
    A figure with one row per variable; counts on a logarithmic axis.
  """
  largest = sorted(gradients, key=lambda n: -gradients[n].size)[:_SHOWN]
  columns: dict[str, _Gradients] = {
    'gradient': gradients,
    f'clipped at {factor:g} standard deviations': clipped(gradients, factor),
    'decoded': decoded,
  }
  drawn = figure.Figure(
    figsize=(4 * len(columns), 2.2 * len(largest)), layout='constrained'
  )
  grid = drawn.subplots(len(largest), len(columns), squeeze=False)
  for row, name in zip(grid, largest, strict=True):
    span = _SPAN * float(gradients[name].std()) or 1.0
    span = max(span, float(np.abs(decoded[name]).max()))
    for axes, (title, values) in zip(row, columns.items(), strict=True):
      axes.hist(values[name].ravel(), _BINS, range=(-span, span), log=True)
      axes.set_title(f'{name}: {title}', fontsize='small')
      axes.set_ylim(bottom=0.5)
      axes.locator_params(axis='x', nbins=5)
      axes.ticklabel_format(axis='x', style='sci', scilimits=(0, 0))
  return drawn


def _length(values: np.ndarray, others: np.ndarray) -> float:
  """Returns the norm of values relative to that of others; NaN if that is 0."""
  norm, base = (np.linalg.norm(v.astype(np.float64)) for v in (values, others))
  return float(norm / base) if base else math.nan


def _angle(values: np.ndarray, others: np.ndarray) -> float:
  """Returns the angle between two arrays in degrees, NaN if one is zero."""
  values, others = (v.ravel().astype(np.float64) for v in (values, others))
  norms = np.linalg.norm(values) * np.linalg.norm(others)
  cosine = np.clip(values @ others / norms, -1, 1) if norms else math.nan
  return float(np.degrees(np.arccos(cosine)))
