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

from typing import Any

import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.exchange import towers
from terngrad.passes import accumulation
from terngrad.passes import local_memory
from terngrad.reduce import worker_map
from terngrad.step import device_passes
from terngrad.step import passes


class LocalSteps(local_memory.LocalMemory):
  """What a worker does between two exchanges; see `LocalMemory`."""

  def pass_at(
    self, node_pass: passes.Pass, learning_rate: tf.Tensor
  ) -> 'LocalPass':
    """What workers do in a step; see `LocalPass`."""
    return LocalPass(self, node_pass, learning_rate)


class LocalPass(passes.Pass):
  """What workers do in a step.

  Its gradient is what the worker's own steps took away; its scores are the
  means over the steps since the last exchange. A share of c b examples is c
  batches, where c is `LocalSteps.count`; the last `LocalSteps.overlap` of them
  are for the time of the exchange. Parameters and moving statistics go from
  step to step; a worker holds two more copies of the parameters, and one a slot
  of the inner optimizer, while it is its turn.
  """

  def __init__(
    self, steps: LocalSteps, node_pass: passes.Pass, learning_rate: tf.Tensor
  ) -> None:
    """Takes the numbers of the steps.

    Args:
      steps: what a worker does between two exchanges.
      node_pass: of one batch.
      learning_rate: float32 [], of the worker's own steps.
    """
    super().__init__(
      node_pass.num_statistics, node_pass.decay, node_pass.decoupled_decay
    )
    self._steps = steps
    self._node_pass = node_pass
    self._learning_rate = learning_rate

  def gradients(
    self,
    parameters: list[tf.Tensor],
    held: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
    memory: list[tf.Tensor] | None = None,
  ) -> tuple[Any, ...]:
    """See `passes.Pass.gradients`; remembers `LocalSteps.states`."""
    steps = self._steps
    if memory:
      own = steps.begun(parameters, memory)
    else:
      own = steps.anew(parameters)
    own = own._replace(
      values=steps.arrived(own.values, parameters, own.exchanges)
    )
    taken = steps.count - steps.overlap
    batches = accumulation.parts_of(steps.count, images, labels)
    own, moments = self._take(own, range(taken), batches, key, (held, scale))
    pairs = zip(parameters, own.values, strict=True)
    changes = [before - after for before, after in pairs]
    scored = taken + tf.where(own.exchanges > 0, float(steps.overlap), 0.0)
    found = changes, own.scores / scored, moments
    own = own._replace(exchanges=own.exchanges + 1)
    return found if memory is None else (*found, steps.memory(own))

  def go_on(
    self,
    where: device_passes.DevicePasses,
    batch: towers.Batch,
    seed: tf.Tensor,
    step: tf.Tensor,
  ) -> None:
    """See `passes.Pass.go_on`."""
    steps, device = self._steps, where.replica.device
    if not steps.overlap:
      return
    numbers = range(steps.count - steps.overlap, steps.count)
    with tf.device(device):
      given = where.held()

      def body(worker: tf.Tensor) -> list[tf.Tensor]:
        node = worker_map.index_of(worker, where.workers)
        key = random_bits.worker_key(seed, step, worker)
        own = steps.recall(where.memory.read(node))
        own = own._replace(scores=tf.zeros([passes.NUM_SCORES]))
        batches = accumulation.parts_of(steps.count, *batch.of(worker))
        own, _ = self._take(own, numbers, batches, key, given)
        where.memory.write(node, steps.memory(own))
        return []

      worker_map.worker_map(device, where.workers, [], body)

  def _take(
    self,
    own: local_memory.Own,
    numbers: range,
    batches: list[tf.Tensor],
    key: tf.Tensor,
    given: tuple[list[tf.Tensor], tf.Tensor | None],
  ) -> tuple[local_memory.Own, list[tf.Tensor]]:
    """Takes steps of these numbers.

    Args:
      own: before them.
      numbers: of the steps.
      batches: images and labels, [count, b, ...] each.
      key: of the worker.
      given: `held` and `scale` of `passes.Pass.gradients`.

    Returns:
      (what the worker goes on with, the moving statistics).
    """
    (held, scale), decay = given, self._steps.decay
    moments, fixed = held[: self.num_statistics], held[self.num_statistics :]

    def step(
      number: tf.Tensor,
      values: list[tf.Tensor],
      slots: list[list[tf.Tensor]],
      moments: list[tf.Tensor],
      total: tf.Tensor,
    ) -> tuple[Any, ...]:
      images, labels = (batch[number] for batch in batches)
      gradients, scores, moments = self._node_pass.gradients(
        values,
        [*moments, *fixed],
        images,
        labels,
        accumulation.part_key(key, number),
        scale,
      )
      count = own.steps + tf.cast(number - numbers.start + 1, tf.float32)
      terms = decay.gradients(values) if decay else [None] * len(values)
      each = zip(values, slots, gradients, terms, strict=True)
      pairs = [
        self._steps.inner.apply(*one, self._learning_rate, count)
        for one in each
      ]
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
    return local_memory.Own(values, slots, count, own.exchanges, scores), after
