"""The parts of a model, each with its programs, which XLA compiles.

What is one program decides about bits, since XLA rounds products and sums of a
program together: keys; begin, with the L2 terms; carry; the send of each round;
decode; finish. Methods with native kernels are not compiled here: they run as
they are.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import ParamSpec
from typing import TypeVar

import keras
import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.reduce import buckets as buckets_lib
from terngrad.reduce import gradients as gradients_lib

_P = ParamSpec('_P')
_T = TypeVar('_T')


class WeightDecay:
  """The L2 terms of variables, those of their own regularizers."""

  def __init__(self, variables: Sequence[keras.Variable]) -> None:
    """Takes the variables, whose values are not read."""
    self._variables = variables

  def part(self, indices: Sequence[int]) -> 'WeightDecay':
    """The terms of some of the variables."""
    return WeightDecay([self._variables[i] for i in indices])

  def total(self, parameters: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """The sum of all terms, float32 [].

    Args:
      parameters: values of the variables, None for those to leave out.
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
    """The gradients of the terms, None where a variable has none.

    Args:
      parameters: see `total`.
    """
    asked = [p for p in parameters if p is not None]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(asked)
      loss = self.total(parameters)
    found = iter(tape.gradient(loss, asked))
    return [p if p is None else next(found) for p in parameters]


class Part:
  """Variables whose codes travel together, and what a worker does with them.

  Attributes:
    number: of the part, in the order in which parts travel.
    codec: of these variables alone.
    indices: the variables' indices in the model, ascending.
    probes: int array, where the numbers of their probe are in the model's.
    begin: what is coded, with the gradients of L2 terms, and the probe; see
      `_begin`. Compiled where that is of use, as all of these.
    send: `GradientCodec.send`, likewise.
    finish: `GradientCodec.finish`, likewise.
    decode: `GradientCodec.decode`, likewise.
  """

  def __init__(
    self,
    number: int,
    buckets: Sequence[buckets_lib.Bucket],
    probed: np.ndarray,
    decay: WeightDecay | None = None,
    compiles: bool = True,
  ) -> None:
    """Compiles nothing yet: programs are compiled when they are first called.

    Args:
      number: of the part.
      buckets: of these variables, as they are in the model.
      probed: for each number of the model's probe its variable.
      decay: the L2 terms of all parameters of the model; None for none.
      compiles: False leaves everything to eager execution.
    """
    self.number = number
    self.indices = tuple(sorted(i for b in buckets for i in b.indices))
    self.probes = np.flatnonzero(np.isin(probed, self.indices))
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

    # Plain floats are sent as they are; a compiled program would copy them.
    self.send = program(codec.send, codec.compiled and not codec.lossless)
    self.finish = program(codec.finish)
    self.decode = program(codec.decode)
    self.begin = program(self._begin)
    self._requantize = program(codec.carry)
    self._keys = program(codec.keys, True)

  def only(self, values: Sequence[_T]) -> list[_T | None]:
    """A list of all variables, with None for those of other parts.

    So that a part waits for nothing that it does not need.
    """
    return [v if i in self.indices else None for i, v in enumerate(values)]

  def _begin(
    self,
    gradients: Sequence[tf.Tensor | None],
    parameters: Sequence[tf.Tensor | None],
    states: gradients_lib.OfBuckets,
    step: gradients_lib.WorkerStep,
  ) -> tuple[gradients_lib.OfBuckets, tf.Tensor]:
    """What a worker codes, and its probe; see `GradientCodec.begin`.

    Args:
      gradients: list of float32, None for variables of other parts.
      parameters: list of float32, likewise.
      states: of the worker, and the shared ones.
      step: without keys: no method draws before the probe.
    """
    terms = [None] * len(gradients)
    if self._decay:
      terms = self._decay.gradients(parameters)
    decayed = [
      gradient if term is None else gradient + term
      for gradient, term in zip(gradients, terms, strict=True)
      if gradient is not None
    ]
    return self.codec.begin(decayed, states, step)

  def carry(
    self,
    carried: gradients_lib.OfBuckets,
    step: gradients_lib.WorkerStep,
    stacked: bool,
  ) -> gradients_lib.OfBuckets:
    """What a worker keeps until the workers have agreed on a probe.

    Args:
      carried: from `begin`.
      step: with the worker's probe.
      stacked: True for one tensor a bucket.

    Returns:
      For each bucket a list of tensors.
    """
    buckets = self.codec.buckets
    # Not in a compiled program: XLA's concatenation is five times slower.
    if self.codec.compiled or stacked:
      carried = [
        values if bucket.method.carries else [methods.flat(values)]
        for bucket, values in zip(buckets, carried, strict=True)
      ]
    if any(bucket.method.carries for bucket in buckets):
      carried = self._requantize(carried, self.with_keys(step))
    return carried

  def with_keys(
    self, step: gradients_lib.WorkerStep
  ) -> gradients_lib.WorkerStep:
    """The step with the worker's keys, unless a program makes them itself."""
    if self.codec.compiled:
      return step
    # Hundreds of operations on a few numbers: compiled, they cost nothing.
    return step._replace(keys=self._keys(step.seed, step.step, step.worker))


def parts(
  codec: gradients_lib.GradientCodec,
  decay: WeightDecay | None = None,
  compiles: bool = True,
) -> list[Part]:
  """The parts of a codec, in the order in which they travel; see `Part`."""
  of_parts: dict[int, list[buckets_lib.Bucket]] = {}
  for bucket in sorted(codec.buckets, key=lambda bucket: bucket.part):
    of_parts.setdefault(bucket.part, []).append(bucket)
  probed = codec.probed_variables()
  return [
    Part(number, buckets, probed, decay, compiles)
    for number, buckets in enumerate(of_parts.values())
  ]


def join_probes(some: list[Part], probes: list[tf.Tensor]) -> tf.Tensor:
  """The model's probe from those of its parts.

  Args:
    some: all parts.
    probes: for each float32 [..., its probes].

  Returns:
    float32 [..., probes].
  """
  if len(some) == 1:
    return probes[0]
  order = np.argsort(np.concatenate([part.probes for part in some]))
  return tf.gather(tf.concat(probes, axis=-1), order, axis=-1)
