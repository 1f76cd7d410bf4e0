"""Compiled programs for each part of a model.

XLA may fuse a product and a sum of one program into a single rounding, so the
borders between programs decide the bits of the result. The programs are: keys;
begin, with the L2 terms; carry; the send of each round; decode; finish. Methods
with native kernels are not compiled here.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import ParamSpec
from typing import TypeVar

import keras
import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import transport
from terngrad.reduce import buckets as buckets_lib
from terngrad.reduce import gradients as gradients_lib

_P = ParamSpec('_P')
_T = TypeVar('_T')


class WeightDecay:
  """The L2 terms of variables, as their Keras regularizers define them."""

  def __init__(self, variables: Sequence[keras.Variable]) -> None:
    """Takes the regularizers of the variables; their values are not read."""
    self._variables = variables

  def part(self, indices: Sequence[int]) -> 'WeightDecay':
    """Selects the terms of the variables with these indices."""
    return WeightDecay([self._variables[i] for i in indices])

  def total(self, parameters: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """Computes the sum of all terms, float32 [].

    `parameters` are the float32 values; None leaves a variable out.
    """
    terms = [
      variable.regularizer(parameter)
      for variable, parameter in zip(self._variables, parameters, strict=True)
      if variable.regularizer is not None and parameter is not None
    ]
    return tf.add_n([tf.constant(0.0), *terms])

  def gradients(
    self, parameters: Sequence[tf.Tensor | None]
  ) -> list[tf.Tensor | None]:
    """Computes the gradients of the terms; None for variables without one.

    `parameters` are the float32 values; None leaves a variable out.
    """
    present = [p for p in parameters if p is not None]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(present)
      loss = self.total(parameters)
    terms = iter(tape.gradient(loss, present))
    return [p if p is None else next(terms) for p in parameters]


class Part:
  """Variables that are sent together, with the programs of a worker.

  XLA compiles the programs, unless native kernels or plain copies are faster.

  Attributes:
    number: index of the part, in the order in which parts are sent.
    codec: of these variables only.
    indices: indices of the variables in the model, ascending.
    probes: int array, indices of the part's numbers in the model's probe.
    begin: adds the gradients of the L2 terms, then calls `GradientCodec.begin`.
    send: program of `GradientCodec.send`. A compiled one returns the words as
      float32, see `transport`.
    finish: program of `GradientCodec.finish`.
    decode: program of `GradientCodec.decode`.
  """

  def __init__(
    self,
    number: int,
    buckets: Sequence[buckets_lib.Bucket],
    probe_variables: np.ndarray,
    decay: WeightDecay | None = None,
    compiles: bool = True,
  ) -> None:
    """Prepares the programs; XLA compiles them at the first call.

    Args:
      number: index of the part.
      buckets: of these variables, with their indices in the model.
      probe_variables: variable's index of each number of the model's probe.
      decay: the L2 terms of all parameters of the model; None for none.
      compiles: False compiles nothing.
    """
    self.number = number
    self.indices = tuple(sorted(i for b in buckets for i in b.indices))
    self.probes = np.flatnonzero(np.isin(probe_variables, self.indices))
    self.codec = codec = gradients_lib.GradientCodec(
      tuple(
        bucket._replace(indices=tuple(map(self.indices.index, bucket.indices)))
        for bucket in buckets
      )
    )
    self._decay = decay

    def program(
      function: Callable[_P, _T], compiled: bool = codec.compiled
    ) -> Callable[_P, _T]:
      if compiles and compiled:
        return tf.function(function, jit_compile=True)
      return function

    # A compiled program would copy the floats of a lossless codec.
    self.send = codec.send
    if compiles and codec.compiled and not codec.lossless:
      self.send = program(self._send)
    self.finish = program(codec.finish)
    self.decode = program(codec.decode)
    self.begin = program(self._begin)
    self._begin_plain = program(self._add_decay_and_probe)
    self._requantize = program(self._carry)
    self._keys = program(codec.keys, True)

  def mask_others(self, values: Sequence[_T]) -> list[_T | None]:
    """Replaces the values of other parts' variables by None.

    The programs of the part then do not wait for those values.
    """
    return [v if i in self.indices else None for i, v in enumerate(values)]

  def _begin(
    self,
    gradients: Sequence[tf.Tensor | None],
    parameters: Sequence[tf.Tensor | None],
    states: gradients_lib.BucketTensors,
    step: gradients_lib.WorkerStep,
  ) -> tuple[gradients_lib.BucketTensors, tf.Tensor]:
    """Adds the gradients of L2 terms, then calls `GradientCodec.begin`.

    Args:
      gradients: float32; None for variables of other parts.
      parameters: float32; None for variables of other parts.
      states: the worker's states and the shared ones.
      step: with a worker; without keys, since no method draws random bits
        before the probe.
    """
    decayed, _ = self._add_decay(gradients, parameters)
    return self.codec.begin(decayed, states, step)

  def begin_plain(
    self,
    gradients: Sequence[tf.Tensor | None],
    parameters: Sequence[tf.Tensor | None],
    step: gradients_lib.WorkerStep,
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Calls `begin` for plain methods, without copying gradients.

    Args:
      gradients: as in `begin`.
      parameters: as in `begin`.
      step: with a worker.

    Returns:
      (gradients in the order and shapes of the part's variables, probe).
    """
    changed, probe = self._begin_plain(gradients, parameters, step)
    present = [gradient for gradient in gradients if gradient is not None]
    values = [
      before if after is None else after
      for before, after in zip(present, changed, strict=True)
    ]
    return values, probe

  def _add_decay_and_probe(
    self,
    gradients: Sequence[tf.Tensor | None],
    parameters: Sequence[tf.Tensor | None],
    step: gradients_lib.WorkerStep,
  ) -> tuple[list[tf.Tensor | None], tf.Tensor]:
    """(Gradients, None for those without an L2 term; probe).

    XLA would copy gradients that it returns unchanged.
    """
    decayed, has_term = self._add_decay(gradients, parameters)
    states = [()] * len(self.codec.buckets)
    _, probe = self.codec.begin(decayed, states, step)
    changed = [
      gradient if added else None
      for gradient, added in zip(decayed, has_term, strict=True)
    ]
    return changed, probe

  def _add_decay(
    self,
    gradients: Sequence[tf.Tensor | None],
    parameters: Sequence[tf.Tensor | None],
  ) -> tuple[list[tf.Tensor], list[bool]]:
    """(Gradients of the part with their L2 terms, whether each has one)."""
    terms = [None] * len(gradients)
    if self._decay:
      terms = self._decay.gradients(parameters)
    pairs = [
      (gradient, term)
      for gradient, term in zip(gradients, terms, strict=True)
      if gradient is not None
    ]
    decayed = [g if term is None else g + term for g, term in pairs]
    return decayed, [term is not None for _, term in pairs]

  def _carry(
    self, carried: gradients_lib.BucketTensors, step: gradients_lib.WorkerStep
  ) -> gradients_lib.BucketTensors:
    held = self.codec.carry(carried, step)
    return [list(map(transport.to_float32, values)) for values in held]

  def _send(
    self,
    number: int,
    carried: gradients_lib.BucketTensors,
    states: gradients_lib.BucketTensors,
    received: methods.ReceivedRounds,
    step: gradients_lib.WorkerStep,
  ) -> tuple[tf.Tensor, gradients_lib.BucketTensors]:
    words, after = self.codec.send(number, carried, states, received, step)
    return transport.to_float32(words), after

  def carry(
    self,
    carried: gradients_lib.BucketTensors,
    step: gradients_lib.WorkerStep,
    stacked: bool,
  ) -> gradients_lib.BucketTensors:
    """Converts `begin`'s gradients to what a worker holds until it sends.

    Args:
      carried: from `begin`.
      step: with the worker's probe.
      stacked: True makes one tensor per bucket, for a `tf.TensorArray`.

    Returns:
      For each bucket a list of float32 tensors; words as in `transport`.
    """
    buckets = self.codec.buckets
    # Outside of the compiled program: XLA concatenates five times slower.
    if self.codec.compiled or stacked:
      carried = [
        values if bucket.method.carries else [methods.flat(values)]
        for bucket, values in zip(buckets, carried, strict=True)
      ]
    if any(bucket.method.carries for bucket in buckets):
      carried = self._requantize(carried, self.add_keys(step))
    return carried

  def add_keys(
    self, step: gradients_lib.WorkerStep
  ) -> gradients_lib.WorkerStep:
    """Adds the worker's random keys, unless compiled programs derive them."""
    if self.codec.compiled:
      return step
    # Hundreds of operations on a few numbers cost nothing once compiled.
    return step._replace(keys=self._keys(step.seed, step.step, step.worker))


def parts(
  codec: gradients_lib.GradientCodec,
  decay: WeightDecay | None = None,
  compiles: bool = True,
) -> list[Part]:
  """Makes the parts of a codec, in the order in which they are sent.

  `decay` has the L2 terms of all parameters of the model.
  """
  part_buckets: dict[int, list[buckets_lib.Bucket]] = {}
  for bucket in sorted(codec.buckets, key=lambda bucket: bucket.part):
    part_buckets.setdefault(bucket.part, []).append(bucket)
  probe_variables = codec.probed_variables()
  return [
    Part(number, buckets, probe_variables, decay, compiles)
    for number, buckets in enumerate(part_buckets.values())
  ]


def join_probes(all_parts: list[Part], probes: list[tf.Tensor]) -> tf.Tensor:
  """Joins the probes of all parts to the probe of the model.

  Args:
    all_parts: all parts.
    probes: for each part float32 [..., its probes].

  Returns:
    float32 [..., probes], in the order of the model's variables.
  """
  if len(all_parts) == 1:
    return probes[0]
  order = np.argsort(np.concatenate([part.probes for part in all_parts]))
  return tf.gather(tf.concat(probes, axis=-1), order, axis=-1)
