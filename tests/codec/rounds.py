"""Steps of methods without devices, as NumPy."""

import numpy as np

from terngrad.codec import policy
from terngrad.codec import wrapper
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from terngrad.reduce import workers


def codec_of(method, shapes):
  """The `gradients.GradientCodec` with one method for variables of shapes."""
  specs = [policy.VariableSpec(str(i), s) for i, s in enumerate(shapes)]
  return bucketing.gradient_codec(specs, [method] * len(shapes))


class Traced(wrapper.Wrapper):
  """A method as graphs: one by one its operations take a second a step."""

  def __init__(self, method):
    super().__init__(method)
    self.begin = tracing.function(method.begin)
    self.send = tracing.function(method.send)
    self.decode = tracing.function(method.decode)

  def in_float(self, plain):
    return Traced(self.method.in_float(plain))


class Workers(workers.Workers):
  """Workers with their states, which take steps together."""

  def step(self, codec, values, number):
    """The mean gradients of a list of float32 a worker, as NumPy."""
    return [mean.numpy() for mean in self.means(codec, values, number)]

  def totals(self, codec, gradients):
    """Takes steps; what was sent, and what there was, in the mean.

    Args:
      codec: `gradients.GradientCodec`.
      gradients: for each step a list of float32 a worker.

    Returns:
      (for each variable the sum of the mean gradients that the steps gave; the
      sum of the means of those that there were), float64.
    """
    sent, were = [], []
    for number, values in enumerate(gradients):
      sent.append(self.step(codec, values, number))
      were.append(
        [
          np.mean(v, axis=0, dtype=np.float64)
          for v in zip(*values, strict=True)
        ]
      )
    return tuple(
      [
        np.sum(one, axis=0, dtype=np.float64)
        for one in zip(*all_steps, strict=True)
      ]
      for all_steps in (sent, were)
    )

  def means(self, codec, values, number):
    """`step`, as tensors."""
    return self.take(codec, values, number).means
