"""Compressed sums of gradients for whoever computes and applies them.

Under a strategy of `tf.distribute` every replica is a worker. Without one there
is a single worker, whose gradients are coded and decoded, or N virtual ones.
"""

import functools
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from absl import logging

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.compression import float_gradients
from terngrad.compression import passed_rows
from terngrad.compression import reduced as reduced_lib
from terngrad.compression import remembered
from terngrad.compression import variable_codes
from terngrad.exchange import strategies
from terngrad.reduce import bucketing
from terngrad.reduce import reducer as reducers
from terngrad.step import loss_scaling
from terngrad.training import run_codecs

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


class Compressor:
  """Codec, exchange and states for the gradients of one model.

  Attributes:
    codec: as it was given.
    seed: of the random codes.
    num_workers: virtual workers, or None.
    observer: traced with each step; it gets rows where there are some.
  """

  def __init__(
    self,
    codec: variable_codes.Spelled,
    seed: int = 0,
    num_workers: int | None = None,
  ) -> None:
    """Checks the codec; all else waits for the first gradients.

    Args:
      codec: as `--codec` spells it, 'error_feedback+topk:ratio=0.01'; or a dict
        of regular expressions to such texts: a variable gets that of the first
        which is found in its name.
      seed: integer.
      num_workers: N virtual workers of one replica.

    Raises:
      ValueError: a text names no codec.
    """
    self.codec = codec
    self.seed = seed
    self.num_workers = num_workers
    self.observer: reduced_lib.Observer | None = None
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    for _, text in variable_codes.rules(codec):
      registry.method(text, num_workers or replicas)
    self._strategy: tf.distribute.Strategy | None = None
    # None until the first gradients come.
    self._remembered: remembered.Remembered | None = None
    self._loaded: dict[str, np.ndarray] = {}
    self._reducers: dict[
      tuple[tuple[int, ...], frozenset[str], bool], reducers.Reducer
    ] = {}
    self._told = False

  def all_reduce(
    self,
    gradients: Sequence[Gradient],
    variables: policy.Variables,
    step: tf.Tensor,
    mean: bool = False,
  ) -> Sequence[Gradient]:
    """The sums, or means, of `reduce` alone; its arguments."""
    return self.reduce(gradients, variables, step, mean).values

  @tf.autograph.experimental.do_not_convert
  def reduce(
    self,
    gradients: Sequence[Gradient],
    variables: policy.Variables,
    step: tf.Tensor,
    mean: bool = False,
  ) -> reduced_lib.Sums:
    """The sums of all replicas' gradients, where one replica computes.

    The sum is the mean of gradients that are each coded as N times themselves:
    where a loss is divided by the number of replicas, as Keras does, what is
    coded are the gradients of each replica's own mean.

    Where a gradient is not finite on any replica, all states stay as they are.

    Args:
      gradients: of floats; `tf.IndexedSlices` are not coded.
      variables: of them.
      step: integer [], steps taken before.
      mean: True for the means instead.

    Raises:
      ValueError: a dtype or a strategy that cannot be; or no replica computes.
    """
    context = _replica_context()
    rows = {
      i: g for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)
    }
    summed = self._rows(context, rows, variables, mean)
    # What travels as it is brings every replica's NaN and infinity with it.
    finite = {i: loss_scaling.all_finite([g.values]) for i, g in summed.items()}
    dense = [i for i in range(len(gradients)) if i not in rows]
    if dense:
      others = tf.reduce_all(tf.stack([True, *finite.values()]))
      # Identities: one tensor of all replicas would reach `merged` only once.
      own = [
        tf.identity(float_gradients.checked(gradients[i], variables.specs[i]))
        for i in dense
      ]
      reduced = context.merge_call(
        functools.partial(self.merged, variables.only(dense), mean),
        args=(own, tf.cast(tf.identity(step), tf.int64), tf.identity(others)),
      )
      number = tf.get_static_value(context.replica_id_in_sync_group)
      exchange = self._join(context.strategy).exchange
      sums = reduced[number - exchange.first]
      summed |= zip(dense, sums.values, strict=True)
      finite |= zip(dense, tf.unstack(sums.finite), strict=True)
    values = [
      summed[i] if i in rows else tf.cast(summed[i], gradient.dtype)
      for i, gradient in enumerate(gradients)
    ]
    known = [finite[i] for i in range(len(gradients))]
    return reduced_lib.Sums(values, tf.convert_to_tensor(known, tf.bool))

  def merged(
    self,
    variables: policy.Variables,
    mean: bool,
    strategy: tf.distribute.Strategy,
    own: Sequence[tf.Tensor],
    step: tf.Tensor,
    others_finite: tf.Tensor | None = None,
  ) -> list[reduced_lib.Sums]:
    """Cross-replica half of `reduce`, called by `merge_call`.

    Args:
      variables: see `reduce`.
      mean: see `reduce`.
      strategy: the present one.
      own: float32, each of all replicas, as `strategy.run` returns values.
      step: int64 [], likewise.
      others_finite: bool [], likewise, whether gradients are that travel as
        they are; None for no others.

    Returns:
      Those of each replica of this process.
    """
    count = 1 if mean else self._join(strategy).exchange.num_workers
    of_gradients = map(strategy.experimental_local_results, own)
    of_replicas = list(zip(*of_gradients, strict=True))
    scaled = [
      [gradient * count for gradient in gradients] if count > 1 else gradients
      for gradients in of_replicas
    ]
    if others_finite is not None:
      others_finite = strategy.experimental_local_results(others_finite)
    reduced = self.reduce_workers(
      [lambda worker, own=own: list(own) for own in scaled],
      variables,
      strategy.experimental_local_results(step),
      others_finite,
      scaled,
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
    """The mean gradients of all workers, wherever they come from.

    A step in which a gradient is not finite leaves all states alone.

    Args:
      gradients_of: for each device a function of a worker's number, int32 [],
        that returns its float32 gradients.
      variables: of the gradients.
      steps: for each device integer [], steps taken before.
      others_finite: for each device bool [], whether the gradients are that
        others reduce in this step, alike on all devices; None for no others.
      known: for each worker of this process its gradients, for the observer.
    """
    states = self._join(tf.distribute.get_strategy())
    reducer, exchange = self._reducer(variables, states), states.exchange
    begun = reducer.begin(
      [_worker_gradients(one, variables.specs) for one in gradients_of],
      [tf.cast(tf.identity(step), tf.int64) for step in steps],
    )
    (part,), (shared,) = reducer.parts, begun.metadata.shared
    finite, apply_states = [], []
    for index, device in enumerate(exchange.devices):
      with tf.device(device):
        # Gradients that are finite may add up to infinity.
        agreed = shared[index] * exchange.num_workers
        finite.append(float_gradients.finite_variables(part.codec, agreed))
        apply_states.append(tf.reduce_all(finite[index]))
        if others_finite is not None:
          apply_states[index] &= others_finite[index]
    (pending,) = reducer.exchange(begun, apply_states)
    means = []
    for one, known_finite in zip(pending, finite, strict=True):
      with tf.device(one.device):
        means.append(float_gradients.or_nan(known_finite, one.means()))
    reduced = reduced_lib.Reduced(means, finite, pending)
    if self.observer:
      residuals = states.residuals(variables.indices)
      self.observer(
        reduced_lib.Observed(part.codec, reduced, known, exchange, residuals)
      )
    return reduced

  def saved(self) -> dict[str, np.ndarray]:
    """The states by name; see `Remembered.arrays`."""
    return self._remembered.arrays() if self._remembered else self._loaded

  def load(self, arrays: Mapping[str, np.ndarray]) -> None:
    """Takes what `saved` returned, here or elsewhere."""
    self._loaded = dict(arrays)
    if self._remembered:
      self._remembered.load(arrays)

  def _rows(
    self,
    context: tf.distribute.ReplicaContext,
    gradients: dict[int, tf.IndexedSlices],
    variables: policy.Variables,
    mean: bool,
  ) -> dict[int, Gradient]:
    """The sums or means of the rows of all replicas, by their variables."""
    if gradients and self.observer:
      context.merge_call(
        self._observe_rows, args=passed_rows.sent(gradients.values())
      )
    if gradients and not self._told:
      self._told = True
      logging.warning(
        'Not compressed: %s. Gradients of some rows (tf.IndexedSlices) travel '
        'as they are.',
        ', '.join(variables.specs[i].name for i in gradients),
      )
    return dict(passed_rows.summed(context, gradients, mean))

  def _join(self, strategy: tf.distribute.Strategy) -> remembered.Remembered:
    """The states of the workers, whom the first call finds."""
    if self._remembered is None:
      kind = 'GPU' if tf.config.list_logical_devices('GPU') else 'CPU'
      exchange = strategies.of_strategy(
        strategy, f'/{kind}:0', self.num_workers
      )
      self._strategy = strategy
      self._remembered = remembered.Remembered(exchange)
      self._remembered.load(self._loaded)
    if strategy is not self._strategy:
      raise ValueError(
        'strategy: expected the one in which gradients were compressed before, '
        'received another. Make a new optimizer, or a new compressor.'
      )
    return self._remembered

  def _reducer(
    self, variables: policy.Variables, states: remembered.Remembered
  ) -> reducers.Reducer:
    """The `Reducer` of some variables."""
    # Kernels in C++ are nothing that XLA can compile.
    in_xla = float_gradients.is_compiled_by_xla()
    key = variables.indices, variables.plain, in_xla
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
        reducers.Options(variables=variables.indices),
      )
    return self._reducers[key]

  def _observe_rows(
    self, strategy: tf.distribute.Strategy, *counts: tf.Tensor
  ) -> None:
    """Cross-replica: calls the observer with what all replicas' rows take."""
    bits, elements = (
      tf.reduce_mean(tf.stack(strategy.experimental_local_results(count)))
      for count in counts
    )
    if self.observer:
      exchange = self._join(strategy).exchange
      self.observer(passed_rows.PassedRows(bits, elements, exchange))


def _worker_gradients(
  of_worker: Callable[[tf.Tensor], list[tf.Tensor]],
  specs: Sequence[policy.VariableSpec],
) -> Callable[[tf.Tensor], reducers.WorkerGradients]:
  """A worker's gradients as a `Reducer` takes them, of static shapes."""
  return lambda worker: reducers.WorkerGradients(
    list(map(float_gradients.shaped, of_worker(worker), specs))
  )


def _replica_context() -> tf.distribute.ReplicaContext:
  """That of the replica that computes.

  Raises:
    ValueError: none does.
  """
  context = tf.distribute.get_replica_context()
  if context is None:
    raise ValueError(
      'gradients: expected those of one replica, received them where no '
      'replica computes. Call this inside of strategy.run.'
    )
  return context
