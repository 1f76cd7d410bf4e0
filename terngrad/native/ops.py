"""The kernels as functions on tensors, in eager code and graphs; not under XLA.

They run on all of TensorFlow's own CPU threads. Results do not depend on the
number of threads, nor on the instruction set.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

import tensorflow as tf

from terngrad import native

_T = TypeVar('_T')


class Piece(Protocol):
  """Words of all workers' messages: `codec.method.Piece`."""

  @property
  def first(self) -> int:
    """How many words of a message stand before them."""

  @property
  def parts(self) -> list[tf.Tensor]:
    """int32 [n, words] a device."""


class EncodeOptions(NamedTuple):
  """How `encode` clips, scales, ternarizes and packs, in one pass.

  Attributes:
    radix: the base of a word's digits, >= 3.
    places: their number; (3, 20) for the packing base3, (4, 16) for two_bit.
    clips: whether elements are clipped at the limits.
    stratified: True for the codes of `stages.ternary.quantize_in_strata`,
      False for those of `quantize`.
  """

  radix: int
  places: int
  clips: bool = True
  stratified: bool = False

  def encode(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    limits: tf.Tensor,
    scalers: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """The words of a payload, int32 [words].

    Args:
      pieces: float32, the v variables, or one tensor with all of them.
      sizes: their elements.
      limits: float32 [v], the largest magnitude; not looked at where nothing is
        clipped.
      scalers: float32 [v].
      key: uint32 [2] or [3], see `codec.stages.ternary.quantize_in_strata`.
    """
    return native.library().terngrad_encode(
      gradients=pieces,
      limits=limits,
      scalers=scalers,
      key=key,
      sizes=sizes,
      **self._asdict(),
    )


class Digits(NamedTuple):
  """Digits of words, of which kernels decode (3, 20) and (4, 16).

  Attributes:
    radix: their base.
    places: how many are in a word.
  """

  radix: int
  places: int

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    scalers: tf.Tensor,
    shapes: Sequence[Sequence[int]],
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Unpacks payloads, adds their codes and scales the sums, in one pass.

    Args:
      parts: int32 [n, words], see `codec.method.Piece`.
      scalers: float32 [v].
      shapes: static, of the v variables.
      scale: multiplies after the scaler.

    Returns:
      v float32 of `shapes`.
    """
    return native.library().terngrad_decode_sum(
      parts=parts,
      scalers=scalers,
      V=len(shapes),
      shapes=shapes,
      scale=scale,
      **self._asdict(),
    )


def statistics(
  gradients: Sequence[tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
  """Standard deviation and largest magnitude of each gradient, in one pass.

  Sums run in float64, in blocks whose order the size alone fixes.

  Args:
    gradients: v float32, any shapes.

  Returns:
    Pair of float32 [v]; see `codec.stages.statistics.Statistics`.
  """
  result = native.library().terngrad_statistics(
    gradients=gradients, clip_factor=0.0
  )
  return result.stddev, result.max_abs


def clipped(gradients: Sequence[tf.Tensor], clip_factor: float) -> tf.Tensor:
  """The largest magnitude of each gradient after clipping, in one pass.

  The same as `stages.clipping` makes of `statistics`, without the handful of
  small operations that for a net of a few megabytes take as long as a third of
  the pass.

  Args:
    gradients: v float32, any shapes.
    clip_factor: >= 0, see `codec.stages.clipping.clip_by_stddev`.

  Returns:
    float32 [v]; NaN where an element is not finite.
  """
  return (
    native.library()
    .terngrad_statistics(gradients=gradients, clip_factor=clip_factor)
    .clipped
  )


def norms(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
  """float32 [v]: `codec.stages.statistics.norm` of each gradient, in one pass.

  Args:
    gradients: v float32, any shapes.
  """
  return native.library().terngrad_norms(gradients=gradients)


def scale_sums(
  sums: tf.Tensor,
  scalers: tf.Tensor,
  shapes: Sequence[Sequence[int]],
  scale: float = 1.0,
) -> list[tf.Tensor]:
  """`Digits.decode_sum` of sums that were unpacked and added before.

  Args:
    sums: int8, int32 or float32 [elements, or more].
    scalers: as the others see there.
    shapes: see there.
    scale: see there.
  """
  return native.library().terngrad_scale_sums(
    sums=sums, scalers=scalers, V=len(shapes), shapes=shapes, scale=scale
  )


class UpdateTensors(NamedTuple):
  """Variables that move against their gradients, and how.

  Attributes:
    parameters: list of v float32 variables.
    velocities: list of v, of the same shapes, or () for no momentum.
    averages: list of v, the moving averages of the parameters, or ().
    momentum: Python float.
  """

  parameters: Sequence[tf.Variable]
  velocities: Sequence[tf.Variable]
  averages: Sequence[tf.Variable]
  momentum: float

  def of(self, indices: Sequence[int]) -> 'UpdateTensors':
    """The same for some of the variables."""

    def pick(values: Sequence[_T]) -> list[_T]:
      return [values[i] for i in indices] if values else []

    return self._replace(
      parameters=pick(self.parameters),
      velocities=pick(self.velocities),
      averages=pick(self.averages),
    )


def fused_update(
  digits: tuple[int, int],
  piece: Piece,
  scalers: tf.Tensor,
  scale: float,
  tensors: UpdateTensors,
  rates: tuple[tf.Tensor, tf.Tensor],
) -> tf.Operation | None:
  """Moves variables by the sums that payloads stand for, in one pass.

  Those of their elements that the words of `piece` hold.

  With g what `decode_sum` returns: v = momentum * v + g; w -= learning_rate * v
  (g itself without velocities); average = decay * average + (1 - decay) * w. No
  gradient is written anywhere. XLA gives the same bits where it fuses products
  with sums, see `step.fused_updates`.

  Args:
    digits: (3, 20) or (4, 16).
    piece: `codec.method.Piece`.
    scalers: float32 [v].
    scale: Python float, multiplies after the scaler.
    tensors: `UpdateTensors`.
    rates: pair of float32 [], learning_rate and decay; the second is not looked
      at without averages.

  Returns:
    The operation, for graphs; None in eager code.
  """
  return native.library().terngrad_fused_update(
    parts=piece.parts,
    first=piece.first,
    count=piece.parts[0].shape[1],
    scalers=scalers,
    scale=scale,
    radix=digits[0],
    places=digits[1],
    **_moving(tensors, rates),
  )


def fused_update_of_sums(
  sums: tf.Tensor,
  first: int,
  scalers: tf.Tensor,
  scale: float,
  tensors: UpdateTensors,
  rates: tuple[tf.Tensor, tf.Tensor],
) -> tf.Operation | None:
  """`fused_update` by sums that were unpacked and added before.

  Args:
    sums: int8, int32 or float32 [n], of the elements from `first` on; those
      past the last element are not looked at.
    first: elements of all variables before them.
    scalers: as the others see `fused_update`.
    scale: see there.
    tensors: see there.
    rates: see there.
  """
  moving = _moving(tensors, rates)
  total = sum(shape.num_elements() for shape in moving['shapes'])
  return native.library().terngrad_fused_update_of_sums(
    sums=sums,
    first=first,
    count=min(sums.shape[0], total - first),
    scalers=scalers,
    scale=scale,
    **moving,
  )


def _moving(
  tensors: UpdateTensors, rates: tuple[tf.Tensor, tf.Tensor]
) -> dict[str, Any]:
  """What operations that move variables have in common."""

  def handles(variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    return [variable.handle for variable in variables]

  return {
    'parameters': handles(tensors.parameters),
    'velocities': handles(tensors.velocities),
    'averages': handles(tensors.averages),
    'learning_rate': rates[0],
    'decay': rates[1],
    'shapes': [variable.shape for variable in tensors.parameters],
    'momentum': tensors.momentum,
  }
