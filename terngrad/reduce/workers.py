"""Steps without passes and updates: the workers of one device, as they are.

For measurements and tests, eagerly or traced; the reducer is that of training.
"""

import itertools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import towers
from terngrad.reduce import gradients
from terngrad.reduce import programs
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
    self._keys = [states_lib.keys_of(bucket) for bucket in codec.buckets]
    with tf.init_scope():
      self._variables = states_lib.DeviceStates(
        states_lib.of_workers(declared, _DEVICE, num_workers),
        states_lib.of_replica(states_lib.shared(codec), _DEVICE),
      )

  @property
  def shared(self) -> list[list[tf.Tensor | None]]:
    """For each bucket the list of its shared states, None for others."""
    return self._found(self._variables.shared)

  @property
  def own(self) -> list[list[list[tf.Tensor | None]]]:
    """For each worker and bucket the list of its states, None for others."""
    return [
      self._found(
        {key: v[worker] for key, v in self._variables.workers.items()}
      )
      for worker in range(self._exchange.num_workers)
    ]

  def states(self, worker: int) -> list[list[tf.Tensor | None]]:
    """For each bucket what a worker sees: its own states and shared ones."""
    return [
      [b if a is None else a for a, b in zip(*pair, strict=True)]
      for pair in zip(self.own[worker], self.shared, strict=True)
    ]

  def _found(
    self, variables: Mapping[states_lib.Key, tf.Variable]
  ) -> list[list[tf.Tensor | None]]:
    return [
      [variables[k].read_value() if k in variables else None for k in keys]
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
    probes = programs.join_probes(reducer.parts, begun.metadata.probes)
    shared = [of_device for (of_device,) in begun.metadata.shared]
    shared = programs.join_probes(reducer.parts, shared)
    steps = []
    for index, probe in enumerate(tf.unstack(probes)):
      worker = tf.constant(index)
      step = pending[0].step._replace(worker=worker, own=probe, shared=shared)
      keys = codec.keys(_SEED, step.step, worker)
      steps.append(step._replace(keys=keys))
    # Buckets are in the order of their parts, and so are the words of a round.
    rounds = itertools.zip_longest(*(one.words for one in pending))
    words = [
      tf.concat([own for own in of_parts if own is not None], axis=1)
      for of_parts in rounds
    ]
    return Taken([means[i] for i in sorted(means)], words, steps)
