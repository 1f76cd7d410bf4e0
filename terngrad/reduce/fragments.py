"""Fragments of a model, of which a step exchanges one.

Douillard et al., Streaming DiLoCo, https://arxiv.org/abs/2501.18512, section
2.2: whole layers, strided. Here a layer is a kernel with the vectors that
follow it, its bias and its normalisation.
"""

from collections.abc import Sequence

from terngrad.codec import policy
from terngrad.reduce import gradients


def strided(
  specs: Sequence[policy.VariableSpec], count: int
) -> tuple[int, ...]:
  """Which fragment each variable is of: layer l of fragment l mod `count`.

  Examples:
    >>> from terngrad.codec import policy
    >>> shapes = {'a/kernel': (3, 4), 'a/bias': (4,), 'b/kernel': (4, 5)}
    >>> strided([policy.VariableSpec(*item) for item in shapes.items()], 2)
    (0, 0, 1)

  Args:
    specs: the `policy.VariableSpec`s, layer by layer.
    count: fragments, >= 1.

  Returns:
    Tuple of int.

  Raises:
    ValueError: there are fewer layers.
  """
  layers: list[int] = []
  for spec in specs:
    begins = not layers or len(spec.shape) > 1
    layers.append((layers[-1] if layers else -1) + begins)
  if layers[-1] + 1 < count:
    raise ValueError(
      f'fragments: expected at most {layers[-1] + 1}, the layers of the net, '
      f'received {count}. Use fewer.'
    )
  return tuple(layer % count for layer in layers)


def split(
  codec: gradients.GradientCodec, numbers: Sequence[int]
) -> gradients.GradientCodec:
  """The codec with buckets whose variables are of one fragment each.

  Args:
    codec: `gradients.GradientCodec` of the whole model, not in parts.
    numbers: for each variable its fragment, from 0 without a gap.

  Returns:
    A `gradients.GradientCodec`.
  """
  buckets = []
  for fragment in sorted(set(numbers)):
    for bucket in codec.buckets:
      places = [
        place
        for place, i in enumerate(bucket.indices)
        if numbers[i] == fragment
      ]
      if places:
        buckets.append(bucket.only(places)._replace(fragment=fragment))
  return gradients.GradientCodec(tuple(buckets))


def of_step(
  codec: gradients.GradientCodec, step: int
) -> gradients.GradientCodec:
  """The codec of the fragment that a step exchanges.

  Args:
    codec: `gradients.GradientCodec` of the whole model.
    step: int, steps taken before.

  Returns:
    A `gradients.GradientCodec`; `codec` where there is one fragment.
  """
  if codec.num_fragments == 1:
    return codec
  turn = step % codec.num_fragments
  own = (bucket for bucket in codec.buckets if bucket.fragment == turn)
  return gradients.GradientCodec(tuple(own))


def members(codec: gradients.GradientCodec) -> tuple[tuple[int, ...], ...]:
  """For each fragment the tuple of its variables' indices in the model."""
  return tuple(
    tuple(of_step(codec, turn).variables) for turn in range(codec.num_fragments)
  )
