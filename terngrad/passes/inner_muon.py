"""Muon as the optimizer of local steps; see `step.muon`."""

import tensorflow as tf

from terngrad.passes import inner_optimizers
from terngrad.step import muon
from terngrad.step import optimizers


class InnerMuon(inner_optimizers.InnerOptimizer):
  """Muon for matrices, AdamW for other variables.

  AdamW also updates embeddings and the last layer, as Jordan et al. recommend.
  The decay is decoupled, as that of AdamW. The velocity of a matrix is its
  first moment; its second one stays 0.
  """

  def __init__(
    self,
    beta: float = 0.95,
    rms: float = 0.2,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    stays: bool = True,
  ) -> None:
    """Takes the numbers of `muon.MatrixRule` and `inner_optimizers.AdamW`.

    Raises:
      ValueError: an argument is out of its range.
    """
    optimizers.check('inner_optimizer', '[0, 1)', beta=beta)
    optimizers.check('inner_optimizer', '[0, inf)', rms=rms)
    self._adamw = inner_optimizers.AdamW(beta1, beta2, epsilon, stays)
    super().__init__(self._adamw.slots, stays)
    self._rule = muon.MatrixRule(beta, rms)

  @property
  def elementwise(self) -> inner_optimizers.InnerOptimizer:
    """AdamW."""
    return self._adamw

  def apply(
    self,
    value: tf.Tensor,
    slots: list[tf.Tensor],
    gradient: tf.Tensor,
    decay: tf.Tensor | None,
    learning_rate: tf.Tensor,
    count: tf.Tensor,
  ) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Computes the parameter after a step; see `InnerOptimizer.apply`."""
    if not muon.is_matrix(value):
      return self._adamw.apply(
        value, slots, gradient, decay, learning_rate, count
      )
    velocity, unused = slots
    change, velocity = self._rule.change(gradient, velocity)
    if decay is not None:
      change += decay
    return value - learning_rate * change, [velocity, unused]
