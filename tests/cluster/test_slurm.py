"""Slurm's lists of hosts, by its own program and without it."""

import pytest

from terngrad.cluster import slurm
from terngrad.cluster import spec

# What Slurm 22.05 says to `scontrol show hostnames LIST`, but for the suffixes,
# which it refuses and later versions and other programs know.
LISTS = {
  'n1': 'n1',
  'localhost': 'localhost',
  'node[9-10]': 'node9 node10',
  'node[98-101]': 'node98 node99 node100 node101',
  'gpu[1-2],cpu1': 'gpu1 gpu2 cpu1',
  'cpu1,gpu[1-2]': 'cpu1 gpu1 gpu2',
  'a1,b[2,4-5],c': 'a1 b2 b4 b5 c',
  'rack[1-2]node[1-2]': 'rack1node1 rack1node2 rack2node1 rack2node2',
  'n[1-2][3-4]': 'n13 n14 n23 n24',
  'n[008-011]': 'n008 n009 n010 n011',
  'n[099-101]': 'n099 n100 n101',
  'n[09-10,5]': 'n09 n10 n5',
  'n[9-010]': 'n9 n10',
  'n[7]': 'n7',
  'n[00,0]': 'n00 n0',
  'n[1,1]': 'n1 n1',
  '[1-3]': '1 2 3',
  'n-1.example.org,n-[2-3]': 'n-1.example.org n-2 n-3',
  'n1 n2': 'n1 n2',
  ',n[1-2],,m': 'n1 n2 m',
  'n[01-03]-ib': 'n01-ib n02-ib n03-ib',
  'a[1-2]b[01-02]c': 'a1b01c a1b02c a2b01c a2b02c',
  'n-[1-2].example.org': 'n-1.example.org n-2.example.org',
}
NONE = (
  *('', ',', ' ', 'n[', 'n]', 'n[1-2', 'n1-2]', 'n[]', 'n[,]', 'n[1-2,]'),
  *('n[3-1]', 'n[a-b]', 'n[-1]', 'n[1-]', 'n[1-2-3]', 'n[1-3:2]', 'n[1 - 2]'),
  *('n[[1-2]]', 'n[1-2]]', 'n[0-99999999]', 'n[1-9][1-999][1-999]', 'n[٣-٤]'),
  'n[0-999999999999999999999999]',
  ','.join(['n[1-4000]'] * 2),
)


@pytest.mark.parametrize('text', LISTS)
def test_a_list_is_expanded_as_slurm_does(text):
  assert slurm.expand(text) == LISTS[text].split()


@pytest.mark.parametrize('text', NONE)
def test_invalid_host_lists_are_refused(text):
  with pytest.raises(spec.ClusterError, match='expected a list of 1 to 4096'):
    slurm.expand(text)


def test_numbers_of_tasks_are_repeated():
  assert slurm.tasks_per_host('3') == [3]
  assert slurm.tasks_per_host('2(x3),1,4(x1)') == [2, 2, 2, 1, 4]


@pytest.mark.parametrize(
  'text', ['', ',', '2(x', '2x3', '2(x0)', '-1', '1(x4097)', '1(x4000),1(x97)']
)
def test_invalid_task_counts_are_refused(text):
  with pytest.raises(spec.ClusterError, match='SLURM_STEP_TASKS_PER_NODE'):
    slurm.tasks_per_host(text)


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
  """Gives the bytes of Slurm's program."""

  def write(content):
    path = tmp_path / 'scontrol'
    path.write_bytes(content)
    path.chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path))

  return write


def test_scontrol_is_used_where_it_is_installed(scontrol):
  scontrol(b'#!/bin/sh\n[ "$*" = "show hostnames n[1-2]" ] && echo "a\nb"\n')
  assert slurm.hosts('n[1-2]') == ['a', 'b']


@pytest.mark.parametrize(
  'content',
  [
    b'#!/bin/sh\necho n1; exit 1\n',
    # As it does with a list that it cannot read.
    b'#!/bin/sh\necho Invalid hostlist >&2\n',
    b'\x7fELF of another machine',
  ],
)
def test_without_scontrol_the_list_is_expanded(scontrol, content):
  scontrol(content)
  assert slurm.hosts('n[1-2]') == ['n1', 'n2']
