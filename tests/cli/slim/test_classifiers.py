"""TF-Slim's trainer and evaluator: what their flags mean, and one small run."""

import operator
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from terngrad.cli import flags
from terngrad.cli.slim import evaluate as evaluator
from terngrad.cli.slim import train as trainer
from terngrad.config import options
from terngrad.config import servers
from tests.bin import clusters
from tests.bin import programs
from tests.slim import mnist_files

ROOT = pathlib.Path(__file__).resolve().parents[3]


def train_config(line):
  words = ['--dataset_dir=/d', *shlex.split(line)]
  values = flags.parse(trainer.SlimTrainFlags, {}, words).values
  return trainer.to_config(values)


def eval_config(line):
  words = ['--dataset_dir=/d', *shlex.split(line)]
  values = flags.parse(evaluator.SlimEvaluateFlags, {}, words).values
  return evaluator.to_config(values)


LENET = '--model_name=lenet '


def received(config, expected):
  """Options by their names, what follows from them by where it is."""
  said = options.by_name(config)
  return {
    name: said[name] if name in said else operator.attrgetter(name)(config)
    for name in expected
  }


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    # The two recipes of slim/scripts that train from scratch.
    (
      """--train_dir=/t --dataset_name=cifar10 --dataset_split_name=train
      --max_number_of_steps=100000 --batch_size=128 --save_interval_secs=120
      --save_summaries_secs=120 --log_every_n_steps=100 --optimizer=sgd
      --learning_rate=0.1 --learning_rate_decay_factor=0.1
      --num_epochs_per_decay=200 --weight_decay=0.004""",
      {
        'train_dir': '/t',
        'data_dir': '/d',
        'subset': 'train',
        'max_steps': 100000,
        'batch_size': 128,
        'optimizer.name': 'gd',
        'initial_learning_rate': 0.1,
        'weight_decay': 0.004,
      },
    ),
    (
      """--dataset_name=mnist --max_number_of_steps=20000 --batch_size=50
      --learning_rate=0.01 --learning_rate_decay_type=fixed --optimizer=sgd
      --weight_decay=0""",
      {'learning_rate_decay_type': 'fixed', 'weight_decay': 0.0},
    ),
    # TF-Slim's own defaults.
    (
      '',
      {
        'dataset_name': 'imagenet',
        'optimizer': 'rmsprop:momentum=0.9,decay=0.9,epsilon=1.0',
        'learning_rate_decay_factor': 0.94,
        'num_epochs_per_decay': 2.0,
        'weight_decay': 0.00004,
        'moving_average_decay': 0.9999,
        'max_steps': 2**31 - 1,
        'image_size': 28,
        'num_workers': 1,
        'grad_bits': 32,
      },
    ),
    # The recipes that fine-tune on flowers: the last layer, then all.
    (
      """--checkpoint_path=/c/inception_v3.ckpt --max_number_of_steps=1000
      --checkpoint_exclude_scopes=InceptionV3/Logits,InceptionV3/AuxLogits
      --trainable_scopes=InceptionV3/Logits,InceptionV3/AuxLogits
      --learning_rate=0.01 --learning_rate_decay_type=fixed
      --optimizer=rmsprop --ignore_missing_vars False""",
      {
        'pretrained_model_checkpoint_path': '/c/inception_v3.ckpt',
        'trainable_scopes': 'InceptionV3/Logits,InceptionV3/AuxLogits',
        'checkpoint_exclude_scopes': (
          'InceptionV3/Logits,InceptionV3/AuxLogits'
        ),
        'restart_step': True,
        'fine_tune': False,
      },
    ),
    # A batch is that of a clone.
    (
      '--num_clones 2 --batch_size 32 --clone_on_cpu True '
      '--train_image_size 20',
      {'num_workers': 2, 'num_gpus': 2, 'batch_size': 64, 'image_size': 20},
    ),
    ('--num_clones=2 --num_nodes=4', {'num_workers': 4, 'batch_size': 64}),
    (
      '--grad_bits 1 --clip_factor 2.5 --quantize_logits True',
      {'grad_bits': 1, 'clip_factor': 2.5, 'quantize_logits': True},
    ),
    (
      '--learning_rate_decay_type=polynomial --moving_average_decay=0.99',
      {
        'learning_rate_decay_type': 'linear',
        'end_learning_rate': 0.0001,
        'moving_average_decay': 0.99,
      },
    ),
    (
      '--optimizer=adam --adam_beta1=0.8 --opt_epsilon=0.1 --labels_offset=1',
      {
        'optimizer': 'adam:beta1=0.8,beta2=0.999,epsilon=0.1',
        'decay_adam': True,
        'labels_offset': 1,
      },
    ),
  ],
)
def test_flags_of_tf_slim_set_the_configuration(line, expected):
  config = train_config(LENET + line)
  assert received(config, expected) == expected
  config.validate()


@pytest.mark.parametrize('optimizer', trainer._OPTIMIZERS)
def test_every_optimizer_of_tf_slim_is_supported(optimizer):
  train_config(f'{LENET} --optimizer={optimizer}').validate()


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    (
      '',
      {
        'batch_size': 100,
        'subset': 'test',
        'run_once': True,
        'restore_avg_var': False,
        'num_examples': 2**31 - 1,
      },
    ),
    (
      """--checkpoint_path=/c --eval_dir=/c --max_num_batches=3 --batch_size=7
      --moving_average_decay=0.999 --eval_image_size=20""",
      {
        'checkpoint_dir': '/c',
        'eval_dir': '/c/eval',
        'num_examples': 21,
        'restore_avg_var': True,
        'image_size': 20,
      },
    ),
  ],
)
def test_flags_of_the_evaluator_set_the_configuration(line, expected):
  config = eval_config(LENET + line)
  assert received(config, expected) == expected
  config.validate()


@pytest.mark.parametrize(
  ('line', 'given'),
  [
    ('', set()),
    ('--eval_image_size=28', {'image_size'}),
    ('--preprocessing_name=lenet', {'preprocessing'}),
  ],
)
def test_defaults_of_the_net_yield_to_what_the_training_had(line, given):
  config = eval_config(LENET + line)
  asked = {'image_size', 'preprocessing', 'net', 'max_steps'}
  assert {name for name in asked if config.is_given(name)} == (
    given | {'net', 'max_steps'}
  )
  expected = {'image_size': 28, 'preprocessing': 'lenet'}
  assert received(config, expected) == expected


@pytest.mark.parametrize('eval_dir', [None, '.'])
def test_scores_of_one_checkpoint_are_not_written_into_its_folder(
  eval_dir, tmp_path
):
  (tmp_path / 'model.ckpt-2.index').touch()
  line = f'--checkpoint_path={tmp_path}/model.ckpt-2'
  if eval_dir:
    line += f' --eval_dir={tmp_path}'
  config = eval_config(f'{LENET} {line}')
  expected = {'eval_dir': f'{tmp_path}/eval'}
  assert received(config, expected) == expected
  config.validate()


WORKERS = '--worker_hosts=localhost:2,localhost:3 --worker_replicas=2 '
SERVERS = f'--ps_hosts=localhost:1 --num_ps_tasks=1 {WORKERS}'
SYNC = '--sync_replicas --replicas_to_aggregate=2 '


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    (
      f'{SERVERS} {SYNC} --task=1 --num_clones=2 --save_interval_secs=7',
      {'sync': True, 'task_id': 1, 'job_name': 'worker', 'batch_size': 8}
      | {'num_workers': 2, 'save_interval_secs': 7, 'cluster.aggregate': 2},
    ),
    (
      f'{SERVERS} --sync_replicas --replicas_to_aggregate=1',
      {'sync': True, 'cluster.aggregate': 1, 'cluster.waits_for_all': False},
    ),
    (
      f'{SERVERS} --job_name=ps',
      {'sync': False, 'job_name': 'ps', 'cluster.aggregate': 1},
    ),
    (
      f'{WORKERS} {SYNC} --task=1 --num_clones=2',
      {
        'exchange': 'collective',
        'task_id': 1,
        'cluster.num_processes': 2,
      }
      | {'num_workers': 4, 'batch_size': 16},
    ),
    (
      '--sync_replicas=True --num_clones=2',
      {'exchange': 'towers', 'num_workers': 2, 'batch_size': 8},
    ),
  ],
)
def test_tasks_of_tf_slim_become_those_of_servers_or_collectives(
  line, expected
):
  config = train_config(f'{LENET} --batch_size=4 {line}')
  assert received(config, expected) == expected
  config.validate()
  assert isinstance(config, servers.ServerConfig) == ('sync' in expected)
  if 'sync' in expected:
    count = config.cluster.aggregate
    assert config.per_update().data.batch_size == count * config.data.batch_size


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    (
      '--master=grpc://host:1',
      "master: expected nothing, .* received 'grpc://host:1'.* give every task "
      '--worker_hosts, --ps_hosts, --job_name and --task',
    ),
    (
      '--num_ps_tasks=1 --worker_replicas=1',
      'ps_hosts: expected host:port,host:port, received nothing. Give every',
    ),
    (
      f'{SERVERS} --num_ps_tasks=2',
      'num_ps_tasks: expected 1, the number of hosts in --ps_hosts; received 2',
    ),
    (
      f'{SERVERS} --worker_replicas=3',
      'worker_replicas: expected 2, the number of hosts in --worker_hosts; '
      'received 3',
    ),
    (
      f'{WORKERS} {SYNC} --worker_replicas=3 --replicas_to_aggregate=3',
      'worker_replicas: expected 2, the number of hosts in --worker_hosts; '
      'received 3',
    ),
    (
      f'{SERVERS} --task=2',
      'task: expected a worker task from 0 to 1, received 2. Set --task to the '
      'index of this host in --worker_hosts',
    ),
    (f'{SERVERS} --job_name=ps --task=1', 'a ps task from 0 to 0, received 1'),
    (
      f'{WORKERS} --sync_replicas',
      'replicas_to_aggregate: expected all 2 of --worker_replicas, .* received '
      '1. Use --replicas_to_aggregate=2',
    ),
    (
      '--replicas_to_aggregate=2',
      'replicas_to_aggregate: expected all 1 of --worker_replicas',
    ),
    (
      f'{WORKERS} --replicas_to_aggregate=2',
      'sync_replicas: expected True for --worker_replicas=2 without parameter '
      'servers, .* --num_ps_tasks=1',
    ),
    (
      '--task=1',
      'task: expected it to be left out of a run on one machine, received 1. '
      'Give .* by --worker_replicas and --num_ps_tasks; use --num_clones',
    ),
    ('--worker_hosts=localhost:1', 'worker_hosts: expected it to be left out'),
    ('--worker_replicas=0', 'worker_replicas: expected a number >= 1'),
    ('--num_ps_tasks=-1', 'num_ps_tasks: expected a number >= 0'),
  ],
)
def test_invalid_tasks_are_refused_with_a_remedy(line, message):
  with pytest.raises(ValueError, match=message):
    train_config(LENET + line)


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('--optimizer=gd', 'optimizer: expected one of .*sgd'),
    ('--dataset_dir=', 'dataset_dir: expected the folder'),
    ('--recipe=diloco', '--recipe: expected a flag of this program'),
    ('--model_name=lenett', "did you mean 'lenet'"),
  ],
)
def test_invalid_flags_are_refused(line, message):
  with pytest.raises(ValueError, match=message):
    train_config(LENET + line)


def test_net_without_preprocessing_asks_for_one():
  with pytest.raises(flags.UsageError, match='preprocessing_name: .*cifarnet'):
    train_config('--model_name=overfeat')


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    (
      '--model_name=lenet',
      {'net': 'slim_lenet', 'preprocessing': 'lenet', 'image_size': 28},
    ),
    ('', {'net': 'slim_inception_v3', 'image_size': 299}),
    (
      '--model_name=resnet_v1_50 --dropout_keep_prob=0.3',
      {'preprocessing': 'vgg', 'dropout_keep_prob': 0.3},
    ),
  ],
)
def test_net_of_tf_slim_has_its_default_size_and_preprocessing(line, expected):
  config = train_config(line)
  assert received(config, expected) == expected


@pytest.fixture
def mnist(tmp_path):
  mnist_files.write_idx(tmp_path / 'idx')
  convert_mnist.convert(
    str(tmp_path / 'mnist'),
    source='idx',
    request=mnist_source.SourceOptions(
      str(tmp_path / 'idx'), verify_checksums=False
    ),
  )
  return tmp_path / 'mnist'


def run_arguments(mnist, tmp_path):
  both = ['--dataset_name=mnist', f'--dataset_dir={mnist}', *LENET.split()]
  train = [
    *(*both, f'--train_dir={tmp_path / "model"}', '--num_clones', '2'),
    *('--batch_size=4', '--max_number_of_steps=2', '--optimizer=sgd'),
    *('--grad_bits', '1'),
  ]
  model = tmp_path / 'model'
  return train, [*both, f'--checkpoint_path={model}', f'--eval_dir={model}']


@pytest.mark.slow
def test_trains_and_scores(mnist, tmp_path, capsys):
  train, score = run_arguments(mnist, tmp_path)
  values = flags.parse(trainer.SlimTrainFlags, {}, train).values
  assert trainer.train(values) == 0
  values = flags.parse(evaluator.SlimEvaluateFlags, {}, score).values
  evaluator.score(values)
  out = capsys.readouterr().out
  assert '[11 examples]' in out
  assert re.search(r'^eval/Accuracy\[[01]\.\d{4}\] eval/Recall_5\[', out, re.M)


@pytest.mark.slow
def test_both_programs_of_2017_start_in_the_slim_folder(mnist, tmp_path):
  for program, arguments in zip(
    ('train', 'eval'), run_arguments(mnist, tmp_path), strict=True
  ):
    done = subprocess.run(
      [sys.executable, f'{program}_image_classifier.py', *arguments]
      + ['--clone_on_cpu', 'True'] * (program == 'train'),
      cwd=ROOT / 'slim',
      capture_output=True,
      text=True,
      timeout=300,
      check=False,
    )
    assert done.returncode == 0, done.stderr
  assert 'eval/Accuracy[' in done.stdout


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('num_ps', [1, 0])
def test_two_workers_train_with_servers_and_with_collectives(
  num_ps, mnist, tmp_path
):
  train, _ = run_arguments(mnist, tmp_path)
  arguments = [
    *train,
    *('--num_clones=1', f'--num_ps_tasks={num_ps}', '--worker_replicas=2'),
    *('--sync_replicas', '--replicas_to_aggregate=2', '--start_timeout=200'),
  ]
  clusters.complete(
    num_ps, 2, arguments, 'slim.train_image_classifier', task_flag='task'
  )
  assert programs.checkpoint_steps(tmp_path / 'model') == [2]
