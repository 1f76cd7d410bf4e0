"""One line beside `model.fit`: what the wrapper changes, and what it leaves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad.keras
from terngrad.keras import not_finite
from tests.keras import small


def wrap(codec='ternary', **options):
  return terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0, **options), codec
  )


def applied(optimizer, gradients, steps=1):
  """What `steps` with the same gradients take off variables of zeros."""
  variables = [keras.Variable(np.zeros(g.shape, np.float32)) for g in gradients]
  for _ in range(steps):
    optimizer.apply([tf.constant(g) for g in gradients], variables)
  return [-v.numpy() for v in variables]


GRADIENTS = [
  np.random.default_rng(7).normal(size=shape).astype(np.float32)
  for shape in ((40, 5), (5,))
]


def test_identity_is_bit_identical_to_no_wrapper():
  plain = small.compiled(None)
  small.fit(plain)
  coded = small.compiled('identity')
  small.fit(coded)
  small.assert_equal(small.weights(coded), small.weights(plain))


def test_ternary_gradients_have_three_values():
  kernel, _ = applied(wrap('ternary:clip_factor=0'), GRADIENTS)
  scaler = np.abs(GRADIENTS[0]).max()
  assert set(np.unique(kernel)) == {-scaler, 0, scaler}


def test_a_codec_can_be_chosen_by_the_variables_paths():
  rules = {'kernel': 'topk:ratio=0.01', '': 'identity'}
  made = small.compiled(rules, optimizer=lambda: keras.optimizers.SGD(1.0))
  before = [v.numpy() for v in made.weights]
  features, labels = small.data()
  made.train_on_batch(features, labels)
  moved = [
    np.count_nonzero(v.numpy() != b)
    for v, b in zip(made.weights, before, strict=True)
  ]
  # ceil(0.01 * 48), all biases of 8, ceil(0.01 * 24), all of 3.
  assert moved == [1, 8, 1, 3]


def test_a_variable_without_a_rule_is_named_with_the_rule_to_add():
  variable = keras.Variable(np.zeros(3, np.float32), name='scale')
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0), {'kernel': 'ternary'}
  )
  with pytest.raises(
    ValueError, match=r"none for scale of shape \(3,\)\. Add .* '': 'identity'"
  ):
    optimizer.apply([np.ones(3, np.float32)], [variable])


@pytest.mark.parametrize('seed', ['a', 1.5, 2**70, True])
def test_a_seed_that_is_no_int64_is_refused_at_once(seed):
  with pytest.raises(ValueError, match='seed: expected a whole number'):
    terngrad.keras.CompressedOptimizer('sgd', 'ternary', seed=seed)


def test_a_variable_twice_is_refused_if_its_code_has_a_state():
  variable = keras.Variable(np.zeros(3, np.float32), name='scale')
  gradients = [np.ones(3, np.float32), np.ones(3, np.float32)]
  with pytest.raises(
    ValueError, match='one for each variable, .* two for scale'
  ):
    wrap(small.FEEDBACK).apply(gradients, [variable, variable])
  wrap('identity').apply(gradients, [variable, variable])
  np.testing.assert_array_equal(variable, [-2, -2, -2])


@pytest.mark.parametrize('pattern', ['bias(', '*', '[', 3])
def test_an_invalid_regular_expression_is_refused_at_once(pattern):
  with pytest.raises(ValueError, match='expected regular expressions') as found:
    terngrad.keras.CompressedOptimizer('sgd', {pattern: 'fp16', '': 'identity'})
  assert repr(pattern) in str(found.value)


def test_codes_differ_from_step_to_step_and_by_seed():
  def of(seed):
    variable = keras.Variable(np.zeros((40, 5), np.float32))
    optimizer = terngrad.keras.CompressedOptimizer(
      keras.optimizers.SGD(1.0), 'ternary:clip_factor=0', seed=seed
    )
    found = []
    for _ in range(2):
      before = variable.numpy()
      optimizer.apply([tf.constant(GRADIENTS[0])], [variable])
      found.append(variable.numpy() - before)
    return found

  first, second = of(1)
  assert np.any(first != second)
  small.assert_equal(of(1), [first, second])
  assert np.any(of(2)[0] != first)


def test_error_feedback_sends_everything_in_the_end():
  steps = 20
  codec = 'error_feedback+topk:ratio=0.1'
  optimizer = wrap(codec)
  moved = applied(optimizer, GRADIENTS, steps)
  saved = optimizer.compressor.get_states()
  for index, gradient in enumerate(GRADIENTS):
    residual = saved[f'residual:{index}']
    assert residual.shape == (1, *gradient.shape)
    total = moved[index] + residual[0]
    np.testing.assert_allclose(total, steps * gradient, rtol=1e-4, atol=1e-4)


def test_gradients_are_clipped_before_they_are_encoded():
  (kernel,) = applied(
    wrap('ternary:clip_factor=0', clipnorm=0.5), GRADIENTS[:1]
  )
  scaler = 0.5 * np.abs(GRADIENTS[0]).max() / np.linalg.norm(GRADIENTS[0])
  np.testing.assert_allclose(np.abs(kernel).max(), scaler, rtol=1e-5)


def test_accumulation_encodes_the_mean_gradient_once():
  optimizer = wrap(small.FEEDBACK, gradient_accumulation_steps=2)
  variable = keras.Variable(np.zeros((40, 5), np.float32))
  optimizer.apply([tf.constant(GRADIENTS[0])], [variable])
  assert not variable.numpy().any()
  optimizer.apply([tf.constant(GRADIENTS[0])], [variable])
  assert np.count_nonzero(variable.numpy()) == 40


def test_accumulated_steps_draw_the_same_bits_whatever_is_done_with_nan():
  found = []
  for action in not_finite.ACTIONS:
    optimizer = terngrad.keras.CompressedOptimizer(
      keras.optimizers.SGD(1.0, gradient_accumulation_steps=3),
      on_not_finite=action,
    )
    variable = keras.Variable(np.zeros((40, 5), np.float32))
    for _ in range(6):
      optimizer.apply([tf.constant(GRADIENTS[0])], [variable])
    found.append(variable.numpy())
  np.testing.assert_array_equal(found[1:], found[:1] * 2)


def test_a_sparse_gradient_stays_sparse(caplog):
  table = keras.Variable(np.zeros((100, 4), np.float32), name='table')
  rows = tf.IndexedSlices(tf.ones((2, 4)), tf.constant([3, 7]), (100, 4))
  seen = []

  class Descent(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
      seen.append(gradient)
      super().update_step(gradient, variable, learning_rate)

  optimizer = terngrad.keras.CompressedOptimizer(Descent(1.0), 'ternary')
  for _ in range(2):
    optimizer.apply([rows], [table])
  assert all(isinstance(gradient, tf.IndexedSlices) for gradient in seen)
  assert set(np.flatnonzero(table.numpy().any(axis=1))) == {3, 7}
  logged = [r for r in caplog.records if 'Not compressed: table' in r.message]
  assert len(logged) == 1


@pytest.mark.parametrize('options', [{}, {'clipnorm': 1.0}])
def test_accumulated_gradients_are_unscaled_once(options):
  options |= {'gradient_accumulation_steps': 2, 'loss_scale_factor': 8.0}
  stock, coded = (
    applied(optimizer, [8.0 * GRADIENTS[0]], steps=4)
    for optimizer in (
      keras.optimizers.SGD(1.0, **options),
      wrap('identity', **options),
    )
  )
  assert np.any(stock)
  np.testing.assert_array_equal(coded, stock)


@pytest.mark.parametrize(
  'option', ['global_clipnorm', 'gradient_accumulation_steps']
)
def test_a_sparse_gradient_that_keras_makes_dense_is_logged(caplog, option):
  table = keras.Variable(np.zeros((100, 4), np.float32), name='table')
  rows = tf.IndexedSlices(tf.ones((2, 4)), tf.constant([3, 7]), (100, 4))
  optimizer = wrap('sign', **{option: 2})
  for _ in range(4):
    optimizer.apply([rows], [table])
  logged = [r.getMessage() for r in caplog.records if 'as dense' in r.message]
  assert len(logged) == 1
  assert 'as dense gradients: table. ' in logged[0]
  assert f'because of {option}.' in logged[0]
  assert np.all(table.numpy())


def test_a_variable_without_gradient_does_not_change():
  variables = [keras.Variable(np.zeros(g.shape)) for g in GRADIENTS]
  optimizer = wrap('identity')
  optimizer.build(variables)
  with pytest.warns(UserWarning, match='Gradients do not exist'):
    optimizer.apply([None, tf.constant(GRADIENTS[1])], variables)
  assert not variables[0].numpy().any()
  np.testing.assert_array_equal(variables[1].numpy(), -GRADIENTS[1])


def test_float16_gradients_stay_float16():
  variable = keras.Variable(np.zeros(4, np.float16), dtype='float16')
  optimizer = wrap('identity')
  optimizer.apply([tf.constant([1, 2, 3, 4], tf.float16)], [variable])
  assert variable.dtype == 'float16'
  np.testing.assert_array_equal(variable.numpy(), [-1, -2, -3, -4])


def test_attributes_that_callbacks_read_are_the_wrapped_optimizers():
  optimizer = wrap(momentum=0.5, clipnorm=2.0)
  optimizer.learning_rate = 0.25
  inner = optimizer.inner_optimizer
  assert float(inner.learning_rate) == float(optimizer.learning_rate) == 0.25
  assert (optimizer.momentum, optimizer.clipnorm) == (0.5, 2.0)
  optimizer.momentum = 0.25
  assert optimizer.inner_optimizer.momentum == 0.25
  optimizer.clipnorm = 3.0
  assert inner.clipnorm == 3.0
  applied(optimizer, GRADIENTS)
  assert int(optimizer.iterations) == 1


def test_calls_about_weights_reach_the_wrapped_optimizer():
  variable = keras.Variable(np.ones(4, np.float32), name='kept')
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0, weight_decay=0.5), 'identity'
  )
  optimizer.exclude_from_weight_decay(var_names=['kept'])
  count = optimizer.apply_gradients([(tf.zeros(4), variable)])
  np.testing.assert_array_equal(variable.numpy(), np.ones(4))
  assert int(count) == 1
  optimizer.set_weights([np.int64(7), np.float32(0.125)])
  assert int(optimizer.iterations) == 7
  assert float(optimizer.learning_rate) == 0.125


def test_gradients_of_unknown_shapes_are_encoded_like_others():
  """As those of loops, of `tf.where` and of ragged inputs."""

  def moved(shape):
    variable = keras.Variable(np.zeros((40, 5), np.float32))
    optimizer = wrap(small.FEEDBACK, momentum=0.5)
    optimizer.build([variable])

    @tf.function(input_signature=[tf.TensorSpec(shape)])
    def step(gradient):
      optimizer.apply([gradient], [variable])

    for _ in range(2):
      step(GRADIENTS[0])
    return variable.numpy()

  known = moved((40, 5))
  assert np.any(known)
  for shape in ((None, 5), None):
    np.testing.assert_array_equal(moved(shape), known)


def test_float64_gradients_are_refused():
  variable = keras.Variable(np.zeros(4), dtype='float64', name='table')
  with pytest.raises(ValueError, match='table: expected a gradient of float32'):
    wrap().apply([tf.zeros([4], tf.float64)], [variable])


def test_a_float64_gradient_of_a_float32_variable_is_cast_as_in_keras():
  variable = keras.Variable(np.zeros(4, np.float32), name='table')
  gradient = np.float64([0.1, -0.2, 0.3, 1 / 3])
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0), 'identity'
  )
  optimizer.apply([tf.constant(gradient)], [variable])
  np.testing.assert_array_equal(variable.numpy(), -np.float32(gradient))


def test_tensorflow_variables_are_matched_by_their_names():
  variable = tf.Variable(tf.zeros([64]), name='of_tensorflow')
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0), {'of_tensorflow': 'sign', '': 'identity'}
  )
  optimizer.apply([tf.linspace(-1.0, 2.0, 64)], [variable])
  assert len(np.unique(np.abs(variable.numpy()))) == 1


def test_averaged_weights_are_swapped_under_a_loss_scale_too():
  model = small.compiled(
    'ternary', optimizer=lambda: keras.optimizers.SGD(use_ema=True)
  )
  model.compile(keras.optimizers.LossScaleOptimizer(model.optimizer), 'mse')
  model.optimizer.build(model.trainable_variables)
  inner = model.optimizer.inner_optimizer.inner_optimizer
  for average in inner._model_variables_moving_average:
    average.assign(np.full(average.shape, 9.0))
  swapping = keras.callbacks.SwapEMAWeights()
  swapping.set_model(model)
  swapping.on_test_begin()
  for variable in model.trainable_variables:
    np.testing.assert_array_equal(variable, np.full(variable.shape, 9.0))


@pytest.mark.skipif(
  not hasattr(keras.optimizers, 'MultiOptimizer'),
  reason='This Keras has no MultiOptimizer.',
)
def test_a_multi_optimizer_is_refused():
  optimizers = keras.optimizers.OptimizerMap(keras.optimizers.SGD())
  several = keras.optimizers.MultiOptimizer(optimizers)
  with pytest.raises(ValueError, match='Wrap each of them'):
    terngrad.keras.CompressedOptimizer(several)


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: wrap('ternry'), 'Did you mean'),
    (lambda: wrap(3), 'codec: expected a text'),
    (
      lambda: terngrad.keras.CompressedOptimizer(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
      ),
      'Wrap in the other order: LossScaleOptimizer',
    ),
    (
      lambda: terngrad.keras.CompressedOptimizer(wrap()),
      'not yet wrapped',
    ),
    (
      lambda: terngrad.keras.CompressedOptimizer(wrap().inner_optimizer),
      'not yet wrapped',
    ),
  ],
)
def test_what_cannot_be_wrapped_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


class TestLossScaling:
  def test_a_skipped_step_does_not_change_states(self):
    optimizer = keras.optimizers.LossScaleOptimizer(
      wrap(small.FEEDBACK), initial_scale=4.0
    )
    variable = keras.Variable(np.zeros((40, 5), np.float32))
    optimizer.apply([tf.constant(4 * GRADIENTS[0])], [variable])
    inner = optimizer.inner_optimizer
    before = inner.compressor.get_states()['residual:0']
    assert np.count_nonzero(before)
    bad = np.where(GRADIENTS[0] > 1, np.inf, GRADIENTS[0])
    optimizer.apply([tf.constant(bad)], [variable])
    after = inner.compressor.get_states()['residual:0']
    np.testing.assert_array_equal(after, before)
    assert float(optimizer.dynamic_scale) == 2.0

  @pytest.mark.slow
  def test_mixed_precision_trains(self):
    keras.config.set_dtype_policy('mixed_float16')
    try:
      made = small.compiled('ternary')
      losses = small.fit(made, epochs=3)['loss']
    finally:
      keras.config.set_dtype_policy('float32')
    assert isinstance(made.optimizer, keras.optimizers.LossScaleOptimizer)
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_a_step_compiled_by_xla_encodes_like_others():
  found = []
  for compiles in (False, True):
    made = small.compiled('ternary:clip_factor=0', jit_compile=compiles)
    before = made.layers[0].kernel.numpy()
    made.optimizer.learning_rate = 1.0
    features, labels = small.data()
    made.train_on_batch(features, labels)
    found.append(made.layers[0].kernel.numpy() - before)
  np.testing.assert_array_equal(np.sign(found[0]), np.sign(found[1]))
