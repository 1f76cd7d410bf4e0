"""The interfaces of clips and quantizers, and the declarations of codes.

`chain.chain` builds codes from stages. `wire` defines packings, the last stage.
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

# Values of `Stage.domain`. SIGNS are codes without 0.
FLOAT, CODES, SIGNS, WORDS = 'float', 'codes', 'signs', 'words'
# Values of `Method.scope`. Besides the agreed probe, the code of an element
# depends on this element only, on its variable or on its whole bucket.
ELEMENT, VARIABLE, BUCKET = 'element', 'variable', 'bucket'
# Values of `Method.unit`: the unit of a sum of codes or of floats.
SCALER, ONE = 'scaler', 'one'

Shapes = Sequence[Sequence[int]]


def check_gradients(gradients: Any) -> None:
  """Raises ValueError if the argument is not a list of float32 gradients.

  A single tensor is an error, because it would be read as a list of its rows.
  """
  if not isinstance(gradients, list | tuple) or any(
    getattr(one, 'dtype', None) != tf.float32 for one in gradients
  ):
    raise ValueError(
      'gradients: expected a list of float32 tensors, one per variable, '
      f'received {described(gradients)}. Pass a single gradient in a list.'
    )


def described(value: Any) -> str:
  """Returns the type of a value, for messages."""
  if isinstance(value, list | tuple):
    return f'a list of {", ".join(map(described, value[:3])) or "nothing"}'
  if hasattr(value, 'dtype'):
    return f'{tf.as_dtype(value.dtype).name} {list(value.shape)}'
  return type(value).__name__


class Traits(NamedTuple):
  """Properties that an exchange may rely on.

  `terngrad check codec` checks `unbiased`, `lossless`, `preserves_scale`,
  `averages`, and whether randomness is private. The others are the author's
  word.

  All codes preserve scale: twice the gradient decodes to twice the result, if
  the largest magnitude of the variable, or of the group, is between 2**-91 and
  2**120 divided by the number of workers. Smaller gradients may decode to
  zeros. So may elements below 2**-126, which processors flush to zero. Codes
  without `preserves_scale` are exempt.

  Attributes:
    unbiased: the mean of decoded payloads over all keys is the gradient, up to
      the declared clipping and to 2**-24 of the scaler. It is zero if the
      scaler is below 2**-100.
    lossless: decoding returns the gradient bit for bit.
    additive: codes are integers on one shared scale, so that a sum of codes
      decodes to the sum of the gradients.
    randomness: 'none', 'private' (independent bits per worker) or 'shared' (all
      workers derive their bits from the same key, so that their errors cancel
      partly).
    rounds: every element decodes to a near float of fewer bits. If the code is
      not unbiased, its bias is this rounding error, so it needs no error
      feedback.
    preserves_scale: False for codes that compare magnitudes with constants, as
      `fp16` and `threshold` do.
    dense: nearly every element decodes to a value that is not zero, so momentum
      correction with masking would reset nearly every velocity in each step.
    averages: the decoded mean is the mean of the workers' estimates. False for
      codes that decide by a vote, as `sign:decide=majority` does.
  """

  unbiased: bool
  lossless: bool
  additive: bool
  randomness: Literal['none', 'private', 'shared']
  rounds: bool = False
  preserves_scale: bool = True
  dense: bool = False
  averages: bool = True


class Stage(deprecated.AcceptsFunctions):
  """A stateless step of a chain; chains may share one instance.

  Attributes:
    name: used in messages and labels.
    domain: (domain of the input, domain of the output).
  """

  name: str
  domain: tuple[str, str]


class Clip(Stage):
  """A stage that limits elements, FLOAT to FLOAT.

  Attributes:
    clip_factor: the limit in standard deviations, which kernels use; None if
      the limit is defined otherwise.
  """

  clip_factor: float | None = None
  domain = (FLOAT, FLOAT)

  @abc.abstractmethod
  def limit(self, stats: 'statistics.Statistics') -> tf.Tensor:
    """Returns the largest allowed magnitude, float32 []; infinity: no limit."""


class Quantizer(Stage):
  """A stage that rounds elements to integers times a scaler, FLOAT to CODES.

  Attributes:
    levels: codes are in [-levels, levels].
    traits: properties of the codes.
    clips: True if the scaler itself limits the elements. A clip stage before
      the quantizer would then be a second, different limit.
    strata: number of workers over which draws are spread evenly, or 0 for
      independent draws. With strata, keys have a third number, from
      `gradients.GradientCodec.keys`.
  """

  levels: int
  traits: Traits
  clips: bool = False
  strata: int = 0
  domain = (FLOAT, CODES)

  @abc.abstractmethod
  def scaler(self, stats: 'statistics.Statistics') -> tf.Tensor:
    """Returns the local scaler, float32 []; workers agree on the largest.

    Args:
      stats: of the clipped gradient.
    """

  @abc.abstractmethod
  def factor(self, scaler: tf.Tensor) -> tf.Tensor:
    """Returns the factors of values for `quantize`, float32 [v]."""

  @abc.abstractmethod
  def quantize(
    self, scaled: tf.Tensor, positions: tf.Tensor, key: tf.Tensor
  ) -> tf.Tensor:
    """Rounds scaled values to codes.

    Args:
      scaled: float32 [w], values times `factor`.
      positions: uint32 [w], indices from the start of a plane. The first number
        of the key includes the start of the plane.
      key: uint32 [2] or, with strata, [3].

    Returns:
      int32 [w].
    """

  @abc.abstractmethod
  def dequantize(self, codes: tf.Tensor, scaler: tf.Tensor) -> tf.Tensor:
    """Returns float32 values of int32 codes, or of sums of workers' codes."""


__getattr__ = deprecated.moved(__name__, Codec='terngrad.codec.coded:Code')
