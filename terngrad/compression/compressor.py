"""Compressed sums of gradients for whoever computes and applies them.

Under a strategy of `tf.distribute` every replica is a worker. Without one there
is a single worker, whose gradients are coded and decoded, or N virtual ones.
"""

import functools
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.compression import passed_rows
from terngrad.compression import remembered
from terngrad.exchange import protocol
from terngrad.exchange import strategies
from terngrad.exchange import towers
from terngrad.reduce import bucketing
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import pending as pending_lib
from terngrad.reduce import reducer as reducers
from terngrad.step import loss_scaling
from terngrad.training import run_codecs

_FLOATS = (tf.float32, tf.float16, tf.bfloat16)


# A codec's text, or regular expressions of variables to such texts.
Spelled: TypeAlias = str | dict[str, str]


class Reduced(NamedTuple):
  """The mean gradients of a step, and what they cost.

  Attributes:
    means: for each device a list of float32, the same bits on all. All elements
      are NaN where a worker's gradient of that variable was not finite.
    finite: for each device bool [variables], whether the gradients of each
      were, of all workers, and so is their sum.
    pending: for each device the `pending.PendingMean`.
  """

  means: list[list[tf.Tensor]]
  finite: list[tf.Tensor]
  pending: list[pending_lib.PendingMean]

  @property
  def sent(self) -> tf.Tensor:
    """int32 [workers of this process], words that each sent."""
    counts = []
    for one in self.pending:
      with tf.device(one.device):
        counts.append(tf.add_n(one.sent))
    return towers.in_order(counts)


class Observed(NamedTuple):
  """What an observer of a step is told; see `Compressor`.

  Attributes:
    codec: of the gradients.
    reduced: their means.
    gradients: for each worker of this process its list of float32 gradients;
      None where virtual workers compute one by one.
    exchange: between the workers.
    residuals: for each worker of this process the list of its variables of
      error feedback.
  """

  codec: gradients_lib.GradientCodec
  reduced: Reduced
  gradients: list[list[tf.Tensor]] | None
  exchange: protocol.Exchange
  residuals: list[list[tf.Variable]]


class Sums(NamedTuple):
  """The sums, or means, of all replicas' gradients.

  Attributes:
    values: list of the kinds and dtypes of the gradients. All elements of a
      variable are NaN where a replica's gradient was not finite; in
      `tf.IndexedSlices` the rows have what they had.
    finite: bool [variables], whether the gradient of each was finite on all
      replicas; equal on all.
  """

  values: list[tf.Tensor | tf.IndexedSlices]
  finite: tf.Tensor


Observer: TypeAlias = Callable[[Observed | passed_rows.PassedRows], None]


class Compressor:
  """Codec, exchange and states for the gradients of one model.

  Attributes:
    codec: as it was given.
    seed: of the random codes.
    num_workers: virtual workers, or None.
    observer: traced with each step; it gets rows where there are some.
  """

  def __init__(
    self, codec: Spelled, seed: int = 0, num_workers: int | None = None
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
    self.observer: Observer | None = None
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    for _, text in rules(codec):
      registry.method(text, num_workers or replicas)
    self._strategy = None
    self._exchange = None
    self._remembered = None
    self._loaded: dict[str, np.ndarray] = {}
    self._reducers = {}
    self._told = False

  def all_reduce(self, gradients, variables, step, mean=False):
    """The sums, or means, of `reduce` alone; its arguments."""
    return self.reduce(gradients, variables, step, mean).values

  @tf.autograph.experimental.do_not_convert
  def reduce(
    self,
    gradients: list,
    variables: policy.Variables,
    step: tf.Tensor,
    mean: bool = False,
  ) -> Sums:
    """The sums of all replicas' gradients, where one replica computes.

    The sum is the mean of gradients that are each coded as N times themselves:
    where a loss is divided by the number of replicas, as Keras does, what is
    coded are the gradients of each replica's own mean.

    Where a gradient is not finite on any replica, all states stay as they are.

    Args:
      gradients: list of floats, or of `tf.IndexedSlices`, which are not coded.
      variables: `codec.policy.Variables` of them.
      step: integer [], steps taken before.
      mean: True for the means instead.

    Returns:
      `Sums`.

    Raises:
      ValueError: a dtype or a strategy that cannot be; or no replica computes.
    """
    context = _replica_context()
    sparse = [isinstance(g, tf.IndexedSlices) for g in gradients]
    rows = {i: g for i, g in enumerate(gradients) if sparse[i]}
    summed = self._rows(context, rows, variables, mean)
    self._observe_rows(context, list(rows.values()))
    # What travels as it is brings every replica's NaN and infinity with it.
    finite = {i: loss_scaling.all_finite([g.values]) for i, g in summed.items()}
    dense = [i for i, rows in enumerate(sparse) if not rows]
    if dense:
      others = tf.reduce_all(tf.stack([True, *finite.values()]))
      # Identities: one tensor of all replicas would reach `merged` only once.
      own = [
        tf.identity(checked(gradients[i], variables.specs[i])) for i in dense
      ]
      reduced = context.merge_call(
        functools.partial(self.merged, variables.only(dense), mean),
        args=(own, tf.cast(tf.identity(step), tf.int64), tf.identity(others)),
      )
      number = tf.get_static_value(context.replica_id_in_sync_group)
      sums = reduced[number - self._exchange.first]
      summed |= zip(dense, sums.values, strict=True)
      finite |= zip(dense, tf.unstack(sums.finite), strict=True)
    values = [
      summed[i] if rows else tf.cast(summed[i], gradients[i].dtype)
      for i, rows in enumerate(sparse)
    ]
    known = [finite[i] for i in range(len(sparse))]
    return Sums(values, tf.convert_to_tensor(known, tf.bool))

  def merged(self, variables, mean, strategy, own, step, others_finite=None):
    """`reduce` for who is between the replicas.

    Args:
      variables: `codec.policy.Variables`.
      mean: see `reduce`.
      strategy: the present `tf.distribute.Strategy`.
      own: list of float32, each of all replicas, as `strategy.run` returns
        values.
      step: int64 [], likewise.
      others_finite: bool [], likewise, whether gradients are that travel as
        they are; None for no others.

    Returns:
      For each replica of this process its `Sums`.
    """
    self._join(strategy)
    count = 1 if mean else self._exchange.num_workers
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
    return list(map(Sums, reduced.means, reduced.finite))

  @tf.autograph.experimental.do_not_convert
  def reduce_workers(
    self,
    gradients_of: Sequence[Callable[[tf.Tensor], list[tf.Tensor]]],
    variables: policy.Variables,
    steps: Sequence[tf.Tensor],
    others_finite: Sequence[tf.Tensor] | None = None,
    known: list | None = None,
  ) -> Reduced:
    """The mean gradients of all workers, wherever they come from.

    A step in which a gradient is not finite leaves all states alone.

    Args:
      gradients_of: for each device a function of a worker's number, int32 [],
        that returns the list of its float32 gradients.
      variables: of the gradients.
      steps: for each device integer [], steps taken before.
      others_finite: for each device bool [], whether the gradients are that
        others reduce in this step, alike on all devices; None for no others.
      known: for each worker of this process its gradients, for the observer.

    Returns:
      `Reduced`.
    """
    self._join(tf.distribute.get_strategy())
    reducer, exchange = self._reducer(variables), self._exchange
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
        finite.append(_finite_variables(part.codec, agreed))
        apply_states.append(tf.reduce_all(finite[index]))
        if others_finite is not None:
          apply_states[index] &= others_finite[index]
    (pending,) = reducer.exchange(begun, apply_states)
    means = []
    for one, known_finite in zip(pending, finite, strict=True):
      with tf.device(one.device):
        means.append(_or_nan(known_finite, one.means()))
    reduced = Reduced(means, finite, pending)
    self._observe(variables, part.codec, reduced, known)
    return reduced

  def saved(self) -> dict[str, np.ndarray]:
    """The states by name; see `Remembered.arrays`."""
    return self._remembered.arrays() if self._remembered else self._loaded

  def load(self, arrays: Mapping[str, np.ndarray]) -> None:
    """Takes what `saved` returned, here or elsewhere."""
    self._loaded = dict(arrays)
    if self._remembered:
      self._remembered.load(arrays)

  def _rows(self, context, gradients, variables, mean):
    """The sums or means of `tf.IndexedSlices`, both dicts of their index."""
    if gradients and not self._told:
      self._told = True
      logging.warning(
        'Not compressed: %s. Gradients of some rows (tf.IndexedSlices) travel '
        'as they are.',
        ', '.join(variables.specs[i].name for i in gradients),
      )
    return passed_rows.summed(context, gradients, mean)

  def _join(self, strategy):
    """Finds the other workers, once."""
    if self._exchange is None:
      kind = 'GPU' if tf.config.list_logical_devices('GPU') else 'CPU'
      self._exchange = strategies.of_strategy(
        strategy, f'/{kind}:0', self.num_workers
      )
      self._strategy = strategy
      self._remembered = remembered.Remembered(self._exchange)
      self._remembered.load(self._loaded)
    if strategy is not self._strategy:
      raise ValueError(
        'strategy: expected the one in which gradients were compressed before, '
        'received another. Make a new optimizer, or a new compressor.'
      )

  def _reducer(self, variables: policy.Variables) -> reducers.Reducer:
    """The `Reducer` of some variables."""
    # Kernels in C++ are nothing that XLA can compile.
    in_xla = is_compiled_by_xla()
    key = variables.indices, variables.plain, in_xla
    if key not in self._reducers:
      codec = bucketing.gradient_codec(
        variables.specs,
        policy.policy(self._policy(variables.plain), variables.specs),
      )
      if not in_xla:
        codec = run_codecs.on_devices(codec, self._exchange.devices)
      self._remembered.declare(
        codec, variables.indices, variables.model or variables.specs
      )
      self._reducers[key] = reducers.Reducer(
        codec,
        self._exchange,
        self._remembered.devices,
        self.seed,
        reducers.Options(variables=variables.indices),
      )
    return self._reducers[key]

  def _policy(self, plain):
    """The rules of `policy.policy`."""
    count = self._exchange.num_workers
    return [
      (lambda spec: spec.name in plain, registry.method('identity')),
      *(
        (
          lambda spec, pattern=pattern: re.search(pattern, spec.name),
          registry.method(text, count),
        )
        for pattern, text in rules(self.codec)
      ),
    ]

  def _observe(self, variables, codec, reduced, gradients):
    if self.observer:
      residuals = self._remembered.residuals(variables.indices)
      self.observer(
        Observed(codec, reduced, gradients, self._exchange, residuals)
      )

  def _observe_rows(self, context, gradients):
    """Calls the observer with what the rows of all replicas take."""
    if not self.observer or not gradients:
      return
    context.merge_call(
      self._observe_merged_rows, args=passed_rows.sent(gradients)
    )

  def _observe_merged_rows(self, strategy, *counts):
    self._join(strategy)
    bits, elements = (
      tf.reduce_mean(tf.stack(strategy.experimental_local_results(count)))
      for count in counts
    )
    self.observer(passed_rows.PassedRows(bits, elements, self._exchange))


def _worker_gradients(
  of_worker: Callable[[tf.Tensor], list[tf.Tensor]],
  specs: Sequence[policy.VariableSpec],
) -> Callable[[tf.Tensor], reducers.WorkerGradients]:
  """A worker's gradients as a `Reducer` takes them, of static shapes."""
  return lambda worker: reducers.WorkerGradients(
    list(map(_shaped, of_worker(worker), specs))
  )


def _finite_variables(
  codec: gradients_lib.GradientCodec, probe: tf.Tensor
) -> tf.Tensor:
  """Bool [variables], whether all numbers of each in a probe are."""
  _, rows = np.unique(codec.probed_variables(), return_inverse=True)
  strange = tf.cast(~tf.math.is_finite(probe), tf.int32)
  return tf.math.unsorted_segment_sum(strange, rows, codec.num_variables) < 1


def _or_nan(finite: tf.Tensor, means: list[tf.Tensor]) -> list[tf.Tensor]:
  """The means; NaN in those of variables whose gradients are not finite."""

  def marked() -> list[tf.Tensor]:
    pairs = zip(tf.unstack(finite), means, strict=True)
    return [tf.where(known, m, float('nan')) for known, m in pairs]

  # A branch: where all are finite, as nearly always, nothing is copied.
  return tf.nest.flatten(
    tf.cond(tf.reduce_all(finite), lambda: list(means), marked)
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


def rules(codec: Spelled) -> list[tuple[str, str]]:
  """Pairs of a regular expression and the text of a codec; see `Compressor`."""
  if isinstance(codec, str):
    return [('', codec)]
  if isinstance(codec, dict) and codec:
    return list(codec.items())
  raise ValueError(
    "codec: expected a text such as 'ternary', or a dict of regular "
    f'expressions of variables to such texts, received {codec!r}.'
  )


def checked(gradient: tf.Tensor, spec: policy.VariableSpec) -> tf.Tensor:
  """The gradient as float32, of the shape of its variable.

  Raises:
    ValueError: a dtype that codes would lose digits of.
    tf.errors.InvalidArgumentError: another shape.
  """
  if gradient.dtype not in _FLOATS:
    raise ValueError(
      f'{spec.name}: expected a gradient of float32, float16 or bfloat16, '
      f'received {gradient.dtype.name}, of which codes would lose digits. Use '
      "keras.config.set_floatx('float32')."
    )
  return _shaped(tf.cast(gradient, tf.float32), spec)


def _shaped(gradient: tf.Tensor, spec: policy.VariableSpec) -> tf.Tensor:
  """The gradient, of a static shape."""
  # Only where something is unknown: a check is an operation of every step.
  if gradient.shape.is_fully_defined():
    return gradient
  return tf.ensure_shape(gradient, spec.shape)


def is_compiled_by_xla() -> bool:
  """Whether what is traced now becomes a part of a program of XLA."""
  return control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph())
