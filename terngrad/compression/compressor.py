"""Compressed sums of gradients, independent of the training loop.

Under a `tf.distribute` strategy every replica is a worker, or each K replicas
of a process are one. Without a strategy there is one worker, whose gradients
are encoded and decoded, or N virtual ones.
"""

import functools
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from absl import logging

from terngrad import aliases
from terngrad.codec import policy
from terngrad.codec.stages import tracing
from terngrad.compression import codec_states
from terngrad.compression import float_gradients
from terngrad.compression import passed_rows
from terngrad.compression import reduced as reduced_lib
from terngrad.compression import state_arrays
from terngrad.compression import variable_codes
from terngrad.exchange import device_groups
from terngrad.exchange import protocol
from terngrad.exchange import strategies
from terngrad.reduce import bucketing
from terngrad.reduce import reducer as reducers
from terngrad.step import loss_scaling
from terngrad.training import run_codecs

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


class Compressor:
  """Sums the gradients of one model; holds codec, exchange and states.

  Attributes:
    codec: the codec as given.
    seed: seed of the random codes.
    num_workers: number of virtual workers, or None.
    devices_per_worker: replicas of a worker.
    observer: a function that each traced step calls with an `Observed`, and
      with a `PassedRows` if there are sparse gradients; or None.
  """

  def __init__(
    self,
    codec: variable_codes.CodecOption,
    seed: int = 0,
    num_workers: int | None = None,
    devices_per_worker: int = 1,
  ) -> None:
    """Checks the codec; everything else is created at the first gradients.

    Args:
      codec: a text as for `--codec`, 'error_feedback+topk:ratio=0.01'; or a
        dict from regular expressions to such texts. The first expression that
        matches part of a variable's name selects its codec.
      seed: integer, seed of the random codes.
      num_workers: N virtual workers of one replica; None if replicas are
        workers.
      devices_per_worker: K, which divides the replicas of a process. Each K
        replicas average their gradients in float32 and send one message.

    Raises:
      ValueError: the codec is unknown, or K or N is less than 1.
    """
    if num_workers is not None and num_workers < 1:
      raise ValueError(
        f'num_workers: expected 1 or more, or None, received {num_workers}. '
        'Use the number of workers that one replica stands for.'
      )
    if devices_per_worker < 1:
      raise ValueError(
        'devices_per_worker: expected 1 or more, received '
        f'{devices_per_worker}. Use the number of devices of a process.'
      )
    self.codec = codec
    self.seed = seed
    self.num_workers = num_workers
    self.devices_per_worker = devices_per_worker
    self.observer: reduced_lib.Observer | None = None
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    workers = num_workers or max(1, replicas // devices_per_worker)
    for _, text in variable_codes.rules(codec):
      variable_codes.parse(text, workers)
    self._strategy: tf.distribute.Strategy | None = None
    # None before the first gradients.
    self._states: codec_states.CodecStates | None = None
    self._loaded: dict[str, np.ndarray] = {}
    # By the variables without their model, and by `in_xla`.
    self._reducers: dict[tuple[policy.Variables, bool], reducers.Reducer] = {}
    self._is_logged = False

  def all_reduce(
    self,
    gradients: Sequence[Gradient],
    variables: policy.Variables,
    step: tf.Tensor,
    mean: bool = False,
  ) -> Sequence[Gradient]:
    """Returns only the values of `reduce`, which has the same arguments.

    Raises:
      ValueError: as `reduce`, or there are virtual workers.
    """
    if (self.num_workers or 1) > 1:
      raise ValueError(
        'codec: expected a Compressor of replicas, received one of '
        f'{self.num_workers} virtual workers, for which there is one gradient '
        'only. Train them with keras.VirtualWorkers, or leave num_workers out.'
      )
    return self.reduce(gradients, variables, step, mean).values

  @tf.autograph.experimental.do_not_convert
  def reduce(
    self,
    gradients: Sequence[Gradient],
    variables: policy.Variables,
    step: tf.Tensor,
    mean: bool = False,
  ) -> reduced_lib.Sums:
    """Sums the gradients of all replicas, called in each replica.

    The sum is computed as the mean of N times each gradient. If a loss is
    divided by the number of replicas, as in Keras, this encodes the gradient of
    each replica's mean loss.

    If a gradient is not finite on some replica, no state changes.

    Args:
      gradients: float tensors; `tf.IndexedSlices` are not encoded.
      variables: the variables of the gradients.
      step: integer [], steps taken before.
      mean: True returns means instead of sums.

    Raises:
      ValueError: a dtype or a strategy is not supported, or the call is outside
        of a replica.
    """
    context = _replica_context()
    rows = _rows_of(gradients)
    variable_codes.check_sparse(
      self.codec, [variables.specs[i].name for i in rows]
    )
    summed = self._sum_rows(context, rows, variables, mean)
    # An uncompressed sum contains the NaN and infinity of every replica.
    finite = {i: loss_scaling.all_finite([g.values]) for i, g in summed.items()}
    dense = [i for i in range(len(gradients)) if i not in rows]
    if dense:
      others = tf.reduce_all([*finite.values()]) if finite else None
      # Copies: a tensor shared by all replicas would reach the merge only once.
      local = [
        tf.identity(float_gradients.cast(gradients[i], variables.specs[i]))
        for i in dense
      ]
      reduced = context.merge_call(
        functools.partial(
          self.reduce_across_replicas, variables.only(dense), mean
        ),
        args=(local, tf.cast(tf.identity(step), tf.int64), others),
      )
      sums = self._of_this_replica(context, reduced)
      summed |= zip(dense, sums.values, strict=True)
      with tracing.beside(sums.finite):
        finite |= zip(dense, tf.unstack(sums.finite), strict=True)
    values = [
      summed[i] if i in rows else tf.cast(summed[i], gradient.dtype)
      for i, gradient in enumerate(gradients)
    ]
    flags = [finite[i] for i in range(len(gradients))]
    return reduced_lib.Sums(values, float_gradients.join_flags(flags))

  def _of_this_replica(
    self,
    context: tf.distribute.ReplicaContext,
    reduced: Sequence[reduced_lib.Sums],
  ) -> reduced_lib.Sums:
    number = tf.get_static_value(context.replica_id_in_sync_group)
    exchange = self._get_states(context.strategy).exchange
    return reduced[number - exchange.first * self.devices_per_worker]

  def reduce_across_replicas(
    self,
    variables: policy.Variables,
    mean: bool,
    strategy: tf.distribute.Strategy,
    gradients: Sequence[tf.Tensor],
    step: tf.Tensor,
    others_finite: tf.Tensor | None = None,
  ) -> list[reduced_lib.Sums]:
    """Cross-replica half of `reduce`, called by `merge_call`.

    Args:
      variables: the variables of the gradients.
      mean: True returns means instead of sums.
      strategy: the current strategy.
      gradients: float32, each a value per replica as of `strategy.run`.
      step: int64 [], a value per replica.
      others_finite: bool [], a value per replica: whether the gradients that
        are sent uncompressed are finite; None if there are none.

    Returns:
      The `Sums` of each replica of this process.
    """
    exchange = self._get_states(strategy).exchange
    count = 1 if mean else exchange.num_workers * self.devices_per_worker
    values_of_replicas = map(strategy.experimental_local_results, gradients)
    gradients_of_replicas = list(zip(*values_of_replicas, strict=True))
    scaled = [
      [gradient * count for gradient in gradients] if count > 1 else gradients
      for gradients in gradients_of_replicas
    ]
    if others_finite is not None:
      others_finite = strategy.experimental_local_results(others_finite)
    of_workers = _average(exchange, scaled)
    reduced = self.reduce_workers(
      [lambda worker, local=local: list(local) for local in of_workers],
      variables,
      strategy.experimental_local_results(step),
      others_finite,
      of_workers,
    )
    return list(map(reduced_lib.Sums, reduced.means, reduced.finite))

  @tf.autograph.experimental.do_not_convert
  def reduce_workers(
    self,
    gradients_of: Sequence[Callable[[tf.Tensor], list[tf.Tensor]]],
    variables: policy.Variables,
    steps: Sequence[tf.Tensor],
    others_finite: Sequence[tf.Tensor] | None = None,
    known: list[list[tf.Tensor]] | None = None,
  ) -> reduced_lib.Reduced:
    """Averages the gradients of all workers, which `gradients_of` computes.

    If a gradient is not finite, no state changes.

    Args:
      gradients_of: for each device that has workers a function from a worker's
        number, int32 [], to its float32 gradients.
      variables: the variables of the gradients.
      steps: for each device integer [], steps taken before.
      others_finite: for each device bool [], whether the gradients that this
        step reduces elsewhere are finite, equal on all devices; None if there
        are none.
      known: for each worker of this process its gradients, for the observer.
    """
    states = self._get_states(tf.distribute.get_strategy())
    reducer, exchange = self._reducer(variables, states), states.exchange
    begun = reducer.begin(
      [_worker_gradients(one, variables.specs) for one in gradients_of],
      [tf.cast(tf.identity(step), tf.int64) for step in steps],
    )
    (part,), (shared,) = reducer.parts, begun.metadata.shared
    finite, apply_states = [], []
    for index, device in enumerate(exchange.devices):
      with tf.device(device):
        # The sum of finite gradients can be infinite.
        agreed = shared[index] * exchange.num_workers
        finite.append(float_gradients.finite_variables(part.codec, agreed))
      apply_states.append(float_gradients.all_flags(finite[index]))
      if others_finite is not None:
        with tracing.beside(apply_states[index]):
          apply_states[index] &= others_finite[index]
    (pending,) = reducer.exchange(begun, apply_states)
    means = []
    for one, known_finite in zip(pending, finite, strict=True):
      with tf.device(one.device):
        means.append(float_gradients.mask_not_finite(known_finite, one.means()))
    reduced = reduced_lib.Reduced(means, finite, pending)
    if self.observer:
      residuals = states.residuals(variables.indices)
      self.observer(
        reduced_lib.Observed(part.codec, reduced, known, exchange, residuals)
      )
    return reduced

  def connect(self, exchange: protocol.Exchange) -> codec_states.CodecStates:
    """Uses this exchange in place of that of a strategy.

    Call it before the first gradients.

    Returns:
      The states of the workers, with the loaded values.
    """
    self._strategy = tf.distribute.get_strategy()
    self._states = codec_states.CodecStates(exchange)
    self._states.load(self._loaded)
    return self._states

  def declare(self, variables: policy.Variables) -> codec_states.CodecStates:
    """Creates the states of variables, as their first gradients would do.

    Returns:
      The states of the workers, with the loaded values.
    """
    states = self._get_states(tf.distribute.get_strategy())
    self._reducer(variables, states)
    return states

  def get_states(self) -> dict[str, np.ndarray]:
    """Returns the states by name, as `CodecStates.arrays` does."""
    return self._states.arrays() if self._states else self._loaded

  def load(self, arrays: Mapping[str, np.ndarray]) -> None:
    """Loads states that `get_states` returned, here or in another process.

    Raises:
      ValueError: the arrays are damaged; no state has changed.
    """
    self._loaded = state_arrays.checked(arrays)
    if self._states:
      self._states.load(self._loaded)

  merged = aliases.renamed_attribute('merged', 'reduce_across_replicas')
  saved = aliases.renamed_attribute('saved', 'get_states')

  def _sum_rows(
    self,
    context: tf.distribute.ReplicaContext,
    gradients: dict[int, tf.IndexedSlices],
    variables: policy.Variables,
    mean: bool,
  ) -> dict[int, Gradient]:
    """Sums or averages the sparse gradients of all replicas, by index."""
    if gradients and self.observer:
      context.merge_call(
        self._observe_rows, args=passed_rows.count_sent(gradients.values())
      )
    if gradients and not self._is_logged:
      self._is_logged = True
      logging.warning(
        'Not compressed: %s. Sparse gradients (tf.IndexedSlices) are sent '
        'uncompressed.',
        ', '.join(variables.specs[i].name for i in gradients),
      )
    return dict(passed_rows.sum_rows(context, gradients, mean))

  def _get_states(
    self, strategy: tf.distribute.Strategy
  ) -> codec_states.CodecStates:
    """Returns the workers' states; the first call creates the exchange."""
    states = self._states
    if states is None:
      kind = 'GPU' if tf.config.list_logical_devices('GPU') else 'CPU'
      states = self.connect(
        strategies.find_exchange(
          *(strategy, f'/{kind}:0', self.num_workers, self.devices_per_worker)
        )
      )
      self._strategy = strategy
    if strategy is not self._strategy:
      raise ValueError(
        'strategy: expected the one under which gradients were compressed '
        'before, received another. Create a new optimizer or Compressor.'
      )
    return states

  def _reducer(
    self, variables: policy.Variables, states: codec_states.CodecStates
  ) -> reducers.Reducer:
    """Returns the `Reducer` of some variables, created once."""
    # XLA cannot compile the C++ kernels.
    in_xla = tracing.is_compiled_by_xla()
    key = variables._replace(model=()), in_xla
    if key not in self._reducers:
      methods = variable_codes.methods(
        self.codec, variables, states.exchange.num_workers
      )
      codec = bucketing.gradient_codec(variables.specs, methods)
      if not in_xla:
        codec = run_codecs.on_devices(codec, states.exchange.devices)
      states.declare(
        codec, variables.indices, variables.model or variables.specs
      )
      self._reducers[key] = reducers.Reducer(
        codec,
        states.exchange,
        states.devices,
        self.seed,
        reducers.ReducerOptions(variables=variables.indices),
      )
    return self._reducers[key]

  def _observe_rows(
    self, strategy: tf.distribute.Strategy, *counts: tf.Tensor
  ) -> None:
    """Reports the size of sparse gradients to the observer; cross-replica."""
    bits, elements = (
      tf.reduce_mean(tf.stack(strategy.experimental_local_results(count)))
      for count in counts
    )
    if self.observer:
      exchange = self._get_states(strategy).exchange
      self.observer(passed_rows.PassedRows(bits, elements, exchange))


def _average(
  exchange: protocol.Exchange, rows: Sequence[Sequence[tf.Tensor]]
) -> list[list[tf.Tensor]]:
  """Averages the gradients of each worker's devices; `rows` has all devices."""
  if device_groups.devices_per_worker(exchange) == 1:
    return list(map(list, rows))
  found = []
  for index in device_groups.leading_devices(exchange):
    group = device_groups.group_of(exchange, index)
    with tf.device(exchange.devices[index]):
      found.append(device_groups.average([rows[i] for i in group]))
  return found


def _worker_gradients(
  compute: Callable[[tf.Tensor], list[tf.Tensor]],
  specs: Sequence[policy.VariableSpec],
) -> Callable[[tf.Tensor], reducers.WorkerGradients]:
  """Wraps a function so that it returns static shapes for a `Reducer`."""
  return lambda worker: reducers.WorkerGradients(
    list(map(float_gradients.set_shape, compute(worker), specs))
  )


def _replica_context() -> tf.distribute.ReplicaContext:
  """Returns the context of the current replica.

  Raises:
    ValueError: the call is outside of a replica.
  """
  context = tf.distribute.get_replica_context()
  if context is None:
    raise ValueError(
      'gradients: expected a call in replica context, received one in '
      'cross-replica context. Call this inside strategy.run.'
    )
  return context


def _rows_of(gradients: Sequence[Gradient]) -> dict[int, tf.IndexedSlices]:
  """Returns the sparse gradients by their indices."""
  return {
    i: g for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)
  }
