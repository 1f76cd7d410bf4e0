"""Old names work for one release, with a warning."""

import importlib
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad
from terngrad import aliases
from terngrad.codec import method
from terngrad.codec.methods import registry
from terngrad.codec.stages import random_bits
from terngrad.compression import scoring
from terngrad.config import codes as codes_lib
from terngrad.config import options


@aliases.renamed_arguments(colour='color', size='width')
def paint(color, width=1):
  return color, width


def test_present_names_and_positions_give_no_warning():
  assert paint('red') == paint(color='red', width=1) == ('red', 1)


def test_an_old_name_is_accepted_with_a_warning_at_the_call():
  with pytest.warns(DeprecationWarning, match='old name') as found:
    assert paint(colour='red', size=2) == ('red', 2)
  old, new = sorted(str(one.message) for one in found)
  assert old == (
    'paint: the argument colour is an old name, to be removed in terngrad 0.4. '
    'Use color.'
  )
  assert new.endswith('Use width.')
  assert {one.filename for one in found} == {__file__}


def test_both_names_are_refused():
  with pytest.raises(
    TypeError, match='expected color, received both it and co'
  ):
    paint(color='red', colour='blue')
  with (
    pytest.warns(DeprecationWarning),
    pytest.raises(TypeError, match='color'),
  ):
    paint('red', colour='blue')


def test_an_unknown_name_is_refused():
  with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
    paint('red', weight=2)


def test_an_old_name_in_a_module_is_accepted_with_a_warning():
  with pytest.warns(DeprecationWarning, match=r'options.KEPT is .* Use REF'):
    assert options.KEPT == options.REFUSED
  with pytest.raises(AttributeError, match="has no attribute 'LOST'"):
    options.LOST  # noqa: B018


@pytest.mark.parametrize(
  ('module', 'old', 'new'),
  [
    ('config.cluster', 'Cluster', 'ClusterOptions'),
    ('config.codes', 'Codes', 'CodeOptions'),
    ('config.devices', 'Devices', 'DeviceOptions'),
    ('config.model', 'Data', 'DataOptions'),
    ('config.model', 'TrainModel', 'TrainModelOptions'),
    ('config.optimizer', 'Optimizer', 'OptimizerOptions'),
    ('config.options', 'Part', 'ConfigPart'),
    ('config.run', 'Run', 'RunOptions'),
    ('config.run', 'Start', 'StartOptions'),
    ('exchange.algorithms', 'Network', 'Link'),
  ],
)
def test_old_names_of_classes_are_accepted_with_a_warning(module, old, new):
  loaded = importlib.import_module(f'terngrad.{module}')
  with pytest.warns(DeprecationWarning, match=f'{old} is an old name.*{new}'):
    assert getattr(loaded, old) is getattr(loaded, new)


def test_old_methods_are_accepted_with_a_warning():
  compressor = terngrad.Compressor('ternary')
  with pytest.warns(DeprecationWarning, match='saved is .* Use get_states'):
    assert compressor.saved() == {}
  wrapped = terngrad.keras.CompressedOptimizer('sgd', 'ternary')
  inner = wrapped.inner_optimizer
  with pytest.warns(DeprecationWarning, match='unwrapped is .* Use unwrap'):
    assert wrapped.unwrapped() is inner


def test_an_old_attribute_is_accepted_with_a_warning():
  codes = codes_lib.CodeOptions(codec_warm_up='2 -> fp16')
  with pytest.warns(
    DeprecationWarning, match=r'CodeOptions.named .* Use methods'
  ):
    old = codes.named(1)
  with pytest.warns(DeprecationWarning, match=r'RunMethods.first .* warm_up'):
    assert old.first == old.warm_up
  assert [until for until, _ in old.warm_up] == [2]


def small_model():
  return keras.Sequential(
    [keras.Input((2,)), keras.layers.Dense(2, name='logits')]
  )


def test_a_trainer_takes_rules():
  rules = '*/bias -> identity'
  present = terngrad.Trainer(small_model(), codec_rules=rules)
  with pytest.warns(DeprecationWarning, match='Trainer: .* Use codec_rules'):
    old = terngrad.Trainer(small_model(), rules=rules)
  names = [
    [bucket.method.name for bucket in one.codec.buckets]
    for one in (old, present)
  ]
  assert names[0] == names[1]
  assert len(names[0]) == 2


def test_a_parallel_model_takes_loss_fn_and_update():
  def loss(outputs, labels):
    raise ValueError('This loss was called.')

  inputs = [([[1.0, 2.0]], [0])]
  with pytest.warns(DeprecationWarning, match='parallelize') as found:
    parallel = terngrad.parallelize(
      lambda index, count: inputs, small_model, loss_fn=loss, update='gd'
    )
  messages = [str(one.message) for one in found]
  assert [m.rpartition(' ')[2] for m in messages] == ['loss.', 'optimizer.']
  assert not any(parallel.replicas[0].slots)
  with pytest.raises(ValueError, match='This loss was called'):
    parallel.step()


@pytest.mark.parametrize(
  ('old', 'new'), [('loss_fn', 'loss'), ('update', 'optimizer')]
)
def test_a_parallel_model_refuses_both_names(old, new):
  with pytest.raises(
    TypeError, match=f'expected {new}, received both it and {old}'
  ):
    terngrad.parallelize(None, None, **{old: None, new: None})


def test_the_old_name_of_average_gives_a_warning():
  results = [scoring.Result(1.0, 0.5, 2, 3.0), scoring.Result(3.0, 1.0, 4, 3.0)]
  with pytest.warns(DeprecationWarning, match='Use average') as found:
    assert scoring.Result.of_all(results) == scoring.Result(2.0, 0.75, 6, 3.0)
  assert found[0].filename == __file__


def test_a_trainer_without_an_optimizer_is_refused():
  with pytest.raises(ValueError, match='optimizer: expected a text'):
    terngrad.Trainer(small_model(), optimizer=None)


@aliases.renamed_attributes(colour='color')
class Paint(NamedTuple):
  """A tuple with a renamed field."""

  color: str
  width: int = 1


def test_old_fields_of_a_tuple_give_a_warning():
  with pytest.warns(DeprecationWarning, match='^Paint: .* Use color') as found:
    assert Paint(colour='red') == Paint('red') == Paint(color='red')
  with pytest.warns(DeprecationWarning, match='Paint.colour is .* Use color'):
    assert Paint('red').colour == 'red'
  with pytest.warns(DeprecationWarning, match='Paint._replace: .* Use color'):
    assert Paint('red', 2)._replace(colour='blue') == ('blue', 2)
  assert {one.filename for one in found} == {__file__}


def test_contexts_of_methods_have_the_names_of_probes_of_0_2():
  zero = tf.constant(0, tf.int64)
  context = method.Context([[3]], 2, 0, 0, zero, zero, None, None, 1.0, 2.0)
  assert (context.local_probe, context.shared_probe) == (1.0, 2.0)
  with pytest.warns(DeprecationWarning, match='Context.* is an old name'):
    assert (context.own, context.shared) == (1.0, 2.0)


def test_states_of_methods_accept_the_name_of_0_2():
  with pytest.warns(DeprecationWarning, match='State.* Use resharding'):
    state = method.State('r', method.WORKER, 0, (3,), dealt=method.RANGES)
    assert state.dealt == state.resharding == method.RANGES


def test_renamed_functions_of_0_2_are_the_present_ones():
  with pytest.warns(DeprecationWarning, match='use .*stack_by_worker'):
    assert method.rows_in_order is method.stack_by_worker
  with pytest.warns(DeprecationWarning, match='use .*list_kinds'):
    assert registry.every_kind is registry.list_kinds
  parts = method.Scattered(tf.ones([2, 1, 3], tf.int32))
  with pytest.warns(DeprecationWarning, match='Use for_worker'):
    assert parts.of == parts.for_worker


def test_codes_accept_the_names_of_probes_of_0_2():
  code = registry.parse('ternary')
  gradients, key = [tf.ones([3])], random_bits.seed_key(1)
  probe = code.probe(gradients)
  expected = code.encode(gradients, probe, probe, key)
  with pytest.warns(DeprecationWarning, match='Use .*_probe'):
    words = code.encode(gradients, own=probe, shared=probe, key=key)
  np.testing.assert_array_equal(words, expected)
