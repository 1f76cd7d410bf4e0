"""Trainings with native kernels switched off end at the same bits."""

import numpy as np
import pytest

from terngrad import native
from tests.step import small

pytestmark = pytest.mark.skipif(
  not native.available(), reason='there are no native kernels here'
)
STEPS = 5
# Codes of every kind of kernel: digits, groups, signs, few elements, rotated
# blocks and tables; and wrappers that compute by themselves.
CODES = [
  'qsgd',
  pytest.param('ternary', marks=pytest.mark.slow),
  pytest.param('error_feedback+stc:ratio=0.1', marks=pytest.mark.slow),
  pytest.param('sign', marks=pytest.mark.slow),
  pytest.param('minmax:bits=2', marks=pytest.mark.slow),
  pytest.param('int8', marks=pytest.mark.slow),
  pytest.param('error_feedback+topk:ratio=0.1', marks=pytest.mark.slow),
  pytest.param(
    'error_feedback+threshold:above=0.5,capacity=0.3', marks=pytest.mark.slow
  ),
  pytest.param('error_feedback+bidirectional+stc', marks=pytest.mark.slow),
  pytest.param('bidirectional+qsgd', marks=pytest.mark.slow),
  pytest.param('momentum:masking=0+eden3', marks=pytest.mark.slow),
  pytest.param('error_feedback:decay=0.9+eden:bits=4', marks=pytest.mark.slow),
  pytest.param('momentum:masking=0+thc', marks=pytest.mark.slow),
  pytest.param('error_feedback:decay=0.9+thc', marks=pytest.mark.slow),
]


def trained(codec):
  training = small.Training(
    small.dense_net, devices=1, workers=3, codec=codec, on_kernels=True
  )
  training.run(STEPS)
  return [variable.numpy() for variable in training.variables()]


@pytest.mark.parametrize('codec', CODES)
def test_training_without_kernels_gives_the_same_bits(codec, monkeypatch):
  with_kernels = trained(codec)
  monkeypatch.setattr(native, 'library', lambda: None)
  assert not native.available()
  assert len(with_kernels) > 5
  for a, b in zip(with_kernels, trained(codec), strict=True):
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))
