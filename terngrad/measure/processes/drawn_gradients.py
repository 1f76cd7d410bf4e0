"""A pass that returns fixed random gradients, to time the exchange alone."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.step import passes


class DrawnGradients(passes.Pass):
  """Fixed random gradients of given shapes, without a model."""

  def __init__(self, shapes: Sequence[Sequence[int]]) -> None:
    """Draws the gradients."""
    super().__init__(num_statistics=0)
    self._drawn = [
      tf.Variable(tf.random.stateless_normal(shape, [i, 3]), trainable=False)
      for i, shape in enumerate(shapes)
    ]

  def gradients(
    self,
    parameters: list[tf.Tensor],
    held: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Returns the fixed gradients, as `passes.Pass.gradients`."""
    del parameters, held, labels, key, scale
    first = tf.cast(tf.reshape(images, [-1])[0], tf.float32)
    zeros = tf.fill([passes.NUM_SCORES], 0.0 * first)
    return [tf.identity(v) for v in self._drawn], zeros, []
