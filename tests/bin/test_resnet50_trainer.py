"""`resnet50_trainer`: a run from a database, its lines and its log."""

import contextlib
import re

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from slim.datasets import examples
from slim.datasets import write_db
from terngrad.cli import ports
from tests.bin import clusters
from tests.bin import programs

COUNTS = {'cars_train_lmdb': 24, 'cars_test_lmdb': 10}
LOG = re.compile(r'lenet_gpu(\d)_b(\d+)_L2_lr0\.05_v2_\d{8}_\d{6}.log')
# 24 examples, 8 a step: an epoch is of three steps.
OPTIONS = (
  *('--net=lenet', '--image_size=32', '--epoch_size=24'),
  *('--num_labels=2', '--num_epochs=2', '--base_learning_rate=0.05'),
  # The net has no batch normalisation.
  *('--codec=ternary', '--batch_norm_decay=-1'),
)


def stored(number):
  """A dark or a bright image."""
  rng = np.random.default_rng(number)
  bright = 120 * (number % 2)
  pixels = bright + rng.integers(0, 100, (40, 36, 3)).astype(np.uint8)
  return examples.Stored(
    encoded=tf.io.encode_png(pixels),
    image_format=tf.constant(b''),
    size=tf.constant([-1, -1]),
    boxes=tf.zeros([0, 4]),
    label=tf.constant(number % 2, tf.int64),
  )


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """A folder with a database of training and one of test images."""
  folder = tmp_path_factory.mktemp('databases')
  for name, count in COUNTS.items():
    columns = [
      tf.stack(column)
      for column in zip(*(stored(n) for n in range(count)), strict=True)
    ]
    stream = tf.data.Dataset.from_tensor_slices(examples.Stored(*columns))
    write_db.write(write_db.Images(count, None, stream), folder / name)
  return folder


def arguments(data, train_dir, *more):
  return [
    f'--train_data={data / "cars_train_lmdb"}',
    f'--test_data={data / "cars_test_lmdb"}',
    *([f'--train_dir={train_dir}'] if train_dir else []),
    *OPTIONS,
    *more,
  ]


def log_of(train_dir):
  (path,) = train_dir.glob('*.log')
  return path


@pytest.fixture(scope='module')
def trained(worker, data, tmp_path_factory):
  """(folder, what was printed) of two epochs on two devices."""
  folder = tmp_path_factory.mktemp('resnet') / 'train'
  words = arguments(data, folder, '--num_gpus=2', '--batch_size=8')
  caffe2 = ['--use_cpu', '--enable_tensor_core', '--save_model_name=cars']
  finished = worker.run('resnet50_trainer', [*words, *caffe2])
  assert finished.code == 0, finished.err
  return folder, finished.out


def test_the_log_is_a_table_of_the_epochs(trained):
  folder, _ = trained
  path = log_of(folder)
  assert LOG.fullmatch(path.name).groups() == ('2', '8')
  table = pd.read_csv(path, comment='#')
  assert list(table['epoch']) == [1, 2]
  assert list(table['cumulative_batch_count']) == [3, 6]
  assert list(table['input_count']) == [24, 24]
  scores = [r for r in programs.metrics(folder) if 'epoch' in r]
  assert list(table['test_accuracy']) == [
    r['cars_test_lmdb_precision_at_1'] for r in scores
  ]
  assert (table['time_spent'] > 0).all() and (table['loss'] > 0).all()
  assert table['accuracy'].between(0, 1).all()
  first = path.read_text().splitlines()[0]
  assert first.startswith('# {') and '"num_labels": 2' in first


def test_log_lines_have_iteration_epoch_and_images_per_second(trained):
  _, printed = trained
  assert re.search(
    r'Finished iteration 3/3 \(epoch 2/2\) \(\d+\.\d\d images/sec; '
    r'loss = \d+\.\d{3}; accuracy = \d\.\d{3}; 1\.\d\d bits/element\)',
    printed,
  )
  assert re.search(r'epoch 2 ended in step 6, loss = .*cars_test_lmdb', printed)


def test_the_net_is_also_written_under_the_name_of_caffe2_s_flag(trained):
  folder, printed = trained
  assert printed.count(' has no effect: ') == 1
  assert f'{folder / "cars.keras"}: lenet after 6 steps' in printed
  model = keras.models.load_model(folder / 'cars.keras', compile=False)
  assert model.output_shape == (None, 2)


def test_devices_end_at_equal_parameters(trained):
  folder, _ = trained
  found = programs.tensors(folder / 'model.ckpt-6')
  first, second = (
    {
      name.removeprefix(tower): value
      for name, value in found.items()
      if name.startswith(tower)
    }
    for tower in ('tower_0/', 'tower_1/')
  )
  assert first == second and first


@pytest.mark.slow
def test_a_run_continues_its_log(worker, data, tmp_path, trained):
  words = arguments(data, tmp_path / 'train', '--num_gpus=2', '--batch_size=8')
  for epochs in (1, 2):
    finished = worker.run(
      'resnet50_trainer', [*words, f'--num_epochs={epochs}']
    )
    assert finished.code == 0, finished.err
  keep = [
    'epoch',
    'cumulative_batch_count',
    'loss',
    'accuracy',
    'test_accuracy',
  ]
  received, expected = (
    pd.read_csv(log_of(folder), comment='#')[keep]
    for folder in (tmp_path / 'train', trained[0])
  )
  pd.testing.assert_frame_equal(received, expected, check_exact=True)


def test_another_kind_of_database_is_refused(worker, data, tmp_path):
  words = arguments(data, tmp_path / 'train', '--db_type=leveldb')
  finished = worker.run('resnet50_trainer', words)
  assert finished.code == 2
  assert '--db_type: expected lmdb' in finished.err
  assert not (tmp_path / 'train').exists()


def shards(data, train_dir, *rendezvous, second=()):
  """Both processes of a run on this machine, not yet waited for.

  They have the same flags but for their number: no port or address of one.
  """
  port = clusters.pair()
  return [
    programs.Program(
      'resnet50_trainer',
      arguments(
        *(data, '' if shard else train_dir, '--batch_size=4'),
        *(
          '--num_shards=2',
          f'--shard_id={shard}',
          '--run_id=a-run',
          *rendezvous,
        ),
        *('--allow_insecure_network', f'--cluster_port={port}'),
        *('--start_timeout=600', *(second if shard else ())),
      ),
    )
    for shard in range(2)
  ]


@contextlib.contextmanager
def rendezvous_of(kind, folder):
  """(flags of a rendezvous, a function that ends it)."""
  if kind == 'folder':
    yield [f'--file_store_path={folder / "store"}'], lambda: None
    return
  from tests.cluster import test_redis_rendezvous as redis_servers

  (port,) = ports.free(1)
  with redis_servers.serving(folder, '--port', str(port)) as (process, _):
    yield ['--redis_host=127.0.0.1', f'--redis_port={port}'], process.kill


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize('codec', ['identity', 'ternary'])
@pytest.mark.parametrize('kind', ['folder', 'redis'])
def test_shards_that_meet_end_at_the_parameters_of_devices(
  worker, data, tmp_path, kind, codec
):
  """A Redis server is killed when they have met."""
  alone = tmp_path / 'alone'
  words = arguments(data, alone, '--num_gpus=2', '--batch_size=8')
  done = worker.run('resnet50_trainer', [*words, f'--codec={codec}'])
  assert done.code == 0, done.err
  with rendezvous_of(kind, tmp_path) as (rendezvous, end_it):
    train_dir = tmp_path / 'train'
    first, second = shards(data, train_dir, *rendezvous, f'--codec={codec}')
    with first, second:
      first.read_until('Finished iteration 3/3 .epoch 1/2')
      end_it()
      for program in (first, second):
        done = program.wait()
        assert done.code == 0, done.err
  expected = programs.tensors(alone / 'model.ckpt-6')
  received = programs.tensors(train_dir / 'model.ckpt-6')
  names = [name for name in expected if name.startswith('tower_0/')]
  assert {n: received[n] for n in names} == {n: expected[n] for n in names}
  assert len(pd.read_csv(log_of(train_dir), comment='#')) == 2


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize('kind', ['folder', 'redis'])
def test_a_shard_that_fails_ends_the_other_with_its_error(data, tmp_path, kind):
  with rendezvous_of(kind, tmp_path) as (rendezvous, _):
    train_dir = tmp_path / 'train'
    first, second = shards(
      data, train_dir, *rendezvous, second=['--db_type=leveldb']
    )
    with first, second:
      for program in (second, first):
        done = program.wait()
        assert done.code == 2, done.err
        assert '--db_type: expected lmdb' in done.error
  assert 'received a failure of process 1: ' in done.error
  assert not train_dir.exists()
