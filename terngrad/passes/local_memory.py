"""The state that a worker with local steps has between two exchanges."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.passes import inner_optimizers
from terngrad.reduce import weight_decay
from terngrad.step import device_passes
from terngrad.step import passes


class LocalState(NamedTuple):
  """The local training state of a worker.

  Attributes:
    values: float32, its parameters.
    slots: for each parameter the inner optimizer's slots, float32.
    steps: float32 [], number of local steps since the slots were 0.
    exchanges: float32 [], number of exchanges of its parameters so far.
    scores: float32 [`passes.NUM_SCORES`], sum of the scores of the local steps
      that are not reported yet.
  """

  values: list[tf.Tensor]
  slots: list[list[tf.Tensor]]
  steps: tf.Tensor
  exchanges: tf.Tensor
  scores: tf.Tensor


@dataclasses.dataclass(frozen=True)
class LocalMemory(device_passes.LocalTraining):
  """Options of local steps and the state that they need; see `local_steps`.

  Attributes:
    count: number of local steps per exchange: H, or H / F with F fragments.
    inner: optimizer of the local steps.
    outer_rate: learning rate of the update after the exchange.
    decay: L2 terms, which the local steps apply; None for none.
    fragments: for each fragment the indices of its parameters. Each worker then
      has local parameters between exchanges. () if each exchange moves the
      whole model.
    overlap: tau < count, the number of local steps that a worker takes during
      an exchange, before it mixes the exchanged fragment into its parameters. 0
      replaces the fragment instead.
    mixing: alpha in [0, 1], the weight of the worker's local values in this
      mix.
    fragment: index of the fragment that is exchanged after these steps.
    elementwise: indices of the parameters of embeddings and of the last layer,
      which get the rule `InnerOptimizer.elementwise`.
  """

  count: int
  inner: inner_optimizers.InnerOptimizer
  outer_rate: float
  decay: weight_decay.WeightDecay | None
  fragments: tuple[tuple[int, ...], ...] = ()
  overlap: int = 0
  mixing: float = 0.5
  fragment: int = 0
  elementwise: frozenset[int] = frozenset()

  def rule(self, index: int) -> inner_optimizers.InnerOptimizer:
    """Returns the inner optimizer of a parameter."""
    return self.inner.elementwise if index in self.elementwise else self.inner

  def states(
    self, shapes: Sequence[Sequence[int]]
  ) -> tuple[methods.State, ...]:
    """Declares the states of a worker, for model parameters of these shapes.

    They include counts of steps and exchanges. If a checkpoint has no such
    states, the counts are 0 and the states begin as in the first step. Slots of
    two inner optimizers may have the same names, so trainers refuse to resume
    with another inner optimizer.
    """
    variables = [(i, tuple(shape)) for i, shape in enumerate(shapes)]
    # Names, indices of variables and shapes.
    found: list[tuple[str, int, tuple[int, ...]]] = []
    if self.fragments:
      found += [('local_parameters', *one) for one in variables]
      found.append(('local_exchanges', 0, ()))
    if self.overlap:
      found.append(('local_scores', 0, (passes.NUM_SCORES,)))
    if self._stores_slots:
      names = [f'inner_{slot}' for slot in self.inner.slots]
      found.append(('inner_steps', 0, ()))
      found += [(name, *one) for one in variables for name in names]
    return tuple(
      methods.State(name, methods.WORKER, variable, shape)
      for name, variable, shape in found
    )

  @property
  def _stores_slots(self) -> bool:
    """True if the slots are states between passes."""
    return bool(self.inner.slots) and (self.inner.stays or self.overlap > 0)

  def new_state(self, parameters: list[tf.Tensor]) -> LocalState:
    """Makes the state of a worker in its first step."""
    return LocalState(
      values=parameters,
      slots=[[tf.zeros_like(p) for _ in self.inner.slots] for p in parameters],
      steps=tf.constant(0.0),
      exchanges=tf.constant(0.0),
      scores=tf.zeros([passes.NUM_SCORES]),
    )

  def begin_state(
    self, parameters: list[tf.Tensor], memory: list[tf.Tensor]
  ) -> LocalState:
    """Makes the state at the beginning of a pass from values of `states`."""
    state, new_state = self.unpack_state(memory), self.new_state(parameters)
    if not self.inner.stays:
      state = state._replace(slots=new_state.slots, steps=new_state.steps)
    if not self.fragments:
      return state._replace(values=new_state.values)
    # Before the first exchange the states hold zeros, not parameters.
    is_first = tf.equal(state.exchanges, 0)
    pairs = zip(parameters, state.values, strict=True)
    return state._replace(values=[tf.where(is_first, *pair) for pair in pairs])

  def unpack_state(self, memory: list[tf.Tensor]) -> LocalState:
    """Converts the tensors of `memory` back to a worker's state."""
    rest, state = iter(memory), self.new_state([])
    if self.fragments:
      values = [next(rest) for _ in sum(self.fragments, ())]
      state = state._replace(
        values=values, slots=[[] for _ in values], exchanges=next(rest)
      )
    if self.overlap:
      state = state._replace(scores=next(rest))
    if self._stores_slots:
      steps, *slots = rest
      size = len(self.inner.slots)
      state = state._replace(
        steps=steps,
        slots=[slots[i : i + size] for i in range(0, len(slots), size)],
      )
    return state

  def pack_state(self, state: LocalState) -> list[tf.Tensor]:
    """Converts a worker's state to tensors in the order of `states`."""
    found = []
    if self.fragments:
      found += [*state.values, state.exchanges]
    if self.overlap:
      found.append(state.scores)
    if self._stores_slots:
      found += [state.steps, *sum(state.slots, [])]
    return found

  def merge_fragment(
    self,
    values: list[tf.Tensor],
    parameters: list[tf.Tensor],
    exchanges: tf.Tensor,
  ) -> list[tf.Tensor]:
    """Merges the fragment of the last exchange into a worker's parameters.

    Args:
      values: float32, the worker's parameters.
      parameters: float32, of the replica, after the exchange.
      exchanges: float32 [], number of exchanges before.
    """
    if not self.fragments:
      return values
    values = list(values)
    # Before the first exchange there is no result to mix in.
    share = tf.where(exchanges > 0, 1.0 - self.mixing, 0.0)
    for i in self.fragments[self.fragment - 1]:
      if self.overlap:
        values[i] += share * (parameters[i] - values[i])
      else:
        values[i] = parameters[i]
    return values
