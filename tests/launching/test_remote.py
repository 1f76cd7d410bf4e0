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
  """Hosts that know the functions `session` and `identity`."""
  path = tmp_path / 'dist_tasks.sh'
  path.write_text(
    f'session() {{\n{_SESSION}echo "$4"\n}}\n'
    'identity() {\necho "process $1"\n}\n'
  )
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
  # Those that open it, ask it for its process and close it.
  assert len(sessions) == 3
  assert str(os.getsid(0)) not in sessions


@pytest.fixture
def calls(path, tmp_path):
  """The calls of an ssh that opens tunnels; $answer is run by `-O check`."""
  (path / 'bash').symlink_to('/bin/bash')
  ssh, calls = path / 'ssh', tmp_path / 'calls'
  ssh.write_text(
    f'#!/bin/bash\necho "$*" >>{calls}\n'
    '[[ $* != *"-O check "* ]] || eval "$answer"\n'
  )
  ssh.chmod(0o755)
  return calls


class Interruption(Exception):
  """A signal asked to end."""


def test_a_signal_while_a_tunnel_opens_does_not_lose_its_process(
  calls, hosts, tunnels, tmp_path, monkeypatch
):
  def check():
    if calls.exists():
      raise Interruption

  monkeypatch.setattr(hosts, 'check', check)
  monkeypatch.setenv('answer', 'echo "Master running (pid=7)"')
  assert tunnels.open('a.example').ok
  file = tmp_path / 'e' / 'tunnels' / 'tunnel_a.example.pid'
  assert file.read_text() == 'process 7\n'
  with pytest.raises(Interruption):
    tunnels.open('b.example')
  assert 'b.example' not in calls.read_text()


@pytest.mark.parametrize('answer', ['exit 255', 'echo "(pid=7)"'])
def test_a_tunnel_whose_process_cannot_be_recorded_is_closed(
  calls, tunnels, tmp_path, monkeypatch, answer
):
  monkeypatch.setenv('answer', answer)
  file = tmp_path / 'e' / 'tunnels' / 'tunnel_a.example.pid'
  file.mkdir(parents=True)
  assert not tunnels.open('a.example').ok
  opened, asked, closed = calls.read_text().splitlines()
  assert closed == asked.replace('-O check', '-O exit')
  assert closed.split()[:2] == opened[opened.index('-S ') :].split()[:2]
