"""Writes gradients to compare codes on; they are equal on every machine.

  python make_gradients.py FOLDER [NAME=FILE]

Writes FOLDER/normal.npz, FOLDER/student.npz and FOLDER/kernel.npz, each for one
worker, in the format of `terngrad report gradients`. FOLDER/NAME.npz holds the
gradients of the first worker in such a FILE. All are scaled to a mean square of
1, so that one threshold suits all; relative errors do not depend on the scale.
"""

import pathlib
import sys

import numpy as np

# A dense layer of a million elements, and AlexNet's second convolution.
DENSE, KERNEL = (1000, 1000), (5, 5, 64, 192)


def synthetic():
  """Returns {name: {variable: float64 [1, ...]}}."""
  rng = np.random.default_rng(18)
  kernel = rng.standard_normal(KERNEL) * np.exp(rng.standard_normal(KERNEL[-1]))
  return {
    'normal': {'dense': rng.standard_normal((1, *DENSE))},
    # Three degrees of freedom: finite variance, infinite fourth moment.
    'student': {'dense': rng.standard_t(3, (1, *DENSE))},
    # Output channels differ in scale.
    'kernel': {'kernel': kernel[np.newaxis]},
  }


def main():
  """Scales and writes all gradients."""
  folder, *files = sys.argv[1:]
  everything = synthetic()
  for item in files:
    name, _, path = item.partition('=')
    with np.load(path) as arrays:
      everything[name] = {key: arrays[key][:1] for key in arrays.files}
  for name, arrays in everything.items():
    squares = sum(np.square(v, dtype=np.float64).sum() for v in arrays.values())
    scale = (sum(v.size for v in arrays.values()) / squares) ** 0.5
    scaled = {key: np.float32(v * scale) for key, v in arrays.items()}
    np.savez(pathlib.Path(folder, f'{name}.npz'), **scaled)


if __name__ == '__main__':
  main()
