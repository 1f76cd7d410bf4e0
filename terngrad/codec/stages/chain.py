"""The arithmetic of chains, and the check that stages fit together.

`codec.chain` builds codes from it.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import deprecated
from terngrad.codec.stages import planes
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire

# Elements of a group: a variable is padded to whole groups, here of 64 MiB.
LARGEST_GROUP = 2**24

__getattr__ = deprecated.moved(__name__, chain='terngrad.codec.chain:chain')


def local_scaler(
  stages: Sequence[contract.Stage], stats: statistics.Statistics
) -> tf.Tensor:
  """Returns a worker's probe from the statistics of its gradient.

  Args:
    stages: of a chain with clips or a quantizer.
    stats: of one variable, or of several as vectors.

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
  shared_probe: tf.Tensor,
  shapes: contract.Shapes,
  scale: float,
  group_size: int = 0,
) -> list[tf.Tensor]:
  """Converts sums of codes, or of floats, to gradients.

  Args:
    quantizer: None if `sums` are floats.
    sums: int32 or float32 [elements or more], including positions past the end.
    shared_probe: float32 [p], the agreed probe.
    shapes: the v shapes.
    scale: factor of the gradients.
    group_size: elements that share a scaler; 0 for one scaler per variable.

  Returns:
    v float32 of `shapes`.
  """
  sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
  sums = sums[: sum(sizes)]
  if quantizer and group_size:
    scalers = planes.spread_groups(shared_probe, sizes, group_size)
    sums = quantizer.dequantize(sums, scalers)
  sums = tf.split(sums, sizes)
  if quantizer and not group_size:
    sums = [
      quantizer.dequantize(total, shared_probe[i])
      for i, total in enumerate(sums)
    ]
  if scale != 1.0:  # Multiplying even by 1 flushes subnormals.
    sums = [total * scale for total in sums]
  return [
    tf.reshape(total, shape) for total, shape in zip(sums, shapes, strict=True)
  ]


def check(stages: Sequence[contract.Stage], group_size: int) -> None:
  """Raises ValueError if `stages` do not form a code."""
  quantizes = any(isinstance(stage, contract.Quantizer) for stage in stages)
  is_number = 0 <= group_size <= LARGEST_GROUP
  if not is_number or (group_size and not quantizes):
    raise ValueError(
      'group_size: expected the elements per scaler of a quantizer, at most '
      f'{LARGEST_GROUP}, or 0 for whole variables, received {group_size}. Use '
      '64 to 4096 with ternarize().'
    )
  domain = contract.FLOAT
  for previous, stage in zip((None, *stages), stages, strict=False):
    takes, gives = stage.domain
    if takes != domain:
      source = previous.name if previous else 'the gradient'
      raise ValueError(
        f'Stage {stage.name} takes {takes}, received {domain} from {source}. '
        'List the stages in the order clip, quantizer, packing.'
      )
    if (
      isinstance(stage, contract.Quantizer)
      and stage.clips
      and previous is not None
    ):
      raise ValueError(
        f'{stage.name} bounds the elements itself; expected no stage before '
        f'it, received {previous.name}. Remove one of the two.'
      )
    if (
      isinstance(previous, contract.Quantizer)
      and isinstance(stage, wire.Fixed | wire.VariablePacking)
      and stage.levels is not None
      and previous.levels > stage.levels
    ):
      raise ValueError(
        f'{stage.name} holds codes up to {stage.levels}, {previous.name} makes '
        f'codes up to {previous.levels}. Choose a packing with more levels.'
      )
    domain = gives
  if domain != contract.WORDS:
    last = stages[-1].name if stages else 'nothing'
    raise ValueError(
      f'A codec must end in words, received {domain} at the end ({last}). Add '
      'a packing: base3() or two_bit() for codes, float32_words() for floats.'
    )


def _lesser(largest: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
  """Returns the smaller of the two; NaN if `largest` is NaN."""
  return tf.where(largest > limit, limit, largest)
