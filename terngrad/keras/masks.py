"""Losses of masked outputs, such as those of padded sequences.

Keras takes the mean over the unmasked positions. Virtual workers have different
numbers of unmasked positions, so each worker's loss is weighted by its share of
them. The minimized loss is then the mean over all unmasked positions of the
batch.
"""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

_MEANS = 'sum_over_batch_size', 'mean'
# Keras adds the losses of examples that a loss returns without reduction.
_SUMS = 'sum', 'none'


class Shares(NamedTuple):
  """A worker's share of a batch.

  Attributes:
    unmasked: for each output of the model, the number of unmasked positions in
      the whole batch, float32 []; None for an output without a mask.
    rows: the worker's fraction of the rows of the batch, float32 [].
  """

  unmasked: list[tf.Tensor | None]
  rows: tf.Tensor


def unmasked_positions(model: keras.Model, data: Any) -> list[tf.Tensor | None]:
  """Counts a batch's unmasked positions by a forward pass without effects.

  In a traced step only the operations that masks depend on are computed.

  Returns:
    The list `Shares.unmasked`.
  """
  x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
  with keras.StatelessScope():
    outputs = keras.tree.flatten(model(x))
  return [_count(output) for output in outputs]


def reductions(model: keras.Model) -> set[str]:
  """Returns the reductions of a model's losses, such as 'sum' or 'none'."""
  return {
    getattr(loss, 'reduction', 'sum_over_batch_size') or 'none'
    for loss in keras.tree.flatten(model.loss)
    if loss is not None
  }


def are_sums(model: keras.Model) -> bool:
  """Returns whether a model's loss is a sum over rows."""
  found = reductions(model)
  return bool(found) and found <= set(_SUMS)


@contextlib.contextmanager
def weight_losses(
  model: keras.Model, shares: Shares | None
) -> Iterator[list[bool]]:
  """Weights a model's losses by the worker's share of unmasked positions.

  Args:
    model: the model whose `train_step` is called in the block.
    shares: the worker's shares. None leaves the losses unchanged.

  Yields:
    A list that `train_step` fills: for each output, whether it has a mask.

  Raises:
    ValueError: in the block, if the loss of a masked output is not a mean.
  """
  found: list[bool] = []
  original = model.compute_loss

  def compute_loss(
    x: Any, y: Any, y_pred: Any, sample_weight: Any, **options: Any
  ) -> tf.Tensor:
    found[:] = [
      _mask(output) is not None for output in keras.tree.flatten(y_pred)
    ]
    if any(found):
      _check(model, original)
      if shares is not None:
        sample_weight = _scale_weights(y_pred, sample_weight, shares)
    return original(x, y, y_pred, sample_weight, **options)

  # While this attribute exists, it hides the method of the class.
  is_attribute = 'compute_loss' in vars(model)
  model.compute_loss = compute_loss
  try:
    yield found
  finally:
    if is_attribute:
      model.compute_loss = original
    else:
      del model.compute_loss


def _scale_weights(y_pred: Any, sample_weight: Any, shares: Shares) -> Any:
  """Multiplies the sample weights of masked outputs by their factor."""
  outputs = keras.tree.flatten(y_pred)
  weights = keras.tree.flatten(sample_weight)
  if not keras.tree.is_nested(sample_weight):
    weights = weights * len(outputs)
  scaled = [
    weight if total is None else _scale(output, weight, total * shares.rows)
    for output, weight, total in zip(
      outputs, weights, shares.unmasked, strict=True
    )
  ]
  return keras.tree.pack_sequence_as(y_pred, scaled)


def _scale(
  output: tf.Tensor, weight: tf.Tensor | None, total: tf.Tensor
) -> tf.Tensor:
  """Returns sample weights that weight one worker's mean loss.

  Args:
    output: a worker's output with a mask.
    weight: the worker's sample weights, or None.
    total: float32 [], unmasked positions of the whole batch times the worker's
      fraction of the rows.
  """
  factor = tf.math.divide_no_nan(_count(output), total)
  if weight is None:
    return tf.fill(tf.shape(_mask(output)), factor)
  return tf.cast(weight, tf.float32) * factor


def _mask(output: tf.Tensor) -> tf.Tensor | None:
  return getattr(output, '_keras_mask', None)


def _count(output: tf.Tensor) -> tf.Tensor | None:
  """Counts unmasked positions, float32 []; None without a mask."""
  mask = _mask(output)
  return None if mask is None else tf.reduce_sum(tf.cast(mask, tf.float32))


def _check(model: keras.Model, compute_loss: Callable[..., Any]) -> None:
  """Raises ValueError if a loss is not a mean that workers can combine."""
  found = reductions(model)
  stock = keras.Model.compute_loss
  is_custom = getattr(compute_loss, '__func__', None) is not stock
  if is_custom or not found <= set(_MEANS):
    received = (
      'a custom compute_loss' if is_custom else ', '.join(sorted(found))
    )
    raise ValueError(
      "loss: expected reduction='sum_over_batch_size' for masked outputs with "
      f'virtual workers, received {received}. Use that reduction, or train '
      'under MirroredStrategy, where each replica reduces its local rows.'
    )
