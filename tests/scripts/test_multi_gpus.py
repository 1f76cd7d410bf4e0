"""All scripts/run_multi_gpus_*.sh: the settings and names of 2017."""

import pathlib
import re
import shlex

import pytest

from terngrad.config import options
from terngrad.config import training as configs
from tests.cli import starters
from tests.scripts import conftest

# Section 5 of the reference: what each script trains with.
SETTINGS = {
  'lenet': {
    'dataset_name': 'mnist',
    'net': 'lenet',
    'num_gpus': 2,
    'num_nodes': 4,
    'grad_bits': 32,
    'batch_size': 64,
    'max_steps': 10000,
    'save_iter': 200,
  },
  'cifar10': {
    'dataset_name': 'cifar10',
    'net': 'cifar10_alexnet',
    'num_gpus': 2,
    'num_nodes': 2,
    'optimizer': 'adam',
    'grad_bits': 1,
    'clip_factor': 2.5,
    'initial_learning_rate': 0.0002,
    'weight_decay': 0.004,
    'size_to_binarize': 1,
    'quantize_logits': True,
    'batch_size': 128,
    'max_steps': 300000,
    'save_iter': 2000,
    'image_size': 24,
    'seed': 123,
  },
  'cifar10_quick': {
    'net': 'cifar10_alexnet',
    'optimizer': 'momentum',
    'initial_learning_rate': 0.01,
    'learning_rate_decay_type': 'polynomial',
    'max_steps': 80000,
  },
  'alexnet': {
    'dataset_name': 'imagenet',
    'net': 'alexnet',
    'num_gpus': 8,
    'num_nodes': -1,
    'grad_bits': 1,
    'clip_factor': 2.5,
    'initial_learning_rate': 0.04,
    'learning_rate_decay_type': 'exponential',
    'num_epochs_per_decay': 20.0,
    'weight_decay': 0.0005,
    'dropout_keep_prob': 0.8,
    'size_to_binarize': 9217,
    'quantize_logits': False,
    'batch_size': 1024,
    'max_steps': 92500,
    'save_iter': 5000,
  },
  'googlenet': {
    'net': 'googlenet',
    'initial_learning_rate': 0.01,
    'learning_rate_decay_factor': 0.96,
    'num_epochs_per_decay': 8.0,
    'batch_size': 32,
    'max_steps': 10000000,
  },
  'googlenet_quick': {
    'net': 'googlenet',
    'num_gpus': 2,
    'num_nodes': 2,
    'grad_bits': 32,
    'initial_learning_rate': 0.04,
    'learning_rate_decay_type': 'polynomial',
    'weight_decay': 0.00004,
    'dropout_keep_prob': 0.8,
    'batch_size': 128,
    'max_steps': 600000,
  },
  'vggnet': {
    'net': 'vgg_a',
    'num_gpus': 4,
    'initial_learning_rate': 0.01,
    'batch_size': 256,
    'dropout_keep_prob': 0.5,
    'max_steps': 370000,
  },
}
EVALUATION = {
  'lenet': ('test', 100, 1),
  'cifar10': ('test', 50, 10),
  'cifar10_quick': ('test', 50, 10),
  'alexnet': ('validation', 50, 900),
  'googlenet': ('validation', 25, 1800),
  'googlenet_quick': ('validation', 25, 1800),
  'vggnet': ('validation', 50, 900),
}
NAMES = {
  'lenet': 'mnist_lenet_28_momentum_32_0.01_0.0_0_0.0005_0.9_1_64_4_now',
  'cifar10': (
    'cifar10_cifar10_alexnet_24_adam_1_0.0002_2.5_0_0.004_0.9_1_128_2_now'
  ),
  'cifar10_quick': (
    'cifar10_cifar10_alexnet_24_momentum_32_0.01_0.0_0_0.004_0.9_1_128_2_now'
  ),
  'alexnet': (
    'imagenet_alexnet_224_momentum_1_0.04_2.5_0_0.0005_0.9_9217_1024_8_now'
  ),
  'googlenet': (
    'imagenet_googlenet_224_momentum_32_0.01_0.0_0_0.00004_0.9_1_32_2_2_now'
  ),
  'googlenet_quick': (
    'imagenet_googlenet_224_momentum_32_0.04_0.0_0_0.00004_0.9_1_128_2_2_now'
  ),
  'vggnet': (
    'imagenet_vgg_a_224_momentum_32_0.01_0.0_0_0.0005_0.9_1_256_4_now'
  ),
}


def test_every_script_is_tested():
  found = (conftest.ROOT / 'scripts').glob('run_multi_gpus_*.sh')
  names = {path.stem.removeprefix('run_multi_gpus_') for path in found}
  assert names == set(SETTINGS) == set(EVALUATION) == set(NAMES)


@pytest.fixture
def dry_run(project, tmp_path):
  """Returns a function: options of the evaluator and trainer to start, by name.

  The folder for results does not exist.
  """

  def run(name, **variables):
    usual = {
      'PYTHON': '/bin/true',
      'ROOT_WORKSPACE': tmp_path / 'results',
      'RUN_DATE': 'now',
    }
    status, out, err = project.run(
      f'run_multi_gpus_{name}.sh', '--dry_run', **(usual | variables)
    )
    assert (status, err) == (0, '')
    evaluation, training = map(read, out.splitlines())
    assert isinstance(evaluation, configs.EvalConfig)
    assert isinstance(training, configs.TrainConfig)
    return options.by_name(evaluation), options.by_name(training)

  return run


def read(line):
  _, dash_m, module, *words = shlex.split(line)
  assert dash_m == '-m'
  return starters.parse(module, words)


@pytest.mark.parametrize('name', SETTINGS)
def test_script_trains_and_scores_as_in_2017(name, dry_run, tmp_path):
  evaluation, training = dry_run(name)
  expected = SETTINGS[name]
  assert training | expected == training
  assert (
    evaluation['subset'],
    evaluation['batch_size'],
    evaluation['eval_interval_secs'],
  ) == EVALUATION[name]
  for field in ('net', 'image_size', 'max_steps', 'dataset_name', 'data_dir'):
    assert evaluation[field] == training[field]
  assert (evaluation['tower'], evaluation['restore_avg_var']) == (0, True)
  dataset = training['dataset_name']
  folder = tmp_path / 'results'
  assert training['train_dir'] == str(
    folder / f'{dataset}_training_data' / NAMES[name]
  )
  assert evaluation['checkpoint_dir'] == training['train_dir']
  assert evaluation['eval_dir'] == str(
    folder / f'{dataset}_eval_data' / NAMES[name]
  )


def variables_of_usage(project):
  """{'both' or so: variables} that --help lists."""
  _, out, _ = project.run('run_multi_gpus_alexnet.sh', '--help')
  text = out[out.index('Flags, from the environment') :]
  parts = re.split(r'^  (both|trainer|evaluator) ', text, flags=re.MULTILINE)
  found = dict(zip(parts[1::2], parts[2::2], strict=True))
  found['evaluator'] = found['evaluator'].partition('CUDA')[0]
  return {
    who: re.findall(r'\b[A-Z_]+\b', words) for who, words in found.items()
  }


def test_every_variable_of_the_usage_reaches_a_flag(project, dry_run):
  values = {
    'BASE_LR': 0.5,
    'CLIP_FACTOR': 1.5,
    'DROPOUT_KEEP_PROB': 0.25,
    'EVAL_DEVICE': '/gpu:7',
    'LR_DECAY_FACTOR': 0.75,
    'LR_DECAY_TYPE': 'fixed',
    'MOMENTUM': 0.125,
    'NET': 'overfeat',
    'NUM_EPOCHS_PER_DECAY': 3.5,
    'OPTIMIZER': 'gd',
    'QUANTIZE_LOGITS': 'True',
    'RESTORE_AVG_VAR': 'False',
    'WEIGHT_DECAY': 0.375,
  }
  listed = variables_of_usage(project)
  wanted = {
    variable: values.get(variable, 91 + number)
    for number, variable in enumerate(sorted(sum(listed.values(), [])))
  }
  before = dry_run('alexnet')
  after = dry_run('alexnet', **wanted)
  count = len(listed['both'])
  for old, new, variables in zip(
    before,
    after,
    (listed['evaluator'], listed['trainer']),
    strict=True,
  ):
    changed = {str(value) for name, value in new.items() if value != old[name]}
    expected = {str(wanted[v]) for v in (*variables, *listed['both'])}
    assert expected <= changed, expected - changed
    assert count == 2


def test_empty_flag_file_leaves_the_variant_out(dry_run):
  _, training = dry_run('cifar10', TRAIN_FLAGFILE='')
  assert training['grad_bits'] == 32


def test_a_flag_file_without_a_last_newline_names_the_folders(
  dry_run, tmp_path
):
  file = tmp_path / 'my.flags'
  file.write_text('--clip_factor=0.25')
  _, training = dry_run('cifar10', TRAIN_FLAGFILE=file, NUM_NODES=3)
  assert training['clip_factor'] == 0.25
  name = pathlib.Path(training['train_dir']).name
  assert '_0.25_' in name and name.endswith('_3_now')
