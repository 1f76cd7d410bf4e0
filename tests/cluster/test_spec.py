import socket

import pytest

from terngrad.cluster import spec

HOSTS = 'a:1,b:2'


def test_flags_name_jobs_and_this_task():
  found = spec.from_flags('s:9', HOSTS, 'worker', 1)
  assert found.jobs == {'ps': ('s:9',), 'worker': ('a:1', 'b:2')}
  assert found.address == 'b:2'
  assert not found.is_chief
  assert spec.from_flags('', HOSTS, 'worker', 0).is_chief
  assert not spec.from_flags('s:9', HOSTS, 'ps', 0).is_chief


@pytest.mark.parametrize(
  'address',
  [
    *('', 'host', 'host:', ':1', 'host:0', 'host:65536', 'host:01', 'host:-1'),
    *('host:1 ', ' host:1', 'ho st:1', 'host:1\n', 'host:١', 'a/b:1', '-o:1'),
    *('$(reboot):1', 'a;b:1', "a'b:1", 'user@host:1', '::1:1', '[::1:1'),
    *('[::1%\x1b[31m\nerror: x]:22', '[fe80::1%a]:1', '[]:1'),
    *('[nothing]:1', '[127.0.0.1]:1', 'http://a:1', 'h' * 300 + ':1', None, 7),
    *('node..2:1', 'a.' + 'h' * 64 + ':1', '.a:1', 'a..:1', 'a.b' * 90 + ':1'),
  ],
)
def test_invalid_addresses_are_refused(address):
  with pytest.raises(spec.ClusterError, match=r'expected host:port.*Write'):
    spec.parse_address(address)


@pytest.mark.parametrize(
  'address',
  [
    *('a:1', '10.0.0.1:65535', 'a_b-c.example:22', '[::1]:2222', '[fe80::1]:1'),
    *('h' * 63 + ':1', 'a.example.:1'),
  ],
)
def test_valid_addresses_are_not_changed(address):
  assert spec.parse_address(address) == address


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (('', '', 'worker', 0), 'this task in one of the jobs'),
    (('', HOSTS, 'ps', 0), 'received the job .ps.'),
    (('', HOSTS, 'chef', 0), 'received the job .chef.'),
    (('', HOSTS, 'worker', 2), 'a worker task from 0 to 1, received 2'),
    (('', HOSTS, 'worker', -1), 'from 0 to 1, received -1'),
    (('', HOSTS, 'worker', True), 'received True'),
    (('', 'a:1,,b:2', 'worker', 0), "received ''"),
    (('', 'a:1, b:2', 'worker', 0), "received ' b:2'"),
    (('a:1', HOSTS, 'worker', 0), 'a:1 and a:1.*different port'),
    (('A:1', HOSTS, 'worker', 0), 'A:1 and a:1.*different port'),
    (('', 'localhost:1,127.0.0.1:1', 'worker', 0), 'localhost:1 and 127.0.0'),
    (('', '[::1]:1,[0:0::1]:1', 'worker', 0), 'received .::1.:1 and .0:0::1'),
    (('', '[fe80::1]:1,[FE80:0::1]:1', 'worker', 0), 'received .fe80::1.:1'),
    (('', ','.join(f'a:{i}' for i in range(1, 4099)), 'worker', 0), '4098'),
  ],
)
def test_invalid_clusters_are_refused(flags, message):
  with pytest.raises(spec.ClusterError, match=message):
    spec.from_flags(*flags)


@pytest.mark.parametrize(
  'hosts', ['localhost:1,127.0.0.1:2', '[::1]:1', '127.8.8.8:1']
)
def test_loopback_clusters_start_with_one_line_of_warning(hosts):
  line = spec.check_network(spec.from_flags('', hosts, 'worker', 0), False)
  assert line.startswith('warning: ')
  assert 'all interfaces' in line
  assert '\n' not in line


@pytest.mark.parametrize(
  'host',
  [
    *('10.0.0.1', '0.0.0.0', '[::]', '192.168.1.1', 'example', '169.254.1.1'),
    *('localhost.example', '127.0.0.1.example', '2130706433', '127.1'),
  ],
)
def test_other_addresses_are_refused_without_the_flag(host):
  hosts = f'localhost:1,{host}:2'
  found = spec.from_flags('', hosts, 'worker', 0)
  with pytest.raises(spec.ClusterError, match='--allow_insecure_network'):
    spec.check_network(found, False)
  line = spec.check_network(found, True)
  assert '1 of 2 tasks' in line


@pytest.mark.parametrize('host', ['', 'localhost'])
def test_a_port_in_use_is_refused(host):
  with socket.socket() as taken:
    taken.bind((host, 0))
    taken.listen()
    address = f'localhost:{taken.getsockname()[1]}'
    cluster = spec.make({'worker': ['localhost:1', address]}, 'worker', 1)
    with pytest.raises(
      spec.ClusterError, match=rf'worker 1 \({address}\): expected to listen'
    ):
      spec.check_port(cluster)
  spec.check_port(cluster)


def test_a_job_without_tasks_is_left_out():
  jobs = {'worker': ['localhost:1'], 'ps': iter(())}
  assert 'ps' not in spec.make(jobs, 'worker', 0).jobs
