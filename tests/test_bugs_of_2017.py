"""Tests for bugs of the 2017 code that no other test covers, by number.

docs/bugs_of_2017.md lists all of them.
"""

import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from slim.datasets import catalog
from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from slim.preprocessing import factory as preprocessing
from terngrad.checkpoint import checkpoints
from terngrad.cluster import devices
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.exchange import towers
from terngrad.reduce import bucketing
from terngrad.step import model_variables
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.training import assembly
from terngrad.training import meter
from terngrad.training import records
from terngrad.training import start
from tests.cli import starters
from tests.codec import one_round
from tests.slim import mnist_files
from tests.step import small

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = re.findall(
  r'^\| (B\d+) \| .* \| (`.*`) \|$',
  (ROOT / 'docs' / 'bugs_of_2017.md').read_text(encoding='utf-8'),
  re.MULTILINE,
)


def test_every_bug_has_its_line():
  assert [bug for bug, _ in TABLE] == [f'B{n}' for n in range(1, 24)]


@pytest.mark.parametrize(('bug', 'held_by'), TABLE, ids=[b for b, _ in TABLE])
def test_tests_of_the_table_exist(bug, held_by):
  for name in re.findall(r'`([^`]+)`', held_by):
    path, _, function = name.partition('::')
    source = (ROOT / path).read_text(encoding='utf-8')
    assert re.search(rf'^ *def {function}\(', source, re.MULTILINE), name
    if path == 'tests/test_bugs_of_2017.py':
      assert function.startswith(f'test_{bug.lower()}_')


@pytest.fixture(scope='module')
def mnist(tmp_path_factory):
  """Eight training examples."""
  folder = tmp_path_factory.mktemp('mnist')
  mnist_files.write_idx(folder / 'idx', train=8, test=4)
  convert_mnist.convert(
    str(folder / 'data'),
    source='idx',
    request=mnist_source.SourceOptions(
      str(folder / 'idx'), verify_checksums=False
    ),
  )
  return str(folder / 'data')


def lenet(**options):
  usual = {'dataset_name': 'mnist', 'net': 'lenet', 'image_size': 28}
  return options_lib.build(configs.TrainConfig, **(usual | options))


@pytest.mark.slow
def test_b1_floating_grad_epoch_sends_floats_in_its_epochs(mnist, tmp_path):
  """Two steps an epoch, every second epoch in float32."""
  config = lenet(
    data_dir=mnist,
    train_dir=str(tmp_path / 'train'),
    batch_size=4,
    max_steps=4,
    save_iter=1,
    grad_bits=1,
    quantize_logits=True,
    floating_grad_epoch=2,
  )
  start.train(config, lambda line: None)
  sent = [
    record['bits_per_element']
    for record in records.read(config.run.train_dir)
    if 'bits_per_element' in record
  ]
  np.testing.assert_allclose(sent, [1.6, 1.6, 32, 32], rtol=0.01)


def test_b2_replicas_start_equal_even_without_seeds():
  model = keras.Sequential([keras.Input([3]), keras.layers.Dense(5)])
  copies = replicas.create(
    model_variables.variables_of(model),
    optimizers.GradientDescent(),
    ('/CPU:0', '/CPU:1'),
  )
  first, second = (copy.trainable[0].numpy() for copy in copies)
  assert np.ptp(first) > 0
  np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
  ('gradient', 'scaler'),
  [
    # Not c sigma = 0, which would never let it learn.
    ([0.25] * 9, 0.25),
    # Not c sigma = 2.5: no element is as large.
    ([-1.0, 1.0] * 8, 1.0),
    # c sigma: 10 of 100 elements, so that sigma is 0.3 about the mean 0.1.
    ([1.0] * 10 + [0.0] * 90, 0.75),
  ],
)
def test_b4_scaler_is_the_papers_and_constant_gradients_learn(gradient, scaler):
  code = registry.parse('ternary:clip_factor=2.5')
  spec = policy.VariableSpec('w', (len(gradient),))
  codec = bucketing.gradient_codec([spec], [code])
  probe = one_round.probe(codec, [tf.constant(gradient)])
  np.testing.assert_allclose(probe, [scaler], rtol=1e-6)


def test_b8_save_tower_1_is_not_tower_10(tmp_path):
  places = ['/CPU:0'] * 12
  training = small.Training(small.dense_net, devices=1, workers=1)
  copies = replicas.create(training.plan, training.optimizer, places)
  (place,) = {towers.Towers(places, 12).device_of(1)}
  layout = checkpoints.Layout('small', 5, 'momentum', 12, 12, [place], 9)
  names = replicas.variable_names(training.plan, copies[0])
  path = checkpoints.Writer(str(tmp_path), layout, copies, names).save(1)
  stored = tf.train.load_checkpoint(path).get_variable_to_shape_map()
  found = {
    re.match(r'tower_\d+', n)[0] for n in stored if n.startswith('tower')
  }
  assert found == {'tower_1'}


def test_b9_logged_loss_is_the_mean_over_the_nodes():
  gauge = meter.Meter(schedules.Epochs(100, 8), {})
  gauge.add(
    steps.StepResult(
      entropy=tf.constant([1.0, 5.0]),
      accuracy=tf.constant([0.0, 0.5]),
      probes=tf.zeros([2, 3]),
      shared=tf.zeros([3]),
      words=[],
      sent=tf.constant([4, 4]),
      stop=tf.constant(0.0),
    )
  )
  values = gauge.values(10, 0.1, 0.5)
  assert (values['entropy_loss'], values['total_loss']) == (3.0, 3.5)
  assert 'entropy_loss = 3.00' in meter.log_line(1, values)


def test_b12_flowers_is_a_separate_data_set_with_six_logits():
  for program in ('flowers_train', 'flowers_eval'):
    found = starters.command(f'terngrad.bin.{program}')
    assert found.defaults['dataset_name'] == 'flowers'
  assert catalog.DATASETS['flowers'].num_classes == 6
  # Photographs all the same: a net chooses as it does for ImageNet.
  for net in ('alexnet', 'vgg_a', 'inception_v3'):
    flowers, imagenet = (
      preprocessing.default_name(catalog.DATASETS[name].preprocessing, net)
      for name in ('flowers', 'imagenet')
    )
    assert flowers == imagenet


def test_b13_benchmark_mode_has_the_data_sets_channels_and_all_classes():
  config = lenet(benchmark_mode=True, batch_size=400, num_nodes=2)
  images, labels = next(assembly.assemble(config).batches(0))
  assert images.shape == (2, 200, 28, 28, 1)
  assert set(labels.numpy().ravel()) == set(range(10))


@pytest.mark.parametrize('encoding', [False, True])
@pytest.mark.parametrize('logits', [False, True])
def test_b15_only_quantize_logits_decides_how_logits_are_sent(logits, encoding):
  config = lenet(
    benchmark_mode=True,
    grad_bits=1,
    quantize_logits=logits,
    use_encoding=encoding,
  )
  run = assembly.assemble(config)
  # LeNet's logits: 500 x 10 weights and 10 biases.
  elements = run.codec.num_elements
  coded = elements if logits else elements - 5010
  bits = 1.6 * coded + 32 * (elements - coded)
  sent = 32 * run.codec.num_words
  assert bits <= sent <= bits + 8 * 32


@pytest.mark.parametrize(
  ('gpus', 'count', 'expected'),
  [
    (['a'], 3, ('/GPU:0', '/GPU:0', '/GPU:0')),
    (['a', 'b'], 3, ('/GPU:0', '/GPU:1', '/GPU:0')),
    (['a', 'b'], 1, ('/GPU:0',)),
    ([], 2, ('/CPU:0', '/CPU:1')),
  ],
)
def test_b19_any_number_of_devices_is_served(
  gpus, count, expected, monkeypatch
):
  monkeypatch.setattr(devices, 'grow_memory', lambda: gpus)
  assert devices.tower_devices(count) == expected
  # An evaluator that finds no GPU beside the trainer goes to the CPU.
  assert devices.evaluation_device('/gpu:99') == '/CPU:0'


def test_b22_nodes_do_not_multiply_the_readers(mnist):
  """A step is read as one batch, whatever the number of nodes and threads."""

  def first_of(**options):
    config = lenet(data_dir=mnist, batch_size=8, **options)
    return next(assembly.assemble(config).batches(0))

  images, labels = first_of(num_nodes=1)
  many, those = first_of(num_nodes=4, num_preprocess_threads=64, num_readers=9)
  assert many.shape[:2] == (4, 2)
  np.testing.assert_array_equal(tf.reshape(many, images.shape), images)
  np.testing.assert_array_equal(tf.reshape(those, labels.shape), labels)
