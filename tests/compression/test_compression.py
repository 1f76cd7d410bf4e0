"""`terngrad.compress`: gradients of a loop of one's own, in one call."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad
from terngrad.codec import policy
from terngrad.compression import compressor as compressor_lib
from tests.keras import small

VALUES = np.random.default_rng(0).normal(size=(2, 30, 4)).astype(np.float32)
STRATEGY = small.strategy(2)
FEEDBACK = 'error_feedback+topk:ratio=0.1'
FEEDBACK_FREE = 'topk:ratio=0.1'


def of_replicas(function):
  """What a traced function of a replica's gradient returns on each."""

  @tf.function
  def step():
    def replica():
      number = tf.distribute.get_replica_context().replica_id_in_sync_group
      return function(tf.gather(tf.constant(VALUES), number))

    return STRATEGY.run(replica)

  return [v.numpy() for v in STRATEGY.experimental_local_results(step())]


@pytest.mark.parametrize(
  ('mean', 'expected'),
  [(False, VALUES[0] + VALUES[1]), (True, (VALUES[0] + VALUES[1]) / 2)],
)
@pytest.mark.gate_every(2)
def test_float32_is_the_sum_or_the_mean_of_the_replicas(mean, expected):
  found = of_replicas(
    lambda own: terngrad.compress([own], 'identity', step=0, mean=mean)[0]
  )
  for each in found:
    np.testing.assert_array_equal(each, expected)


def test_ternary_is_unbiased_and_equal_on_replicas():
  codec = 'ternary:clip_factor=0'
  coded = tf.function(
    lambda step: terngrad.compress([VALUES[0]], codec, step=step)[0]
  )
  total = sum(coded(step).numpy() for step in tf.range(200))
  # Each element is 0 or s, with mean g: its variance is at most s |g|.
  scaler = np.abs(VALUES[0]).max()
  bound = 5 * np.sqrt(scaler * np.abs(VALUES[0]) / 200)
  assert np.all(np.abs(total / 200 - VALUES[0]) <= bound)
  first, second = of_replicas(
    lambda own: terngrad.compress([own], codec, step=0)[0]
  )
  np.testing.assert_array_equal(first, second)
  assert len(np.unique(np.abs(first))) <= 3


def test_codes_depend_on_the_seed_and_the_step():
  def of(**arguments):
    return terngrad.compress([VALUES[0]], **arguments)[0].numpy()

  first = of(step=1, seed=2)
  np.testing.assert_array_equal(of(step=1, seed=2), first)
  assert np.any(of(step=2, seed=2) != first)
  assert np.any(of(step=1, seed=3) != first)


def test_a_compressor_has_state_that_can_be_saved():
  def steps(compressor, numbers):
    return [
      terngrad.compress([VALUES[0]], compressor, step=n)[0].numpy()
      for n in numbers
    ]

  whole = steps(terngrad.Compressor(FEEDBACK), range(4))
  compressor = terngrad.Compressor(FEEDBACK)
  steps(compressor, range(2))
  again = terngrad.Compressor(FEEDBACK)
  again.load(compressor.get_states())
  for ours, others in zip(steps(again, range(2, 4)), whole[2:], strict=True):
    np.testing.assert_array_equal(ours, others)
  assert np.any(whole[3] != whole[0])


def test_states_that_were_not_saved_are_loaded_as_initial_ones():
  compressor = terngrad.Compressor(FEEDBACK)
  before = compressor.get_states()
  first = terngrad.compress([VALUES[0]], compressor, step=0)[0]
  assert np.any(compressor.get_states()['residual:0'])
  compressor.load(before)
  assert not np.any(compressor.get_states()['residual:0'])
  again = terngrad.compress([VALUES[0]], compressor, step=0)[0]
  np.testing.assert_array_equal(again, first)


def of_one_variable(index):
  specs = tuple(policy.VariableSpec(name, (2,)) for name in 'ab')
  return policy.Variables((index,), (specs[index],), model=specs)


@pytest.mark.parametrize(('workers', 'kept'), [(2, False), (1, True)])
def test_states_of_other_workers_that_nobody_took_are_not_saved(
  caplog, workers, kept
):
  compressor = terngrad.Compressor('error_feedback+topk:ratio=0.5')
  rows = np.ones((workers, 2), np.float32)
  layout = np.array([0, workers, workers])
  compressor.load({'residual:0': rows, 'residual:1': rows, 'workers': layout})
  compressor.declare(of_one_variable(0))
  states = compressor.get_states()
  np.testing.assert_array_equal(states['workers'], [0, 1, 1])
  assert ('residual:1' in states) == kept
  assert ('Not saved: codec states of b' in caplog.text) != kept


def test_states_follow_the_names_of_gradients_and_not_their_numbers():
  gradients = dict(zip(('a', 'b'), VALUES, strict=True))
  compressor = terngrad.Compressor(FEEDBACK)
  terngrad.compress(
    list(gradients.values()), compressor, step=0, names=list(gradients)
  )
  again = terngrad.Compressor('error_feedback+identity')
  again.load(compressor.get_states())
  (sent,) = terngrad.compress(
    [np.zeros_like(VALUES[1])], again, step=1, names=['b']
  )
  left = compressor.get_states()['residual:1'][0]
  np.testing.assert_array_equal(sent, left)


def test_states_of_fewer_gradients_without_names_are_dropped(caplog):
  compressor = terngrad.Compressor(FEEDBACK)
  terngrad.compress(list(VALUES), compressor, step=0)
  again = terngrad.Compressor('error_feedback+identity')
  again.load(compressor.get_states())
  (sent,) = terngrad.compress([np.zeros_like(VALUES[1])], again, step=1)
  assert not sent.numpy().any()
  assert 'variable 0, variable 1' in caplog.text


def test_the_codec_depends_on_the_variable_name():
  kernel, bias = terngrad.compress(
    [VALUES[0], VALUES[1]],
    {'kernel': 'topk:ratio=0.01', '': 'identity'},
    step=0,
    names=['a/kernel', 'a/bias'],
  )
  assert np.count_nonzero(kernel) == 2
  np.testing.assert_array_equal(bias, VALUES[1])


def test_rows_of_replicas_are_gathered():
  def gathered(own):
    rows = tf.IndexedSlices(own[:1], tf.constant([5]), tf.constant((30, 4)))
    (summed,) = terngrad.compress([rows], 'ternary', step=0, mean=True)
    assert isinstance(summed, tf.IndexedSlices)
    return tf.convert_to_tensor(summed)

  expected = np.zeros_like(VALUES[0])
  expected[5] = (VALUES[0, 0] + VALUES[1, 0]) / 2
  for each in of_replicas(gathered):
    np.testing.assert_array_equal(each, expected)


def test_unknown_shapes_are_passed_or_refused_by_name():
  def traced(**options):
    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def step(gradient):
      return terngrad.compress(
        [gradient], FEEDBACK_FREE, step=0, names=['a/kernel'], **options
      )[0]

    return step(VALUES[0])

  found = traced(shapes=[(30, 4)])
  (expected,) = terngrad.compress([VALUES[0]], FEEDBACK_FREE, step=0)
  np.testing.assert_array_equal(found, expected)
  with pytest.raises(
    ValueError, match=r'a/kernel: expected .* known shape.*shapes='
  ):
    traced()
  with pytest.raises(ValueError, match=r'a/kernel: expected .* shape \(30,\)'):
    traced(shapes=[(30,)])
  with pytest.raises(tf.errors.InvalidArgumentError, match='not compatible'):
    traced(shapes=[(4, 30)])


def test_a_codec_with_state_needs_a_compressor():
  for codec in (FEEDBACK, 'powersgd'):
    with pytest.raises(ValueError, match='Create terngrad.Compressor'):
      terngrad.compress([VALUES[0]], codec, step=0)


def test_a_call_in_cross_replica_context_is_refused():
  with STRATEGY.scope(), pytest.raises(ValueError, match='inside strategy.run'):
    terngrad.compress([VALUES[0]], step=0)


def test_a_compressor_refuses_a_second_strategy():
  compressor = terngrad.Compressor('identity')
  terngrad.compress([VALUES[0]], compressor, step=0)
  with pytest.raises(ValueError, match='received another'):
    of_replicas(lambda own: terngrad.compress([own], compressor, step=0)[0])


def test_models_with_equally_many_gradients_keep_their_shapes():
  for shapes in ([4], [4]), ([2], [6]):
    gradients = [np.ones(shape, np.float32) for shape in shapes]
    sent = terngrad.compress(gradients, 'topk:ratio=1', step=0)
    for ours, expected in zip(sent, gradients, strict=True):
      np.testing.assert_array_equal(ours, expected)


def test_the_codec_of_a_name_does_not_depend_on_earlier_models():
  codec = {'first': 'identity', '.*': 'topk:ratio=0.25'}
  gradient = np.arange(1, 5, dtype=np.float32)
  for name, count in (('first', 4), ('second', 1)):
    (sent,) = terngrad.compress([gradient], codec, step=0, names=[name])
    assert np.count_nonzero(sent) == count


def test_a_compressor_with_state_refuses_another_model():
  compressor = terngrad.Compressor(FEEDBACK)
  terngrad.compress([VALUES[0]], compressor, step=0, names=['a'])
  with pytest.raises(
    ValueError, match=r'one of a \[30, 4\] at index 0.*one of b \[30, 4\]'
  ):
    terngrad.compress([VALUES[0]], compressor, step=1, names=['b'])
  with pytest.raises(ValueError, match=r'received one of a \[4\]'):
    terngrad.compress([VALUES[0, 0]], compressor, step=1, names=['a'])


def test_a_gradient_with_state_may_be_sparse_in_some_steps():
  compressor = terngrad.Compressor('error_feedback+identity')
  rows = tf.IndexedSlices(VALUES[1], tf.range(30))
  for step, first in enumerate([rows, VALUES[0], rows, VALUES[0]]):
    sent = terngrad.compress([first, VALUES[1]], compressor, step=step)
    np.testing.assert_array_equal(sent[1], VALUES[1])
    assert isinstance(sent[0], tf.IndexedSlices) == (first is rows)


@pytest.mark.parametrize('codec', [object(), None, {'': None}, {}])
def test_other_codecs_are_refused_with_the_remedy(codec):
  for make in (
    lambda: terngrad.compress([VALUES[0]], codec, step=0),
    lambda: terngrad.Compressor(codec),
  ):
    with pytest.raises(ValueError, match='expected a text .* entry point'):
      make()


def test_a_worker_whose_vector_is_lost_gets_the_mean_of_all(caplog):
  """The file of one process of two, loaded by a process that is alone."""
  codec = 'ef21+topk:ratio=0.5'
  specs = (policy.VariableSpec('kernel', (4,)),)
  variables = policy.Variables((0,), specs)

  def reduce(workers, states):
    made = compressor_lib.Compressor(codec, num_workers=workers)
    made.load(states)
    gradients = tf.constant([[1.0, 2, 3, 4], [8, 7, 6, 5]])
    made.reduce_workers(
      [lambda worker: [gradients[worker]]], variables, [tf.constant(0)]
    )
    return made

  whole = reduce(2, {}).get_states()
  assert np.any(whole['ef21_worker:0'] != whole['ef21_common:0'])
  part = whole | {
    'ef21_worker:0': whole['ef21_worker:0'][:1],
    'workers': np.array([0, 1, 2]),
  }
  alone = compressor_lib.Compressor(codec, num_workers=1)
  alone.load(part)
  alone.declare(variables)
  found = alone.get_states()
  np.testing.assert_array_equal(found['ef21_worker:0'], whole['ef21_common:0'])
  np.testing.assert_array_equal(found['ef21_common:0'], whole['ef21_common:0'])


def test_a_gradient_that_is_none_is_refused_by_name():
  gradients = [tf.ones([2]), None]
  with pytest.raises(ValueError, match='^head: expected a gradient, received'):
    terngrad.compress(gradients, 'ternary', step=0, names=['body', 'head'])


def test_one_gradient_for_several_virtual_workers_is_refused():
  virtual = compressor_lib.Compressor('identity', num_workers=4)
  with pytest.raises(ValueError, match='received one of 4 virtual workers'):
    terngrad.compress([tf.ones([3])], virtual, step=0)
  with pytest.raises(ValueError, match='expected a whole number, 1 or more'):
    compressor_lib.Compressor('identity', num_workers=0)


@pytest.mark.parametrize('codec', ['topk:ratio=1', 'ternary'])
@pytest.mark.parametrize('shape', [(2, 3), (6,), (3, 3), ()])
def test_an_optimizer_refuses_a_gradient_of_another_shape(codec, shape):
  variable = keras.Variable(tf.zeros([3, 2]), name='kernel')
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0), codec
  )
  optimizer.build([variable])
  with pytest.raises(ValueError, match=r'kernel: .* of shape \[3, 2\].* rece'):
    optimizer.apply([tf.ones(shape)], [variable])
  np.testing.assert_array_equal(variable.numpy(), np.zeros([3, 2]))
