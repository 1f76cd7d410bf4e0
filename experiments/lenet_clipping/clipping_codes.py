"""Two codes that separate the effects of clipping; see README.md."""

import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec import coded
from terngrad.codec import method as methods
from terngrad.codec import wrapper
from terngrad.codec.methods import registry
from terngrad.codec.stages import clipping
from terngrad.codec.stages import float_words
from terngrad.codec.stages import statistics

_CLIP_FACTOR = 2.5


def clipped(clip_factor: float = _CLIP_FACTOR) -> coded.Code:
  """Clips as TernGrad does, and sends float32: shorter, without variance."""
  clip = clipping.clip_by_stddev(clip_factor)
  return chain.chain(clip, float_words.float32_words())


class Rescaled(wrapper.Wrapper):
  """Ternary of clipped gradients that have their length before clipping.

  Each worker multiplies the clipped gradient of each variable by the ratio of
  the norms before and after, and encodes the product without further clipping.
  """

  def __init__(
    self,
    clip_factor: float = _CLIP_FACTOR,
    method: methods.Method | None = None,
  ) -> None:
    """Wraps ternary without clipping.

    Args:
      clip_factor: clipping limit in standard deviations of each gradient.
      method: a variant of ternary without clipping.
    """
    super().__init__(method or registry.method('ternary:clip_factor=0'))
    self.clip = clipping.clip_by_stddev(clip_factor)
    self.name = f'rescaled({clip_factor:g}) > {self.method.name}'
    self.traits = self.traits._replace(unbiased=False)

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps a variant of ternary with the same clipping."""
    return Rescaled(self.clip.clip_factor or 0.0, method)

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """Clips and rescales the gradients, then begins with them."""
    rescaled = [self.rescale(g) for g in methods.each(gradients, context)]
    return self.method.begin(rescaled, states, context)

  def rescale(self, gradient: tf.Tensor) -> tf.Tensor:
    """Clips a gradient and multiplies it to its length before.

    Args:
      gradient: float32 [n].

    Returns:
      float32 [n], of the same norm.
    """
    limit = self.clip.limit(statistics.statistics(gradient))
    short = tf.clip_by_value(gradient, -limit, limit)
    before, after = tf.norm(gradient), tf.norm(short)
    return short * tf.math.divide_no_nan(before, after)
