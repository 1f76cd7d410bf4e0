"""Caffe2's flags, and the runs that they describe."""

import os

import pytest

from terngrad import errors
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli.trainers import caffe2_flags
from terngrad.cli.trainers import resnet50
from terngrad.config import cluster as clusters
from terngrad.config import options
from terngrad.recipes import catalog
from tests.cli import starters

STARTER = 'terngrad.bin.resnet50_trainer'
# Flags and defaults of the original.
FLAGS = {
  'train_data': '',
  'test_data': '',
  'db_type': 'lmdb',
  'gpus': '',
  'num_gpus': 1,
  'num_channels': 3,
  'image_size': 227,
  'num_labels': 1000,
  'batch_size': 32,
  'epoch_size': 1500000,
  'num_epochs': 1000,
  'base_learning_rate': 0.1,
  'weight_decay': 1e-4,
  'num_shards': 1,
  'shard_id': 0,
  'run_id': '',
  'redis_host': '',
  'redis_port': 6379,
  'file_store_path': '',
}


def config_of(*words):
  words = ['--train_data=/d/cars_train_lmdb', *words]
  return resnet50.to_config(starters.parse(STARTER, words))


def test_flags_and_defaults_are_those_of_the_original():
  values = starters.parse(STARTER, [])
  assert {name: getattr(values, name) for name in FLAGS} == FLAGS


def test_the_constants_of_training_are_those_of_the_original():
  config = config_of()
  assert config.model.net == 'resnet_v1_50'
  assert config.optimizer.optimizer == 'nesterov:momentum=0.9'
  assert config.optimizer.learning_rate_decay_type == 'exponential'
  assert config.optimizer.learning_rate_decay_factor == 0.1
  assert config.optimizer.num_epochs_per_decay == 30
  assert config.data.preprocessing == 'caffe2'
  assert config.model.batch_norm_decay == 0.9


def test_the_path_of_a_database_becomes_folder_and_subset():
  config = config_of('--test_data=/d/cars_test_lmdb', '--num_labels=2')
  assert config.data.dataset_name == 'image_db'
  assert (config.data.data_dir, config.data.subset) == ('/d', 'cars_train_lmdb')
  assert config.run.eval_subsets == ('cars_test_lmdb',)
  assert config.data.num_classes == 2
  config = config_of('--test_data=/e/cars_test_lmdb/')
  (scored,) = config.run.eval_subsets
  assert os.path.normpath(os.path.join('/d', scored)) == '/e/cars_test_lmdb'


def test_record_files_are_named_by_their_prefix():
  config = config_of('--db_type=tfrecord', '--test_data=/d/validation')
  assert config.data.dataset_name == 'images'
  assert config.run.eval_subsets == ('validation',)
  assert config.data.num_classes == 0
  with pytest.raises(flags.UsageError, match='Put both into one folder'):
    config_of('--db_type=tfrecord', '--test_data=/e/validation')


def test_batch_size_is_per_machine_and_the_learning_rate_is_not_scaled():
  shards = '--num_shards=4', '--run_id=a', '--file_store_path=/s'
  config = config_of('--batch_size=128', *shards)
  assert config.data.batch_size == 512
  assert config.optimizer.initial_learning_rate == 0.1
  config = config_of('--batch_size=128', *shards, '--scale_learning_rate')
  assert config.optimizer.initial_learning_rate == 0.2


@pytest.mark.parametrize(
  ('words', 'rate'),
  [
    ([], catalog.find('diloco').inner_learning_rate),
    (['--base_learning_rate=0.5'], 0.5),
  ],
)
def test_a_recipe_sets_the_learning_rate_unless_it_is_given(words, rate):
  config = config_of('--recipe=diloco', *words)
  assert config.optimizer.initial_learning_rate == rate
  assert config.optimizer.inner_optimizer == 'adamw'


def test_gpus_are_counted():
  assert config_of('--gpus=2,0,5').devices.num_gpus == 3
  assert config_of('--gpus=2,0,5', '--num_gpus=3').devices.num_gpus == 3
  assert config_of('--num_gpus=4').devices.num_gpus == 4


def test_steps_may_be_given_instead_of_epochs():
  config = config_of('--max_steps=100', '--num_epochs=0')
  assert (config.run.max_steps, config.run.num_epochs) == (100, 0)


def test_machines_find_each_other_by_a_folder_or_a_redis_server():
  shards = '--num_shards=3', '--shard_id=2', '--run_id=first'
  cluster = config_of(*shards, '--file_store_path=/s').cluster
  assert (cluster.exchange, cluster.cluster) == ('collective', 'rendezvous')
  assert cluster.rendezvous_dir == '/s/first'
  assert (cluster.rendezvous_processes, cluster.task_id) == (3, 2)
  cluster = config_of(*shards, '--redis_host=10.0.0.1').cluster
  assert cluster.cluster == 'redis:redis://10.0.0.1:6379'
  assert cluster.run_id == 'first'
  cluster = config_of(*shards, '--redis_host=::1', '--redis_port=7').cluster
  assert cluster.cluster == 'redis:redis://[::1]:7'


def test_shards_of_one_machine_have_ports_of_their_own():
  words = '--num_shards=3', '--run_id=first', '--file_store_path=/s'
  found = [
    config_of(*words, f'--shard_id={i}').cluster.cluster_port for i in range(3)
  ]
  assert found == [2222, 2223, 2224]
  # The port is not compared between the processes of a run.
  config = config_of(*words)
  assert 'cluster_port' in options.values(config, 'shared', options.LOCAL)


def test_a_run_without_folder_is_in_one_of_its_name():
  assert config_of().run.train_dir == './resnet50_trainer'
  assert config_of('--run_id=first').run.train_dir == './first'
  assert config_of('--train_dir=/t', '--run_id=a').run.train_dir == '/t'
  for wrong in ('../up', '.hidden', 'a/b'):
    with pytest.raises(flags.UsageError, match='--run_id: expected 1 to 100'):
      config_of(f'--run_id={wrong}')


def test_one_machine_needs_no_rendezvous():
  assert config_of().cluster.exchange == 'towers'


@pytest.mark.parametrize(
  ('words', 'said'),
  [
    (['--num_channels=1'], '--num_channels: expected 3'),
    (['--gpus=0,x'], '--gpus: expected numbers separated'),
    (['--gpus=1,1'], '--gpus: expected every GPU once'),
    (['--shard_id=1'], '--shard_id: expected a number from 0 to 0'),
    (['--num_shards=2', '--run_id=a'], 'expected one of them .* received none'),
    (
      ['--num_shards=2', '--redis_host=h', '--file_store_path=/s'],
      'expected one of them .* received both',
    ),
    (['--gpus=0', '--num_gpus=4'], '--num_gpus: expected 1, .* received 4'),
    (
      ['--load_model_path=a.h5', '--pretrained_weights=b.h5'],
      '--load_model_path: expected no --pretrained_weights .* received b.h5',
    ),
    (
      ['--load_model_path=a', '--pretrained_model_checkpoint_path=b'],
      '--load_model_path: expected no --pretrained_model_checkpoint_path',
    ),
    (
      ['--max_steps=100'],
      '--max_steps: .* received 100 and --num_epochs=1000. Add --num_epochs=0',
    ),
    (['--use_cpu', '--gpus=0'], '--use_cpu: expected no --gpus'),
    (['--use_cpu', '--devices=gpu:0'], '--use_cpu: expected no --gpus'),
    (['--float16_compute', '--dtype=bfloat16'], '--float16_compute: expected'),
    (['--save_model_name=a/b'], '--save_model_name: expected a name without'),
    (['--num_shards=2', '--redis_host=h'], "--run_id: .* received ''"),
    (
      ['--num_shards=2', '--file_store_path=/s', '--run_id=../x'],
      r"--run_id: .* received '\.\./x'",
    ),
  ],
)
def test_invalid_flags_are_refused(words, said):
  with pytest.raises(flags.UsageError, match=said):
    config_of(*words)


# The flags for Caffe2's libraries, as its command line writes them.
LIBRARIES = [
  *('--use_cpu', '--cudnn_workspace_limit_mb', '64', '--dtype', 'float'),
  *('--save_model_name', 'cars', '--load_model_path', '/m/model.ckpt-7'),
  *('--float16_compute', '--enable_tensor_core'),
  *('--distributed_transport', 'ibverbs', '--distributed_interfaces', 'eth0'),
  *('--num_shards', '1', '--file_store_path', '/s', '--redis_host', 'h'),
]


def test_flags_of_the_libraries_are_accepted_and_those_without_effect_named():
  values = starters.parse(STARTER, ['--train_data=/d/t', *LIBRARIES])
  config = resnet50.to_config(values)
  assert config.model.dtype == 'float16'
  assert config.start.pretrained_model_checkpoint_path == '/m/model.ckpt-7'
  assert config.cluster.exchange == 'towers'
  lines = caffe2_flags.remarks(values)
  assert [line.split(' has no effect: ')[0] for line in lines] == [
    f'--{name}'
    for name in (
      *('enable_tensor_core', 'distributed_transport', 'file_store_path'),
      *('redis_host', 'distributed_interfaces'),
    )
  ]
  assert caffe2_flags.remarks(starters.parse(STARTER, [])) == []
  two = ['--num_shards=2', '--file_store_path=/s', '--redis_host=h']
  assert caffe2_flags.remarks(starters.parse(STARTER, two)) == []


@pytest.mark.parametrize(
  ('words', 'code', 'writes_files', 'is_saved'),
  [
    (['--save_model_name=cars'], command.DONE, True, True),
    (['--save_model_name=cars'], command.FAILED, True, False),
    (['--save_model_name=cars'], command.DONE, False, False),
    ([], command.DONE, True, False),
  ],
)
def test_the_net_is_saved_at_the_end_of_a_run_that_succeeds(
  monkeypatch, tmp_path, words, code, writes_files, is_saved
):
  saved = []
  monkeypatch.setattr(resnet50, '_check_database', lambda values: None)
  monkeypatch.setattr(resnet50.start, 'train', lambda *arguments: None)
  monkeypatch.setattr(resnet50.trainers, 'report_end', lambda *ends: code)
  monkeypatch.setattr(
    clusters.ClusterOptions, 'writes_files', property(lambda _: writes_files)
  )
  monkeypatch.setattr(resnet50.export, 'act', saved.append)
  words = ['--train_data=/d/t', f'--train_dir={tmp_path}', *words]
  assert resnet50.train(starters.parse(STARTER, words)) == code
  assert [values.output for values in saved] == (
    [f'{tmp_path}/cars.keras'] if is_saved else []
  )


def test_a_net_that_cannot_be_saved_does_not_refuse_the_run(
  monkeypatch, tmp_path
):
  """The exit code of a refused run says that nothing was written."""

  def refuse(values):
    raise errors.ConfigError(f'output: received {values.output}')

  monkeypatch.setattr(resnet50, '_check_database', lambda values: None)
  monkeypatch.setattr(resnet50.start, 'train', lambda *arguments: None)
  monkeypatch.setattr(resnet50.trainers, 'report_end', lambda *ends: 0)
  monkeypatch.setattr(resnet50.export, 'act', refuse)
  words = '--train_data=/d/t', f'--train_dir={tmp_path}'
  with pytest.raises(errors.TrainingError, match='^--save_model_name: output:'):
    resnet50.train(starters.parse(STARTER, [*words, '--save_model_name=a']))


@pytest.mark.parametrize('words', [['--use_cpu'], []])
def test_gpus_are_hidden_only_if_cpus_are_wanted(monkeypatch, tmp_path, words):
  hidden = []
  monkeypatch.setattr(resnet50, '_check_database', lambda values: None)
  monkeypatch.setattr(resnet50.start, 'train', lambda *arguments: None)
  monkeypatch.setattr(resnet50.trainers, 'report_end', lambda *ends: 0)
  monkeypatch.setattr(resnet50.devices, 'hide_gpus', lambda: hidden.append(1))
  words = ['--train_data=/d/t', f'--train_dir={tmp_path}', *words]
  resnet50.train(starters.parse(STARTER, words))
  assert bool(hidden) == (words[2:] == ['--use_cpu'])


def test_floats_are_float32_and_keras_files_are_weights():
  assert config_of('--dtype=float').model.dtype == 'float32'
  assert config_of('--dtype=bfloat16').model.dtype == 'bfloat16'
  start = config_of('--load_model_path=/m/cars.keras').start
  assert start.pretrained_weights == '/m/cars.keras'
  with pytest.raises(errors.ConfigError, match='transport: expected one of'):
    config_of('--distributed_transport=rdma')


def test_the_memory_of_cudnn_is_limited_by_tensorflow(monkeypatch):
  monkeypatch.setenv(caffe2_flags.WORKSPACE_VARIABLE, '7')
  for words, limit in ([], '7'), (['--cudnn_workspace_limit_mb=64'], '64'):
    caffe2_flags.set_environment(starters.parse(STARTER, words))
    assert os.environ[caffe2_flags.WORKSPACE_VARIABLE] == limit


def test_shards_are_reached_at_the_address_of_the_named_interface():
  shard = (
    *('--num_shards=2', '--shard_id=1', '--run_id=a', '--file_store_path=/s'),
    '--distributed_interfaces=lo',
  )
  assert config_of(*shard).cluster.own_address == '127.0.0.1:2223'
  config = config_of(*shard, '--own_address=h:1')
  assert config.cluster.own_address == 'h:1'
  with pytest.raises(errors.ConfigError, match="lo.* received 'none7'"):
    config_of(*shard, '--distributed_interfaces=none7')


def test_an_unknown_kind_and_no_data_are_refused():
  with pytest.raises(errors.ConfigError, match='db_type: expected one of'):
    config_of('--db_type=minidb')
  with pytest.raises(flags.UsageError, match='--train_data: expected'):
    resnet50.to_config(starters.parse(STARTER, []))


@pytest.mark.parametrize(
  ('words', 'stem'),
  [
    (
      ['--num_gpus=2', '--batch_size=64'],
      'resnet50_gpu2_b64_L1000_lr0.10_v2',
    ),
    (
      ['--net=cifar_resnet_20', '--num_labels=2', '--base_learning_rate=0.5'],
      'cifar_resnet_20_gpu1_b32_L2_lr0.50_v2',
    ),
  ],
)
def test_the_log_is_named_by_the_parameters(words, stem):
  values = starters.parse(STARTER, ['--train_data=/d/t', *words])
  assert resnet50.log_stem(values, resnet50.to_config(values)) == stem
