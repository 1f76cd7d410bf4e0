"""What 16 workers share, from gradients of `dump_gradients`.

python shared_scalers.py 2.npz 16.npz prints, for every variable of each file:
the shared scaler, the largest of the workers', over their mean; the error that
rounding adds to the mean of the workers, over that mean's square, and what it
would be with every worker's own scaler; by how much clipping at 2.5 standard
deviations shortens the mean; the kurtosis of the gradients.
"""

import sys

import numpy as np


def row(gradients):
  """The figures of a variable; float [workers, ...]."""
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
