"""What servers and workers do before they serve, and their feeders."""

import errno
import socket
import threading
import types

import pytest

from slim import errors as data_errors
from terngrad import errors
from terngrad import native
from terngrad.cluster import fingerprint
from terngrad.config import options
from terngrad.config import servers
from terngrad.parameter_server import server_tasks


@pytest.mark.parametrize('job', ['ps', 'worker'])
def test_a_second_process_of_a_task_is_refused_because_its_port_is_in_use(job):
  with socket.create_server(('localhost', 0)) as first:
    address = f'localhost:{first.getsockname()[1]}'
    ps, worker = (address, 'localhost:1')[:: 1 if job == 'ps' else -1]
    config = options.build(
      servers.ServerConfig,
      ps_hosts=ps,
      worker_hosts=f'localhost:2,{worker}',
      job_name=job,
      task_id=0 if job == 'ps' else 1,
    )
    with pytest.raises(errors.ConfigError) as caught:
      server_tasks.serve(config, lambda line: None)
  message = str(caught.value)
  assert f'({address}): expected to listen on its port, received: ' in message
  assert 'received: Address already in use. Stop the process that' in message


HOSTS = {
  'ps_hosts': 'localhost:1',
  'worker_hosts': 'localhost:2,localhost:3',
}


@pytest.mark.parametrize('job', ['ps', 'worker'])
@pytest.mark.parametrize(
  ('changed', 'name'),
  [
    ({'worker_hosts': 'localhost:2,localhost:3,localhost:4'}, 'worker_tasks'),
    ({'ps_hosts': 'localhost:1,localhost:5'}, 'ps_tasks'),
  ],
)
def test_tasks_of_another_list_of_hosts_are_refused(job, changed, name):
  def fields(**changed):
    hosts = HOSTS | changed
    config = options.build(servers.ServerConfig, job_name=job, **hosts)
    return server_tasks.task_fingerprint(config, job)

  fingerprint.check_equal(fields(), fields(), job)
  with pytest.raises(fingerprint.MismatchError, match=name):
    fingerprint.check_equal(fields(), fields(**changed), job)


@pytest.mark.parametrize(
  'changed',
  [
    {'sync': False},
    {'num_replicas_to_aggregate': 1},
    {'sync': False, 'max_staleness': 1},
  ],
)
def test_workers_that_do_not_wait_as_the_chief_does_are_refused(changed):
  def fields(**changed):
    config = options.build(
      servers.ServerConfig, job_name='worker', **HOSTS, **changed
    )
    return server_tasks.task_fingerprint(config, 'worker')

  with pytest.raises(fingerprint.MismatchError, match=[*changed][0]):
    fingerprint.check_equal(fields(), fields(**changed), 'worker 1')


@pytest.mark.parametrize('sync', [True, False])
def test_only_asynchronous_servers_need_the_kernels_of_the_chief(sync):
  chief = options.build(
    servers.ServerConfig, job_name='worker', sync=sync, **HOSTS
  )
  # As the pages start it: without options of the run.
  server = options.build(servers.ServerConfig, job_name='ps', **HOSTS)
  fields = server_tasks.task_fingerprint(server, 'ps')
  for kernels in ('True', 'False'):
    received = fields | {'kernels': kernels}
    expected = server_tasks.expected_fingerprint(chief, 'ps', received)
    accepts = sync or kernels == 'True' or not native.available()
    assert (expected == received) == accepts


class Service:
  """A worker's server, whose chief has taken 90 steps."""

  task = types.SimpleNamespace(index=1)

  def __init__(self, error=None):
    self.error, self.troubles, self.closed = error, [], []

  def feed(self, tag, batches, stop):
    raise self.error

  def fail(self, trouble):
    self.troubles.append(trouble)

  def close(self, tag, dtypes):
    self.closed.append(tag)

  def progress(self, tag):
    yield from ((step, 0.5) for step in range(1, 91))


def feeder(service, report):
  options = types.SimpleNamespace(data_dir='', subset='train', batch_size=8)
  data = types.SimpleNamespace(batches=lambda step: iter(()))
  return server_tasks._Feeder(service, options, data, report)


def test_a_log_that_nobody_reads_does_not_stop_the_run():
  lines = []

  def report(line):
    lines.append(line)
    raise OSError(errno.EPIPE, 'Broken pipe')

  feeder(Service(), report)._log_steps('tag', 0)
  assert len(lines) == 3


def test_any_error_of_a_feeder_is_reported_to_the_chief():
  service = Service(ValueError('a bad shape'))
  with pytest.raises(ValueError, match='a bad shape'):
    feeder(service, print)._run('tag', 0, threading.Event())
  assert "received ValueError('a bad shape')" in service.troubles[0]
  assert service.closed == ['tag']


def test_damaged_data_is_reported_to_the_chief():
  service = Service(data_errors.DataError('x is damaged'))
  feeder(service, print)._run('tag', 0, threading.Event())
  assert (service.troubles, service.closed) == (['x is damaged'], ['tag'])


def test_an_error_after_the_end_of_a_feeder_is_not_reported():
  service, stop = Service(ValueError('closed')), threading.Event()
  stop.set()
  feeder(service, print)._run('tag', 0, stop)
  assert service.troubles == []
