"""The arithmetic of chains of stages, and which stages fit together.

`codec.chain` makes codes of them.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import deprecated
from terngrad.codec.stages import planes
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire

__getattr__ = deprecated.moved(__name__, chain='terngrad.codec.chain:chain')


def local_scaler(
  stages: Sequence[contract.Stage], stats: statistics.Statistics
) -> tf.Tensor:
  """What a worker asks for in the probe, from the statistics of a gradient.

  Args:
    stages: of a chain with clips or a quantizer.
    stats: `statistics.Statistics`, of one variable or of several as vectors.

  Returns:
    float32, shape of the statistics.
  """
  for stage in stages:
    if isinstance(stage, contract.Clip):
      stats = stats._replace(max_abs=_lesser(stats.max_abs, stage.limit(stats)))
    if isinstance(stage, contract.Quantizer):
      return stage.scaler(stats)
  return stats.max_abs


def gradients_of(
  quantizer: contract.Quantizer | None,
  sums: tf.Tensor,
  shared: tf.Tensor,
  shapes: contract.Shapes,
  scale: float,
  group_size: int = 0,
) -> list[tf.Tensor]:
  """The gradients that sums of codes, or of floats, stand for.

  Args:
    quantizer: `contract.Quantizer`, or None where `sums` are floats.
    sums: int32 or float32 [places], those past the last element included.
    shared: float32 [p], the agreed probe.
    shapes: the v shapes.
    scale: float; the gradients are multiplied by it.
    group_size: see `coded.Code`.

  Returns:
    List of v float32.
  """
  sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
  sums = sums[: sum(sizes)]
  if quantizer and group_size:
    scalers = planes.spread_groups(shared, sizes, group_size)
    sums = quantizer.dequantize(sums, scalers)
  sums = tf.split(sums, sizes)
  if quantizer and not group_size:
    sums = [
      quantizer.dequantize(total, shared[i]) for i, total in enumerate(sums)
    ]
  if scale != 1.0:  # Even a product with 1 would flush subnormals.
    sums = [total * scale for total in sums]
  return [
    tf.reshape(total, shape) for total, shape in zip(sums, shapes, strict=True)
  ]


def check(stages: Sequence[contract.Stage], group_size: int) -> None:
  """Raises ValueError where `stages` make no code."""
  quantizes = any(isinstance(stage, contract.Quantizer) for stage in stages)
  if group_size < 0 or (group_size and not quantizes):
    raise ValueError(
      'group_size: expected the elements of a scaler beside a quantizer, or 0, '
      f'received {group_size}. Use 64 to 4096 with ternarize().'
    )
  domain = contract.FLOAT
  for before, stage in zip((None, *stages), stages, strict=False):
    takes, gives = stage.domain
    if takes != domain:
      raise ValueError(
        f'Stage {stage.name} takes {takes}, received {domain} from '
        f'{before.name if before else "the gradient"}. List the stages in the '
        'order clip, quantizer, packing.'
      )
    if (
      isinstance(stage, contract.Quantizer)
      and stage.clips
      and before is not None
    ):
      raise ValueError(
        f'{stage.name} bounds the elements itself; expected no stage before '
        f'it, received {before.name}. Leave one of the two out.'
      )
    if (
      isinstance(before, contract.Quantizer)
      and isinstance(stage, wire.Fixed | wire.VariablePacking)
      and stage.levels is not None
      and before.levels > stage.levels
    ):
      raise ValueError(
        f'{stage.name} holds codes up to {stage.levels}, {before.name} makes '
        f'codes up to {before.levels}. Choose a packing with more levels.'
      )
    domain = gives
  if domain != contract.WORDS:
    last = stages[-1].name if stages else 'nothing'
    raise ValueError(
      f'A codec must end in words, received {domain} at the end ({last}). Add '
      'a packing: base3() or two_bit() for codes, float32_words() for floats.'
    )


def _lesser(largest: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
  """The lesser of the two; keeps a `largest` that is not a number."""
  return tf.where(largest > limit, limit, largest)
