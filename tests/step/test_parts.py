"""Steps whose codes travel in parts end at the bits of steps in one piece."""

import functools

import numpy as np
import pytest

from terngrad.step import loss_scaling
from terngrad.step import optimizers
from tests.codec import one_round
from tests.step import small

CODECS = (
  ('ternary:sharing=requantize', True),
  *(
    pytest.param(codec, False, marks=pytest.mark.slow)
    for codec in (
      'ternary',
      'ternary:sharing=requantize',
      'eden3',
      'ternary:dither=stratified,workers=4,packing=radix,group_size=32',
    )
  ),
)
# The logits, then the other two or four variables.
BYTES = 200
dropout_net = functools.partial(small.conv_net, dropout=0.4)


def trained(build, part_bytes, devices=1, count=2, **options):
  training = small.Training(
    build, devices=devices, workers=4, part_bytes=part_bytes, **options
  )
  return training, training.run(count)


def assert_equal(one, other):
  np.testing.assert_array_equal(one[0].values(), other[0].values())
  for field in ('entropy', 'accuracy', 'probes', 'shared'):
    np.testing.assert_array_equal(
      getattr(one[1], field), getattr(other[1], field)
    )


@pytest.mark.parametrize(('codec', 'on_kernels'), CODECS)
def test_parts_change_no_bit_whatever_the_code(codec, on_kernels):
  options = {'codec': codec, 'on_kernels': on_kernels}
  whole = trained(small.dense_net, 0, **options)
  parts = trained(small.dense_net, BYTES, **options)
  assert len(parts[0].codec.buckets) == (1 if codec == 'eden3' else 2)
  assert_equal(parts, whole)
  # The words differ, what they stand for does not.
  means = [
    one_round.decode_mean(training.codec, [result.payloads(0)], result.shared)
    for training, result in (whole, parts)
  ]
  for mean, other in zip(*means, strict=True):
    np.testing.assert_array_equal(mean, other)


def test_parts_change_no_bit_with_statistics_and_dropout_on_two_devices():
  whole = trained(dropout_net, 0, on_kernels=True)
  parts = trained(dropout_net, BYTES, devices=2, on_kernels=True)
  assert_equal(parts, whole)


@pytest.mark.parametrize(
  'options',
  [
    # They need all gradients before the first update.
    {
      'optimizer': optimizers.Adam().with_clip_norm(0.05),
      'scaling': loss_scaling.START,
    },
    {'optimizer': optimizers.RMSProp(), 'decoupled': True, 'parts': 2},
  ],
)
@pytest.mark.gate_every(2)
def test_parts_change_no_bit_whatever_the_update(options):
  whole = trained(small.dense_net, 0, on_kernels=True, **options)
  # A part a variable.
  parts = trained(small.dense_net, 1, on_kernels=True, **options)
  assert len(parts[0].codec.buckets) == 4
  assert_equal(parts, whole)
