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
with what the worker has made of it meanwhile. Those steps are taken while the
exchange is on its way: nothing ties them to it. Departures: all turns are
equally long, moving statistics are averaged after each, and those of the steps
that overlap are not taken.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import random_bits
from terngrad.passes import accumulation
from terngrad.passes import inner_optimizers
from terngrad.reduce import worker_map
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
    overlap: tau < count, how many of the steps a worker takes while an exchange
      is on its way, and before it mixes in what that made of a fragment; 0
      takes it over as it is.
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

    if self.fragments:
      for i, shape in enumerate(shapes):
        keep('local_parameters', i, tuple(shape))
      keep('local_exchanges', 0, ())
    if self.overlap:
      keep('local_scores', 0, (passes.NUM_SCORES,))
    if self._keeps_slots:
      keep('inner_steps', 0, ())
      for i, shape in enumerate(shapes):
        for slot in self.inner.slots:
          keep(f'inner_{slot}', i, tuple(shape))
    return tuple(found)

  @property
  def _keeps_slots(self):
    """Whether slots outlive a pass."""
    return bool(self.inner.slots) and (self.inner.stays or self.overlap > 0)

  def of(self, node_pass, learning_rate):
    """What workers do in a step.

    A share of c b examples is c batches, where c is `count`; the last `overlap`
    of them are for the time of the exchange. Parameters and moving statistics
    go from step to step; a worker holds two more copies of the parameters, and
    one a slot of the inner optimizer, while it is its turn.

    Args:
      node_pass: `passes.Pass` of one batch.
      learning_rate: float32 [], of the worker's own steps.

    Returns:
      (a `passes.Pass` whose gradient is what the worker's own steps took away,
      which remembers `states` and whose scores are the means over the steps
      since the last exchange; the learning rate of the update float32 []; what
      the nodes of a device do while the exchange is on its way, a function of
      (`device_passes.DevicePasses`, `exchange.towers.Batch`, (seed and step
      int64 [])), None where they wait).
    """
    known = node_pass, learning_rate
    meanwhile = functools.partial(self._go_on, *known) if self.overlap else None
    gradients = functools.partial(self._run, *known)
    outer_rate = tf.constant(self.outer_rate)
    return node_pass._replace(gradients=gradients), outer_rate, meanwhile

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
    own = self._begun(parameters, memory) if memory else self._anew(parameters)
    own = own._replace(
      values=self._arrived(own.values, parameters, own.exchanges)
    )
    taken = self.count - self.overlap
    take = self._taking(node_pass, learning_rate, held, scale)
    own, moments = take(own, range(taken), images, labels, key)
    pairs = zip(parameters, own.values, strict=True)
    changes = [before - after for before, after in pairs]
    scored = taken + tf.where(own.exchanges > 0, float(self.overlap), 0.0)
    found = changes, own.scores / scored, moments
    own = own._replace(exchanges=own.exchanges + 1)
    return found if memory is None else (*found, self._memory(own))

  def _go_on(self, node_pass, learning_rate, where, batch, seed_and_step):
    replica = where.replica
    numbers = range(self.count - self.overlap, self.count)
    with tf.device(replica.device):
      held = [
        tf.convert_to_tensor(v) for v in (*replica.statistics, *replica.frozen)
      ]
      scale = [tf.convert_to_tensor(v) for v in replica.scaling[:1]]
      take = self._taking(node_pass, learning_rate, held, *scale)

      def body(worker):
        node = where.index_of(worker)
        key = random_bits.worker_key(*seed_and_step, worker)
        own = self._recall(where.memory.read(node))
        own = own._replace(scores=tf.zeros([passes.NUM_SCORES]))
        own, _ = take(own, numbers, *batch.of(worker), key)
        where.memory.write(node, self._memory(own))
        return []

      worker_map.worker_map(replica.device, where.workers, [], body)

  def _taking(self, node_pass, learning_rate, held, scale=None):
    """A function that takes steps.

    It takes (`_Own`, range of their numbers, images, labels, key) and returns
    (the `_Own` after them, the moving statistics).
    """
    moments = held[: node_pass.num_statistics]
    fixed = held[node_pass.num_statistics :]

    def take(own, numbers, images, labels, key):
      batches = accumulation.parts_of(self.count, images, labels)

      def step(number, values, slots, moments, total):
        gradients, scores, moments = node_pass.gradients(
          values,
          [*moments, *fixed],
          *(batch[number] for batch in batches),
          accumulation.part_key(key, number),
          scale,
        )
        count = own.steps + tf.cast(number - numbers.start + 1, tf.float32)
        each = zip(values, slots, gradients, self.decay(values), strict=True)
        pairs = [self.inner.apply(*one, learning_rate, count) for one in each]
        values, slots = map(list, zip(*pairs, strict=True))
        return number + 1, values, slots, moments, total + scores

      start = tf.constant(numbers.start)
      _, values, slots, after, scores = tf.while_loop(
        lambda number, *_: number < numbers.stop,
        step,
        (start, own.values, own.slots, moments, own.scores),
        parallel_iterations=1,
      )
      count = own.steps + len(numbers)
      return _Own(values, slots, count, own.exchanges, scores), after

    return take

  def _anew(self, parameters):
    """The `_Own` of a worker that remembers nothing."""
    return _Own(
      values=parameters,
      slots=[[tf.zeros_like(p) for _ in self.inner.slots] for p in parameters],
      steps=tf.constant(0.0),
      exchanges=tf.constant(0.0),
      scores=tf.zeros([passes.NUM_SCORES]),
    )

  def _begun(self, parameters, memory):
    """The `_Own` at the beginning of a pass."""
    own, anew = self._recall(memory), self._anew(parameters)
    if not self.inner.stays:
      own = own._replace(slots=anew.slots, steps=anew.steps)
    if not self.fragments:
      return own._replace(values=anew.values)
    # Nothing was kept before the first steps.
    is_first = tf.equal(own.exchanges, 0)
    pairs = zip(parameters, own.values, strict=True)
    return own._replace(values=[tf.where(is_first, *pair) for pair in pairs])

  def _recall(self, memory):
    """The `_Own` that `_memory` made tensors of."""
    left, own = iter(memory), self._anew([])
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

  def _memory(self, own):
    """Tensors in the order of `states`."""
    found = []
    if self.fragments:
      found += [*own.values, own.exchanges]
    if self.overlap:
      found.append(own.scores)
    if self._keeps_slots:
      found += [own.steps, *sum(own.slots, [])]
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
    scores: float32 [`passes.NUM_SCORES`], summed over its steps that no
      exchange has told of.
  """

  values: list
  slots: list
  steps: tf.Tensor
  exchanges: tf.Tensor
  scores: tf.Tensor
