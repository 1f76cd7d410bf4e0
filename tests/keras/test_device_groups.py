"""The wrapper where the replicas of a process are one worker."""

import functools

import keras
import numpy as np
import pytest

import terngrad.keras
from tests.keras import small
from tests.keras import test_mirrored

pytestmark = small.ARRAYS_OF_KERAS


def trained(codec, **options):
  """A model after `fit`, and its logs."""
  made = small.compiled(codec, **options)
  callbacks = [terngrad.keras.CompressionMetrics()] if codec else []
  return made, small.fit(made, callbacks=callbacks)


# `test_mirrored` has such a worker with float32, beside Keras.
@pytest.mark.slow
def test_a_worker_of_two_replicas_sends_the_code_of_the_whole_batch():
  ours, logs = trained(small.FEEDBACK, replicas=2, devices_per_worker=2)
  others, of_one = trained(small.FEEDBACK)
  assert logs['bits_per_element'] == of_one['bits_per_element']
  np.testing.assert_allclose(logs['loss'], of_one['loss'], rtol=1e-4)
  for variable in ours.trainable_variables:
    first, second = test_mirrored.of_replicas(variable)
    np.testing.assert_array_equal(first, second)
  for here, there in zip(ours.weights, others.weights, strict=True):
    # Sums of float32 in another order.
    np.testing.assert_allclose(here.numpy(), there.numpy(), atol=1e-4)
  states = ours.optimizer.compressor.get_states()
  assert list(states['workers']) == [0, 1, 1]
  assert len(states['residual:0']) == 1


def test_a_configuration_has_the_devices_per_worker():
  optimizer = small.compiled('ternary', devices_per_worker=2).optimizer
  fields = optimizer.get_config()
  again = terngrad.keras.CompressedOptimizer.from_config(fields)
  assert again.compressor.devices_per_worker == 2
  # What a file of an earlier version lacks.
  del fields['devices_per_worker']
  older = terngrad.keras.CompressedOptimizer.from_config(fields)
  assert older.compressor.devices_per_worker == 1


def test_a_number_that_does_not_divide_the_replicas_is_refused():
  with pytest.raises(ValueError, match='devices_per_worker: expected a whole'):
    small.compiled('ternary', devices_per_worker=0)
  made = small.compiled('ternary', devices_per_worker=2)
  with pytest.raises(ValueError, match='a divisor of the 1 devices'):
    small.fit(made)


def test_virtual_workers_are_saved_without_devices():
  made = small.compiled(None)
  terngrad.keras.virtual_workers(made, num_workers=2)
  optimizer = made.optimizer
  again = type(optimizer).from_config(optimizer.get_config())
  assert again.compressor.num_workers == 2
  assert again.compressor.devices_per_worker == 1


@pytest.mark.slow
def test_local_steps_of_two_replicas_are_those_of_one():
  made = []
  for replicas in (2, 1):
    model = small.compiled(
      None, replicas, functools.partial(keras.optimizers.SGD, 0.1)
    )
    steps = terngrad.keras.LocalSteps(every=2, outer='nesterov')
    small.fit(model, callbacks=[steps])
    made.append(model)
  ours, others = (model.trainable_variables for model in made)
  for here, there in zip(ours, others, strict=True):
    first, second = test_mirrored.of_replicas(here)
    np.testing.assert_array_equal(first, second)
    # Sums of float32 in another order.
    np.testing.assert_allclose(first, there.numpy(), atol=1e-5)
