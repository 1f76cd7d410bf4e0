"""Environments to launch in: one entry each, as CONTRIBUTING.md says."""

import pathlib

import pytest

from terngrad import errors
from terngrad.cluster import spec
from terngrad.config import cluster as cluster_config
from terngrad.config import options as options_lib
from terngrad.config import servers
from terngrad.config import training


def test_one_entry_resolves_another_environment(monkeypatch):
  def from_queue(options):
    label = options.cluster.partition(':')[2]
    hosts = [f'localhost:{options.cluster_port + i}' for i in range(int(label))]
    return spec.make({'worker': hosts}, 'worker', 1)

  monkeypatch.setitem(cluster_config.RESOLVERS, 'queue', from_queue)
  config = options_lib.build(
    training.TrainConfig,
    exchange='collective',
    cluster='queue:2',
    cluster_port=7000,
  )
  found = config.cluster
  assert found.tasks.jobs == {'worker': ('localhost:7000', 'localhost:7001')}
  assert found.num_processes == 2 and not found.writes_files


def test_a_cluster_that_is_no_resolver_and_no_file_is_refused():
  config = options_lib.build(
    training.TrainConfig, exchange='collective', cluster='kubernets'
  )
  with pytest.raises(errors.ConfigError) as error:
    _ = config.cluster.tasks
  for name in cluster_config.RESOLVERS:
    assert name in str(error.value)


def test_a_refused_redis_cluster_does_not_print_the_password():
  pytest.importorskip('redis')
  config = cluster_config.ClusterOptions(
    cluster='redis:redis://u:Se@h', run_id='a'
  )
  with pytest.raises(
    errors.ConfigError, match='collective with redis'
  ) as error:
    cluster_config.RESOLVERS['redis'](config)
  assert 'Se@' not in str(error.value)


@pytest.mark.parametrize(
  'url',
  [
    *('redis://:Se/cr@meet:6379/0', 'redis://:Se?cr@meet:6379/0'),
    *('redis://:Se#cr@meet:6379/0', 'u:Secr@meet:6379', 'redis:/:Secr@meet'),
    *('redis://:7/Secr@meet', 'redis://meet?password=Se@cr', '://[:Secr@meet'),
  ],
)
def test_a_redis_url_whose_password_is_not_escaped_is_not_printed(url):
  config = cluster_config.ClusterOptions(
    exchange='collective', cluster=f'redis:{url}', run_id='a'
  )
  with pytest.raises(errors.ConfigError, match='REDIS_PASSWORD') as error:
    _ = config.meeting
  for part in ('Se', 'cr', '7'):
    assert part not in str(error.value)


@pytest.mark.parametrize('source', ['slurm:2', 'rendezvous', '/hosts', ''])
def test_a_source_of_addresses_is_refused_for_one_process(source):
  config = options_lib.build(training.TrainConfig, cluster=source)
  message = 'cluster: expected flags for --exchange=towers, received'
  with pytest.raises(errors.ConfigError, match=message):
    _ = config.cluster.tasks


@pytest.mark.parametrize(
  ('source', 'given'),
  [
    ('flags', {'rendezvous_dir': '/a'}),
    ('tf_config', {'worker_hosts': 'localhost:1'}),
    ('tf_config', {'task_id': 2}),
    ('slurm:1', {'job_name': 'ps'}),
    ('redis:redis://a', {'rendezvous_dir': '/a'}),
    ('rendezvous', {'run_id': 'a'}),
    ('mpi', {'rendezvous_processes': 2}),
    ('FILE', {'own_address': 'localhost:1'}),
  ],
)
def test_options_that_a_source_of_addresses_ignores_are_refused(
  source, given, tmp_path
):
  if source == 'FILE':
    source = str(tmp_path / 'hosts')
    pathlib.Path(source).write_text('localhost:1\n')
  (name,) = given
  config = options_lib.build(
    training.TrainConfig, exchange='collective', cluster=source, **given
  )
  with pytest.raises(errors.ConfigError, match=f'^{name}: expected none with'):
    _ = config.cluster.tasks


def test_one_process_has_no_index():
  config = options_lib.build(training.TrainConfig, task_id=1)
  with pytest.raises(errors.ConfigError, match='none with --exchange=towers'):
    _ = config.cluster.tasks


def test_slurm_makes_the_first_n_tasks_parameter_servers(monkeypatch):
  for name, value in {
    'SLURM_PROCID': 2,
    'SLURM_STEP_NUM_TASKS': 3,
    'SLURM_STEP_NODELIST': 'localhost',
    'SLURM_STEP_TASKS_PER_NODE': 3,
    'SLURMD_NODENAME': 'localhost',
  }.items():
    monkeypatch.setenv(name, str(value))
  jobs = {'ps': ('localhost:7000',)}
  jobs['worker'] = 'localhost:7001', 'localhost:7002'
  config = servers.ServerClusterOptions(cluster='slurm:1', cluster_port=7000)
  assert (config.tasks.jobs, config.tasks.index) == (jobs, 1)
  config = servers.ServerClusterOptions(cluster='slurm')
  with pytest.raises(errors.ConfigError, match='at least one ps task.*slurm:1'):
    _ = config.tasks
  config = servers.ServerClusterOptions(cluster='slurm:one')
  with pytest.raises(errors.ConfigError, match=r"after slurm:, received 'one"):
    _ = config.tasks
