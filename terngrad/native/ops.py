"""The kernels as functions on tensors, in eager code and graphs; not under XLA.

They use all of TensorFlow's CPU threads. Results depend neither on the number
of threads nor on the instruction set. `on_gpus` selects the kernels for tensors
on a GPU, which give the same bits; they need `gpu.available()`. In payloads NaN
has the bits 0x7FC00000 where a kernel computed it.

Kernels take subnormal float32 for zeros, as TensorFlow's CPU threads do. Only
fused updates on GPUs compute with them, after decoding, as XLA does there.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

import tensorflow as tf

from terngrad import native

_T = TypeVar('_T')


class PieceLike(Protocol):
  """A range of words of all workers' messages, such as `codec.method.Piece`."""

  @property
  def first(self) -> int:
    """Index of the first word in the message."""

  @property
  def parts(self) -> list[tf.Tensor]:
    """One int32 [n, words] per device."""


class EncodeOptions(NamedTuple):
  """The options of `encode`: clip, scale, ternarize and pack in one pass.

  Attributes:
    radix: the base of a word's digits, >= 3.
    places: digits per word; (3, 20) is the packing base3, (4, 16) two_bit.
    clips: True if elements are clipped at the limits.
    stratified: True for the codes of `stages.ternary.quantize_in_strata`, False
      for those of `quantize`.
    on_gpus: whether tensors are on a GPU.
  """

  radix: int
  places: int
  clips: bool = True
  stratified: bool = False
  on_gpus: bool = False

  def encode(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    limits: tf.Tensor,
    scalers: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Encodes a payload, int32 [words].

    Args:
      pieces: float32, one tensor per variable or one with all variables.
      sizes: elements of each of the v variables.
      limits: float32 [v], the largest magnitude; ignored if `clips` is False.
      scalers: float32 [v].
      key: uint32 [2], or [3] with strata as in
        `codec.stages.ternary.quantize_in_strata`.
    """
    return native.operation('encode', self.on_gpus)(
      gradients=pieces,
      limits=limits,
      scalers=scalers,
      key=key,
      sizes=sizes,
      radix=self.radix,
      places=self.places,
      clips=self.clips,
      stratified=self.stratified,
    )

  def requantize(
    self,
    words: tf.Tensor,
    sizes: Sequence[int],
    own: tf.Tensor,
    scalers: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Decodes words and encodes them with other scalers, on a GPU.

    Args:
      words: int32 or float32 of the same bits [words]; digits (3, 20) or
        (4, 16).
      sizes: elements of each of the v variables.
      own: float32 [v], the scalers of the words, and the limits if `clips`.
      scalers: float32 [v].
      key: as for `encode`.

    Returns:
      The type and shape of `words`.
    """
    return native.operation('requantize', on_gpus=True)(
      words=words,
      own=own,
      scalers=scalers,
      key=key,
      sizes=sizes,
      radix=self.radix,
      places=self.places,
      clips=self.clips,
      stratified=self.stratified,
    )


class Digits(NamedTuple):
  """The digits of words; kernels decode (3, 20) and (4, 16).

  Attributes:
    radix: base of the digits.
    places: digits per word.
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
      parts: int32 [n, words], in the row order of `codec.method.Piece`.
      scalers: float32 [v].
      shapes: static shapes of the v variables.
      scale: factor, applied after the scaler.

    Returns:
      v float32 of `shapes`.
    """
    return native.operation('decode_sum', isinstance(self, GpuDigits))(
      parts=parts,
      scalers=scalers,
      V=len(shapes),
      shapes=shapes,
      scale=scale,
      **self._asdict(),
    )


class GpuDigits(Digits):
  """The digits of words on GPUs."""


def statistics(
  gradients: Sequence[tf.Tensor], on_gpus: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
  """Computes standard deviations and largest magnitudes, in one pass.

  Sums are float64, in blocks whose order depends only on the size.

  Args:
    gradients: v float32, any shapes.
    on_gpus: whether tensors are on a GPU.

  Returns:
    (stddev, max_abs), float32 [v] each, as in `codec.stages.statistics`.
  """
  operation = native.operation('statistics', on_gpus)
  result = operation(gradients=gradients, clip_factor=0.0)
  return result.stddev, result.max_abs


def max_clipped(
  gradients: Sequence[tf.Tensor], clip_factor: float, on_gpus: bool = False
) -> tf.Tensor:
  """Computes the largest magnitude of each clipped gradient, in one pass.

  The result equals that of `stages.clipping` on `statistics`. It saves a few
  small operations, which take a third of the time of the pass for a model of a
  few megabytes.

  Args:
    gradients: v float32, any shapes.
    clip_factor: >= 0, as in `codec.stages.clipping.clip_by_stddev`.
    on_gpus: whether tensors are on a GPU.

  Returns:
    float32 [v]; NaN if an element is not finite.
  """
  operation = native.operation('statistics', on_gpus)
  return operation(gradients=gradients, clip_factor=clip_factor).clipped


def norms(gradients: Sequence[tf.Tensor], on_gpus: bool = False) -> tf.Tensor:
  """Computes the Euclidean norm of each gradient, in one pass.

  Args:
    gradients: v float32, any shapes.
    on_gpus: whether tensors are on a GPU.

  Returns:
    float32 [v], at most the largest float32; NaN if an element is not finite.
  """
  if not on_gpus:
    return native.library().terngrad_norms(gradients=gradients)
  # On GPUs all statistics take one pass.
  operation = native.operation('statistics', on_gpus)
  return operation(gradients=gradients, clip_factor=0.0).norms


def numbers_on_gpu(numbers: tf.Tensor) -> tf.Tensor:
  """Moves a few numbers from the host to the GPU, in the order of its work.

  TensorFlow's own copy waits until the GPU has done all that was launched
  before, and what needs the numbers is launched only then.

  Args:
    numbers: float32 of any shape, or words as in `codec.stages.transport`.
  """
  return native.operation('numbers', on_gpus=True)(numbers=numbers)


def scale_sums(
  sums: tf.Tensor,
  scalers: tf.Tensor,
  shapes: Sequence[Sequence[int]],
  scale: float = 1.0,
  on_gpus: bool = False,
) -> list[tf.Tensor]:
  """Scales sums of codes that were unpacked and added before, in one pass.

  `sums` are int8, int32 or float32 [elements or more]. The other arguments and
  the result are those of `Digits.decode_sum`.
  """
  return native.operation('scale_sums', on_gpus)(
    sums=sums, scalers=scalers, V=len(shapes), shapes=shapes, scale=scale
  )


class UpdateTensors(NamedTuple):
  """The variables that a fused update changes, and the momentum.

  Attributes:
    parameters: v float32 variables.
    velocities: v variables of the same shapes, or () for no momentum.
    averages: the v moving averages of the parameters, or ().
    momentum: factor of the velocities.
    roundings: which products GPUs round; see `src/gpu/update_tables.h`.
  """

  parameters: Sequence[tf.Variable]
  velocities: Sequence[tf.Variable]
  averages: Sequence[tf.Variable]
  momentum: float
  roundings: int = 0

  def select(self, indices: Sequence[int]) -> 'UpdateTensors':
    """Returns the tensors of some of the variables."""

    def pick(values: Sequence[_T]) -> list[_T]:
      return [values[i] for i in indices] if values else []

    return self._replace(
      parameters=pick(self.parameters),
      velocities=pick(self.velocities),
      averages=pick(self.averages),
    )


def fused_update(
  digits: tuple[int, int],
  piece: PieceLike,
  scalers: tf.Tensor,
  scale: float,
  tensors: UpdateTensors,
  rates: tuple[tf.Tensor, tf.Tensor],
) -> tf.Operation | None:
  """Updates variables by the decoded sums of payloads, in one pass.

  It updates only the elements in the words of `piece`. With g the result of
  `decode_sum`: v = momentum * v + g; w -= learning_rate * v (g itself without
  velocities); average = decay * average + (1 - decay) * w. No gradient is
  written to memory. XLA computes the same bits if it uses fused multiply-adds;
  see `step.fused_updates`.

  Args:
    digits: (3, 20) or (4, 16); `GpuDigits` for variables on a GPU.
    piece: words of all workers.
    scalers: float32 [v].
    scale: factor, applied after the scaler.
    tensors: the variables.
    rates: (learning_rate, decay), float32 [] each; decay is ignored without
      averages.

  Returns:
    The operation, in graphs; None in eager code.
  """
  on_gpus = isinstance(digits, GpuDigits)
  return native.operation('fused_update', on_gpus)(
    parts=piece.parts,
    first=piece.first,
    count=piece.parts[0].shape[1],
    scalers=scalers,
    scale=scale,
    radix=digits[0],
    places=digits[1],
    **_update_arguments(tensors, rates, on_gpus),
  )


def fused_update_of_sums(
  sums: tf.Tensor,
  first: int,
  scalers: tf.Tensor,
  scale: float,
  tensors: UpdateTensors,
  rates: tuple[tf.Tensor, tf.Tensor],
  on_gpus: bool = False,
) -> tf.Operation | None:
  """Updates variables by sums that were unpacked and added before.

  `sums` are int8, int32 or float32 [n], for the elements from `first` on,
  counted through all variables. Values past the last element are ignored.
  `on_gpus` is True for variables on a GPU. The other arguments and the result
  are those of `fused_update`.
  """
  arguments = _update_arguments(tensors, rates, on_gpus)
  total = sum(shape.num_elements() for shape in arguments['shapes'])
  return native.operation('fused_update_of_sums', on_gpus)(
    sums=sums,
    first=first,
    count=min(sums.shape[0], total - first),
    scalers=scalers,
    scale=scale,
    **arguments,
  )


def _update_arguments(
  tensors: UpdateTensors, rates: tuple[tf.Tensor, tf.Tensor], on_gpus: bool
) -> dict[str, Any]:
  """Returns the arguments that all fused updates have in common."""

  def handles(variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    return [variable.handle for variable in variables]

  roundings = {'roundings': tensors.roundings} if on_gpus else {}
  return roundings | {
    'parameters': handles(tensors.parameters),
    'velocities': handles(tensors.velocities),
    'averages': handles(tensors.averages),
    'learning_rate': rates[0],
    'decay': rates[1],
    'shapes': [variable.shape for variable in tensors.parameters],
    'momentum': tensors.momentum,
  }
