"""Splits a model into fragments; each step exchanges one of them.

A fragment is a strided set of whole layers: Douillard et al., Streaming DiLoCo,
https://arxiv.org/abs/2501.18512, section 2.2. Here a layer is a kernel and the
vectors that follow it: its bias and the parameters of its normalization.
"""

from collections.abc import Sequence

from terngrad.codec import policy
from terngrad.reduce import gradients


def strided(
  specs: Sequence[policy.VariableSpec], count: int
) -> tuple[int, ...]:
  """Assigns layer l to fragment l mod `count`; returns each variable's.

  Examples:
    >>> from terngrad.codec import policy
    >>> shapes = {'a/kernel': (3, 4), 'a/bias': (4,), 'b/kernel': (4, 5)}
    >>> strided([policy.VariableSpec(*item) for item in shapes.items()], 2)
    (0, 0, 1)

  Args:
    specs: of the model's variables, layer by layer.
    count: number of fragments, >= 1.

  Returns:
    The index of the fragment of each variable.

  Raises:
    ValueError: the model has fewer layers than fragments.
  """
  layers: list[int] = []
  for spec in specs:
    begins = not layers or len(spec.shape) > 1
    layers.append((layers[-1] if layers else -1) + begins)
  if layers[-1] + 1 < count:
    raise ValueError(
      f'fragments: expected at most {layers[-1] + 1}, the number of layers, '
      f'received {count}. Use fewer fragments.'
    )
  return tuple(layer % count for layer in layers)


def split(
  codec: gradients.GradientCodec, numbers: Sequence[int]
) -> gradients.GradientCodec:
  """Splits each bucket of a codec by fragment.

  Args:
    codec: of the whole model, not cut into parts.
    numbers: the index of the fragment of each variable, from 0 without a gap.
  """
  buckets = []
  for fragment in sorted(set(numbers)):
    for bucket in codec.buckets:
      positions = [
        position
        for position, i in enumerate(bucket.indices)
        if numbers[i] == fragment
      ]
      if positions:
        buckets.append(bucket.select(positions)._replace(fragment=fragment))
  return gradients.GradientCodec(tuple(buckets))


def step_codec(
  codec: gradients.GradientCodec, step: int
) -> gradients.GradientCodec:
  """Selects the fragment that a step exchanges, in turn.

  Args:
    codec: of the whole model.
    step: number of steps taken before.

  Returns:
    The codec of that fragment; `codec` itself if there is only one fragment.
  """
  if codec.num_fragments == 1:
    return codec
  fragment = step % codec.num_fragments
  buckets = (bucket for bucket in codec.buckets if bucket.fragment == fragment)
  return gradients.GradientCodec(tuple(buckets))


def members(codec: gradients.GradientCodec) -> tuple[tuple[int, ...], ...]:
  """Lists for each fragment the indices of its variables in the model."""
  return tuple(
    tuple(step_codec(codec, step).variables)
    for step in range(codec.num_fragments)
  )
