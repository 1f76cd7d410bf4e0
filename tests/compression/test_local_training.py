"""`terngrad.parallelize` with local steps and recipes."""

import numpy as np
import pytest

import terngrad
from terngrad import errors
from terngrad.compression import local_arguments
from terngrad.recipes import catalog
from tests.compression import small_inputs
from tests.step import small

TWO = ['/CPU:0', '/CPU:1']
RATE = 0.05
STEPS = small_inputs.STEPS


def made(devices=TWO, input_fn=small_inputs.of_device, **options):
  return terngrad.parallelize(
    input_fn, small.dense_net, devices=devices, **options
  )


@pytest.mark.slow
def test_plain_descent_outside_averages_what_each_device_trained():
  both = made(optimizer='gd', learning_rate=RATE, local_steps=STEPS)
  result = both.run(1)
  assert result.num_examples == 2 * STEPS * small_inputs.SIZE
  each = []
  for index in range(2):
    batches = small_inputs.of_device(index, 2)
    alone = made(
      TWO[:1], lambda *_, b=batches: b, optimizer='gd', learning_rate=RATE
    )
    alone.run(STEPS)
    each.append(alone.params(0))
  for name, value in both.params(1).items():
    mean = np.mean([params[name] for params in each], axis=0)
    np.testing.assert_allclose(value, mean, rtol=1e-5, atol=1e-6)
  both.check_equal()


@pytest.mark.usefixtures('eager_functions')
def test_devices_of_a_worker_take_the_local_steps_of_one_device():
  options = {'optimizer': 'gd', 'learning_rate': RATE, 'local_steps': STEPS}
  one = made(TWO[:1], small_inputs.of_two, **options)
  two = made(devices_per_worker=2, **options)
  ours, others = two.run(1), one.run(1)
  assert ours.num_examples == others.num_examples
  np.testing.assert_allclose(ours.loss, others.loss, rtol=1e-5)
  for name, value in two.params(1).items():
    # Sums of float32 in another order.
    np.testing.assert_allclose(value, one.params(0)[name], atol=1e-6)


def test_a_recipe_sets_what_has_its_default():
  parallel = made(recipe='sparseloco', local_steps=STEPS, outer_learning_rate=2)
  (bucket,) = parallel.codec.buckets
  assert bucket.method.name == 'error feedback(0.95) > sparseloco(64/4096)'
  assert parallel._step._training.local.outer_rate == 2
  assert (
    parallel._learning_rate == catalog.find('sparseloco').inner_learning_rate
  )


def chosen(
  codec='identity', optimizer='nesterov:momentum=0.9', rate=0.1, **local
):
  return local_arguments.choose(codec, optimizer, rate, 2, **local)


def test_a_recipe_keeps_given_local_steps_that_equal_their_defaults():
  given = local_arguments.LocalChoices()
  found = chosen(
    recipe='diloco',
    local_steps=given.steps,
    inner_optimizer=given.inner,
    outer_learning_rate=given.outer_learning_rate,
  )
  assert found.choices['local'] == given._replace(recipe='diloco')
  assert chosen().choices['local'] == given


def test_a_recipe_logs_the_defaults_of_the_signature_that_it_replaces(caplog):
  recipe = catalog.find('sparseloco')
  found = chosen(recipe='sparseloco')
  assert found.choices['codec'] == recipe.codec
  assert caplog.text.rstrip().endswith(
    'Defaults replaced by the recipe: codec, optimizer, learning_rate'
  )
  codec, rate = terngrad.parse_codec('identity'), 0.2
  found = chosen(codec, 'nesterov', rate, recipe='sparseloco')
  assert found.choices['codec'] is codec
  assert found.choices['optimizer'] == 'nesterov'
  assert found.learning_rate == rate
  assert caplog.text.rstrip().endswith('replaced by the recipe: none')


@pytest.mark.slow
def test_devices_stay_equal_with_a_recipe():
  parallel = made(recipe='sparseloco', local_steps=STEPS)
  before = parallel.params(0)
  parallel.run(2)
  assert any(np.any(parallel.params(1)[n] != v) for n, v in before.items())
  parallel.check_equal()


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_no_moments():
  def spoilt(index, count):
    clean = small_inputs.of_device(index, count)
    bad = [(np.full_like(i, np.nan if index else 1), n) for i, n in clean]
    return [*bad, *clean]

  options = {'inner_optimizer': 'adamw', 'local_steps': STEPS}
  expected, parallel = made(**options), made(input_fn=spoilt, **options)
  expected.run(1)
  with pytest.raises(errors.TrainingError, match='Nothing was updated'):
    parallel.step()
  parallel.run(1)
  for name, value in parallel.params(0).items():
    np.testing.assert_array_equal(value, expected.params(0)[name])


@pytest.mark.parametrize(
  ('cut', 'message'),
  [
    (lambda index, number: number == 1, 'batches of one size for local steps'),
    (lambda index, number: index == 1, 'one size on all devices'),
  ],
)
def test_local_steps_need_batches_of_one_size(cut, message):
  def inputs(index, count):
    return [
      (i[:2], n[:2]) if cut(index, number) else (i, n)
      for number, (i, n) in enumerate(small_inputs.of_device(index, count))
    ]

  with pytest.raises(ValueError, match=message):
    made(input_fn=inputs, local_steps=STEPS).step()


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'recipe': 'dilocco'}, "Did you mean 'diloco'"),
    ({'recipe': 'snoo'}, 'at most 1 worker for snoo, received 2'),
    ({'local_steps': 0}, 'local_steps: expected a number >= 1'),
    ({'inner_optimizer': 'muom'}, "Did you mean 'muon'"),
    ({'inner_optimizer': 'adamw'}, 'left out without local steps, received ad'),
    ({'outer_learning_rate': 0.01}, 'left out without local steps, .* 0.01'),
    ({'recipe': 'diloco', 'local_steps': 1}, 'recipe: expected local_steps'),
  ],
)
def test_wrong_options_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    made(**options)
