"""Steps of methods without devices: all workers one after the other.

For measurements and tests; training goes through `step`.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.reduce import gradients


class Taken(NamedTuple):
  """What a step sent and gave.

  Attributes:
    means: list of float32, in the order and shapes of the variables.
    words: for each round int32 [workers, words of the round].
    turns: list of `gradients.Turn`, one a worker.
  """

  means: list
  words: list
  turns: list


class Workers:
  """Workers with their states, which take steps together."""

  def __init__(self, codec, num_workers):
    """Begins with the first values of all states.

    Args:
      codec: `gradients.GradientCodec`.
      num_workers: N.
    """
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

  def take(self, codec, values, number):
    """Takes a step; states change.

    Args:
      codec: `gradients.GradientCodec`.
      values: for each worker a list of float32, its gradients.
      number: int or int64 [], steps taken before this one.

    Returns:
      `Taken`.
    """
    step = tf.cast(number, tf.int64)
    turns, carried = self._begin(codec, values, step)
    words, received = [], []
    for turn_number in range(codec.num_rounds):
      rows = []
      for worker, turn in enumerate(turns):
        arrived = methods.received_by(turn.worker, received)
        row, states = codec.send(
          turn_number, carried[worker], self.states(worker), arrived, turn
        )
        self.keep(worker, states)
        rows.append(row)
      words.append(tf.stack(rows))
      pieces = [methods.Piece(0, [words[-1]])]
      received.append(methods.payloads(codec.messages(turn_number), pieces))
    means = self._decode(codec, received, turns[0])
    for worker, turn in enumerate(turns):
      if codec.finishes:
        states = codec.finish(carried[worker], self.states(worker), means, turn)
        self.keep(worker, states)
    return Taken(means, words, turns)

  def _begin(self, codec, values, step):
    """Each worker's `Turn`, and what it carries."""
    turns, carried = [], []
    for worker, own in enumerate(values):
      index = tf.constant(worker)
      keys = codec.keys(1, step, index)
      turn = gradients.WorkerStep(1, step, len(values), index, keys)
      held, probe = codec.begin(
        [tf.convert_to_tensor(v) for v in own], self.states(worker), turn
      )
      turns.append(turn._replace(own=probe))
      carried.append(codec.carry(held, turns[-1]))
    shared = gradients.agree(tf.stack([turn.own for turn in turns]))
    return [turn._replace(shared=shared) for turn in turns], carried

  def _decode(self, codec, received, turn):
    """The mean gradients; shared states change."""
    before = [
      [None if a is not None else b for a, b in zip(*pair, strict=True)]
      for pair in zip(self.own[0], self.shared, strict=True)
    ]
    told = turn._replace(worker=None, keys=None, own=None)
    means, self.shared = codec.decode(received, before, told)
    return means
