"""When a step's numbers stop a run."""

import types

import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.training import loop

RUN = types.SimpleNamespace(parameters=['fc/kernel', 'fc/bias'])
CODEC = types.SimpleNamespace(probed_variables=lambda: [0, 1])


def check(probes, entropy=(1.0, 1.0, 1.0, 1.0)):
  result = types.SimpleNamespace(
    entropy=tf.constant(entropy),
    probes=tf.constant(np.array(probes, np.float32)),
    worker_labels=None,
  )
  loop._check_finite(RUN, 6, result, CODEC)


def test_finite_numbers_stop_nothing():
  check([[0.0, 8e37]] * 4)


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_stops_the_run(value):
  probes = [[1.0, 1.0], [1.0, value], [1.0, 1.0], [1.0, 1.0]]
  with pytest.raises(
    errors.TrainingError, match='^Step 7: .*the gradient of fc/bias on worker 1'
  ):
    check(probes)


def test_gradients_that_add_up_to_infinity_stop_the_run():
  """Four of 3e38 are finite, and so is their mean, but not their sum."""
  with pytest.raises(
    errors.TrainingError, match='the sum of fc/kernel on worker 0, sum of'
  ):
    check([[3e38, 1.0]] * 4)


def test_a_loss_that_is_not_finite_stops_the_run():
  with pytest.raises(errors.TrainingError, match='the loss of worker 3'):
    check([[1.0, 1.0]] * 4, (1.0, 1.0, 1.0, np.nan))
