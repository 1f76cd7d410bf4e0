"""Updates by kernels that decode payloads, or sums, on their way.

A gradient that is decoded is written to memory, only to be read once by the
update: together that takes three times as long as at once (docs/speed.md). The
kernel gives the bits of `updates.make_update`, on which towers, servers and
collectives agree, where XLA fuses products with sums as it does on every
processor that has an instruction for it. A process tries that once before it
relies on it.
"""

import functools

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import contract
from terngrad.native import ops
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates

# Of the trial: a whole block of words, and no multiple of a vector.
_TRIAL_WORDS = 517
_DIGITS = (3, 20)


def make(replica, optimizer, decoupled_decay, codec):
  """An update that writes no gradients, or None where there is none.

  Variables whose method has no kernel are decoded and updated apart.

  Args:
    replica: `replicas.Replica` without statistics.
    optimizer: `optimizers.Optimizer`.
    decoupled_decay: see `updates.make_update`.
    codec: `reduce.gradients.GradientCodec` of the replica's parameters.

  Returns:
    A function of (what was received, see `GradientCodec.decode`, which `fits`;
    `reduce.gradients.Turn`; the numbers of `updates.make_update`), or None.
  """
  if not _possible(replica, optimizer, decoupled_decay, codec):
    return None
  if not agrees(bool(optimizer.slots), bool(replica.averages)):
    return None
  tensors = of(replica, optimizer)
  probes = codec.probes_of_buckets()
  no_states = [()] * len(codec.buckets)

  def update(received, turn, numbers):
    _, learning_rate, averaging_decay = numbers
    rates = learning_rate, averaging_decay
    scale = 1.0 / turn.num_workers
    means, others = [], []
    for number, bucket in enumerate(codec.buckets):
      move = _kernel_for(codec, number, received)
      if move:
        scalers = tf.gather(turn.shared, probes[number])
        move(scalers, scale, tensors.of(bucket.indices), rates)
        continue
      means += codec.decode_bucket(number, received, no_states, turn)[0]
      others += bucket.indices
    if others:
      rest = replica.part(others, ())
      updates.make_update(rest, optimizer, None)(means, [], numbers)

  return update


def fits(codec, received):
  """Whether there is a kernel for some of what was received."""
  numbers = range(len(codec.buckets))
  return any(_kernel_for(codec, number, received) for number in numbers)


def _kernel_for(codec, number, received):
  """What moves the variables of a bucket by what it received, or None."""
  method = codec.buckets[number].method
  messages = codec.received(number, received)[0][0]
  if isinstance(messages, methods.Payloads):
    return method.digits and functools.partial(_by_payloads, method, messages)
  return method.unit and functools.partial(_by_sums, method, messages)


def _by_payloads(method, messages, scalers, *rest):
  for piece in messages.pieces:
    ops.fused_update(method.digits, piece, scalers, *rest)


def _by_sums(method, messages, scalers, *rest):
  if method.unit == contract.ONE:
    scalers = tf.ones(scalers.shape)
  first = 0
  for sums in messages.pieces:
    ops.fused_update_of_sums(sums, first, scalers, *rest)
    first += sums.shape[0]


def _has_kernel(bucket):
  return bool(bucket.method.digits or bucket.method.unit)


def _possible(replica, optimizer, decoupled_decay, codec):
  # A clip, a decay and a loss scale want to see gradients.
  if optimizer.momentum is None or optimizer.clip_norm or decoupled_decay:
    return False
  if replica.scaling or replica.statistics:
    return False
  owners = {state.owner for states in codec.states() for state in states}
  if codec.finishes or methods.SHARED in owners:
    return False
  device = tf.DeviceSpec.from_string(replica.device)
  if device.device_type != 'CPU' or device.job:
    # The trial tells nothing of the processors of other tasks.
    return False
  return any(map(_has_kernel, codec.buckets))


def of(replica, optimizer):
  """The `ops.UpdateTensors` of a replica whose optimizer has a `momentum`."""
  return ops.UpdateTensors(
    parameters=replica.trainable,
    velocities=[slot[optimizers.MOMENTUM] for slot in replica.slots if slot],
    averages=replica.averages,
    momentum=optimizer.momentum,
  )


@functools.cache
def agrees(has_momentum, has_averages):
  """Whether the kernel gives the bits of `updates.make_update` here.

  Args:
    has_momentum: whether `optimizers.momentum` is tried, or plain descent.
    has_averages: whether there are moving averages.

  Returns:
    bool.
  """
  optimizer = (
    optimizers.momentum() if has_momentum else optimizers.gradient_descent()
  )
  with tf.init_scope(), tf.device('/CPU:0'):
    ours, xlas = (_trial(optimizer, has_averages) for _ in range(2))
    words = np.random.default_rng(0).integers(0, 3**20, [2, _TRIAL_WORDS])
    words = tf.constant(words.astype(np.uint32).view(np.int32))
    scalers = tf.constant([0.0123, 1e-20])
    rates = tf.constant(0.0371), tf.constant(0.9876)
    shapes = [variable.shape for variable in ours.trainable]
    means = ops.decode_sum([words], scalers, shapes, 0.5, _DIGITS)
    update = updates.make_update(xlas, optimizer, None)
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


def _trial(optimizer, has_averages):
  """A replica of a parameter and one of small values, zeros among them.

  None is subnormal: threads of TensorFlow make zeros of those, Python's, which
  runs the trial, does not.
  """
  rng = np.random.default_rng(1)
  small = 77

  def variables():
    large = rng.standard_normal(_TRIAL_WORDS * _DIGITS[1] - small - 3)
    values = large, rng.choice([0.0, -0.0, 1e-20, -3e-20, 1.0], small)
    return tuple(
      tf.Variable(v.astype(np.float32), trainable=False) for v in values
    )

  slots = tuple(dict.fromkeys(optimizer.slots, v) for v in variables())
  averages = variables() if has_averages else ()
  return replicas.Replica('/CPU:0', variables(), (), slots, averages)
