"""Steps of methods without devices: all workers one after the other."""

import numpy as np
import tensorflow as tf

from terngrad.codec import bucketing
from terngrad.codec import gradients
from terngrad.codec import method as methods
from terngrad.codec import policy


def codec_of(method, shapes):
  """The `gradients.GradientCodec` with one method for variables of shapes."""
  specs = [policy.VariableSpec(str(i), s) for i, s in enumerate(shapes)]
  return bucketing.gradient_codec(specs, [method] * len(shapes))


class Workers:
  """Workers with their states, which take steps together."""

  def __init__(self, codec, num_workers):
    self.shared = [
      [s.first_value() if s.owner == methods.SHARED else None for s in states]
      for states in codec.states()
    ]
    self.own = [
      [
        [s.first_value() if s.owner == methods.WORKER else None for s in states]
        for states in codec.states()
      ]
      for _ in range(num_workers)
    ]

  def states(self, worker):
    """What a worker sees: its own states and those that are shared."""
    return [
      [b if a is None else a for a, b in zip(*pair, strict=True)]
      for pair in zip(self.own[worker], self.shared, strict=True)
    ]

  def keep(self, worker, states):
    """Keeps a worker's own states of `states`."""
    self.own[worker] = [
      [None if a is None else b for a, b in zip(*pair, strict=True)]
      for pair in zip(self.own[worker], states, strict=True)
    ]

  def step(self, codec, values, number):
    """The mean gradients of a list of float32 a worker, as NumPy."""
    return [mean.numpy() for mean in self.means(codec, values, number)]

  def totals(self, codec, gradients):
    """Takes steps; what was sent, and what there was, in the mean.

    Args:
      codec: `gradients.GradientCodec`.
      gradients: for each step a list of float32 a worker.

    Returns:
      (for each variable the sum of the mean gradients that the steps gave; the
      sum of the means of those that there were), float64.
    """
    sent, were = [], []
    for number, values in enumerate(gradients):
      sent.append(self.step(codec, values, number))
      were.append(
        [
          np.mean(v, axis=0, dtype=np.float64)
          for v in zip(*values, strict=True)
        ]
      )
    return tuple(
      [
        np.sum(one, axis=0, dtype=np.float64)
        for one in zip(*all_steps, strict=True)
      ]
      for all_steps in (sent, were)
    )

  def means(self, codec, values, number):
    """`step`, as tensors."""
    count = len(values)
    step = tf.cast(number, tf.int64)
    turns, carried = [], []
    for worker, own in enumerate(values):
      index = tf.constant(worker)
      keys = codec.keys(1, step, index)
      turn = gradients.Turn(1, step, count, index, keys)
      held, probe = codec.begin(
        [tf.convert_to_tensor(v) for v in own], self.states(worker), turn
      )
      turns.append(turn._replace(own=probe))
      carried.append(held)
    shared = gradients.agree(tf.stack([turn.own for turn in turns]))
    turns = [turn._replace(shared=shared) for turn in turns]
    received = []
    for turn_number in range(codec.num_rounds):
      rows = []
      for worker, turn in enumerate(turns):
        arrived = methods.received_by(turn.worker, received)
        words, states = codec.send(
          turn_number, carried[worker], self.states(worker), arrived, turn
        )
        self.keep(worker, states)
        rows.append(words)
      pieces = [methods.Piece(0, [tf.stack(rows)])]
      received.append(methods.payloads(codec.messages(turn_number), pieces))
    before = [
      [None if a is not None else b for a, b in zip(*pair, strict=True)]
      for pair in zip(self.own[0], self.shared, strict=True)
    ]
    told = gradients.Turn(1, step, count, shared=shared)
    means, self.shared = codec.decode(received, before, told)
    for worker, turn in enumerate(turns):
      if codec.finishes:
        states = codec.finish(carried[worker], self.states(worker), means, turn)
        self.keep(worker, states)
    return means
