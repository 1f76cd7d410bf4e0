"""What stages of a code are: clips and quantizers; and what codes declare.

`chain.chain` makes codes of stages. `wire` has the last one, the packing.
"""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import deprecated

if TYPE_CHECKING:
  from terngrad.codec.stages import statistics

# SIGNS are codes without 0.
FLOAT, CODES, SIGNS, WORDS = 'float', 'codes', 'signs', 'words'
# What an element's code depends on, beside the agreed numbers: on nothing, on
# its variable, on all variables of its bucket.
ELEMENT, VARIABLE, BUCKET = 'element', 'variable', 'bucket'
# What a sum of codes, or of floats, is in units of; see `method.Method`.
SCALER, ONE = 'scaler', 'one'

Shapes = Sequence[Sequence[int]]


def check_gradients(gradients: Any) -> None:
  """Raises ValueError for what is no list of float32 gradients.

  One tensor would be taken for the list of its rows.
  """
  if not isinstance(gradients, list | tuple) or any(
    getattr(one, 'dtype', None) != tf.float32 for one in gradients
  ):
    raise ValueError(
      'gradients: expected a list of float32 tensors, one a variable, received '
      f'{described(gradients)}. Put one gradient into a list.'
    )


def described(value: Any) -> str:
  """The kind of a value, for messages."""
  if isinstance(value, list | tuple):
    return f'a list of {", ".join(map(described, value[:3])) or "nothing"}'
  if hasattr(value, 'dtype'):
    return f'{tf.as_dtype(value.dtype).name} {list(value.shape)}'
  return type(value).__name__


class Traits(NamedTuple):
  """Properties that an exchange may rely on; the conformance tests hold them.

  Whatever the traits, what is twice as large is coded as twice the gradient, as
  long as the largest magnitude of a variable, or of a group, is from 2**-96 to
  2**120 divided by the workers. Smaller gradients may count as zeros; elements
  below 2**-126, which processors flush, always may. `fp16` and `threshold` look
  at magnitudes themselves.

  Attributes:
    unbiased: the mean of decoded payloads over all keys is the gradient, up to
      the declared clipping and to 2**-24 of the scaler; and zero where the
      scaler is below 2**-100.
    lossless: decoding gives the gradient back to the bit.
    additive: codes are integers on one shared scale, so that a sum of codes
      decodes to the sum of the gradients.
    randomness: 'none', 'private' (each worker draws its own bits) or 'shared'
      (all derive theirs from the same, so that their errors offset each other).
  """

  unbiased: bool
  lossless: bool
  additive: bool
  randomness: Literal['none', 'private', 'shared']


class Stage(deprecated.OfFunctions):
  """A step of a chain; what has no state, and so is shared as it is.

  Attributes:
    name: for messages and labels.
    domain: what it takes, and what it gives.
  """

  name: str
  domain: tuple[str, str]


class Clip(Stage):
  """FLOAT to FLOAT: limits the elements.

  Attributes:
    clip_factor: the limit in standard deviations, for kernels; None where it
      is not a number of those.
  """

  clip_factor: float | None = None
  domain = (FLOAT, FLOAT)

  @abc.abstractmethod
  def limit(self, stats: 'statistics.Statistics') -> tf.Tensor:
    """float32 [], which no element's magnitude may exceed; infinity: any."""


class Quantizer(Stage):
  """FLOAT to CODES: rounds elements to small integers times a scaler.

  Attributes:
    levels: the codes are -levels to +levels.
    traits: see `Traits`.
    clips: True where the scaler itself bounds the elements, so that a clip
      stage before it would be a second, different bound.
    strata: the number of workers whose draws are spread evenly, or 0. Keys then
      have a third number, see `gradients.GradientCodec.keys`.
  """

  levels: int
  traits: Traits
  clips: bool = False
  strata: int = 0
  domain = (FLOAT, CODES)

  @abc.abstractmethod
  def scaler(self, stats: 'statistics.Statistics') -> tf.Tensor:
    """The local scaler, float32 []; the workers agree on the largest.

    Args:
      stats: of the clipped gradient.
    """

  @abc.abstractmethod
  def factor(self, scaler: tf.Tensor) -> tf.Tensor:
    """float32 [v] of scalers: values times it are what `quantize` takes."""

  @abc.abstractmethod
  def quantize(
    self, scaled: tf.Tensor, positions: tf.Tensor, key: tf.Tensor
  ) -> tf.Tensor:
    """The codes of scaled values.

    Args:
      scaled: float32 [w], values times `factor`.
      positions: uint32 [w], from the start of a plane, which is added to the
        key's first word.
      key: uint32 [2] or, with strata, [3].

    Returns:
      int32 [w].
    """

  @abc.abstractmethod
  def dequantize(self, codes: tf.Tensor, scaler: tf.Tensor) -> tf.Tensor:
    """float32 of int32 codes, or of sums of codes of several workers."""


__getattr__ = deprecated.moved(__name__, Codec='terngrad.codec.coded:Code')
