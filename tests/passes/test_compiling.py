"""XLA compiles passes where Keras would, and where --jit_compile says so."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad.config import options
from terngrad.config import training as configs
from terngrad.exchange import collective
from terngrad.exchange import towers
from terngrad.machine import determinism
from terngrad.passes import compiling
from terngrad.step import device_arguments
from terngrad.step import loss_scaling
from terngrad.training import assembly
from tests import seeming_gpu
from tests.step import small

ALONE = towers.Towers(('/GPU:0',), 2)
SEVERAL = towers.Towers(('/GPU:0', '/GPU:1'), 2)


@pytest.fixture
def gpu(monkeypatch):
  """A machine that seems to have a GPU."""
  seeming_gpu.pretend(monkeypatch)


def of_keras(build):
  """Whether Keras compiles this model by default."""
  made = build()
  made.compile('sgd', 'mse')
  return made.jit_compile


def looking_up():
  """A model with a layer that XLA does not support."""
  inputs = keras.Input((4,), dtype='int64')
  table = keras.layers.IntegerLookup(vocabulary=[1, 2, 3])
  return keras.Model(inputs, keras.layers.Embedding(5, 2)(table(inputs)))


@pytest.mark.parametrize(
  ('build', 'is_deterministic', 'reason'),
  [
    (small.dense_net, False, ''),
    (small.dense_net, True, ': op determinism is on'),
    (looking_up, False, ': a layer does not support it'),
  ],
)
def test_auto_compiles_what_keras_compiles(
  gpu, build, is_deterministic, reason
):
  with determinism.require(is_deterministic):
    found = compiling.decide('auto', build(), ALONE)
    assert found == (of_keras(build), f'--jit_compile=auto{reason}')
  assert found.compiles == (not reason)
  state = 'not compiled' if reason else 'compiled'
  assert found.describe().startswith(f'passes: {state} by XLA (')


def test_auto_compiles_nothing_on_cpus_like_keras():
  found = compiling.decide('auto', small.dense_net(), ALONE)
  assert found == (
    of_keras(small.dense_net),
    '--jit_compile=auto: there is no GPU',
  )
  assert not found.compiles


@pytest.mark.parametrize(
  ('exchange', 'can_compile', 'reason'),
  [
    (SEVERAL, True, 'there are several devices'),
    (ALONE, False, 'another option does not allow it'),
  ],
)
def test_auto_compiles_only_simple_passes_of_one_device(
  gpu, exchange, can_compile, reason
):
  found = compiling.decide('auto', small.dense_net(), exchange, can_compile)
  assert found == (False, f'--jit_compile=auto: {reason}')


def operations_of(function, *arguments):
  """(types of operations outside of programs of XLA, types inside)."""
  graph = function.get_concrete_function(*arguments).graph.as_graph_def()
  functions = {one.signature.name: one for one in graph.library.function}
  found = set(), set()

  def walk(nodes, is_compiled):
    for node in nodes:
      found[is_compiled].add(node.op)
      for attribute in node.attr.values():
        called = functions.get(attribute.func.name)
        if called:
          mark = called.attr['_XlaMustCompile'].b
          walk(called.node_def, is_compiled or mark)

  walk(graph.node, False)
  return found


@pytest.mark.parametrize(
  ('choice', 'expected'), [('true', True), ('auto', False)]
)
def test_a_run_traces_its_passes_for_xla(choice, expected):
  config = options.build(
    configs.TrainConfig,
    net='lenet',
    dataset_name='mnist',
    batch_size=4,
    image_size=8,
    benchmark_mode=True,
    jit_compile=choice,
  )
  run = assembly.assemble(config)
  assert run.compiling.startswith('passes: compiled') == expected
  images, labels = next(run.batches(0))
  step, rates = tf.constant(0, tf.int64), [tf.constant(0.1)] * 2
  _, compiled = operations_of(run.coded_step.take, images, labels, step, *rates)
  assert ('Conv2D' in compiled) == expected


def operations_of_step(training):
  """`operations_of` a step."""
  images, labels = small.batch_of(0, training.shape)
  step, rates = tf.constant(0, tf.int64), [tf.constant(0.1)] * 2
  return operations_of(training.step.take, images, labels, step, *rates)


@pytest.mark.parametrize(
  ('build', 'workers', 'options'),
  [
    (small.dense_net, 1, {'on_kernels': True}),
    (small.conv_net, 4, {}),
    pytest.param(
      *(small.conv_net, 1, {'scaling': loss_scaling.START}),
      marks=pytest.mark.slow,
    ),
  ],
)
@pytest.mark.gate_every(2)
def test_a_step_without_messages_compiles_as_a_whole(build, workers, options):
  found = []
  for compiles in (False, True):
    training = small.Training(
      build,
      devices=1,
      workers=workers,
      codec='identity',
      compiles=compiles,
      **options,
    )
    result = training.run(3)
    outside, inside = operations_of_step(training)
    assert ('MatMul' in inside) == compiles == ('MatMul' not in outside)
    found.append((training.values().view('f4'), result))
  (values, result), (other_values, other) = found
  np.testing.assert_allclose(values, other_values, rtol=1e-4, atol=1e-6)
  for field in ('entropy', 'accuracy', 'probes', 'shared', 'sent', 'stop'):
    np.testing.assert_allclose(
      getattr(result, field), getattr(other, field), rtol=1e-4, atol=1e-6
    )


def test_a_step_with_messages_does_not_compile_as_a_whole():
  training = small.Training(
    small.dense_net, devices=1, workers=2, on_kernels=True, compiles=True
  )
  assert 'MatMul' not in operations_of_step(training)[1]


@pytest.mark.parametrize('codec', ['identity', 'ternary'])
def test_compiled_programs_of_gpus_do_not_wait_for_integers(codec, monkeypatch):
  present = types.SimpleNamespace(available=lambda: True)
  monkeypatch.setattr(device_arguments, 'gpu', present)
  training = small.Training(
    small.dense_net,
    devices=1,
    workers=2,
    codec=codec,
    names=('/GPU:0',),
    on_gpus=True,
    compiles=True,
    compiles_pass=True,
  )
  outside, inside = operations_of_step(training)
  assert 'TerngradGpuNumbers' in outside
  assert 'TerngradGpuNumbers' not in inside
  assert 'MatMul' in inside


@pytest.mark.parametrize('codec', ['identity', 'ternary'])
@pytest.mark.gate_every(2)
def test_arguments_as_gpus_get_them_give_the_same_bits(codec, monkeypatch):
  def trained():
    training = small.Training(
      small.conv_net,
      devices=1,
      workers=1,
      codec=codec,
      compiles=True,
      compiles_pass=True,
      on_kernels=True,
    )
    training.run(2)
    return training.values()

  expected, moved = trained(), []

  def move(numbers):
    moved.append(numbers.shape)
    return tf.identity(numbers)

  for name, stand_in in (
    ('tracing', types.SimpleNamespace(on_gpu=lambda: True)),
    ('gpu', types.SimpleNamespace(available=lambda: True)),
    ('ops', types.SimpleNamespace(numbers_on_gpu=move)),
  ):
    monkeypatch.setattr(device_arguments, name, stand_in)
  np.testing.assert_array_equal(trained(), expected)
  # The labels, beside the key, or the 64 bits of the step and three numbers.
  assert len(moved) == (5 if codec == 'identity' else 2)


@pytest.mark.parametrize(
  ('exchange', 'expected'),
  [
    (ALONE, True),
    (SEVERAL, False),
    (towers.Towers(('/CPU:0',), 1), False),
    (collective.Collective, False),
  ],
)
def test_only_steps_of_one_gpu_compile_as_a_whole(exchange, expected):
  training = small.at_its_start(small.dense_net, devices=1, workers=2)
  compiled = compiling.CompiledPass(training.node_pass)
  assert compiling.allows_whole_step(compiled, exchange) == expected
  assert not compiling.allows_whole_step(training.node_pass, exchange)


def test_a_compiled_pass_has_the_gradients_of_the_pass():
  training = small.Training(
    small.conv_net, devices=1, workers=2, decoupled=True
  )
  node_pass = training.node_pass
  compiled = compiling.CompiledPass(node_pass)
  assert compiled.decoupled_decay is node_pass.decoupled_decay
  assert compiled.num_statistics == node_pass.num_statistics == 2
  images, labels = small.batch_of(0, [4])
  replica = training.replicas[0]
  arguments = (
    [tf.convert_to_tensor(v) for v in replica.trainable],
    [tf.convert_to_tensor(v) for v in replica.statistics],
    images,
    labels,
    tf.constant([1, 2], tf.uint32),
    tf.constant(8.0),
  )
  found = tf.nest.flatten(compiled.gradients(*arguments))
  expected = tf.nest.flatten(node_pass.gradients(*arguments))
  for one, other in zip(found, expected, strict=True):
    # Sums of some 300 products, in another order.
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
