import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.codec.methods import registry
from terngrad.config import cluster
from terngrad.config import options as options_lib
from terngrad.config import servers

HOSTS = {
  'ps_hosts': 'localhost:2222',
  'worker_hosts': 'localhost:2223,localhost:2224',
}
NO_HOSTS = {'ps_hosts': '', 'worker_hosts': ''}


def make(**options):
  options = {'job_name': 'worker', 'net': 'lenet', **HOSTS, **options}
  return options_lib.build(servers.ServerConfig, **options)


def refused(**options):
  with pytest.raises(errors.ConfigError) as caught:
    make(**options).validate()
  return str(caught.value)


def test_one_of_two_workers_is_accepted():
  make(task_id=1).validate()
  make(job_name='ps').validate()


@pytest.mark.parametrize('job', ['', 'chief', 'PS'])
def test_another_job_is_refused(job):
  assert '--job_name' in refused(job_name=job)


def test_a_task_that_has_no_host_is_refused():
  assert 'from 0 to 1, received 2' in refused(task_id=2)
  assert 'received -1' in refused(task_id=-1)


@pytest.mark.parametrize('name', ['ps_hosts', 'worker_hosts'])
def test_no_hosts_are_refused(name):
  message = refused(**{name: ''})
  assert message.startswith(f'{name}: expected host:port,host:port, received')


def test_other_machines_need_allow_insecure_network():
  hosts = 'ps.example:2222'
  assert '--allow_insecure_network' in refused(ps_hosts=hosts)
  make(ps_hosts=hosts, allow_insecure_network=True).validate()


@pytest.mark.parametrize('count', [-2, 0, 3])
def test_aggregating_no_gradients_or_more_than_workers_is_refused(count):
  message = refused(num_replicas_to_aggregate=count)
  expected = 'expected -1 or a number from 1 to 2, all workers; received '
  assert f'{expected}{count}' in message


def test_a_step_may_use_the_gradients_of_some_workers():
  config = make(num_replicas_to_aggregate=1, batch_size=8, num_nodes=2)
  config.validate()
  assert not config.cluster.waits_for_all
  assert (
    config.per_update().data.batch_size,
    config.per_update().num_workers,
  ) == (8, 2)
  config = make(num_replicas_to_aggregate=2, batch_size=8)
  config.validate()
  assert config.cluster.waits_for_all
  assert config.per_update().data.batch_size == 16


def test_tasks_with_servers_cannot_use_a_rendezvous_folder(tmp_path):
  message = refused(
    cluster='rendezvous', job_name='', rendezvous_dir=str(tmp_path), **NO_HOSTS
  )
  assert '--exchange=collective' in message
  assert list(tmp_path.iterdir()) == []


def test_workers_may_be_asynchronous():
  make(
    sync=False, max_staleness=3, scale_learning_rate_by_staleness=True
  ).validate()
  config = flags.parse(servers.ServerConfig, {}, ['--sync=False']).values
  assert not config.cluster.sync


@pytest.mark.parametrize(
  ('name', 'value'),
  [('max_staleness', 0), ('scale_learning_rate_by_staleness', True)],
)
def test_options_of_staleness_need_an_asynchronous_run(name, value):
  message = refused(**{name: value})
  assert message.startswith(f'{name}: expected it to be left out')
  assert 'Give --sync=False' in message


def test_an_asynchronous_run_may_have_several_servers():
  hosts = 'localhost:2222,localhost:2225'
  config = make(sync=False, ps_hosts=hosts, batch_size=8)
  config.validate()
  assert not config.cluster.waits_for_all
  assert config.per_update().data.batch_size == 8


def test_an_asynchronous_run_has_one_gradient_per_update_of_one_kind():
  make(sync=False, num_replicas_to_aggregate=1).validate()
  message = refused(sync=False, num_replicas_to_aggregate=2)
  assert message.startswith('num_replicas_to_aggregate: expected it to be left')
  for pace in ({'sync': False}, {'num_replicas_to_aggregate': 1}):
    message = refused(floating_grad_epoch=2, **pace)
    assert 'expected 0 if a step does not wait for all workers' in message
  make(floating_grad_epoch=2).validate()
  assert '--max_staleness=-1 or more' in refused(sync=False, max_staleness=-2)


def test_only_the_parameters_of_the_chief_can_be_stored():
  assert 'save_tower: expected -1 or 0, received 1' in (
    refused(save_tower=1, num_nodes=2)
  )


def test_a_sum_of_words_needs_room_for_the_nodes_of_all_workers():
  codec = 'ternary:packing=radix,workers=2'
  make(codec=codec, grad_bits=1).validate()
  assert 'workers=4' in refused(codec=codec, grad_bits=1, num_nodes=2)


@pytest.mark.parametrize('name', ['save_interval_secs', 'save_summaries_secs'])
def test_time_limits_of_zero_are_refused(name):
  assert f'--{name}=1 or more' in refused(**{name: 0})


@pytest.mark.parametrize('name', ['start_timeout', 'step_timeout'])
def test_no_time_for_others_is_refused(name):
  assert f'{name}: expected seconds from 1' in refused(**{name: 0})


def test_batch_norm_statistics_of_single_processes_are_refused():
  message = refused(bn_statistics='per_device')
  assert message.startswith('bn_statistics: expected averaged')


# Paces at which a step does not wait for all workers.
PACES = ({'sync': False}, {'num_replicas_to_aggregate': 1})


@pytest.mark.parametrize('pace', PACES)
def test_loss_scaling_needs_steps_of_all_workers(pace):
  make(dtype='float16').validate()
  make(dtype='bfloat16', **pace).validate()
  message = refused(dtype='float16', **pace)
  assert message.startswith('dtype: expected float32 or bfloat16 if a step')
  assert '--dtype=bfloat16' in message


@pytest.mark.parametrize('pace', PACES)
def test_local_steps_need_steps_of_all_workers(pace):
  make(local_steps=2).validate()
  assert refused(local_steps=2, **pace).startswith('local_steps: expected 1')


@pytest.mark.parametrize('pace', PACES)
def test_warm_up_codes_need_steps_of_all_workers(pace):
  options = {'codec': 'topk', 'codec_warm_up': '9 -> topk:ratio=0.1'}
  make(**options).validate()
  assert refused(**options, **pace).startswith('codec_warm_up: expected none')


@pytest.mark.parametrize('pace', PACES)
def test_requantizing_needs_steps_of_all_workers(pace):
  codec = 'ternary:sharing=thin'
  make(codec=codec).validate()
  message = refused(codec=codec, **pace)
  assert message.startswith('codec: expected sharing=probe if a step does')
  assert f'received {registry.method(codec).name}: ' in message


@pytest.mark.parametrize('pace', PACES)
@pytest.mark.parametrize(
  'codec',
  [
    'powersgd',
    'error_feedback+powersgd:rank=2',
    'randomk',
    'error_feedback+thc',
    'ef21+topk',
  ],
)
def test_several_rounds_need_steps_of_all_workers(codec, pace):
  make(codec=codec).validate()
  message = refused(codec=codec, **pace)
  assert message.startswith('codec: expected a code of one round if a step')
  assert f'received {registry.method(codec).name}, ' in message
  # A rule's code is one of the run.
  rule = refused(codec_rules=f'rank>1 -> {codec}', **pace)
  assert rule == message
  assert 'Use a synchronous run' in message


@pytest.mark.parametrize('pace', PACES)
def test_updates_need_steps_of_all_workers(pace):
  for codec in ('demo', 'one_bit_adam+sign'):
    make(codec=codec).validate()
    message = refused(codec=codec, **pace)
    assert message.startswith('codec: expected a code of gradients if a step')
    assert 'Use a synchronous run' in message


@pytest.mark.parametrize('pace', [{}, *PACES])
@pytest.mark.parametrize('code', ['topk', 'ternary', 'sign'])
def test_residuals_of_a_worker_do_not_need_other_workers(code, pace):
  make(codec=f'error_feedback+{code}', **pace).validate()


def test_the_bytes_of_a_bucket_are_a_flag_with_servers_too():
  config = flags.parse(
    servers.ServerConfig, {}, ['--bytes_per_bucket=4096']
  ).values
  assert config.cluster.bytes_per_bucket == 4096
  assert make().cluster.bytes_per_bucket == cluster.BYTES_PER_BUCKET
  assert refused(bytes_per_bucket=-1).startswith(
    'bytes_per_bucket: expected a number >= 0, received -1'
  )


def test_a_cluster_without_servers_is_refused(tmp_path):
  hosts = tmp_path / 'hosts'
  hosts.write_text('localhost:2223\n')
  message = refused(cluster=str(hosts), **NO_HOSTS)
  assert 'expected at least one ps task' in message
  hosts.write_text('localhost:2223\nps localhost:2222\n')
  make(cluster=str(hosts), **NO_HOSTS).validate()


def test_the_exchange_is_no_flag():
  config = servers.ServerConfig
  assert 'exchange' not in flags.define(config)
  assert '--collective' not in flags.help_text(config, {}, 'usage')
  with pytest.raises(flags.UsageError, match='exchange'):
    flags.parse(config, {}, ['--exchange=towers'])


def test_batches_and_nodes_of_the_whole_run_are_those_of_all_processes():
  update = make(batch_size=8, num_nodes=2).per_update()
  assert (update.data.batch_size, update.num_workers) == (16, 4)


def test_command_line_of_2017_is_read_unchanged():
  config = flags.parse(
    servers.ServerConfig,
    {'net': 'lenet'},
    [
      '--job_name=worker',
      '--task_id=1',
      '--ps_hosts=localhost:2222',
      '--worker_hosts=localhost:2223,localhost:2224',
      '--batch_size',
      '64',
      '--subset',
      'train',
      '--log_device_placement',
      'False',
      '--num_replicas_to_aggregate=-1',
      '--save_interval_secs=600',
      '--save_summaries_secs',
      '180',
      '--grad_bits=1',
      '--clip_factor=2.5',
      '--floating_grad_epoch=0',
      '--save_tower',
      '0',
      '--use_encoding',
      'False',
      '--benchmark_mode=False',
    ],
  ).values
  config.validate()
  assert (config.cluster.task_id, config.data.batch_size) == (1, 64)


def test_defaults_are_those_of_2017():
  config = options_lib.build(servers.ServerConfig)
  assert config.cluster.num_replicas_to_aggregate == -1
  assert config.run.save_interval_secs == 600
  assert config.run.save_summaries_secs == 180
  assert (config.cluster.job_name, config.cluster.task_id) == ('', 0)


def test_the_first_lines_name_hosts_target_and_replicas():
  config = make()
  lines = list(servers.banner(config.cluster))
  assert lines[0].startswith('warning: TensorFlow has no authentication')
  assert lines[1:] == [
    "PS hosts are: ['localhost:2222']",
    "Worker hosts are: ['localhost:2223', 'localhost:2224']",
    'Server target: grpc://localhost:2223',
    'SyncReplicas: replicas_to_aggregate=2; total_num_replicas=2',
  ]


@pytest.mark.parametrize(
  ('pace', 'expected'),
  [
    ({'sync': False, 'max_staleness': 4}, 'Asynchronous: max_staleness=4'),
    (
      {'num_replicas_to_aggregate': 1},
      'SyncReplicas: replicas_to_aggregate=1; total_num_replicas=2',
    ),
  ],
)
def test_a_chief_that_does_not_wait_for_all_workers_logs_it(pace, expected):
  lines = list(servers.banner(make(**pace).cluster))
  assert lines[-2] == expected
  assert lines[-1].endswith('two runs are not bit-identical')
  others = list(servers.banner(make(task_id=1, **pace).cluster))
  assert others[1:] == [*lines[1:3], 'Server target: grpc://localhost:2224']


def test_workers_of_several_devices_wait_for_all_others():
  devices = {'num_gpus': 4, 'devices_per_worker': 2, 'batch_size': 8}
  config = make(**devices)
  config.validate()
  assert config.num_workers == 2
  assert config.per_update().num_workers == 4
  for pace in ({'sync': False}, {'num_replicas_to_aggregate': 1}):
    message = refused(**devices, **pace)
    assert message.startswith('devices_per_worker: expected 1 if a step does')
