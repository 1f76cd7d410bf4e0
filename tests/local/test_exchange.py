"""Processes without a framework exchange parameters by their helpers."""

import json
import select

import numpy as np
import pytest

from tests.exchange import processes
from tests.local import small

NESTEROV = {
  'outer': f'nesterov:momentum={small.MOMENTUM}',
  'outer_learning_rate': small.RATE,
}


def start(started, folder, hosts, index, request):
  """Starts the process `index` of the cluster."""
  task = {'type': 'worker', 'index': index}
  return started.start(
    processes.ROOT / 'tests/local/exchange_process.py',
    folder,
    json.dumps(request),
    TF_CONFIG=json.dumps({'cluster': {'worker': hosts}, 'task': task}),
  )


def run(folder, count=2, lost=(), **request):
  """{name: array} of each process that was not lost, and their logs."""
  hosts = processes.addresses(count)
  with processes.Processes() as started:
    for index in range(count):
      start(started, folder, hosts, index, request)
    ended = started.wait()
  for rank, one in enumerate(ended):
    assert one.code == (-9 if rank in lost else 0), one.log
  ranks = [rank for rank in range(count) if rank not in lost]
  return [read(folder, rank) for rank in ranks], [one.log for one in ended]


def read(folder, rank):
  """{name: array} of what a process found."""
  with np.load(folder / f'{rank}.npz') as stored:
    return dict(stored)


def assert_same(first, second, *prefixes):
  """Compares the bits of the arrays whose names begin with a prefix."""
  names = [n for n in first if n.startswith(prefixes)]
  assert names
  for name in names:
    np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def assert_follows(found, overlap, phases):
  for phase, values in enumerate(small.expected(overlap, 2, phases)):
    for i, value in enumerate(values):
      np.testing.assert_allclose(
        found[f'{phase}:{i}'], value, rtol=1e-5, atol=1e-6
      )


def test_two_processes_follow_the_equations_of_eager_updates(tmp_path):
  (first, second), _ = run(
    tmp_path, phases=4, options={**NESTEROV, 'overlap': 'eager'}
  )
  assert_follows(first, 'eager', 4)
  assert not np.array_equal(first['3:0'], second['3:0'])
  assert_same(first, second, 'start', 'last')
  # 17 floats and the probe, in three exchanges that were reported.
  assert 3 * 17 * 4 <= first['sent_bytes'] <= 5 * 17 * 4
  assert first['waiting_seconds'] > 0


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('overlap', ['none', 'delayed'])
def test_two_processes_follow_the_equations(tmp_path, overlap):
  (first, second), _ = run(
    tmp_path, phases=4, options={**NESTEROV, 'overlap': overlap}
  )
  assert_follows(first, overlap, 4)
  assert_same(first, second, *('last:0 last:1 0:0 3:0 3:1'.split()))
  if overlap == 'none':
    assert_same(first, second, '3:2')


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('overlap', ['none', 'delayed', 'eager'])
def test_nan_in_one_process_stays_in_no_process(tmp_path, overlap):
  (first, second), _ = run(
    tmp_path, phases=4, nan=[1, 1], options={**NESTEROV, 'overlap': overlap}
  )
  for found in (first, second):
    for name in ('0:2', '1:2', '2:2', '3:0', '3:2', 'last:0', 'last:2'):
      assert np.isfinite(found[name]).all(), name
  assert_same(first, second, 'last')
  if overlap == 'none':
    assert_same(first, {'1:2': first['0:2']}, '1:2')


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('overlap', ['none', 'delayed', 'eager'])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, overlap):
  options = {
    **NESTEROV,
    'overlap': overlap,
    'codec': 'error_feedback+topk:ratio=0.3',
  }
  request = {'phases': 4, 'save_after': 2, 'options': options}
  whole, _ = run(tmp_path, **request)
  resumed, _ = run(tmp_path, resume=True, **request)
  for one, other in zip(whole, resumed, strict=True):
    assert_same(one, other, '2:', '3:', 'last')


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('overlap', ['none', 'eager'])
@pytest.mark.parametrize('lost', [0, 2])
def test_the_others_continue_without_a_killed_process(tmp_path, lost, overlap):
  options = {**NESTEROV, 'on_lost_worker': 'continue', 'overlap': overlap}
  (first, second), logs = run(
    tmp_path, 3, [lost], phases=4, kill=[lost, 2], options=options
  )
  assert_same(first, second, 'last')
  assert 'joins 2 of 3 processes' in logs[1]


@pytest.mark.cluster
@pytest.mark.slow
def test_the_others_wait_for_a_killed_process(tmp_path):
  request = {'phases': 4, 'options': NESTEROV}
  hosts = processes.addresses(2)
  with processes.Processes() as started:
    start(started, tmp_path, hosts, 0, request)
    lost = start(started, tmp_path, hosts, 1, request | {'kill': [1, 2]})
    assert lost.wait(processes.LIMIT) == -9
    # It takes the two exchanges that are left.
    start(started, tmp_path, hosts, 1, request | {'ends': [4, 2]})
    first, _, second = started.wait()
  assert (first.code, second.code) == (0, 0), first.log + second.log
  first, second = (read(tmp_path, rank) for rank in range(2))
  assert_same(first, second, 'last')
  # Until the loss as without one.
  assert_follows(first, 'none', 2)
  for i in range(2):
    np.testing.assert_array_equal(first[f'3:{i}'], second[f'1:{i}'])


def lose(folder, lost, policy):
  """Three processes, of which one is killed after two exchanges.

  It is back before the others know of it.

  Returns:
    {name: array} of each process, and the logs of the others.
  """
  options = {**NESTEROV, 'on_lost_worker': policy, 'overlap': 'eager'}
  request, path = {'phases': 4, 'options': options}, folder / 'go'
  waits = {'waits': [2, str(path)]}
  hosts = processes.addresses(3)
  with processes.Processes() as started:
    for rank in range(3):
      start(started, folder, hosts, rank, request | waits)
    marks = [folder / f'go.{rank}' for rank in range(3)]
    while not all(mark.exists() for mark in marks):
      codes = [process.poll() for process in started.processes]
      assert codes == [None] * 3, [started.log(rank) for rank in range(3)]
      select.select([], [], [], 0.05)  # lets the others run
    killed = started.processes[lost]
    killed.kill()
    killed.wait()
    start(started, folder, hosts, lost, request | {'begin': 2})
    path.touch()
    ended = started.wait()
  codes = [-9 if rank == lost else 0 for rank in range(3)]
  assert [one.code for one in ended] == [*codes, 0], [one.log for one in ended]
  logs = [one.log for rank, one in enumerate(ended[:3]) if rank != lost]
  return [read(folder, rank) for rank in range(3)], logs


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
  ('lost', 'policy'), [(0, 'continue'), (2, 'continue'), (0, 'wait')]
)
def test_a_process_that_is_back_before_the_others_know_joins_again(
  tmp_path, lost, policy
):
  found, logs = lose(tmp_path, lost, policy)
  assert_same(found[0], found[1], 'last')
  assert_same(found[0], found[2], 'last')
  for log in logs:
    assert 'joins 3 of 3 processes' in log
  # The lost process goes on from the state of the first one that was not.
  adopts = (2, lost, 0 if lost else 1)
  for rank, one in enumerate(found):
    for phase, values in enumerate(small.expected('eager', 3, 4, rank, adopts)):
      for i, value in enumerate(values):
        if rank != lost or phase >= 2:
          np.testing.assert_allclose(
            one[f'{phase}:{i}'], value, rtol=1e-5, atol=1e-6
          )


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_with_different_shapes_are_refused(tmp_path):
  with pytest.raises(AssertionError, match='expected parameters to be'):
    run(tmp_path, phases=1, wide=1, options=NESTEROV)


@pytest.mark.cluster
@pytest.mark.slow
def test_a_process_with_fewer_steps_ends_first(tmp_path):
  (first, second), logs = run(tmp_path, phases=4, ends=[4, 2], options=NESTEROV)
  assert_same(first, second, '1:0', '1:1')
  assert '3:0' in first
  assert 'processes [1] have finished' in logs[0]


@pytest.mark.cluster
@pytest.mark.slow
def test_states_of_different_exchanges_are_refused(tmp_path):
  run(tmp_path, phases=2, save_after=1, options=NESTEROV)
  saved = (tmp_path / 'backup-0.npz').read_bytes()
  run(tmp_path, phases=2, save_after=2, options=NESTEROV)
  (tmp_path / 'backup-0.npz').write_bytes(saved)
  with pytest.raises(AssertionError, match='received 1, 2 exchanges'):
    run(tmp_path, phases=2, save_after=1, resume=True, options=NESTEROV)
