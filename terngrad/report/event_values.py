"""Decodes the values of TensorBoard's events."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad import errors

# Dimensions of an array of values: histograms are [buckets, 3].
_RANKS = {'scalars': 0, 'histograms': 2, 'images': 1}
# Decodes an array of values. Image arrays start with width and height.
_DECODE: dict[str, Callable[[np.ndarray], Any]] = {
  'scalars': float,
  'histograms': lambda found: np.asarray(found, np.float64).tolist(),
  'images': lambda found: list(found)[2:],
}
KINDS = tuple(_RANKS)


def value_of(kind: str, tag: str, event: Any) -> Any:
  """Returns the value of an event.

  Raises:
    errors.ConfigError: its plugin has values of another shape or type.
  """
  array = tf.make_ndarray(event.tensor_proto)
  try:
    if array.ndim != _RANKS[kind]:
      raise ValueError(f'shape {list(array.shape)}')
    return _DECODE[kind](array)
  except (TypeError, ValueError) as error:
    raise errors.ConfigError(
      f'logdir: expected {kind} with the tag {tag} of step {event.step}, '
      f'received "{error}". Remove that event file, or repair it.'
    ) from error
