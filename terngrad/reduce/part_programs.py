"""Compiled programs that parts of equal layout share.

Such parts, of one model or of several, have buckets of equal methods and
shapes, and equal L2 terms. What differs is where their buckets lie,
`WorkerStep.origins`, an argument of the programs.
"""

import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
from typing import ParamSpec
from typing import TypeVar

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import weight_decay

_P = ParamSpec('_P')
_T = TypeVar('_T')
# Layouts whose programs a process keeps.
_MOST_LAYOUTS = 64


def compile_if(compiles: bool, function: Callable[_P, _T]) -> Callable[_P, _T]:
  """Returns a function as it is, or compiled by XLA at its first call."""
  return tracing.compiled(function) if compiles else function


@dataclasses.dataclass(frozen=True)
class PartLayout:
  """What decides about the programs of a part.

  Layouts are equal if their parts can share programs.

  Attributes:
    codec: of a part, with the indices of its variables in the part.
    decay: the L2 terms of these variables; None for none.
    buckets: the method and the shapes of each bucket.
    origins: of the buckets, if the programs know them; () if they are an
      argument.
  """

  codec: gradients_lib.GradientCodec = dataclasses.field(compare=False)
  decay: weight_decay.WeightDecay | None
  buckets: Hashable
  origins: Hashable

  @classmethod
  def of(
    cls,
    codec: gradients_lib.GradientCodec,
    decay: weight_decay.WeightDecay | None,
  ) -> 'PartLayout':
    """Returns the layout of a part.

    Args:
      codec: of the part.
      decay: the L2 terms of its variables.
    """
    buckets = tuple(
      (_key(bucket.method), bucket.indices, bucket.shapes, bucket.num_probes)
      for bucket in codec.buckets
    )
    movable = all(bucket.method.any_origin for bucket in codec.buckets)
    return cls(codec, decay, buckets, () if movable else origins_of(codec))

  def fixed(self) -> 'PartLayout':
    """Returns the layout of programs that know the origins of the codec."""
    return dataclasses.replace(self, origins=origins_of(self.codec))


def _key(value: object) -> Hashable:
  """Returns a key that is equal for values that compute the same.

  Objects of this package are compared by their class and attributes; objects of
  other packages are equal only to themselves.
  """
  if isinstance(value, (tuple, list)):
    return type(value), *map(_key, value)
  if isinstance(value, dict):
    return dict, *((key, _key(one)) for key, one in value.items())
  if value is None or isinstance(value, (bool, int, float, str, bytes)):
    return type(value), repr(value)
  if isinstance(value, (np.ndarray, np.generic)):
    return type(value), value.dtype.str, value.shape, value.tobytes()
  if type(value).__module__.startswith('terngrad.') and hasattr(
    value, '__dict__'
  ):
    return type(value), _key(vars(value))
  return id(value)


@functools.lru_cache(_MOST_LAYOUTS)
def shared(layout: PartLayout) -> 'PartPrograms':
  """Returns the compiled programs of all parts of a layout in this process."""
  return PartPrograms(layout.codec, layout.decay, compiles=True)


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
