"""Calls of functions on hosts, on a machine that may lack programs."""

import os
import pathlib

import pytest

from terngrad.launching import configuration
from terngrad.launching import remote
from terngrad.launching import tunnels as tunnels_lib

# Prints which session a process is of.
_SESSION = 'read -r line </proc/$$/stat\nset -- ${line##*) }\n'


@pytest.fixture
def hosts(tmp_path):
  """Hosts that know the function `session`."""
  path = tmp_path / 'dist_tasks.sh'
  path.write_text(f'session() {{\n{_SESSION}echo "$4"\n}}\n')
  return remote.Hosts(str(tmp_path), lambda: None)


@pytest.fixture
def tunnels(hosts, tmp_path):
  """The tunnel to a host."""
  config = configuration.Configuration(
    source='',
    ps_hosts=(),
    worker_hosts=('a.example:2222',),
    worker_devices=('',),
    data_dirs=('',),
    worker_script='/x',
    ps_script='/x',
    workspace=str(tmp_path),
    allow_insecure_network='false',
  )
  return tunnels_lib.Tunnels(config, hosts, tmp_path / 'e')


@pytest.fixture
def path(tmp_path, monkeypatch):
  """A folder, the only one in which programs are found."""
  folder = tmp_path / 'bin'
  folder.mkdir()
  monkeypatch.setenv('PATH', str(folder))
  return folder


def test_without_ssh_each_task_says_so(hosts, path):
  del path
  result = hosts.call('a.example:2222', 'worker_0', 'session')
  assert not result.ok
  assert result.lines == [
    'worker_0 on a.example: cannot start ssh here: No such file or directory'
  ]


def test_without_ssh_each_tunnel_says_so(tunnels, path):
  del path
  result = tunnels.open('a.example')
  assert not result.ok
  assert 'received: cannot start ssh here: No such file or directory' in (
    result.lines
  )


@pytest.mark.parametrize('address', ['a.example:2222', 'localhost:2222'])
def test_a_call_that_hangs_ends_at_its_time_limit(hosts, path, address):
  for name in ('ssh', 'bash'):
    program = path / name
    program.write_text(f'#!/bin/bash\nread -r <>{path}/never\n')
    program.chmod(0o755)
  os.mkfifo(path / 'never')
  result = hosts.call(address, 'worker_0', 'session', seconds=0.1)
  assert not result.ok
  assert 'no answer within 0.1 s' in result.text


def test_a_terminal_s_signals_reach_no_call(hosts):
  assert int(hosts.call_local('session').text) != os.getsid(0)


def test_a_terminal_s_signals_reach_no_tunnel(tunnels, path, tmp_path):
  ssh = path / 'ssh'
  ssh.write_text(f'#!/bin/bash\n{_SESSION}echo "$4" >>{tmp_path}/sessions\n')
  ssh.chmod(0o755)
  tunnels.open('a.example')
  sessions = pathlib.Path(tmp_path / 'sessions').read_text().split()
  assert len(sessions) == 2
  assert str(os.getsid(0)) not in sessions
