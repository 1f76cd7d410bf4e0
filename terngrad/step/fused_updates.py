"""Fused updates: kernels that decode messages and update parameters.

Decoding gradients to memory before the update takes three times as long
(docs/speed.md).

The kernels must give the bits of `updates.Update`, which towers, parameter
servers and collectives share. XLA fuses a product and a sum into one rounding
where the device has such an instruction; on GPUs it depends on the compiler
which products it rounds. Each process tries the kernels once for each kind of
device before it uses them, on GPUs with all choices.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import cast

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import contract
from terngrad.native import gpu
from terngrad.native import ops
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import weight_decay
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates

# Words of the trial: more than one block, and no multiple of a vector.
_TRIAL_WORDS = 517
# The second scaler of the trial, and what small parameters add to others. On
# GPUs they are subnormal: updates there compute with such numbers, while what
# is decoded is flushed to zero. On CPUs none is: TensorFlow's threads flush
# them, while the Python thread that runs the trial does not.
_TRIAL_SCALERS = {'CPU': 1e-20, 'GPU': 1.5e-38}
_TRIAL_SUBNORMALS = {'CPU': (), 'GPU': (1e-40, -3e-42)}
_DIGITS = {'CPU': ops.Digits(3, 20), 'GPU': ops.GpuDigits(3, 20)}
# What the kernels can round; see `native/src/gpu/update_tables.h`.
_ROUNDINGS = {'CPU': range(1), 'GPU': range(12)}


@dataclasses.dataclass(frozen=True, eq=False)
class FusedUpdate:
  """An update that decodes in the kernel and stores no gradients.

  Attributes:
    replica: without statistics.
    roundings: which products GPUs round.
  """

  replica: replicas.Replica
  optimizer: optimizers.Optimizer
  codec: gradients_lib.GradientCodec
  roundings: int = 0

  @property
  def on_gpus(self) -> bool:
    """Whether the replica is on a GPU."""
    return _type_of(self.replica) == 'GPU'

  def __call__(
    self,
    received: methods.ReceivedRounds,
    step: gradients_lib.WorkerStep,
    numbers: updates.Numbers,
  ) -> None:
    """Updates the replica.

    Variables whose method has no kernel are decoded, then updated.

    Args:
      received: as `GradientCodec.decode` takes it; `fits` must be True for it.
      step: without a worker, with the agreed probe.
      numbers: (step, learning_rate, averaging_decay).
    """
    codec, rates = self.codec, numbers[1:]
    parameters = update_tensors(self.replica, self.optimizer)
    parameters = parameters._replace(roundings=self.roundings)
    scale = 1.0 / step.num_workers
    others = []
    for number, bucket in enumerate(codec.buckets):
      messages = _kernel_messages(codec, number, received)
      if messages is None:
        others.append(number)
        continue
      scalers = tf.gather(step.shared_probe, codec.probes_of_buckets[number])
      tensors = parameters.select(bucket.indices)
      if isinstance(messages, methods.Payloads):
        # Not None: `_kernel_messages` returned the messages.
        digits = cast(tuple[int, int], bucket.method.digits)
        for piece in messages.pieces:
          ops.fused_update(digits, piece, scalers, scale, tensors, rates)
        continue
      if bucket.method.unit == contract.ONE:
        scalers = tf.ones(scalers.shape)
      first = 0
      # Methods with a unit send no scattered messages.
      for sums in cast(methods.Sum, messages).pieces:
        ops.fused_update_of_sums(
          sums, first, scalers, scale, tensors, rates, on_gpus=self.on_gpus
        )
        first += sums.shape[0]
    if others:
      means = codec.means(received, step, others)
      indices = sorted(i for n in others for i in codec.buckets[n].indices)
      rest = self.replica.part(indices, ())
      updates.Update(rest, self.optimizer, None)(means, None, numbers)


def fits(
  codec: gradients_lib.GradientCodec, received: methods.ReceivedRounds
) -> bool:
  """Checks whether a kernel decodes at least one of the received messages."""
  # Nothing is received if workers of one device add float32 gradients.
  numbers = range(len(codec.buckets) if received else 0)
  return any(_kernel_messages(codec, n, received) is not None for n in numbers)


def _kernel_messages(
  codec: gradients_lib.GradientCodec,
  number: int,
  received: methods.ReceivedRounds,
) -> methods.Received | None:
  """Finds the messages of a bucket for a kernel; None if there is no kernel."""
  method = codec.buckets[number].method
  messages = codec.select_received(number, received)[0][0]
  is_payloads = isinstance(messages, methods.Payloads)
  return messages if (method.digits if is_payloads else method.unit) else None


def make(
  replica: replicas.Replica,
  optimizer: optimizers.Optimizer,
  decoupled_decay: weight_decay.WeightDecay | None,
  codec: gradients_lib.GradientCodec,
) -> FusedUpdate | None:
  """Makes a fused update; returns None if the kernels cannot do it.

  The kernels need a device of this process, plain descent or momentum, and
  methods without `finish` and shared states. They compute no clipping,
  decoupled decay, loss scaling or statistics.
  """
  # Clipping, decay and loss scaling need the gradients.
  if optimizer.kernel_momentum is None or any(
    (optimizer.clip_norm, decoupled_decay, replica.scaling, replica.statistics)
  ):
    return None
  if codec.finishes or codec.has_shared_states:
    return None
  kind = _type_of(replica)
  # The trial does not cover the processors of other tasks.
  is_remote = bool(tf.DeviceSpec.from_string(replica.device).job)
  if (
    kind not in _DIGITS
    or is_remote
    or not any(
      bucket.method.digits or bucket.method.unit for bucket in codec.buckets
    )
  ):
    return None
  if kind == 'GPU' and not gpu.available():
    return None
  roundings = kernel_roundings(
    bool(optimizer.slots), bool(replica.averages), kind
  )
  if roundings is None:
    return None
  return FusedUpdate(replica, optimizer, codec, roundings)


def _type_of(replica: replicas.Replica) -> str | None:
  """Returns the type of a replica's device, such as 'CPU'."""
  return tf.DeviceSpec.from_string(replica.device).device_type


def update_tensors(
  replica: replicas.Replica, optimizer: optimizers.Optimizer
) -> ops.UpdateTensors:
  """Collects the tensors of a replica for the kernels.

  The optimizer must have a `kernel_momentum`.
  """
  return ops.UpdateTensors(
    parameters=replica.trainable,
    velocities=[slot[optimizers.MOMENTUM] for slot in replica.slots if slot],
    averages=replica.averages,
    # `make` has checked this.
    momentum=cast(float, optimizer.kernel_momentum),
  )


@functools.cache
def kernel_roundings(
  has_momentum: bool, has_averages: bool, kind: str = 'CPU'
) -> int | None:
  """Finds the roundings with which kernels give the bits of `updates.Update`.

  It tries `optimizers.Momentum`, or plain descent without `has_momentum`, on
  the first device of a kind: 'CPU' or 'GPU'. Returns None if there are none.
  """
  digits = _DIGITS[kind]
  optimizer = (
    optimizers.Momentum() if has_momentum else optimizers.GradientDescent()
  )
  with tf.init_scope(), tf.device(f'/{kind}:0'):
    xla = _trial_replica(optimizer, has_averages, kind)
    words = np.random.default_rng(0).integers(0, 3**20, [2, _TRIAL_WORDS])
    words = tf.constant(words.astype(np.uint32).view(np.int32))
    scalers = tf.constant([0.0123, _TRIAL_SCALERS[kind]])
    rates = tf.constant(0.0371), tf.constant(0.9876)
    shapes = [variable.shape for variable in xla.trainable]
    means = digits.decode_sum([words], scalers, shapes, 0.5)
    update = updates.Update(xla, optimizer, None)
    for step in range(2):
      update(means, None, (tf.constant(step, tf.int64), *rates))
    sums = tf.concat([tf.reshape(mean, [-1]) for mean in means], axis=0)
    piece = methods.Piece(0, [words])
    for roundings in _ROUNDINGS[kind]:
      fused = _trial_replica(optimizer, has_averages, kind)
      tensors = update_tensors(fused, optimizer)._replace(roundings=roundings)
      ops.fused_update(digits, piece, scalers, 0.5, tensors, rates)
      ops.fused_update_of_sums(
        sums, 0, tf.ones([2]), 1.0, tensors, rates, on_gpus=kind == 'GPU'
      )
      if _have_equal_bits(fused.variables(), xla.variables()):
        return roundings
  return None


def _have_equal_bits(
  some: Sequence[tf.Variable], others: Sequence[tf.Variable]
) -> bool:
  return all(
    np.array_equal(a.numpy().view(np.int32), b.numpy().view(np.int32))
    for a, b in zip(some, others, strict=True)
  )


def _trial_replica(
  optimizer: optimizers.Optimizer, has_averages: bool, kind: str
) -> replicas.Replica:
  """Makes a replica of two parameters; one has small values and zeros."""
  rng = np.random.default_rng(1)
  small = 77

  def variables() -> tuple[tf.Variable, ...]:
    large = rng.standard_normal(20 * _TRIAL_WORDS - small - 3)
    choices = [0.0, -0.0, 1e-20, -3e-20, 1.0, *_TRIAL_SUBNORMALS[kind]]
    values = large, rng.choice(choices, small)
    return tuple(
      tf.Variable(v.astype(np.float32), trainable=False) for v in values
    )

  slots = tuple(dict.fromkeys(optimizer.slots, v) for v in variables())
  averages = variables() if has_averages else ()
  return replicas.Replica(f'/{kind}:0', variables(), (), slots, averages)
