"""Prints the effects of sharing a scaler, from `terngrad report gradients`.

`python shared_scalers.py 2.npz 16.npz` prints for every variable of each file:
the shared scaler, which is the largest local scaler, relative to the mean local
scaler; the error that rounding adds to the mean gradient, relative to that
mean's square; the same error with local scalers; by how much clipping at 2.5
standard deviations shortens the mean; the kurtosis of the gradients.
"""

import sys

import numpy as np


def row(gradients):
  """Computes the figures of a variable from float [workers, ...]."""
  flat = gradients.astype(np.float64).reshape(len(gradients), -1)
  limits = 2.5 * flat.std(axis=1, keepdims=True)
  clipped = np.clip(flat, -limits, limits)
  scalers = np.abs(clipped).max(axis=1, keepdims=True)
  mean = flat.mean(axis=0)
  square = mean @ mean

  def error(scaler):
    # Var of scaler * Bernoulli(|x| / scaler), summed; TernGrad, equation 1.
    return np.sum(scaler * np.abs(clipped) - clipped**2) / len(flat) ** 2

  return (
    scalers.max() / scalers.mean(),
    error(scalers.max()) / square,
    error(scalers) / square,
    1 - clipped.mean(axis=0) @ mean / square,
    np.mean(flat**4) / np.mean(flat**2) ** 2,
  )


for path in sys.argv[1:]:
  print(path)
  with np.load(path) as variables:
    for name in variables:
      print(f'{name:14}', *(f'{x:8.2f}' for x in row(variables[name])))
