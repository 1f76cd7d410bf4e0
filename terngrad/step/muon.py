"""Muon: momentum whose matrices are orthogonalized.

Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024,
https://kellerjordan.github.io/posts/muon/. v = beta v + g; the update is the
orthogonal factor of g + beta v, approximated by five steps of a Newton-Schulz
iteration. `keras.optimizers.Muon` is the same algorithm for Keras programs.

The update of a matrix is scaled so that it fits a learning rate of AdamW: Liu
et al., Muon is Scalable for LLM Training, 2025, https://arxiv.org/abs/
2502.16982, section 2.2. Departures: the iteration is in float32, not bfloat16;
a kernel of a convolution counts as the matrix of its last axis and the others,
and queries, keys and values with one kernel as one matrix, where Jordan
recommends one each.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.step import optimizers

_A, _B, _C = 3.4445, -4.7750, 2.0315
_STEPS = 5
_SMALL = 1e-7


class MatrixRule(NamedTuple):
  """The update of a matrix.

  Attributes:
    beta: decay of the velocity, in [0, 1).
    rms: root mean square of the elements of an update at learning rate 1, >= 0;
      0 for Jordan's scale instead, sqrt(max(1, outputs / inputs)) times the
      orthogonal matrix.
  """

  beta: float
  rms: float

  def change(
    self, gradient: tf.Tensor, velocity: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the update before the learning rate.

    Args:
      gradient: float32, static shape of two axes or more.
      velocity: float32, the same shape.

    Returns:
      (update to subtract; new velocity), both of the same shape.
    """
    velocity = self.beta * velocity + gradient
    direction = gradient + self.beta * velocity
    outputs = direction.shape[-1]
    matrix = orthogonalize(tf.reshape(direction, [-1, outputs]))
    inputs = matrix.shape[0]
    scale = self.rms * max(inputs, outputs) ** 0.5
    if not self.rms:
      scale = max(1.0, outputs / max(1, inputs)) ** 0.5
    return tf.reshape(scale * matrix, gradient.shape), velocity


def is_matrix(variable: tf.Tensor | tf.Variable) -> bool:
  """Returns whether Muon orthogonalizes updates of this shape."""
  return variable.shape.rank > 1


def orthogonalize(matrix: tf.Tensor) -> tf.Tensor:
  """Brings all singular values near 1, about 0.7 to 1.2; keeps 0.

  Args:
    matrix: float32 [m, n], static shape.

  Returns:
    float32 [m, n].
  """
  rows, columns = matrix.shape
  tall = rows > columns
  found = tf.transpose(matrix) if tall else matrix
  found /= tf.norm(found) + _SMALL
  for _ in range(_STEPS):
    square = tf.matmul(found, found, transpose_b=True)
    mixed = _B * square + _C * tf.matmul(square, square)
    found = _A * found + tf.matmul(mixed, found)
  return tf.transpose(found) if tall else found


class Muon(optimizers.Adam):
  """Muon for matrices, Adam for variables with fewer than two axes.

  Matrices are all kernels, also those of embeddings and of the last layer. The
  velocity of a matrix is its first moment; its second one stays 0.
  """

  def __init__(
    self,
    beta: float = 0.95,
    rms: float = 0.2,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
  ) -> None:
    """Takes the numbers of `MatrixRule` and then those of `optimizers.Adam`.

    Raises:
      ValueError: a number is out of its range.
    """
    optimizers.check('optimizer', '[0, 1)', beta=beta)
    optimizers.check('optimizer', '[0, inf)', rms=rms)
    super().__init__(beta1, beta2, epsilon)
    self._rule = MatrixRule(beta, rms)

  def apply(
    self,
    variable: tf.Variable,
    slots: dict[str, tf.Variable],
    gradient: tf.Tensor,
    learning_rate: tf.Tensor,
    step: tf.Tensor,
  ) -> None:
    """Updates a variable and its slots; see `optimizers.Optimizer`."""
    if not is_matrix(variable):
      super().apply(variable, slots, gradient, learning_rate, step)
      return
    velocity = slots['first_moment']
    change, new = self._rule.change(gradient, tf.convert_to_tensor(velocity))
    velocity.assign(new)
    variable.assign_sub(learning_rate * change)
