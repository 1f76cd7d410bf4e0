"""What a worker keeps from one exchange to the next, and begins with."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.passes import inner_optimizers
from terngrad.reduce import programs
from terngrad.step import device_passes
from terngrad.step import passes


class Own(NamedTuple):
  """What a worker goes on with.

  Attributes:
    values: list of its parameters.
    slots: for each of them the list of the inner optimizer's slots.
    steps: float32 [], those that are in the slots.
    exchanges: float32 [], those that its parameters went through.
    scores: float32 [`passes.NUM_SCORES`], summed over its steps that no
      exchange has told of.
  """

  values: list[tf.Tensor]
  slots: list[list[tf.Tensor]]
  steps: tf.Tensor
  exchanges: tf.Tensor
  scores: tf.Tensor


@dataclasses.dataclass(frozen=True)
class LocalMemory(device_passes.LocalTraining):
  """The numbers of local steps, and what a worker keeps; see `local_steps`.

  Attributes:
    count: steps of its own; H, or with F fragments H / F.
    inner: `inner_optimizers.InnerOptimizer` of those.
    outer_rate: the learning rate of the update after the exchange.
    decay: the L2 terms, which act in the workers' own steps; None for none.
    fragments: for each fragment its parameters' indices; a worker
      then keeps parameters of its own between exchanges. () for none.
    overlap: tau < count, how many of the steps a worker takes while an exchange
      is on its way, and before it mixes in what that made of a fragment; 0
      takes it over as it is.
    mixing: alpha, the share in [0, 1] of the worker's own values in that mix.
    turn: the fragment that is exchanged after these steps.
  """

  count: int
  inner: inner_optimizers.InnerOptimizer
  outer_rate: float
  decay: programs.WeightDecay | None
  fragments: tuple[tuple[int, ...], ...] = ()
  overlap: int = 0
  mixing: float = 0.5
  turn: int = 0

  def states(
    self, shapes: Sequence[Sequence[int]]
  ) -> tuple[methods.State, ...]:
    """What a worker keeps from one exchange to the next.

    Numbers of steps are kept too: what is missing in a checkpoint, or is of
    another inner optimizer, begins anew as in the first step.

    Args:
      shapes: of the model's parameters.

    Returns:
      Those of the parameters of the whole model.
    """
    known = [(i, tuple(shape)) for i, shape in enumerate(shapes)]
    # Names, indices of variables and shapes.
    found: list[tuple[str, int, tuple[int, ...]]] = []
    if self.fragments:
      found += [('local_parameters', *one) for one in known]
      found.append(('local_exchanges', 0, ()))
    if self.overlap:
      found.append(('local_scores', 0, (passes.NUM_SCORES,)))
    if self._keeps_slots:
      names = [f'inner_{slot}' for slot in self.inner.slots]
      found.append(('inner_steps', 0, ()))
      found += [(name, *one) for one in known for name in names]
    return tuple(
      methods.State(name, methods.WORKER, variable, shape)
      for name, variable, shape in found
    )

  @property
  def _keeps_slots(self) -> bool:
    """Whether slots outlive a pass."""
    return bool(self.inner.slots) and (self.inner.stays or self.overlap > 0)

  def anew(self, parameters: list[tf.Tensor]) -> Own:
    """The start of a worker that remembers nothing."""
    return Own(
      values=parameters,
      slots=[[tf.zeros_like(p) for _ in self.inner.slots] for p in parameters],
      steps=tf.constant(0.0),
      exchanges=tf.constant(0.0),
      scores=tf.zeros([passes.NUM_SCORES]),
    )

  def begun(self, parameters: list[tf.Tensor], memory: list[tf.Tensor]) -> Own:
    """What a worker has at the beginning of a pass."""
    own, anew = self.recall(memory), self.anew(parameters)
    if not self.inner.stays:
      own = own._replace(slots=anew.slots, steps=anew.steps)
    if not self.fragments:
      return own._replace(values=anew.values)
    # Nothing was kept before the first steps.
    is_first = tf.equal(own.exchanges, 0)
    pairs = zip(parameters, own.values, strict=True)
    return own._replace(values=[tf.where(is_first, *pair) for pair in pairs])

  def recall(self, memory: list[tf.Tensor]) -> Own:
    """What a worker had, of which `memory` made tensors."""
    left, own = iter(memory), self.anew([])
    if self.fragments:
      values = [next(left) for _ in sum(self.fragments, ())]
      own = own._replace(
        values=values, slots=[[] for _ in values], exchanges=next(left)
      )
    if self.overlap:
      own = own._replace(scores=next(left))
    if self._keeps_slots:
      steps, *slots = left
      size = len(self.inner.slots)
      own = own._replace(
        steps=steps,
        slots=[slots[i : i + size] for i in range(0, len(slots), size)],
      )
    return own

  def memory(self, own: Own) -> list[tf.Tensor]:
    """Tensors in the order of `states`."""
    found = []
    if self.fragments:
      found += [*own.values, own.exchanges]
    if self.overlap:
      found.append(own.scores)
    if self._keeps_slots:
      found += [own.steps, *sum(own.slots, [])]
    return found

  def arrived(
    self,
    values: list[tf.Tensor],
    parameters: list[tf.Tensor],
    exchanges: tf.Tensor,
  ) -> list[tf.Tensor]:
    """A worker's parameters with the fragment of the last exchange."""
    if not self.fragments:
      return values
    values = list(values)
    # Before the first exchange there is nothing to mix in.
    share = tf.where(exchanges > 0, 1.0 - self.mixing, 0.0)
    for i in self.fragments[self.turn - 1]:
      if self.overlap:
        values[i] += share * (parameters[i] - values[i])
      else:
        values[i] = parameters[i]
    return values
