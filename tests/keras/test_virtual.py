"""Virtual workers under stock `fit` are workers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad.keras
from tests.keras import small

pytestmark = small.ARRAYS_OF_KERAS


def virtual(codec, workers, optimizer=None, **compiling):
  made = small.compiled(None, optimizer=optimizer, **compiling)
  return terngrad.keras.virtual_workers(made, codec, workers, seed=3)


def test_two_are_two_replicas_to_the_bit():
  replicas = small.compiled(small.FEEDBACK, replicas=2)
  expected = small.fit(replicas)
  workers = virtual(small.FEEDBACK, 2)
  losses = small.fit(workers)
  small.assert_equal(small.weights(workers), small.weights(replicas))
  np.testing.assert_allclose(losses['loss'], expected['loss'], rtol=1e-6)


@pytest.mark.slow
def test_float32_is_the_whole_batch():
  """Of any size: shares of rows that differ count by their rows."""
  features, labels = small.data()
  for size in (16, 18, 5):
    found = []
    for workers in (None, 4):
      made = small.compiled(None, optimizer=lambda: keras.optimizers.SGD(1.0))
      if workers:
        terngrad.keras.virtual_workers(made, 'identity', workers)
      loss = made.train_on_batch(features[:size], labels[:size])
      found.append((loss, [v.numpy() for v in made.weights]))
    (one, whole), (other, shared) = found
    np.testing.assert_allclose(other, one, rtol=1e-6)
    for ours, theirs in zip(shared, whole, strict=True):
      np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


class Shapeless(keras.layers.Dense):
  """A layer whose kernel has a gradient of unknown static shape."""

  def call(self, inputs):
    return tf.matmul(inputs, _shapeless(tf.convert_to_tensor(self.kernel)))


@tf.custom_gradient
def _shapeless(kernel):
  def upstream(gradient):
    return tf.py_function(lambda g: g, [gradient], tf.float32)

  return tf.identity(kernel), upstream


def test_gradients_of_unknown_shapes_are_coded():
  features, labels = small.data()
  found = []
  for kind in (keras.layers.Dense, Shapeless):
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((6,)), kind(3, use_bias=False)])
    made.compile('sgd', keras.losses.SparseCategoricalCrossentropy(True))
    terngrad.keras.virtual_workers(made, 'topk:ratio=0.5', 2)
    made.train_on_batch(features, labels)
    found.append(made.get_weights()[0])
  np.testing.assert_array_equal(*found)


def test_a_batch_with_fewer_rows_than_workers_is_refused():
  made = virtual('identity', 4)
  features, labels = small.data()
  with pytest.raises(tf.errors.InvalidArgumentError, match='fewer rows'):
    made.train_on_batch(features[:3], labels[:3])


def test_each_worker_clips_its_own_gradient():
  def rule():
    return keras.optimizers.SGD(1.0, global_clipnorm=1e-3)

  workers = virtual('identity', 4, optimizer=rule)
  whole = small.compiled(None, optimizer=rule)
  features, labels = small.data()
  norms = []
  for made in (workers, whole):
    before = [v.numpy() for v in made.weights]
    made.train_on_batch(features, labels)
    moved = [v.numpy() - b for v, b in zip(made.weights, before, strict=True)]
    norms.append(np.sqrt(sum(np.sum(m**2) for m in moved)))
  # The mean of four vectors of norm 0.001 in four directions is shorter.
  assert norms[0] < 0.99e-3
  assert norms[1] == pytest.approx(1e-3, rel=1e-4)
  assert workers.optimizer.global_clipnorm == 1e-3


@pytest.mark.slow
def test_a_loaded_model_goes_on_to_the_same_bits(tmp_path):
  whole = virtual(small.FEEDBACK, 3)
  small.fit(whole, epochs=2)
  first = virtual(small.FEEDBACK, 3)
  small.fit(first, epochs=1)
  assert first.optimizer.compressor.saved()['residual:0'].shape[0] == 3
  first.save(tmp_path / 'a.keras')
  second = keras.models.load_model(tmp_path / 'a.keras')
  with pytest.raises(ValueError, match='virtual_workers once more'):
    small.fit(second)
  terngrad.keras.virtual_workers(second, small.FEEDBACK, 3, seed=3)
  small.fit(second, epochs=1)
  small.assert_equal(small.weights(second), small.weights(whole))


@pytest.mark.slow
def test_metrics_are_of_all_rows():
  made = virtual('ternary', 4, metrics=['accuracy'])
  made.optimizer.learning_rate = 0.0
  found = small.fit(made, epochs=1)
  _, accuracy = made.evaluate(*small.data(), verbose=0)
  assert found['accuracy'][0] == pytest.approx(accuracy)
  figures = small.fit(
    made, epochs=1, callbacks=[terngrad.keras.CompressionMetrics()]
  )
  assert figures['bits_per_element'][0] < 6


@pytest.mark.slow
def test_embeddings_and_batch_normalization_train(caplog):
  words = np.random.default_rng(0).integers(0, 20, size=(64, 5))
  made = keras.Sequential(
    [
      keras.Input((5,), dtype='int32'),
      keras.layers.Embedding(20, 4, name='words'),
      keras.layers.Flatten(),
      keras.layers.BatchNormalization(momentum=0.5),
      keras.layers.Dense(2),
    ]
  )
  made.compile(
    keras.optimizers.Adam(0.05),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  before = made.layers[0].embeddings.numpy()
  terngrad.keras.virtual_workers(made, 'ternary', 4)
  history = made.fit(words, words[:, 0] % 2, batch_size=16, epochs=8, verbose=0)
  assert history.history['loss'][-1] < history.history['loss'][0]
  assert np.any(made.layers[0].embeddings.numpy() != before)
  assert np.any(made.layers[2].moving_mean.numpy())
  told = [r for r in caplog.records if 'words/embeddings. Grad' in r.message]
  assert len(told) == 1


class Own(keras.Sequential):
  def train_step(self, data):
    return super().train_step(data)


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: (small.compiled(None), 0), 'num_workers: expected 1'),
    (lambda: (small.model(), 2), 'Call model.compile'),
    (lambda: (small.compiled(None, replicas=2), 2), 'outside of a strategy'),
    (
      lambda: (
        small.compiled(
          None,
          optimizer=lambda: keras.optimizers.SGD(gradient_accumulation_steps=2),
        ),
        2,
      ),
      'gradient_accumulation_steps: expected None',
    ),
  ],
)
def test_what_cannot_be_shared_is_refused(make, message):
  made, workers = make()
  with pytest.raises(ValueError, match=message):
    terngrad.keras.virtual_workers(made, 'ternary', workers)


def test_a_train_step_of_ones_own_is_refused():
  made = Own([keras.Input((2,)), keras.layers.Dense(1)])
  made.compile('sgd', 'mse')
  with pytest.raises(ValueError, match='Own, which has its own'):
    terngrad.keras.virtual_workers(made, 'ternary', 2)
