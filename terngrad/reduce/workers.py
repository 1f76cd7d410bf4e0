"""Steps without passes and updates: the workers of one device, as they are.

For measurements and tests, eagerly or traced; the reducer is that of training.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import towers
from terngrad.reduce import gradients
from terngrad.reduce import parts as parts_lib
from terngrad.reduce import reducer as reducers
from terngrad.reduce import states as states_lib

_DEVICE = '/CPU:0'
_SEED = 1


class Taken(NamedTuple):
  """What a step sent and gave.

  Attributes:
    means: list of float32, in the order and shapes of the variables.
    words: for each round int32 [workers, words of the round].
    steps: of each worker.
  """

  means: list[tf.Tensor]
  words: list[tf.Tensor]
  steps: list[gradients.WorkerStep]

  def estimate(
    self, codec: gradients.GradientCodec, worker: int
  ) -> tf.Tensor | None:
    """What a worker's messages say of its gradients; see `GradientCodec`."""
    words = [rows[worker] for rows in self.words]
    return codec.estimate(words, self.steps[worker])


class Workers:
  """Workers with their states, which take steps together."""

  def __init__(self, codec: gradients.GradientCodec, num_workers: int) -> None:
    """Begins with the first values of all states.

    Args:
      codec: of the gradients; others with the same states may take steps too.
      num_workers: N.
    """
    self._exchange = towers.Towers((_DEVICE,), num_workers)
    declared = states_lib.declared(codec)
    self._keys = [
      [
        states_lib.Key(s.name, bucket.indices[s.variable])
        for s in bucket.states
      ]
      for bucket in codec.buckets
    ]
    with tf.init_scope():
      self._variables = states_lib.DeviceStates(
        states_lib.of_workers(declared, _DEVICE, num_workers),
        {
          key: tf.Variable(state.first_value(), trainable=False)
          for key, state in states_lib.shared(codec).items()
        },
      )

  @property
  def shared(self) -> list[list[tf.Tensor | None]]:
    """For each bucket the list of its shared states, None for others."""
    found = self._variables.shared
    return [
      [found[key].read_value() if key in found else None for key in keys]
      for keys in self._keys
    ]

  @property
  def own(self) -> list[list[list[tf.Tensor | None]]]:
    """For each worker and bucket the list of its states, None for others."""
    return list(map(self._own, range(self._exchange.num_workers)))

  def states(self, worker: int) -> list[list[tf.Tensor | None]]:
    """For each bucket what a worker sees: its own states and shared ones."""
    return [
      [b if a is None else a for a, b in zip(*pair, strict=True)]
      for pair in zip(self._own(worker), self.shared, strict=True)
    ]

  def _own(self, worker: int) -> list[list[tf.Tensor | None]]:
    found = self._variables.workers
    return [
      [found[k][worker].read_value() if k in found else None for k in keys]
      for keys in self._keys
    ]

  def take(
    self,
    codec: gradients.GradientCodec,
    values: Sequence[Sequence[tf.Tensor]],
    number: tf.Tensor | int,
  ) -> Taken:
    """Takes a step; states change.

    Args:
      codec: of the gradients.
      values: for each worker its gradients, float32.
      number: int or int64 [], steps taken before this one.

    Returns:
      `Taken`.
    """
    reducer = reducers.Reducer(
      codec,
      self._exchange,
      [self._variables],
      _SEED,
      reducers.Options(compiles=False),
    )
    stacks = [tf.stack(list(rows)) for rows in zip(*values, strict=True)]

    def gradients_of(worker: tf.Tensor) -> reducers.WorkerGradients:
      return reducers.WorkerGradients([tf.gather(s, worker) for s in stacks])

    begun = reducer.begin([gradients_of], [tf.cast(number, tf.int64)])
    pending = [one for (one,) in reducer.exchange(begun, [None])]
    means: dict[int, tf.Tensor] = {}
    for part, one in zip(reducer.parts, pending, strict=True):
      means |= zip(part.indices, one.means(), strict=True)
    probes = parts_lib.join_probes(reducer.parts, begun.metadata.probes)
    shared = [of_device for (of_device,) in begun.metadata.shared]
    shared = parts_lib.join_probes(reducer.parts, shared)
    # Without keys: no method draws when it estimates, and they take half of an
    # eager step.
    steps = [
      pending[0].step._replace(
        worker=tf.constant(index), own=probe, shared=shared
      )
      for index, probe in enumerate(tf.unstack(probes))
    ]
    # Buckets are in the order of their parts, and so are the words of a round.
    rounds = itertools.zip_longest(*(one.words for one in pending))
    words = [
      tf.concat([own for own in of_parts if own is not None], axis=1)
      for of_parts in rounds
    ]
    return Taken([means[i] for i in sorted(means)], words, steps)
