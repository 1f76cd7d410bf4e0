"""Local steps: workers train by themselves, and exchange what that changed.

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, https://arxiv.org/abs/1602.05629, and Stich,
Local SGD Converges Fast and Communicates Little, ICLR 2019,
https://arxiv.org/abs/1805.09767, where the outer optimizer is plain descent at
rate 1; Douillard et al., DiLoCo: Distributed Low-Communication Training of
Language Models, 2023, https://arxiv.org/abs/2311.08105, algorithm 1, where it
is Nesterov's momentum and the inner one an AdamW that stays.

In fragments: Douillard et al., Streaming DiLoCo with overlapping communication,
2025, https://arxiv.org/abs/2501.18512. The parameters are exchanged a fragment
at a time, in turns; what comes back is taken in some local steps later, mixed
with what the worker has made of it meanwhile. Departures: all turns are equally
long, moving statistics are averaged after each, and the wall time does not
overlap: an exchange has ended before the next local step begins.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.passes import accumulation
from terngrad.passes import inner_optimizers
from terngrad.step import passes


class LocalSteps(NamedTuple):
  """What a worker does between two exchanges.

  Attributes:
    count: steps of its own; H, or with F fragments H / F.
    inner: `inner_optimizers.InnerOptimizer` of those.
    outer_rate: the learning rate of the update after the exchange.
    decay: see `passes.Pass.decay`: L2 terms act in the workers' own steps.
    fragments: for each fragment the tuple of its parameters' indices; a worker
      then keeps parameters of its own between exchanges. () for none.
    overlap: tau < count, steps that a worker takes before it mixes in what the
      last exchange made of a fragment; 0 takes it over as it is.
    mixing: alpha, the share in [0, 1] of the worker's own values in that mix.
    turn: the fragment that is exchanged after these steps.
  """

  count: int
  inner: inner_optimizers.InnerOptimizer
  outer_rate: float
  decay: Callable
  fragments: tuple = ()
  overlap: int = 0
  mixing: float = 0.5
  turn: int = 0

  def states(self, shapes):
    """What a worker keeps from one exchange to the next.

    Numbers of steps are kept too: what is missing in a checkpoint, or is of
    another inner optimizer, begins anew as in the first step.

    Args:
      shapes: of the model's parameters, a list of tuples of int.

    Returns:
      A tuple of `method.State`, of the parameters of the whole model.
    """
    found = []

    def keep(name, variable, shape):
      found.append(methods.State(name, methods.WORKER, variable, shape))

    if self.inner.slots and self.inner.stays:
      keep('inner_steps', 0, ())
      for i, shape in enumerate(shapes):
        for slot in self.inner.slots:
          keep(f'inner_{slot}', i, tuple(shape))
    if self.fragments:
      keep('local_exchanges', 0, ())
      for i, shape in enumerate(shapes):
        keep('local_parameters', i, tuple(shape))
    return tuple(found)

  def of(self, node_pass, learning_rate):
    """The pass whose gradient is what the worker's own steps took away.

    A share of c b examples is c batches, where c is `count`. Parameters and
    moving statistics go from step to step; a worker holds two more copies of
    the parameters, and one a slot of the inner optimizer, while it is its turn.

    Args:
      node_pass: `passes.Pass` of one batch.
      learning_rate: float32 [], of the worker's own steps.

    Returns:
      A `passes.Pass` that remembers `states`; its scores are the means over
      the steps.
    """
    return node_pass._replace(
      gradients=functools.partial(self._run, node_pass, learning_rate)
    )

  def _run(
    self,
    node_pass,
    learning_rate,
    parameters,
    held,
    images,
    labels,
    key,
    scale=None,
    memory=None,
  ):
    batches = accumulation.parts_of(self.count, images, labels)
    fixed = held[node_pass.num_statistics :]
    own = self._recall(parameters, memory or [])

    def step(number, values, slots, moments, total):
      gradients, scores, moments = node_pass.gradients(
        values,
        [*moments, *fixed],
        *(batch[number] for batch in batches),
        accumulation.part_key(key, number),
        scale,
      )
      count = own.steps + tf.cast(number + 1, tf.float32)
      each = zip(values, slots, gradients, self.decay(values), strict=True)
      pairs = [self.inner.apply(*one, learning_rate, count) for one in each]
      values, slots = map(list, zip(*pairs, strict=True))
      return number + 1, values, slots, moments, total + scores

    def steps(first, last, *state):
      return tf.while_loop(
        lambda number, *_: number < last,
        step,
        (tf.constant(first), *state),
        parallel_iterations=1,
      )[1:]

    moments = held[: node_pass.num_statistics]
    state = own.values, own.slots, moments, tf.zeros([passes.NUM_SCORES])
    if self.overlap:
      state = steps(0, self.overlap, *state)
    values = self._arrived(state[0], parameters, own.exchanges)
    values, slots, moments, total = steps(
      self.overlap, self.count, values, *state[1:]
    )
    pairs = zip(parameters, values, strict=True)
    changes = [before - after for before, after in pairs]
    found = changes, total * (1.0 / self.count), moments
    after = _Own(values, slots, own.steps + self.count, own.exchanges + 1)
    return found if memory is None else (*found, self._memory(after))

  def _recall(self, parameters, memory):
    """The `_Own` of a worker, from what `_memory` made."""
    left = iter(memory)
    values, steps, exchanges = parameters, tf.constant(0.0), tf.constant(0.0)
    slots = [[tf.zeros_like(p) for _ in self.inner.slots] for p in parameters]
    if self.inner.slots and self.inner.stays:
      steps = next(left)
      slots = [[next(left) for _ in of_one] for of_one in slots]
    if self.fragments:
      exchanges = next(left)
      # Nothing was kept before the first steps.
      values = [tf.where(exchanges > 0, next(left), p) for p in parameters]
    return _Own(values, slots, steps, exchanges)

  def _memory(self, own):
    """Tensors in the order of `states`."""
    found = []
    if self.inner.slots and self.inner.stays:
      found += [own.steps, *sum(own.slots, [])]
    if self.fragments:
      found += [own.exchanges, *own.values]
    return found

  def _arrived(self, values, parameters, exchanges):
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


class _Own(NamedTuple):
  """What a worker goes on with.

  Attributes:
    values: list of its parameters.
    slots: for each of them the list of the inner optimizer's slots.
    steps: float32 [], those that are in the slots.
    exchanges: float32 [], those that its parameters went through.
  """

  values: list
  slots: list
  steps: tf.Tensor
  exchanges: tf.Tensor
