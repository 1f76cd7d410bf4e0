"""A small model of Keras and its data."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad.keras

# Keras 3.15 asks TensorFlow's variables for arrays in the way of NumPy 1.
ARRAYS_OF_KERAS = pytest.mark.filterwarnings(
  'ignore:__array__ implementation:DeprecationWarning'
)
FEEDBACK = 'error_feedback+topk:ratio=0.2'
FEATURES, CLASSES = 6, 3


def data(examples=48):
  """(float32 [examples, 6], int64 [examples]), classes that can be learned."""
  generator = np.random.default_rng(0)
  features = generator.normal(size=(examples, FEATURES)).astype(np.float32)
  return features, features[:, :CLASSES].argmax(axis=1)


@functools.cache
def strategy(replicas):
  """One a process: collectives of two would get the same instance keys."""
  if replicas == 1:
    return tf.distribute.get_strategy()
  devices = [f'/CPU:{index}' for index in range(replicas)]
  return tf.distribute.MirroredStrategy(devices)


def model():
  return keras.Sequential(
    [
      keras.Input((FEATURES,)),
      keras.layers.Dense(8, 'tanh', name='hidden'),
      keras.layers.Dense(CLASSES, name='logits'),
    ]
  )


def compiled(
  codec, replicas=1, optimizer=None, devices_per_worker=1, **compiling
):
  """A model with `codec` around its optimizer, None for none."""
  keras.utils.set_random_seed(1)
  with strategy(replicas).scope():
    made = model()
    rule = (optimizer or keras.optimizers.Adam)()
    if codec:
      rule = terngrad.keras.CompressedOptimizer(
        rule, codec, seed=3, devices_per_worker=devices_per_worker
      )
    made.compile(
      rule,
      keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      **compiling,
    )
  return made


def fit(made, epochs=2, **fitting):
  """Trains on `data`; returns `keras.callbacks.History.history`."""
  fitting = {'batch_size': 16, 'verbose': 0, 'shuffle': False} | fitting
  return made.fit(*data(), epochs=epochs, **fitting).history


def weights(made):
  """All variables of model and optimizer as arrays, those of states last."""
  found = [v.numpy() for v in (*made.weights, *made.optimizer.variables)]
  optimizer = getattr(made.optimizer, 'inner_optimizer', made.optimizer)
  for candidate in (made.optimizer, optimizer):
    if hasattr(candidate, 'compressor'):
      saved = candidate.compressor.get_states()
      # The names of models that are built one after the other differ.
      names = sorted(saved.keys() - {'variables'})
      return found + [saved[name] for name in names]
  return found


def assert_equal(ours, others):
  assert len(ours) == len(others)
  for here, there in zip(ours, others, strict=True):
    np.testing.assert_array_equal(here, there)
