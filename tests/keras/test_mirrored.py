"""The wrapper under MirroredStrategy: two replicas are two workers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad.keras
from tests.keras import small


def of_replicas(variable):
  """The values of a Keras variable on all replicas, as arrays."""
  return [v.numpy() for v in variable.value.values]


def fitted(codec, callbacks=(), **options):
  """The weights after a fit on two replicas, and its logs."""

  def momentum():
    return keras.optimizers.SGD(0.1, momentum=0.9)

  made = small.compiled(codec, replicas=2, optimizer=momentum, **options)
  logs = small.fit(made, callbacks=callbacks)
  return small.weights(made), logs


@pytest.fixture(scope='module')
def plain():
  """The weights without the wrapper."""
  return fitted(None)[0]


def test_identity_is_bit_identical_to_no_wrapper(plain):
  weights, _ = fitted('identity')
  small.assert_equal(weights, plain)


@small.ARRAYS_OF_KERAS
def test_a_worker_of_two_replicas_in_float32_is_bit_identical_to_keras(plain):
  metrics = terngrad.keras.CompressionMetrics()
  weights, logs = fitted('identity', [metrics], devices_per_worker=2)
  small.assert_equal(weights, plain)
  assert logs['compression_error'] == [0, 0]


@pytest.mark.slow
def test_replicas_stay_equal_and_residuals_differ():
  made = small.compiled(small.FEEDBACK, replicas=2)
  losses = small.fit(made, epochs=4, steps_per_epoch=3)['loss']
  assert losses[-1] < losses[0]
  for variable in made.trainable_variables:
    first, second = of_replicas(variable)
    np.testing.assert_array_equal(first, second)
  saved = made.optimizer.compressor.get_states()
  assert list(saved['workers']) == [0, 2, 2]
  first, second = saved['residual:0']
  assert np.any(first) and np.any(second) and np.any(first != second)


def test_a_tensor_shared_by_all_replicas_counts_once_per_replica():
  strategy = small.strategy(2)
  with strategy.scope():
    variable = keras.Variable(np.zeros(3, np.float32), name='table')
    optimizer = terngrad.keras.CompressedOptimizer(
      keras.optimizers.SGD(1.0), 'identity'
    )
  gradient = tf.constant([1.0, 2.0, 3.0])
  strategy.run(lambda: optimizer.apply_gradients([(gradient, variable)]))
  for values in of_replicas(variable):
    np.testing.assert_array_equal(values, [-2.0, -4.0, -6.0])


def test_the_sum_is_that_of_the_replicas_decoded_gradients():
  """In a loop of one's own, with gradients that are known."""
  strategy = small.strategy(2)
  with strategy.scope():
    variable = keras.Variable(np.zeros((40, 5), np.float32), name='table')
    optimizer = terngrad.keras.CompressedOptimizer(
      keras.optimizers.SGD(1.0), 'topk:ratio=0.01'
    )
    optimizer.build([variable])
  gradients = np.random.default_rng(0).normal(size=(2, 40, 5))
  gradients = gradients.astype(np.float32)

  @tf.function
  def step():
    def replica():
      number = tf.distribute.get_replica_context().replica_id_in_sync_group
      own = tf.gather(tf.constant(gradients), number)
      optimizer.apply_gradients([(own, variable)])

    strategy.run(replica)

  step()
  expected = np.zeros((40, 5), np.float32)
  for own in gradients:
    largest = np.argsort(-np.abs(own).ravel())[:2]
    expected.ravel()[largest] -= own.ravel()[largest]
  for value in of_replicas(variable):
    np.testing.assert_array_equal(value, expected)


def reader(codec, **compiling):
  """A compiled net of words on two replicas, and its data."""
  keras.utils.set_random_seed(1)
  words = np.random.default_rng(0).integers(0, 50, size=(32, 6))
  with small.strategy(2).scope():
    made = keras.Sequential(
      [
        keras.Input((6,), dtype='int32'),
        keras.layers.Embedding(50, 4, name='words'),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(2),
      ]
    )
    rule = keras.optimizers.SGD(0.1)
    if codec:
      rule = terngrad.keras.CompressedOptimizer(rule, codec)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(rule, loss, **compiling)
  return made, words, words.sum(axis=1) % 2


@pytest.mark.slow
@pytest.mark.parametrize('steps', [1, 2])
def test_embedding_gradients_are_sent_as_rows(caplog, steps):
  """Also in several steps an execution, where TensorFlow's collectives fail."""
  results = []
  for codec, options in (
    (None, {}),
    ('identity', {'steps_per_execution': steps}),
  ):
    made, *data = reader(codec, **options)
    made.fit(*data, batch_size=16, verbose=0, shuffle=False)
    results.append([v.numpy() for v in made.weights])
  if steps == 1:
    small.assert_equal(*results)
  # A graph of several steps is optimized otherwise, and rounds otherwise.
  for ours, theirs in zip(*results, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
  logged = [
    r for r in caplog.records if 'words/embeddings. Sparse' in r.message
  ]
  assert len(logged) == 1


class Rivals(keras.Model):
  """A generator and a discriminator, each with an optimizer of its own."""

  def __init__(self, optimizers):
    super().__init__()
    self.parts = [
      keras.Sequential(
        [keras.Input((small.FEATURES,)), keras.layers.Dense(size)]
      )
      for size in (small.FEATURES, 1)
    ]
    self.rules = optimizers

  def call(self, inputs):
    return self.parts[1](self.parts[0](inputs))

  def train_step(self, data):
    features, _ = data
    made, judged = self.parts
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    losses = []
    for part, rule, sign in (
      (judged, self.rules[0], 1),
      (made, self.rules[1], -1),
    ):
      with tf.GradientTape() as tape:
        real, fake = judged(features), judged(made(features))
        loss = sign * tf.reduce_mean(fake**2 - real) / replicas
      variables = part.trainable_variables
      rule.apply_gradients(
        zip(tape.gradient(loss, variables), variables, strict=True)
      )
      losses.append(loss)
    return {'loss': losses[0]}


@pytest.mark.slow
@pytest.mark.parametrize('steps', [1, 3])
def test_two_optimizers_in_one_step_are_as_those_of_keras(steps):
  """Keras's own are computed eagerly: traced, TensorFlow's collectives fail."""
  found = []
  for codec, options in (
    (None, {'run_eagerly': True}),
    ('identity', {'steps_per_execution': steps}),
  ):
    keras.utils.set_random_seed(1)
    with small.strategy(2).scope():
      rules = [keras.optimizers.Adam(0.01) for _ in range(2)]
      if codec:
        rules = [
          terngrad.keras.CompressedOptimizer(rule, codec) for rule in rules
        ]
      made = Rivals(rules)
      made.compile(**options)
    small.fit(made)
    found.append([v.numpy() for v in made.weights])
  for ours, theirs in zip(*found, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
  'options',
  [{'gradient_accumulation_steps': 2}, {'ema_overwrite_frequency': 2}],
)
def test_options_that_keras_lacks_with_replicas_are_refused_before_tracing(
  options,
):
  options = {'use_ema': 'ema_overwrite_frequency' in options} | options
  with small.strategy(2).scope():
    rule = keras.optimizers.SGD(**options)
    with pytest.raises(ValueError, match='expected None with 2 replicas'):
      terngrad.keras.CompressedOptimizer(rule)


@pytest.mark.slow
class TestOptionsOfFit:
  @pytest.mark.parametrize('steps', [2, 5])
  def test_steps_per_execution_changes_no_bit(self, steps):
    codec = 'error_feedback+ternary'
    single = small.compiled(codec, replicas=2)
    small.fit(single)
    several = small.compiled(codec, replicas=2, steps_per_execution=steps)
    small.fit(several)
    small.assert_equal(small.weights(several), small.weights(single))

  def test_a_smaller_last_batch_trains(self):
    made = small.compiled('ternary', replicas=2)
    losses = small.fit(made, epochs=3, batch_size=20)['loss']
    assert losses[-1] < losses[0]

  def test_clipping_decay_and_averages_are_those_of_keras(self):
    def rule():
      return keras.optimizers.AdamW(
        weight_decay=0.1, global_clipnorm=0.5, use_ema=True
      )

    plain = small.compiled(None, replicas=2, optimizer=rule)
    small.fit(plain)
    coded = small.compiled('identity', replicas=2, optimizer=rule)
    small.fit(coded)
    small.assert_equal(small.weights(coded), small.weights(plain))

  def test_identity_is_bit_identical_to_no_wrapper_in_mixed_precision(self):
    keras.config.set_dtype_policy('mixed_float16')
    try:
      plain = small.compiled(None, replicas=2)
      small.fit(plain)
      coded = small.compiled('identity', replicas=2)
      small.fit(coded)
    finally:
      keras.config.set_dtype_policy('float32')
    small.assert_equal(
      [v.numpy() for v in coded.weights], [v.numpy() for v in plain.weights]
    )
