"""Local steps: workers train locally and exchange the change of parameters.

With plain descent at rate 1 as the outer optimizer this is federated averaging
and local SGD: McMahan et al., Communication-Efficient Learning of Deep Networks
from Decentralized Data, AISTATS 2017, https://arxiv.org/abs/1602.05629; Stich,
Local SGD Converges Fast and Communicates Little, ICLR 2019,
https://arxiv.org/abs/1805.09767. With Nesterov momentum as the outer optimizer,
and an inner AdamW whose slots survive exchanges, it is DiLoCo: Douillard et
al., DiLoCo: Distributed Low-Communication Training of Language Models, 2023,
https://arxiv.org/abs/2311.08105, algorithm 1.

Fragments follow Douillard et al., Streaming DiLoCo with overlapping
communication, 2025, https://arxiv.org/abs/2501.18512. Each step exchanges one
fragment of the parameters, in turn. A worker goes on with local steps during
the exchange and then mixes the result into its local parameters. No dependency
connects these steps with the exchange. Departures from the paper: all turns
have the same number of steps, and all workers overlap the same number of them;
moving statistics are averaged after each turn, without those of the overlapping
steps; a fragment travels in the code of the run, not always as 4-bit floats.
"""

from typing import Any

import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.exchange import protocol
from terngrad.passes import accumulation
from terngrad.passes import local_memory
from terngrad.reduce import worker_map
from terngrad.step import device_passes
from terngrad.step import passes


class TrainerLocalSteps(local_memory.LocalMemory):
  """The local steps between two exchanges; `LocalMemory` has the options."""

  def pass_at(
    self, node_pass: passes.Pass, learning_rate: tf.Tensor
  ) -> 'LocalPass':
    """Makes the pass of a step; see `LocalTraining.pass_at`."""
    return LocalPass(self, node_pass, learning_rate)


class LocalPass(passes.WrappedPass):
  """A pass that takes local steps.

  Its gradient is parameters before minus parameters after the local steps. Its
  scores are the means over the steps since the last exchange.

  The c b examples of a worker are c batches, where c is
  `TrainerLocalSteps.count`. The last `TrainerLocalSteps.overlap` batches are
  used during the exchange. Parameters and moving statistics pass from one local
  step to the next. While a worker runs, it holds two more copies of the
  parameters and one for each slot of the inner optimizer.
  """

  def __init__(
    self,
    steps: TrainerLocalSteps,
    node_pass: passes.Pass,
    learning_rate: tf.Tensor,
  ) -> None:
    """Stores the options; see `LocalTraining.pass_at`."""
    super().__init__(node_pass)
    self._steps = steps
    self._learning_rate = learning_rate

  def gradients(
    self,
    parameters: list[tf.Tensor],
    non_trainable: list[tf.Tensor],
    images: tf.Tensor | list[tf.Tensor],
    labels: tf.Tensor | list[tf.Tensor],
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
    memory: list[tf.Tensor] | None = None,
  ) -> tuple[Any, ...]:
    """Takes the local steps before the exchange; see `passes.Pass.gradients`.

    The batch is [c b, ...], or a list with one for each device of the worker.
    `memory` has the values of `TrainerLocalSteps.states`; the new values are
    returned last, unless `memory` is None.
    """
    steps = self._steps
    if memory:
      state = steps.begin_state(parameters, memory)
    else:
      state = steps.new_state(parameters)
    state = state._replace(
      values=steps.merge_fragment(state.values, parameters, state.exchanges)
    )
    num_steps = steps.count - steps.overlap
    batches = accumulation.parts_of(steps.count, images, labels)
    state, moments = self._take(
      state, range(num_steps), batches, key, (non_trainable, scale)
    )
    pairs = zip(parameters, state.values, strict=True)
    changes = [before - after for before, after in pairs]
    overlap = tf.where(state.exchanges > 0, float(steps.overlap), 0.0)
    results = changes, state.scores / (num_steps + overlap), moments
    state = state._replace(exchanges=state.exchanges + 1)
    return results if memory is None else (*results, steps.pack_state(state))

  def compute_during_exchange(
    self,
    devices: device_passes.DevicePasses,
    batch: protocol.DeviceExamples,
    seed: tf.Tensor,
    step: tf.Tensor,
  ) -> None:
    """Takes the local steps during the exchange; see `passes.Pass`."""
    steps, device = self._steps, devices.replica.device
    if not steps.overlap:
      return
    numbers = range(steps.count - steps.overlap, steps.count)
    with tf.device(device):
      inputs = devices.pass_arguments()

      def body(worker: tf.Tensor) -> list[tf.Tensor]:
        node = worker_map.index_of(worker, devices.workers)
        key = random_bits.compiled_worker_key(seed, step, worker)
        state = steps.unpack_state(devices.memory.read(node))
        state = state._replace(scores=tf.zeros([passes.NUM_SCORES]))
        batches = accumulation.parts_of(steps.count, *batch.for_worker(worker))
        state, _ = self._take(state, numbers, batches, key, inputs)
        devices.memory.write(node, steps.pack_state(state))
        return []

      worker_map.worker_map(device, devices.workers, [], body)

  def _take(
    self,
    state: local_memory.LocalState,
    numbers: range,
    batches: list[Any],
    key: tf.Tensor,
    inputs: tuple[list[tf.Tensor], tf.Tensor | None],
  ) -> tuple[local_memory.LocalState, list[tf.Tensor]]:
    """Takes the local steps with the batches `numbers`.

    Args:
      state: of the worker before.
      numbers: indices of the batches.
      batches: images and labels, [count, b, ...], or lists of these by device.
      key: uint32 [2], random key of the worker.
      inputs: `non_trainable` and `scale` of `passes.Pass.gradients`.

    Returns:
      (state of the worker, moving statistics) after the steps.
    """
    (non_trainable, scale), decay = inputs, self._steps.decay
    size = self.num_statistics
    moments, fixed = non_trainable[:size], non_trainable[size:]

    def step(
      number: tf.Tensor,
      values: list[tf.Tensor],
      slots: list[list[tf.Tensor]],
      moments: list[tf.Tensor],
      total: tf.Tensor,
    ) -> tuple[Any, ...]:
      images, labels = tf.nest.map_structure(lambda t: t[number], batches)
      gradients, scores, moments = self._node_pass.gradients(
        values,
        [*moments, *fixed],
        images,
        labels,
        accumulation.part_key(key, number),
        scale,
      )
      count = state.steps + tf.cast(number - numbers.start + 1, tf.float32)
      terms = decay.gradients(values) if decay else [None] * len(values)
      each = zip(values, slots, gradients, terms, strict=True)
      pairs = [
        self._steps.rule(index).apply(*one, self._learning_rate, count)
        for index, one in enumerate(each)
      ]
      values, slots = map(list, zip(*pairs, strict=True))
      return number + 1, values, slots, moments, total + scores

    start = tf.constant(numbers.start)
    _, values, slots, after, scores = tf.while_loop(
      lambda number, *_: number < numbers.stop,
      step,
      (start, state.values, state.slots, moments, state.scores),
      parallel_iterations=1,
    )
    count = state.steps + len(numbers)
    new = state._replace(values=values, slots=slots, steps=count, scores=scores)
    return new, after
