"""Activations that are recomputed: the bits of those that are kept."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from slim.nets import factory as nets
from terngrad.checkpoint import checkpoints
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
from terngrad.config import options as options_lib
from terngrad.config import servers
from terngrad.config import training as configs
from terngrad.passes import recomputing
from terngrad.passes import segments
from terngrad.step import model_variables
from terngrad.step import passes
from terngrad.step import precision
from terngrad.training import start
from tests.passes import cuttable
from tests.step import small

LOSS = passes.Loss(label_smoothing=0.1, aux_weight=0.4)


def both(model, scale=None, trained=lambda name: True, traced=True, count=4):
  """(gradients, loss, statistics) of kept and of recomputed activations."""
  plan = model_variables.variables_of(model, trained)
  size, channels = model.inputs[0].shape[2:]
  arguments = [
    [tf.convert_to_tensor(v.value) for v in plan.trainable],
    [tf.convert_to_tensor(v.value) for v in (*plan.statistics, *plan.frozen)],
    tf.random.stateless_normal([count, size, size, channels], [1, 2]),
    tf.random.stateless_uniform([count], [1, 3], 0, 5, tf.int32),
    random_bits.worker_key(1, tf.constant(0, tf.int64), 0),
    *([] if scale is None else [tf.constant(scale)]),
  ]
  results = []
  for kind in (passes.ModelPass, recomputing.RecomputedPass):
    node_pass = kind(model, plan, LOSS)
    run = (
      tracing.function(node_pass.gradients) if traced else node_pass.gradients
    )
    results.append(tf.nest.map_structure(np.asarray, run(*arguments)))
  return results


def assert_same_bits(stored, recomputed):
  stored, recomputed = tf.nest.flatten(stored), tf.nest.flatten(recomputed)
  assert len(stored) == len(recomputed)
  for expected, received in zip(stored, recomputed, strict=True):
    assert received.dtype == expected.dtype
    assert received.tobytes() == expected.tobytes()


@pytest.mark.parametrize('traced', [True, False])
@pytest.mark.parametrize(
  'build',
  [
    cuttable.residual_net,
    cuttable.dropout_net,
    cuttable.net_with_a_head,
    small.conv_net,
  ],
)
@pytest.mark.gate_every(3)
def test_gradients_loss_and_statistics_are_the_same_bits(build, traced):
  stored, recomputed = both(build(), traced=traced)
  assert_same_bits(stored, recomputed)
  assert all(np.any(gradient) for gradient in stored[0])


@pytest.mark.parametrize('dtype', ['bfloat16', 'float16'])
@pytest.mark.parametrize('build', [cuttable.residual_net, cuttable.dropout_net])
@pytest.mark.gate_every(3)
def test_layers_of_16_bits_give_the_same_bits(build, dtype):
  with precision.layer_dtype(dtype):
    model = build()
  assert_same_bits(*both(model, scale=128.0))


@pytest.mark.slow
@pytest.mark.parametrize(
  ('net', 'size'),
  [
    ('alexnet', 57),
    ('cifar_resnet_20', 32),
    ('inception_v3', 107),
    ('resnet_v1_50', 64),
    ('resnet_v2_50', 64),
    ('vgg_a', 32),
  ],
)
def test_nets_give_the_same_bits(net, size):
  model = nets.build(net, num_classes=5, image_size=size)
  assert_same_bits(*both(model, count=2))


@pytest.mark.parametrize(
  'begin', ['conv0', 'unit1', 'unit3', 'logits'], ids=str
)
@pytest.mark.gate_every(2)
def test_frozen_parameters_change_no_bit(begin):
  """Those before `begin` in the order of the net are not trained."""
  model = cuttable.residual_net()
  names = [variable.path for variable in model.trainable_variables]
  first = next(i for i, name in enumerate(names) if name.startswith(begin))
  trained = set(names[first:])
  stored, recomputed = both(model, trained=trained.__contains__)
  assert len(stored[0]) == len(trained)
  assert_same_bits(stored, recomputed)


def test_a_parameter_that_does_not_affect_the_loss_has_zero_gradients():
  loss = LOSS._replace(aux_weight=0.0)
  model = cuttable.net_with_a_head()
  plan = model_variables.variables_of(model)
  images, labels = small.batch_of(0, [4])
  node_pass = recomputing.RecomputedPass(model, plan, loss)
  gradients, _, _ = node_pass.gradients(
    [tf.convert_to_tensor(v.value) for v in plan.trainable],
    [tf.convert_to_tensor(v.value) for v in plan.statistics],
    images,
    labels,
    tf.zeros([2], tf.uint32),
  )
  by_name = dict(zip(plan.names, gradients, strict=False))
  assert not np.any(by_name['aux_logits/kernel'])
  assert np.any(by_name['logits/kernel'])


def test_tensorflow_does_not_merge_the_second_run_with_the_first():
  images = x = keras.Input((16,))
  for _ in range(9):
    x = keras.layers.Dense(16, activation='tanh')(x)
  model = keras.Model(images, x)
  *first, last = segments.cut_model(model)
  once = len(last.model.layers) - 1
  twice = sum(len(segment.model.layers) - 1 for segment in first)
  plan = model_variables.variables_of(model)
  node_pass = recomputing.RecomputedPass(model, plan)
  run = tracing.function(node_pass.gradients)
  arguments = (
    [tf.convert_to_tensor(v.value) for v in plan.trainable],
    [],
    tf.ones([2, 16]),
    tf.zeros([2], tf.int32),
    tf.zeros([2], tf.uint32),
  )
  run.get_concrete_function(*arguments)
  # Tells the graphs of what is run for the first time.
  context.enable_run_metadata()
  run(*arguments)
  metadata = context.export_run_metadata()
  context.disable_run_metadata()
  nodes = [
    node
    for graphs in metadata.function_graphs
    for node in graphs.post_optimization_graph.node
  ]
  # With oneDNN some are part of a product.
  fused = [b'Tanh' in node.attr['fused_ops'].list.s for node in nodes]
  alone = [node.op == 'Tanh' for node in nodes]
  assert sum(fused) + sum(alone) == once + 2 * twice


@pytest.mark.parametrize(
  ('devices', 'workers', 'changes'),
  [
    (1, 2, {}),
    pytest.param(1, 1, {}, marks=pytest.mark.slow),
    pytest.param(2, 2, {'synchronize': True}, marks=pytest.mark.slow),
    pytest.param(1, 2, {'parts': 2}, marks=pytest.mark.slow),
    pytest.param(1, 2, {'local': small.Local(2)}, marks=pytest.mark.slow),
    pytest.param(1, 1, {'scaling': (2.0**10, 0.0)}, marks=pytest.mark.slow),
  ],
)
def test_steps_end_at_the_same_bits(devices, workers, changes):
  """Also in the loops over nodes, parts and local steps."""
  build = functools.partial(small.conv_net, dropout=0.5)
  options = {'devices': devices, 'workers': workers, 'codec': 'identity'}
  values = []
  for recompute in (False, True):
    training = small.Training(build, recompute=recompute, **options, **changes)
    training.run(3)
    values.append([training.values(index) for index in range(devices)])
  np.testing.assert_array_equal(*values)


def trained_by_command(folder, **changes):
  """The newest checkpoint of a short run of LeNet with dropout."""
  config = options_lib.build(
    configs.TrainConfig,
    net='slim_lenet',
    dataset_name='mnist',
    image_size=8,
    batch_size=8,
    num_nodes=2,
    grad_bits=1,
    benchmark_mode=True,
    max_steps=3,
    save_iter=3,
    train_dir=str(folder),
    **changes,
  )
  lines = []
  start.train(config, lines.append)
  return checkpoints.newest(str(folder)), lines


@pytest.mark.slow
def test_a_run_ends_at_the_same_bits_and_continues_with_or_without_it(tmp_path):
  values = []
  for changes in ({}, {'optimize_gradient_memory': True}):
    path, _ = trained_by_command(tmp_path / str(len(values)), **changes)
    reader = tf.train.load_checkpoint(path)
    values.append(
      {
        name: reader.get_tensor(name).tobytes()
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype.is_floating
      }
    )
  assert len(values[0]) > 8
  assert values[0] == values[1]
  _, lines = trained_by_command(tmp_path / '0', optimize_gradient_memory=True)
  assert not any('optimize_gradient_memory' in line for line in lines)


def test_workers_of_parameter_servers_accept_the_option():
  config = options_lib.build(
    servers.ServerConfig,
    job_name='worker',
    ps_hosts='localhost:1',
    worker_hosts='localhost:2',
    optimize_gradient_memory=True,
  )
  config.validate()
  assert config.devices.optimize_gradient_memory
