"""Workers of one device that reduce given gradients, without model or update.

For measurements and tests, eagerly or in a `tf.function`. They use the reducer
of training.
"""

import itertools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import transport
from terngrad.exchange import towers
from terngrad.reduce import gradients
from terngrad.reduce import programs
from terngrad.reduce import reducer as reducers
from terngrad.reduce import states as states_lib

_DEVICE = '/CPU:0'
_SEED = 1


class StepOutcome(NamedTuple):
  """Results of a step.

  Attributes:
    means: mean gradients, float32 in the order and shapes of the variables.
    words: for each round the messages, int32 [workers, words of the round].
    steps: of each worker, with keys and probes.
  """

  means: list[tf.Tensor]
  words: list[tf.Tensor]
  steps: list[gradients.WorkerStep]

  def estimate(
    self, codec: gradients.GradientCodec, worker: int
  ) -> tf.Tensor | None:
    """Estimates a worker's gradients from its messages.

    Returns:
      float32 [elements], in the order of `GradientCodec.flatten`; None if the
      codec cannot, see `GradientCodec.estimate`.
    """
    words = [rows[worker] for rows in self.words]
    return codec.estimate(words, self.steps[worker])


class Workers:
  """N workers on the CPU with their method states."""

  def __init__(
    self,
    codec: gradients.GradientCodec,
    num_workers: int,
    exchange: type[towers.Towers] = towers.Towers,
  ) -> None:
    """Makes the states, with their initial values.

    `take` also accepts other codecs with the same states. `exchange` is the
    class that moves the messages.
    """
    self._exchange = exchange((_DEVICE,), num_workers, True)
    declared = states_lib.declarations(codec)
    self._keys = [states_lib.keys_of(bucket) for bucket in codec.buckets]
    with tf.init_scope():
      self._variables = states_lib.DeviceStates(
        states_lib.make_worker_variables(declared, _DEVICE, num_workers),
        states_lib.make_shared_variables(states_lib.shared(codec), _DEVICE),
      )

  @property
  def shared(self) -> list[list[tf.Tensor | None]]:
    """Values of the shared states, one list per bucket; None for others."""
    return self._read(self._variables.shared)

  @property
  def worker_states(self) -> list[list[list[tf.Tensor | None]]]:
    """Values of each worker's states, one list per bucket; None for others."""
    return [
      self._read({key: v[worker] for key, v in self._variables.workers.items()})
      for worker in range(self._exchange.num_workers)
    ]

  def states(self, worker: int) -> list[list[tf.Tensor | None]]:
    """Values of a worker's states and the shared ones, one list per bucket."""
    return [
      [b if a is None else a for a, b in zip(*pair, strict=True)]
      for pair in zip(self.worker_states[worker], self.shared, strict=True)
    ]

  def _read(
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
  ) -> StepOutcome:
    """Takes a step and updates the states.

    Args:
      codec: of the gradients.
      values: for each worker its gradients, float32.
      number: int or int64 [], number of steps taken before this one.
    """
    reducer = reducers.Reducer(
      codec,
      self._exchange,
      [self._variables],
      _SEED,
      reducers.ReducerOptions(compiles=False),
    )
    stacks = [tf.stack(list(rows)) for rows in zip(*values, strict=True)]

    def gradients_of(worker: tf.Tensor) -> reducers.WorkerGradients:
      return reducers.WorkerGradients([tf.gather(s, worker) for s in stacks])

    start = reducer.begin([gradients_of], [tf.cast(number, tf.int64)])
    pending = [one for (one,) in reducer.exchange(start, [None])]
    means: dict[int, tf.Tensor] = {}
    for part, one in zip(reducer.parts, pending, strict=True):
      means |= zip(part.indices, one.means(), strict=True)
    probes = programs.join_probes(reducer.parts, start.metadata.probes)
    shared = [probe for (probe,) in start.metadata.shared]
    shared = programs.join_probes(reducer.parts, shared)
    steps = []
    for index, probe in enumerate(tf.unstack(probes)):
      worker = tf.constant(index)
      step = pending[0].step._replace(
        worker=worker,
        keys=codec.keys(_SEED, pending[0].step.step, worker),
        local_probe=probe,
        shared_probe=shared,
      )
      steps.append(step)
    # Buckets and the words of a round are in the order of the parts.
    rounds = itertools.zip_longest(*(one.words for one in pending))
    words = [
      transport.to_int32(
        tf.concat([rows for rows in round_words if rows is not None], axis=1)
      )
      for round_words in rounds
    ]
    return StepOutcome([means[i] for i in sorted(means)], words, steps)
