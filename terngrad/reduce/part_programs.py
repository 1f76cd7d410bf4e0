"""Compiled programs that parts of equal layout share.

Such parts have buckets of the same methods and shapes, and equal L2 terms. What
differs is where their buckets lie, `WorkerStep.origins`, an argument of the
programs.
"""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
from typing import ParamSpec
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import weight_decay

_P = ParamSpec('_P')
_T = TypeVar('_T')


def compile_if(compiles: bool, function: Callable[_P, _T]) -> Callable[_P, _T]:
  """Returns a function as it is, or compiled by XLA at its first call."""
  return tracing.compiled(function) if compiles else function


def layout_of(
  codec: gradients_lib.GradientCodec, decay: weight_decay.WeightDecay | None
) -> Hashable:
  """Returns a key that is equal for parts that can share programs.

  Args:
    codec: of a part.
    decay: the L2 terms of its variables.
  """
  buckets = tuple(
    (id(bucket.method), bucket.indices, bucket.shapes, bucket.num_probes)
    for bucket in codec.buckets
  )
  movable = all(bucket.method.any_origin for bucket in codec.buckets)
  place = () if movable else origins_of(codec)
  return buckets, place, decay


def origins_of(
  codec: gradients_lib.GradientCodec,
) -> tuple[tuple[int, int], ...]:
  """Returns the stream and the start of each bucket; see `WorkerStep`."""
  return tuple((bucket.stream, bucket.start) for bucket in codec.buckets)


class PartPrograms:
  """The programs of parts of one layout, except those of the keys.

  Attributes:
    begin: adds the gradients of the L2 terms, then calls `GradientCodec.begin`.
    begin_plain: the same for plain methods, without copying gradients.
    requantize: `GradientCodec.carry`; the words as float32, see `transport`.
    send: `GradientCodec.send`. A compiled one returns the words as float32.
    finish: `GradientCodec.finish`.
    decode: `GradientCodec.decode`.
  """

  def __init__(
    self,
    codec: gradients_lib.GradientCodec,
    decay: weight_decay.WeightDecay | None,
    compiles: bool,
  ) -> None:
    """Prepares the programs; XLA compiles them at the first call.

    Args:
      codec: of a part, with the indices of its variables in the part.
      decay: the L2 terms of these variables; None for none.
      compiles: False compiles nothing.
    """
    self._codec, self._decay = codec, decay
    self.begin = compile_if(compiles, self._begin)
    self.begin_plain = compile_if(compiles, self._begin_plain)
    self.requantize = compile_if(compiles, self._carry)
    self.finish = compile_if(compiles, codec.finish)
    self.decode = compile_if(compiles, codec.decode)
    # A compiled program would copy the floats of a lossless codec.
    sends_floats = codec.lossless or not compiles
    self.send = codec.send if sends_floats else tracing.compiled(self._send)

  def _begin(
    self,
    gradients: Sequence[tf.Tensor],
    parameters: Sequence[tf.Tensor],
    states: gradients_lib.BucketTensors,
    step: gradients_lib.WorkerStep,
  ) -> tuple[gradients_lib.BucketTensors, tf.Tensor]:
    decayed = self._add_decay(gradients, parameters)
    return self._codec.begin(decayed, states, step)

  def _begin_plain(
    self,
    gradients: Sequence[tf.Tensor],
    parameters: Sequence[tf.Tensor],
    step: gradients_lib.WorkerStep,
  ) -> tuple[list[tf.Tensor | None], tf.Tensor]:
    """(Gradients, None for those without an L2 term; probe).

    XLA would copy gradients that it returns unchanged.
    """
    decayed = self._add_decay(gradients, parameters)
    states = [()] * len(self._codec.buckets)
    _, probe = self._codec.begin(decayed, states, step)
    has_terms = (
      self._decay.has_terms() if self._decay else [False] * len(decayed)
    )
    changed = [
      gradient if has_term else None
      for gradient, has_term in zip(decayed, has_terms, strict=True)
    ]
    return changed, probe

  def _add_decay(
    self, gradients: Sequence[tf.Tensor], parameters: Sequence[tf.Tensor]
  ) -> list[tf.Tensor]:
    if not self._decay:
      return list(gradients)
    return self._decay.add(gradients, parameters)

  def _carry(
    self, carried: gradients_lib.BucketTensors, step: gradients_lib.WorkerStep
  ) -> gradients_lib.BucketTensors:
    held = self._codec.carry(carried, step)
    return [list(map(transport.to_float32, values)) for values in held]

  def _send(
    self,
    number: int,
    carried: gradients_lib.BucketTensors,
    states: gradients_lib.BucketTensors,
    received: methods.ReceivedRounds,
    step: gradients_lib.WorkerStep,
  ) -> tuple[tf.Tensor, gradients_lib.BucketTensors]:
    words, after = self._codec.send(number, carried, states, received, step)
    return transport.to_float32(words), after
