"""A pass that computes nothing, to time what comes after it."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.step import passes


class DrawnGradients(passes.Pass):
  """Gradients that were drawn before, of a model that does not exist."""

  def __init__(self, shapes: Sequence[Sequence[int]]) -> None:
    """Draws gradients of these shapes."""
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
    """See `passes.Pass.gradients`."""
    del parameters, held, labels, key, scale
    nothing = tf.fill([passes.NUM_SCORES], 0.0 * images[0, 0, 0, 0])
    return [tf.identity(v) for v in self._drawn], nothing, []
