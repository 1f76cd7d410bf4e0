"""Methods in training: the same bits however the workers are dealt."""

import numpy as np
import pytest

from tests.step import small

# One is enough for every day: it has all that there is, rounds and states.
METHODS = (
  'error_feedback+powersgd:rank=2',
  *(
    pytest.param(text, marks=pytest.mark.slow)
    for text in (
      'error_feedback+topk:ratio=0.1',
      'error_feedback+sign',
      'error_feedback+sign:decide=majority',
      'error_feedback+powersgd:warm_start=0,min_compression=0.5',
      'error_feedback+e3m0',
      'ef21+topk:ratio=0.1',
      'ef21_sgdm:eta=0.3+qsgd',
      'diana+natural',
      'demo:count=4',
      'one_bit_adam+sign',
    )
  ),
)


def values_of(text, devices, on_kernels=False):
  training = small.Training(
    small.conv_net,
    devices=devices,
    workers=3,
    codec=text,
    on_kernels=on_kernels,
  )
  training.run(10)
  return training.values()


@pytest.mark.parametrize('text', METHODS)
def test_two_devices_and_kernels_train_to_the_bits_of_one_device(text):
  np.testing.assert_array_equal(
    values_of(text, 2, on_kernels=True), values_of(text, 1)
  )


@pytest.mark.slow
@pytest.mark.parametrize('text', METHODS)
def test_two_devices_without_kernels_train_to_the_bits_of_one_device(text):
  np.testing.assert_array_equal(values_of(text, 2), values_of(text, 1))
