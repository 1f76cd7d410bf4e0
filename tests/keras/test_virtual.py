"""Virtual workers under stock `fit` are workers."""

import inspect

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


def momentum():
  return keras.optimizers.SGD(0.1, momentum=0.9)


def test_two_virtual_workers_are_bit_identical_to_two_replicas():
  # A code that draws, so that workers need their own keys.
  codec = 'error_feedback+ternary'
  replicas = small.compiled(codec, replicas=2, optimizer=momentum)
  expected = small.fit(replicas)
  workers = virtual(codec, 2, optimizer=momentum)
  losses = small.fit(workers)
  small.assert_equal(small.weights(workers), small.weights(replicas))
  np.testing.assert_allclose(losses['loss'], expected['loss'], rtol=1e-6)


@pytest.mark.slow
def test_identity_equals_training_on_the_whole_batch():
  """Of any size: shares of rows that differ count by their rows."""
  features, labels = small.data()
  for size in (16, 18, 5, 3, 1):
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


def beside_stock(make, fit, workers=4):
  """Losses and weights of stock Keras, and of virtual workers in float32."""
  found = []
  for number in (None, workers):
    keras.utils.set_random_seed(1)
    made = make()
    if number:
      terngrad.keras.virtual_workers(made, 'identity', number)
    losses = fit(made).history['loss']
    found.append((losses, [v.numpy() for v in made.weights]))
  (expected, whole), (losses, shared) = found
  np.testing.assert_allclose(losses, expected, rtol=1e-5)
  for ours, theirs in zip(shared, whole, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def descent():
  return keras.optimizers.SGD(0.5)


@pytest.mark.parametrize(
  'compiling',
  [
    {},
    pytest.param({'run_eagerly': True}, marks=pytest.mark.slow),
    pytest.param({'steps_per_execution': 2}, marks=pytest.mark.slow),
  ],
)
def test_a_last_batch_with_fewer_rows_than_workers_trains(compiling):
  features, labels = small.data(35)
  beside_stock(
    lambda: small.compiled(None, optimizer=descent, **compiling),
    lambda made: made.fit(features, labels, 16, verbose=0, shuffle=False),
  )


def test_a_worker_without_rows_sends_its_residual():
  made = virtual(
    *('error_feedback+topk:ratio=0.01', 4),
    optimizer=descent,
    run_eagerly=True,
  )
  owed = np.ones((4, 6, 8), np.float32)
  made.optimizer.compressor.load({'residual:0': owed, 'workers': [0, 4, 4]})
  features, labels = small.data(1)
  made.train_on_batch(features, labels)
  left = made.optimizer.compressor.get_states()['residual:0']
  # The last worker has the one row; of 48 elements each sends one.
  for worker in range(3):
    assert sorted(np.unique(left[worker])) == [0, 1]
    assert np.count_nonzero(left[worker]) == 47
  assert len(np.unique(left[3])) > 2


def sparse_features(features):
  inputs = keras.Input((small.FEATURES,), sparse=True)
  cut = tf.sparse.from_dense(np.maximum(features, 0))
  return cut, inputs, inputs


def ragged_words(features):
  inputs = keras.Input((None,), dtype='int32', ragged=True)
  words = tf.ragged.range(1, 2 + np.arange(len(features)) % 5)
  known = keras.layers.Embedding(10, 4)(inputs)
  mean = keras.layers.Lambda(
    lambda rows: tf.reduce_mean(rows, axis=1), output_shape=(4,)
  )
  return words, inputs, mean(known)


@pytest.mark.slow
@pytest.mark.parametrize(
  'kind',
  [
    sparse_features,
    pytest.param(
      ragged_words,
      marks=pytest.mark.skipif(
        'ragged' not in inspect.signature(keras.Input).parameters,
        reason='This Keras has no ragged inputs.',
      ),
    ),
  ],
)
def test_sparse_and_ragged_inputs_are_split_by_rows(kind):
  features, labels = small.data(18)

  def make():
    _, inputs, known = kind(features)
    made = keras.Model(inputs, keras.layers.Dense(3, 'softmax')(known))
    made.compile(descent(), 'sparse_categorical_crossentropy')
    return made

  data = tf.data.Dataset.from_tensor_slices((kind(features)[0], labels))
  data = data.batch(8)
  beside_stock(make, lambda made: made.fit(data, verbose=0, shuffle=False))


def test_variables_of_float64_are_refused():
  made = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(3, dtype='float64')]
  )
  made.compile('sgd', 'mse')
  with pytest.raises(
    ValueError, match='kernel: expected a variable of float32'
  ):
    terngrad.keras.virtual_workers(made, 'identity', 2)


def test_variables_of_float64_that_fit_creates_are_refused():
  made = keras.Sequential([keras.layers.Dense(3, dtype='float64')])
  made.compile('sgd', 'mse')
  terngrad.keras.virtual_workers(made, 'identity', 2)
  with pytest.raises(
    ValueError, match='kernel: expected a variable of float32'
  ):
    made.train_on_batch(np.zeros((4, 6)), np.zeros((4, 3)))


def padded(examples=16, length=10):
  """int64 [examples, length], words from 1 with ever less padding of zeros."""
  words = np.random.default_rng(0).integers(1, 20, size=(examples, length))
  words[np.arange(length) > np.arange(examples)[:, np.newaxis] // 2] = 0
  return words


def tagger(
  loss='sparse_categorical_crossentropy', kind=keras.Model, **compiling
):
  words = keras.Input((10,), dtype='int32')
  known = keras.layers.Embedding(20, 4, mask_zero=True)(words)
  made = kind(words, keras.layers.Dense(3, 'softmax')(known))
  made.compile(descent(), loss, **compiling)
  return made


def test_a_masked_loss_is_the_mean_over_the_batch():
  words = padded()
  beside_stock(
    lambda: tagger(run_eagerly=True),
    lambda made: made.fit(words, words % 3, verbose=0, shuffle=False),
  )


@pytest.mark.slow
def test_each_masked_output_is_weighted_by_its_mask():
  words, length = padded(18), padded(18)[::-1]
  weights = np.random.default_rng(1).uniform(0.1, 2, size=(18, 10))

  def make():
    inputs = [keras.Input((10,), dtype='int32') for _ in range(2)]
    masked = [
      keras.layers.Embedding(20, 4, mask_zero=True)(one) for one in inputs
    ]
    tags = keras.layers.Dense(3, 'softmax', kernel_regularizer='l2')(masked[0])
    sizes = keras.layers.LSTM(2, return_sequences=True)(masked[1])
    whole = keras.layers.Dense(1)(keras.layers.LSTM(2)(masked[0]))
    made = keras.Model(inputs, [tags, sizes, whole])
    losses = ['sparse_categorical_crossentropy', 'mse', 'mse']
    made.compile(descent(), losses, loss_weights=[1.0, 0.3, 0.5])
    return made

  beside_stock(
    make,
    lambda made: made.fit(
      [words, length],
      [words % 3, np.ones((18, 10, 2)), np.ones((18, 1))],
      batch_size=16,
      sample_weight=[weights, weights, weights[:, 0]],
      verbose=0,
      shuffle=False,
    ),
  )


class OwnLoss(keras.Model):
  def compute_loss(self, x, y, y_pred, sample_weight, training=True):
    del x, training
    return self._compile_loss(y, y_pred, sample_weight)


@pytest.mark.parametrize(
  ('make', 'received'),
  [
    (
      lambda: tagger(
        keras.losses.SparseCategoricalCrossentropy(reduction='sum')
      ),
      'received sum',
    ),
    (lambda: tagger(kind=OwnLoss), 'received a custom compute_loss'),
  ],
)
def test_masked_losses_that_are_not_means_are_refused(make, received):
  made = terngrad.keras.virtual_workers(make(), 'identity', 4)
  words = padded()
  with pytest.raises(ValueError, match=received):
    made.train_on_batch(words, words % 3)


def test_a_compute_loss_attribute_is_called_and_restored():
  """As a method of ones own: called, kept, and refused where masks are."""
  made = small.compiled(None, run_eagerly=True)
  original, called = made.compute_loss, []

  def compute_loss(x, y, y_pred, sample_weight, training=True):
    called.append(y_pred.shape)
    return original(x, y, y_pred, sample_weight, training=training)

  made.compute_loss = compute_loss
  terngrad.keras.virtual_workers(made, 'identity', 2)
  made.train_on_batch(*small.data(8))
  assert called[-1] == (4, small.CLASSES)
  assert made.compute_loss is compute_loss
  made, words = tagger(), padded()
  original = made.compute_loss
  made.compute_loss = compute_loss
  terngrad.keras.virtual_workers(made, 'identity', 2)
  with pytest.raises(ValueError, match='received a custom compute_loss'):
    made.train_on_batch(words, words % 3)


class Shapeless(keras.layers.Dense):
  """A layer whose kernel has a gradient of unknown static shape."""

  def call(self, inputs):
    return tf.matmul(inputs, _shapeless(tf.convert_to_tensor(self.kernel)))


@tf.custom_gradient
def _shapeless(kernel):
  def upstream(gradient):
    return tf.py_function(lambda g: g, [gradient], tf.float32)

  return tf.identity(kernel), upstream


def test_gradients_of_unknown_shapes_are_encoded():
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


def test_each_worker_clips_its_local_gradient():
  def rule():
    return keras.optimizers.SGD(1.0, global_clipnorm=1e-3)

  workers = virtual('identity', 4, optimizer=rule, run_eagerly=True)
  whole = small.compiled(None, optimizer=rule, run_eagerly=True)
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
def test_a_loaded_model_continues_with_the_same_bits(tmp_path):
  whole = virtual('error_feedback+ternary', 3)
  small.fit(whole, epochs=2)
  first = virtual('error_feedback+ternary', 3)
  small.fit(first, epochs=1)
  assert first.optimizer.compressor.get_states()['residual:0'].shape[0] == 3
  first.save(tmp_path / 'a.keras')
  second = keras.models.load_model(tmp_path / 'a.keras')
  with pytest.raises(ValueError, match='virtual_workers again'):
    small.fit(second)
  terngrad.keras.virtual_workers(second, 'error_feedback+ternary', 3, seed=3)
  small.fit(second, epochs=1)
  small.assert_equal(small.weights(second), small.weights(whole))


@pytest.mark.slow
def test_metrics_cover_all_rows():
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
  logged = [
    r for r in caplog.records if 'words/embeddings. Sparse' in r.message
  ]
  assert len(logged) == 1


class Own(keras.Sequential):
  def train_step(self, data):
    return super().train_step(data)


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: (small.compiled(None), 0), 'num_workers: expected a whole'),
    (lambda: (small.compiled(None), 2.0), 'num_workers: expected a whole'),
    (lambda: (small.compiled(None), None), 'num_workers: expected a whole'),
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
    (
      lambda: (
        tagger(
          {
            'dense': keras.losses.SparseCategoricalCrossentropy(
              reduction='mean_with_sample_weight'
            )
          }
        ),
        2,
      ),
      'received mean_with_sample_weight',
    ),
  ],
)
def test_unsupported_models_are_refused(make, message):
  made, workers = make()
  with pytest.raises(ValueError, match=message):
    terngrad.keras.virtual_workers(made, 'ternary', workers)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'on_not_finite': 'oops'}, 'on_not_finite'),
    ({'codec': 'tertiary'}, 'tertiary'),
  ],
)
def test_a_refused_call_leaves_a_wrapped_optimizer_as_it_was(options, message):
  made = small.compiled('topk:ratio=0.01', optimizer=momentum, run_eagerly=True)
  with pytest.raises(ValueError, match=message):
    terngrad.keras.virtual_workers(made, **options)
  before = np.array(made.layers[0].kernel)
  made.train_on_batch(*small.data(8))
  assert np.mean(before != np.array(made.layers[0].kernel)) < 0.1


def test_an_optimizer_that_was_unwrapped_is_refused():
  made = small.compiled('ternary', optimizer=momentum)
  made.optimizer.unwrap()
  with pytest.raises(ValueError, match='after a call of unwrap'):
    made.train_on_batch(*small.data(8))


@pytest.mark.parametrize('rows', [4, 3])
def test_sums_over_rows_are_averaged_over_the_workers(rows):
  made = keras.Sequential(
    [
      keras.Input((1,)),
      keras.layers.Dense(1, use_bias=False, kernel_initializer='zeros'),
    ]
  )
  loss = keras.losses.MeanSquaredError(reduction='sum')
  made.compile(keras.optimizers.SGD(1.0), loss, run_eagerly=True)
  terngrad.keras.virtual_workers(made, 'identity', 2)
  targets = np.zeros((rows, 1), np.float32)
  targets[0] = 3
  made.train_on_batch(np.ones((rows, 1), np.float32), targets)
  # Half of the gradient of the batch, -6.
  assert float(made.layers[0].kernel[0, 0]) == 3


def test_a_custom_train_step_is_refused():
  made = Own([keras.Input((2,)), keras.layers.Dense(1)])
  made.compile('sgd', 'mse')
  with pytest.raises(ValueError, match='Own, which overrides it'):
    terngrad.keras.virtual_workers(made, 'ternary', 2)


@pytest.mark.parametrize(
  ('dtype', 'codec', 'message'),
  [
    (None, {'bias': 'identity'}, "Add a last expression .* '': 'identity'"),
    ('float64', 'ternary', 'hidden/kernel: expected a variable of float32'),
  ],
)
def test_variables_are_refused_before_anything_is_changed(
  dtype, codec, message
):
  made = keras.Sequential(
    [keras.Input((3,)), keras.layers.Dense(2, dtype=dtype, name='hidden')]
  )
  rule = keras.optimizers.SGD(0.1)
  made.compile(rule, 'mse')
  with pytest.raises(ValueError, match=message):
    terngrad.keras.virtual_workers(made, codec, 2)
  assert made.optimizer is rule


def test_an_embedding_needs_no_rule():
  made = keras.Sequential(
    [
      keras.Input((3,)),
      keras.layers.Embedding(5, 2, name='table'),
      keras.layers.Dense(2, name='hidden'),
    ]
  )
  made.compile(keras.optimizers.SGD(0.1), 'mse', run_eagerly=True)
  terngrad.keras.virtual_workers(made, {'hidden': 'identity'}, 2)
  ids = np.ones([4, 3], np.int32)
  made.fit(ids, np.ones([4, 3, 2], np.float32), verbose=0)


def test_a_model_without_trainable_variables_only_computes_its_loss():
  made = small.compiled(None)
  made.trainable = False
  made.compile('sgd', 'mse')
  features, labels = small.data()
  targets = np.zeros([len(labels), made.output_shape[-1]], np.float32)
  expected = made.evaluate(features, targets, verbose=0)
  before = small.weights(made)
  terngrad.keras.virtual_workers(made, 'ternary', 2)
  with pytest.warns(UserWarning, match='any trainable weights'):
    found = made.fit(features, targets, verbose=0).history['loss']
  np.testing.assert_allclose(found, [expected], rtol=1e-5)
  small.assert_equal(small.weights(made), before)


@pytest.mark.parametrize('wraps', [False, True])
def test_a_model_that_is_compiled_later_asks_for_virtual_workers(wraps):
  made = virtual('ternary', 2)
  optimizer = keras.optimizers.SGD(0.1)
  if wraps:
    optimizer = terngrad.keras.CompressedOptimizer(optimizer, 'ternary')
  made.compile(optimizer, 'mse')
  with pytest.raises(ValueError, match='compiled later'):
    small.fit(made)


def test_scales_of_float8_are_refused():
  made = small.compiled(None)
  for layer in made.layers:
    if isinstance(layer, keras.layers.Dense):
      layer.quantize('float8')
  with pytest.raises(ValueError, match='received a scale of float8'):
    terngrad.keras.virtual_workers(made, 'ternary', 2)
