"""Updates by kernels that decode payloads, or sums, on their way.

A gradient that is decoded is written to memory, only to be read once by the
update: together that takes three times as long as at once (docs/speed.md). The
kernel gives the bits of `updates.Update`, on which towers, servers and
collectives agree, where XLA fuses products with sums as it does on every
processor that has an instruction for it. A process tries that once before it
relies on it.
"""

import dataclasses
import functools
from typing import cast

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import contract
from terngrad.native import ops
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import programs
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates

# Of the trial: a whole block of words, and no multiple of a vector.
_TRIAL_WORDS = 517
_DIGITS = ops.Digits(3, 20)


@dataclasses.dataclass(frozen=True)
class FusedUpdate:
  """An update that writes no gradients; see `make`.

  Attributes:
    replica: without statistics.
    optimizer: applied once a step.
    codec: of the replica's parameters.
  """

  replica: replicas.Replica
  optimizer: optimizers.Optimizer
  codec: gradients_lib.GradientCodec

  def __call__(
    self,
    received: methods.Arrived,
    step: gradients_lib.WorkerStep,
    numbers: updates.Numbers,
  ) -> None:
    """Updates the replica.

    Variables whose method has no kernel are decoded and updated apart.

    Args:
      received: see `GradientCodec.decode`; `fits` is True of it.
      step: without worker.
      numbers: of the update.
    """
    codec, rates = self.codec, numbers[1:]
    parameters = of(self.replica, self.optimizer)
    scale = 1.0 / step.num_workers
    others = []
    for number, bucket in enumerate(codec.buckets):
      messages = _for_kernel(codec, number, received)
      if messages is None:
        others.append(number)
        continue
      scalers = tf.gather(step.shared, codec.probes_of_buckets[number])
      tensors = parameters.of(bucket.indices)
      if isinstance(messages, methods.Payloads):
        # There is a kernel.
        digits = cast(tuple[int, int], bucket.method.digits)
        for piece in messages.pieces:
          ops.fused_update(digits, piece, scalers, scale, tensors, rates)
        continue
      if bucket.method.unit == contract.ONE:
        scalers = tf.ones(scalers.shape)
      first = 0
      # Nothing with a unit is scattered.
      for sums in cast(methods.Sum, messages).pieces:
        ops.fused_update_of_sums(sums, first, scalers, scale, tensors, rates)
        first += sums.shape[0]
    if others:
      means = codec.means(received, step, others)
      indices = sorted(i for n in others for i in codec.buckets[n].indices)
      rest = self.replica.part(indices, ())
      updates.Update(rest, self.optimizer, None)(means, [], numbers)


def fits(codec: gradients_lib.GradientCodec, received: methods.Arrived) -> bool:
  """Whether there is a kernel for some of what was received."""
  numbers = range(len(codec.buckets))
  return any(_for_kernel(codec, n, received) is not None for n in numbers)


def _for_kernel(
  codec: gradients_lib.GradientCodec, number: int, received: methods.Arrived
) -> methods.Received | None:
  """What a bucket received, where a kernel updates its variables by that."""
  method = codec.buckets[number].method
  messages = codec.received(number, received)[0][0]
  is_payloads = isinstance(messages, methods.Payloads)
  return messages if (method.digits if is_payloads else method.unit) else None


def make(
  replica: replicas.Replica,
  optimizer: optimizers.Optimizer,
  decoupled_decay: programs.WeightDecay | None,
  codec: gradients_lib.GradientCodec,
) -> FusedUpdate | None:
  """An update that writes no gradients, or None where there is none.

  Args:
    replica: without statistics.
    optimizer: applied once a step.
    decoupled_decay: see `updates.Update`.
    codec: of the replica's parameters.
  """
  # A clip, a decay and a loss scale want to see gradients.
  if optimizer.kernel_momentum is None or any(
    (optimizer.clip_norm, decoupled_decay, replica.scaling, replica.statistics)
  ):
    return None
  owners = {state.owner for states in codec.states() for state in states}
  if codec.finishes or methods.SHARED in owners:
    return None
  device = tf.DeviceSpec.from_string(replica.device)
  # The trial says nothing of the processors of other tasks.
  is_own = device.device_type == 'CPU' and not device.job
  if not is_own or not any(
    bucket.method.digits or bucket.method.unit for bucket in codec.buckets
  ):
    return None
  if not agrees(bool(optimizer.slots), bool(replica.averages)):
    return None
  return FusedUpdate(replica, optimizer, codec)


def of(
  replica: replicas.Replica, optimizer: optimizers.Optimizer
) -> ops.UpdateTensors:
  """The tensors of a replica whose optimizer has a `kernel_momentum`."""
  return ops.UpdateTensors(
    parameters=replica.trainable,
    velocities=[slot[optimizers.MOMENTUM] for slot in replica.slots if slot],
    averages=replica.averages,
    # `make` looked.
    momentum=cast(float, optimizer.kernel_momentum),
  )


@functools.cache
def agrees(has_momentum: bool, has_averages: bool) -> bool:
  """Whether the kernel gives the bits of `updates.Update` here.

  Args:
    has_momentum: whether `optimizers.Momentum` is tried, or plain descent.
    has_averages: whether there are moving averages.
  """
  optimizer = (
    optimizers.Momentum() if has_momentum else optimizers.GradientDescent()
  )
  with tf.init_scope(), tf.device('/CPU:0'):
    ours, xlas = (_trial(optimizer, has_averages) for _ in range(2))
    words = np.random.default_rng(0).integers(0, 3**20, [2, _TRIAL_WORDS])
    words = tf.constant(words.astype(np.uint32).view(np.int32))
    scalers = tf.constant([0.0123, 1e-20])
    rates = tf.constant(0.0371), tf.constant(0.9876)
    shapes = [variable.shape for variable in ours.trainable]
    means = _DIGITS.decode_sum([words], scalers, shapes, 0.5)
    update = updates.Update(xlas, optimizer, None)
    update(means, [], (tf.constant(0, tf.int64), *rates))
    piece = methods.Piece(0, [words])
    ops.fused_update(_DIGITS, piece, scalers, 0.5, of(ours, optimizer), rates)
    sums = tf.concat([tf.reshape(mean, [-1]) for mean in means], axis=0)
    update(means, [], (tf.constant(1, tf.int64), *rates))
    ones = tf.ones([2])
    ops.fused_update_of_sums(sums, 0, ones, 1.0, of(ours, optimizer), rates)
    pairs = zip(ours.variables(), xlas.variables(), strict=True)
    return all(
      np.array_equal(a.numpy().view(np.int32), b.numpy().view(np.int32))
      for a, b in pairs
    )


def _trial(
  optimizer: optimizers.Optimizer, has_averages: bool
) -> replicas.Replica:
  """A replica of a parameter and one of small values, zeros among them.

  None is subnormal: threads of TensorFlow make zeros of those, Python's, which
  runs the trial, does not.
  """
  rng = np.random.default_rng(1)
  small = 77

  def variables() -> tuple[tf.Variable, ...]:
    large = rng.standard_normal(_TRIAL_WORDS * _DIGITS[1] - small - 3)
    values = large, rng.choice([0.0, -0.0, 1e-20, -3e-20, 1.0], small)
    return tuple(
      tf.Variable(v.astype(np.float32), trainable=False) for v in values
    )

  slots = tuple(dict.fromkeys(optimizer.slots, v) for v in variables())
  averages = variables() if has_averages else ()
  return replicas.Replica('/CPU:0', variables(), (), slots, averages)
