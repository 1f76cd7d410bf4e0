"""Updates by kernels that decode payloads on their way into the parameters.

A gradient that is decoded is written to memory, only to be read once by the
update: for a net of 61 million parameters and two workers that is half of what
the end of a step takes (docs/speed.md). The kernel gives the bits of
`updates.make_update`, on which towers, servers and collectives agree, where XLA
fuses products with sums as it does on every processor that has an instruction
for it. Each process tries that once before it relies on it.
"""

import functools

import numpy as np
import tensorflow as tf

from terngrad.native import ops
from terngrad.training import optimizers
from terngrad.training import replicas
from terngrad.training import updates

_VELOCITY = 'momentum'
# Of the trial: a whole block of words, and no multiple of a vector.
_TRIAL_WORDS = 517
_DIGITS = (3, 20)


def make(replica, optimizer, codec):
  """An update without gradients, or None where there is none.

  Args:
    replica: `replicas.Replica` without statistics.
    optimizer: `optimizers.Optimizer` that clips no norm.
    codec: `codec.gradients.GradientCodec` of the replica's parameters.

  Returns:
    A function of (payloads, list of int32 [n, words], see
    `GradientCodec.decode_mean`; the agreed probe float32 [probes]; the numbers
    of `updates.make_update`), or None.
  """
  if (
    optimizer.momentum is None
    or not codec.descends
    or tf.DeviceSpec.from_string(replica.device).device_type != 'CPU'
    or not agrees()
  ):
    return None
  descent = of(replica, optimizer)

  def descend(payloads, shared, numbers):
    _, learning_rate, averaging_decay = numbers
    rates = learning_rate, averaging_decay
    codec.descend(payloads, shared, descent, rates)

  return descend


def of(replica, optimizer):
  """The `ops.Descent` of a replica whose optimizer has a `momentum`."""
  return ops.Descent(
    parameters=replica.trainable,
    velocities=[slot[_VELOCITY] for slot in replica.slots if slot],
    averages=replica.averages,
    momentum=optimizer.momentum,
  )


@functools.cache
def agrees():
  """Whether the kernel gives the bits of `updates.make_update` here."""
  with tf.init_scope(), tf.device('/CPU:0'):
    optimizer = optimizers.momentum(0.9)
    ours, xlas = _trial(), _trial()
    words = tf.constant(
      np.random.default_rng(0)
      .integers(0, 3**20, [2, _TRIAL_WORDS])
      .astype(np.uint32)
      .view(np.int32)
    )
    coded = [words], [tf.constant(0.0123)]
    rates = tf.constant(0.0371), tf.constant(0.9876)
    shape = ours.trainable[0].shape
    means = ops.decode_sum(*coded, [shape], 0.5, _DIGITS)
    update = updates.make_update(xlas, optimizer, None)
    update(means, [], (tf.constant(0, tf.int64), *rates))
    ops.descend(_DIGITS, *coded, 0.5, of(ours, optimizer), rates)
    pairs = zip(ours.variables(), xlas.variables(), strict=True)
    return all(np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)


def _trial():
  """A replica of one parameter with a velocity and an average."""
  count = _TRIAL_WORDS * _DIGITS[1] - 3
  rng = np.random.default_rng(1)
  parameter, velocity, average = (
    tf.Variable(rng.standard_normal(count).astype(np.float32), trainable=False)
    for _ in range(3)
  )
  slots = ({_VELOCITY: velocity},)
  return replicas.Replica('/CPU:0', (parameter,), (), slots, (average,))
