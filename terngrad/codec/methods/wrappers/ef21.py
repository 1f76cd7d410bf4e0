"""EF21 and EF21-SGDM: error feedback by coded differences.

Richtarik, Sokolov and Fatkhullin, EF21: A New, Simpler, Theoretically Better,
and Practically Faster Error Feedback, NeurIPS 2021,
https://arxiv.org/abs/2106.05203, algorithm 2: worker i sends c_i = C(grad_i -
g_i) and adds it to g_i; all devices add the mean of c_i to g, which is the
estimate of the gradient. Fatkhullin, Tyurin and Richtarik, Momentum Provably
Improves Error Feedback, NeurIPS 2023, https://arxiv.org/abs/2305.15155,
algorithm 1: the same for the momentum v_i <- (1 - eta) v_i + eta grad_i in
place of grad_i.

Initialization: g_i = g = 0 before the first step, so that g_i of the paper's
step 0 is C(grad_i), one of the two choices of EF21. v_i starts as the first
gradient that is coded. After a first step in float32 (a warm-up '1 ->
identity') g_i and g are the first gradients themselves, as in EF21-SGDM's
algorithm, whose first batch may be larger. The default eta, 1/8, is this
project's: the paper's depends on constants of the loss, on the compressor and
on the number of steps. Departure: v_i is stored as g_i plus the difference that
was coded, which rounds it once more.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import differences
from terngrad.codec.stages import weighted_sums

_MOMENTUM = 'ef21_momentum'
# The momentum before the first gradient.
_UNKNOWN = float('nan')


class Ef21(differences.CodedDifferences):
  """Decodes the common vector g; needs a contraction, as error feedback."""

  def __init__(self, method: methods.Method) -> None:
    """Wraps a method with one round and no state."""
    self._start('ef21', method)

  def _start(self, name: str, method: methods.Method) -> None:
    super().__init__(name, method)
    self.traits = self.traits._replace(unbiased=False)

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps another method."""
    return Ef21(method)

  def rates(self, sizes: Sequence[int]) -> list[float]:
    """Returns 1 for each variable: vectors follow the gradients."""
    return [1.0] * len(sizes)


class Ef21Momentum(Ef21):
  """EF21-SGDM: `Ef21` of the momentum of each worker's gradients."""

  def __init__(self, method: methods.Method, eta: float = 0.125) -> None:
    """Wraps a method.

    Args:
      method: as for `Ef21`.
      eta: weight of the gradient in the momentum, in (0, 1]. 1 is EF21.

    Raises:
      ValueError: the method is of another kind, or eta is out of range.
    """
    if not 0 < eta <= 1:
      raise ValueError(
        f'ef21_sgdm: expected an eta above 0 and at most 1, received {eta}. '
        'Use ef21_sgdm:eta=0.125.'
      )
    self._start(f'ef21 sgdm({eta:g})', method)
    self.kinds = (*self.kinds, (_MOMENTUM, methods.WORKER))
    self.eta = eta

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps another method with the same eta."""
    return Ef21Momentum(method, self.eta)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """Declares the vectors and the momentum, which is unknown at first."""
    return tuple(
      state._replace(initial=_unknown) if state.name == _MOMENTUM else state
      for state in super().states(shapes)
    )

  def targets(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> methods.Tensors:
    """Returns the new momentum; the gradients where it is unknown."""
    old = [tf.reshape(v, [-1]) for v in states[2 * len(context.shapes) :]]
    return [
      tf.where(
        tf.math.is_nan(v), g, weighted_sums.add(1 - self.eta, v, self.eta, g)
      )
      for v, g in zip(old, gradients, strict=True)
    ]

  def update_states(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    sent: tuple[list[tf.Tensor], methods.Tensors],
    context: methods.Context,
  ) -> methods.Tensors:
    """Updates the worker's vectors and stores the momentum."""
    updated = super().update_states(gradients, states, sent, context)
    pairs = zip(states, methods.shaped(gradients, context), strict=False)
    momentum = [known + difference for known, difference in pairs]
    return [*updated[: -len(momentum)], *momentum]


def _unknown(shape: tuple[int, ...]) -> tf.Tensor:
  return tf.fill(shape, _UNKNOWN)
