"""slim/scripts: what TF-Slim's five recipes start, and one small run."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from terngrad.cli import flags
from terngrad.cli.convert import dataset
from terngrad.cli.slim import evaluate as evaluator
from terngrad.cli.slim import train as trainer
from terngrad.config import options
from tests.bin import programs
from tests.checkpoint import tf1_checkpoints
from tests.slim import archives_made

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / 'slim' / 'scripts').glob('*_on_*.sh'))
RMSPROP = 'rmsprop:momentum=0.9,decay=0.9,epsilon=1.0'


def run(name, *arguments, folder, **variables):
  usual = {'HOME': str(folder), 'PYTHON': sys.executable}
  return subprocess.run(
    [str(ROOT / 'slim' / 'scripts' / f'{name}.sh'), *arguments],
    cwd=folder,
    env=os.environ | usual | {key: str(v) for key, v in variables.items()},
    capture_output=True,
    text=True,
    check=False,
    timeout=3600,
  )


def convert(name, source, folder, **options):
  dataset.act(
    dataset.ConvertDatasetFlags(
      dataset_name=name,
      dataset_dir=str(folder),
      source_dir=str(source),
      verify_checksums=False,
      **options,
    )
  )
  return folder


@pytest.fixture(scope='module')
def flowers(tmp_path_factory):
  """20 real photos, 5 of them for validation."""
  data = os.getenv('TERNGRAD_TEST_DATA')
  if not data:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with flower_photos_small')
  folder = tmp_path_factory.mktemp('flowers')
  counts = {}
  with tarfile.open(pathlib.Path(data) / 'flower_photos_small.tar') as tar:
    for member in tar:
      path = pathlib.PurePosixPath(member.name)
      counts[path.parent] = counts.get(path.parent, 0) + 1
      if path.suffix == '.jpg' and counts[path.parent] <= 4:
        photo = folder / 'photos' / path.parent.name / path.name
        photo.parent.mkdir(parents=True, exist_ok=True)
        photo.write_bytes(tar.extractfile(member).read())
  return convert(
    'flowers', folder / 'photos', folder / 'data', validation_images=5
  )


def commands(name, *arguments, folder):
  """[(module, words)] of a recipe that only prints."""
  done = run(name, '--dry_run', *arguments, folder=folder)
  assert (done.returncode, done.stderr) == (0, '')
  lines = [shlex.split(line) for line in done.stdout.splitlines()]
  assert all(line[:2] == [sys.executable, '-m'] for line in lines)
  return [(line[2], line[3:]) for line in lines]


def trained(name, *arguments, folder):
  """Configurations of the trainings of a recipe."""
  return [
    trainer.to_config(flags.parse(trainer.SlimTrainFlags, {}, words).values)
    for module, words in commands(name, *arguments, folder=folder)
    if module == 'slim.train_image_classifier'
  ]


def received(config, expected):
  said = options.by_name(config) | {'optimizer.name': config.optimizer.name}
  return {name: said[name] for name in expected}


def test_there_are_five_recipes():
  assert len(SCRIPTS) == 5


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda script: script.stem)
def test_data_comes_first_and_every_training_is_scored(script, tmp_path):
  modules = [module for module, _ in commands(script.stem, folder=tmp_path)]
  pair = ['slim.train_image_classifier', 'slim.eval_image_classifier']
  times = 2 if script.stem.startswith('finetune') else 1
  assert modules == ['slim.download_and_convert_data', *pair * times]
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  ('net', 'scopes', 'steps', 'all_rate', 'decay'),
  [
    ('inception_v1', 'InceptionV1/Logits', (3000, 1000), 0.001, 'exponential'),
    (
      'inception_v3',
      'InceptionV3/Logits,InceptionV3/AuxLogits',
      (1000, 500),
      0.0001,
      'fixed',
    ),
    ('resnet_v1_50', 'resnet_v1_50/logits', (3000, 1000), 0.001, 'exponential'),
  ],
)
def test_last_layer_is_trained_and_then_all(
  net, scopes, steps, all_rate, decay, tmp_path
):
  last, whole = trained(f'finetune_{net}_on_flowers', folder=tmp_path)
  same = {
    'dataset_name': 'flowers',
    'net': last.model.net,
    'batch_size': 32,
    'optimizer': RMSPROP,
    'learning_rate_decay_type': decay,
    # Where it decays, by TF-Slim's own defaults.
    'learning_rate_decay_factor': 0.94,
    'num_epochs_per_decay': 2.0,
    'weight_decay': 0.00004,
    'restart_step': True,
  }
  first = {
    'checkpoint_exclude_scopes': scopes,
    'trainable_scopes': scopes,
    'max_steps': steps[0],
    'initial_learning_rate': 0.01,
  }
  then = {
    'pretrained_model_checkpoint_path': last.run.train_dir,
    'checkpoint_exclude_scopes': '',
    'trainable_scopes': '',
    'max_steps': steps[1],
    'initial_learning_rate': all_rate,
  }
  assert received(last, same | first) == same | first
  assert received(whole, same | then) == same | then
  assert last.model.net.removeprefix('slim_') == net


@pytest.mark.parametrize(
  ('script', 'expected'),
  [
    (
      'train_cifarnet_on_cifar10',
      {
        'dataset_name': 'cifar10',
        'net': 'cifarnet',
        'preprocessing': 'cifarnet',
        'max_steps': 100000,
        'batch_size': 128,
        'optimizer.name': 'gd',
        'initial_learning_rate': 0.1,
        'learning_rate_decay_factor': 0.1,
        'num_epochs_per_decay': 200.0,
        'weight_decay': 0.004,
      },
    ),
    (
      'train_lenet_on_mnist',
      {
        'dataset_name': 'mnist',
        'net': 'slim_lenet',
        'preprocessing': 'lenet',
        'max_steps': 20000,
        'batch_size': 50,
        'optimizer.name': 'gd',
        'initial_learning_rate': 0.01,
        'learning_rate_decay_type': 'fixed',
        'weight_decay': 0.0,
      },
    ),
  ],
)
def test_nets_are_trained_from_scratch_as_in_2016(script, expected, tmp_path):
  (config,) = trained(script, folder=tmp_path)
  assert received(config, expected) == expected


def test_extra_flags_reach_every_training(tmp_path):
  words = ('--grad_bits=1', '--max_number_of_steps=7', '--num_clones=2')
  for config in trained(
    'finetune_resnet_v1_50_on_flowers', *words, folder=tmp_path
  ):
    expected = {'grad_bits': 1, 'max_steps': 7, 'num_gpus': 2}
    assert received(config, expected) == expected


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda script: script.stem)
def test_the_trained_model_is_scored(script, tmp_path):
  found = commands(script.stem, folder=tmp_path)[1:]
  for (_, train), (_, score) in zip(found[::2], found[1::2], strict=True):
    of_train = trainer.to_config(
      flags.parse(trainer.SlimTrainFlags, {}, train).values
    )
    of_score = evaluator.to_config(
      flags.parse(evaluator.SlimEvaluateFlags, {}, score).values
    )
    assert of_score.model.net == of_train.model.net
    for field in ('dataset_name', 'data_dir'):
      assert getattr(of_score.data, field) == getattr(of_train.data, field)
    assert f'--checkpoint_path={of_train.run.train_dir}' in score
    split = 'validation' if 'finetune' in script.stem else 'test'
    assert of_score.data.subset == split


def test_missing_checkpoint_is_reported(tmp_path):
  done = run('finetune_inception_v1_on_flowers', folder=tmp_path)
  assert (done.returncode, done.stdout) == (2, '')
  assert (
    'expected: CHECKPOINT: the published one of inception_v1' in done.stderr
  )
  assert 'inception_v1_2016_08_28.tar.gz' in done.stderr


def test_stray_argument_is_refused(tmp_path):
  done = run('train_lenet_on_mnist', 'x[$(touch done)]', folder=tmp_path)
  assert (done.returncode, done.stdout) == (2, '')
  assert 'received: x[$(touch done)]' in done.stderr
  assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_lenet_is_trained_and_scored(small_mnist, tmp_path):
  done = run(
    'train_lenet_on_mnist',
    *('--max_number_of_steps=2', '--batch_size=4', '--grad_bits=1'),
    folder=tmp_path,
    DATA_DIR=small_mnist.folder,
    TRAIN_DIR=tmp_path / 'a run',
    TF_CPP_MIN_LOG_LEVEL=2,
  )
  assert done.returncode == 0, done.stderr
  assert (tmp_path / 'a run' / 'model.ckpt-2.index').exists()
  assert re.search(r'eval/Accuracy\[[01]\.\d{4}\]', done.stdout)


@pytest.mark.slow
def test_cifarnet_is_trained_and_scored(tmp_path):
  (tmp_path / 'source').mkdir()
  archive = archives_made.cifar_binary(archives_made.cifar())
  (tmp_path / 'source' / 'cifar-10-binary.tar.gz').write_bytes(archive)
  done = run(
    'train_cifarnet_on_cifar10',
    *('--max_number_of_steps=2', '--batch_size=4', '--grad_bits=1'),
    folder=tmp_path,
    DATA_DIR=convert('cifar10', tmp_path / 'source', tmp_path / 'data'),
    TRAIN_DIR=tmp_path / 'run',
    TF_CPP_MIN_LOG_LEVEL=2,
  )
  assert done.returncode == 0, done.stderr
  assert programs.checkpoint_steps(tmp_path / 'run') == [2]
  assert re.search(r'eval/Accuracy\[[01]\.\d{4}\]', done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('net', 'classes', 'first', 'root'),
  [
    ('inception_v1', 1001, 'conv2d_1a_7x7', 'InceptionV1/Conv2d_1a_7x7'),
    ('slim_inception_v3', 1001, 'conv2d_1a_3x3', 'InceptionV3/Conv2d_1a_3x3'),
    ('resnet_v1_50', 1000, 'conv1', 'resnet_v1_50/conv1'),
  ],
)
def test_recipe_fine_tunes_what_tf_slim_published(
  net, classes, first, root, flowers, tmp_path
):
  values = tf1_checkpoints.of_slim(net, classes)
  done = run(
    f'finetune_{net.removeprefix("slim_")}_on_flowers',
    *('--max_number_of_steps=2', '--batch_size=2', '--grad_bits=1'),
    folder=tmp_path,
    CHECKPOINT=tf1_checkpoints.write(tmp_path / 'published.ckpt', values),
    DATA_DIR=flowers,
    TRAIN_DIR=tmp_path / 'run',
    TF_CPP_MIN_LOG_LEVEL=2,
  )
  assert done.returncode == 0, done.stderr
  last, whole = (
    tmp_path / folder / 'model.ckpt-2' for folder in ('run', 'run/all')
  )
  # The last layer is new, and what stands before it is trained in part two.
  assert programs.variable(last, 0, 'logits/bias').size == 5
  kernels = [programs.variable(p, 0, f'{first}/kernel') for p in (last, whole)]
  np.testing.assert_array_equal(kernels[0], values[f'{root}/weights'])
  assert np.any(kernels[1] != kernels[0])
  scores = re.findall(r'^eval/Accuracy\[[01]\.\d{4}\]', done.stdout, re.M)
  assert len(scores) == 2
  assert done.stdout.count('[5 examples]') == 2
