"""Where a net is cut: at single tensors, so that little is held at once."""

import itertools
import math

import keras
import pytest

from slim.nets import factory as nets
from terngrad import errors
from terngrad.passes import segments
from tests.passes import cuttable
from tests.step import small


def chain(layers):
  """Dense layers of one size."""
  images = x = keras.Input((8,))
  for number in range(layers):
    x = keras.layers.Dense(8, name=f'fc{number}')(x)
  return keras.Model(images, x, name='chain')


def layers_of(segment):
  return [layer.name for layer in segment.model.layers[1:]]


@pytest.mark.parametrize(
  'count', [9, 25, pytest.param(64, marks=pytest.mark.slow)]
)
def test_a_net_of_equal_layers_has_about_root_n_segments(count):
  found = segments.cut_model(chain(count))
  root = math.sqrt(count)
  assert abs(len(found) - root) <= 1
  sizes = [len(layers_of(segment)) for segment in found]
  assert sum(sizes) == count
  assert len(found) - 1 + max(sizes) <= 2 * root


def test_a_unit_of_a_residual_net_is_never_cut():
  sums = {'unit1_sum', 'unit2_sum', 'unit3_sum'}
  cuts = segments._Graph(cuttable.residual_net()).cuts()
  names = [cut.tensor._keras_history.operation.name for cut in cuts]
  assert sums <= set(names)
  assert not [n for n in names if n.startswith('unit') and 'conv' in n]


@pytest.mark.parametrize(
  'build',
  [
    lambda: chain(4),
    small.conv_net,
    cuttable.residual_net,
    cuttable.dropout_net,
    cuttable.net_with_a_head,
  ],
)
def test_each_variable_is_in_exactly_one_segment(build):
  model = build()
  found = segments.cut_model(model)
  assert len(found) > 1
  for name, whole in (
    ('trainable', model.trainable_variables),
    ('non_trainable', model.non_trainable_variables),
  ):
    seen = [getattr(segment, name) for segment in found]
    assert sorted(itertools.chain(*seen)) == list(range(len(whole)))
  for segment in found:
    parameters = [model.trainable_variables[i] for i in segment.trainable]
    pairs = zip(segment.model.trainable_variables, parameters, strict=True)
    assert all(variable is one for variable, one in pairs)


@pytest.mark.parametrize(
  'net',
  [
    'lenet',
    'slim_lenet',
    'cifar10_alexnet',
    'cifar_resnet_20',
    pytest.param('resnet_v1_50', marks=pytest.mark.slow),
    pytest.param('inception_v3', marks=pytest.mark.slow),
    pytest.param('vgg_a', marks=pytest.mark.slow),
  ],
)
def test_no_segment_has_most_of_the_bytes(net):
  found = segments.cut_model(nets.build(net, num_classes=10))
  total = sum(segment.num_bytes for segment in found)
  assert max(segment.num_bytes for segment in found) < 0.7 * total


def test_an_auxiliary_head_runs_in_the_segment_of_its_input():
  trunk, *_, last = found = segments.cut_model(cuttable.net_with_a_head())
  (with_head,) = (s for s in found if s.outputs == (1,))
  assert last.outputs == (0,)
  assert trunk.outputs in ((), (1,))
  assert {'aux_pool', 'aux_logits'} <= set(layers_of(with_head))
  # The gradients by what the head takes are summed in one place.
  assert with_head.model.inputs[0].shape[1:] == (8, 8, 4)


def test_calls_of_one_layer_are_in_one_segment():
  images = keras.Input((8,))
  twice = keras.layers.Dense(8, name='twice')
  x = keras.layers.Dense(8, name='before')(images)
  x = keras.layers.Dense(8, name='between')(twice(x))
  x = keras.layers.Dense(8, name='after')(twice(x))
  found = segments.cut_model(keras.Model(images, keras.layers.Dense(8)(x)))
  (segment,) = (s for s in found if 'twice' in layers_of(s))
  assert 'between' in layers_of(segment)


def everything(count):
  indices = range(count)
  return itertools.chain.from_iterable(
    itertools.combinations(indices, size) for size in range(count + 1)
  )


@pytest.mark.parametrize(
  ('pieces', 'costs'),
  [
    ([4, 4, 4, 4, 4, 4], [1, 1, 1, 1, 1]),
    ([9, 2, 2, 2, 1], [3, 1, 1, 1]),
    ([1, 2, 3, 4, 5, 6, 7], [7, 1, 7, 1, 7, 1]),
    ([1, 1, 30, 1, 1], [1, 1, 1, 1]),
  ],
)
def test_no_other_cuts_need_much_less_memory(pieces, costs):
  chosen = segments.plan(pieces, costs)
  best = min(
    segments.peak(pieces, costs, cuts) for cuts in everything(len(costs))
  )
  assert segments.peak(pieces, costs, chosen) <= 1.2 * best


def test_the_peak_is_a_segment_and_the_cuts_before_it():
  assert segments.peak([5, 4, 3], [2, 1], ()) == 12
  assert segments.peak([5, 4, 3], [2, 1], (0,)) == 2 + 7
  assert segments.peak([5, 4, 3], [2, 1], (0, 1)) == max(5, 2 + 4, 2 + 1 + 3)


def test_cuts_that_cost_more_than_they_save_are_not_chosen():
  assert segments.plan([1, 1], [5]) == ()
  assert segments.plan([1], []) == ()


class Subclassed(keras.Model):
  def call(self, images):
    return images


def two_inputs():
  inputs = [keras.Input((4,)), keras.Input((4,))]
  x = keras.layers.Dense(4)(keras.layers.Add()(inputs))
  return keras.Model(inputs, keras.layers.Dense(4)(x), name='two')


def one_layer():
  images = keras.Input((4,))
  return keras.Model(images, keras.layers.Dense(4)(images), name='single')


@pytest.mark.parametrize(
  ('build', 'reason'),
  [
    (
      lambda: Subclassed(name='own'),
      'own, not a functional model with one input',
    ),
    (two_inputs, 'two, not a functional model with one input'),
    (one_layer, 'single, where none of 0 possible cuts saves'),
  ],
)
def test_a_model_that_cannot_be_cut_is_refused(build, reason):
  with pytest.raises(
    errors.ConfigError,
    match=f'optimize_gradient_memory: expected .*, received {reason}.*Remove ',
  ):
    segments.cut_model(build())
