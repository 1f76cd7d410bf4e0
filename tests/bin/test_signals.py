"""Programs that are asked to end while they wait: every mode, both signals."""

import os
import pathlib
import select
import signal
import time

import pytest

from terngrad import signal_guard
from terngrad.cluster import watchdog
from tests.bin import programs
from tests.exchange import processes

NUMBERS = (signal.SIGTERM, signal.SIGINT)
# Seconds from the first signal to the end, where none ends by itself.
SHORT = {signal_guard.VARIABLE: '3'}
# So many that only a second signal, or the end of a step, comes before.
LONG = {signal_guard.VARIABLE: '1000'}
ONCE_AND_TWICE = [
  pytest.param(
    number, again, id=f'{number.name}-{"twice" if again else "once"}'
  )
  for number in NUMBERS
  for again in (False, True)
]
both_signals = pytest.mark.parametrize('number', NUMBERS, ids=lambda n: n.name)


def train(data_dir, train_dir, **changes):
  """Words of a trainer that takes steps until it is stopped."""
  values = {'max_steps': 100_000, 'num_gpus': 1, 'save_iter': 5}
  return programs.short_run_arguments(data_dir, train_dir, **(values | changes))


def terngrad(group, *words, **environment):
  return group.start('-m', 'terngrad.cli.main', *words, **environment)


def read_until(group, index, text):
  """Waits for a text in the log of a process, as long as that lives."""
  while text not in group.log(index):
    process = group.processes[index]
    assert process.poll() is None, group.log(index)
    select.select([], [], [], 0.05)  # lets the others run


def start_equals(group, data_dir, train_dir, environment):
  """Two equal processes that train; their hosts."""
  hosts = processes.addresses(2)
  for rank in range(2):
    words = train(data_dir, train_dir, **equal(hosts, rank))
    terngrad(group, 'train', 'mnist', *words, **environment)
  return hosts


def equal(hosts, rank):
  return {
    'exchange': 'collective',
    'worker_hosts': ','.join(hosts),
    'task_id': rank,
  }


SERVED = (('ps', 0), ('worker', 1), ('worker', 0))


def start_served(group, data_dir, train_dir, environment, tasks=SERVED, **more):
  """A ps and two workers, the chief last; the places in `SERVED`'s order."""
  ps, *workers = processes.addresses(3)
  for job, index in tasks:
    words = train(
      data_dir,
      train_dir,
      job_name=job,
      task_id=index,
      ps_hosts=ps,
      worker_hosts=','.join(workers),
      **more,
    )
    terngrad(group, 'distributed_train', 'mnist', *words, **environment)


def family(process):
  """The processes below one, with it."""
  return signal_guard.descendants(process.pid) | {process.pid}


def alive(number):
  """Whether a process runs; one that waits to be reaped does not."""
  try:
    status = pathlib.Path(f'/proc/{number}/stat').read_text()
  except (FileNotFoundError, ProcessLookupError):
    return False
  return status.rpartition(')')[2].split()[0] != 'Z'


def ends(group, index, number, again=False):
  """Sends a signal; the exit code, once no process below is left."""
  process = group.processes[index]
  below = family(process)
  process.send_signal(number)
  latest = time.monotonic() + processes.LIMIT
  while process.poll() is None or any(map(alive, below)):
    assert time.monotonic() < latest, group.log(index)
    select.select([], [], [], 0.5)
    below |= family(process)
    if again and process.poll() is None:
      process.send_signal(number)
  return process.returncode


def assert_saved_and_ended(group, index, number, train_dir):
  """A signal to one; it ends after a checkpoint of its last step."""
  assert ends(group, index, number) == 128 + number, group.log(index)
  assert f'stopped by signal {number}' in group.log(index)
  assert programs.checkpoint_steps(train_dir)


def assert_cut_short(group, index, number, again):
  """A signal, or two, to one that waits for ever; it says for what."""
  code = ends(group, index, number, again)
  log = group.log(index)
  assert code == 128 + number, log
  line, *_ = [one for one in log.splitlines() if 'error: stopped: ' in one]
  if again:
    assert f'a second signal, {number.name}, while waiting for' in line
  else:
    assert f'to end within 3 s of {number.name}, it did not' in line
  return line


@pytest.mark.slow
@both_signals
def test_one_process_saves_and_ends(data_dir, tmp_path, number):
  with processes.Processes() as group:
    terngrad(group, 'train', 'mnist', *train(data_dir, tmp_path), **LONG)
    read_until(group, 0, 'step 10,')
    assert_saved_and_ended(group, 0, number, tmp_path)


@pytest.mark.cluster
class TestEqualProcesses:
  @both_signals
  def test_all_save_and_end(self, data_dir, tmp_path, number):
    with processes.Processes() as group:
      start_equals(group, data_dir, tmp_path, LONG)
      read_until(group, 0, 'step 10,')
      assert_saved_and_ended(group, 1, number, tmp_path)
      assert group.processes[0].wait(processes.LIMIT) == 128 + number

  @pytest.mark.parametrize(('number', 'again'), ONCE_AND_TWICE)
  def test_one_whose_peer_is_stopped_ends(
    self, data_dir, tmp_path, number, again
  ):
    with processes.Processes() as group:
      start_equals(group, data_dir, tmp_path, LONG if again else SHORT)
      read_until(group, 0, 'step 10,')
      group.processes[1].send_signal(signal.SIGSTOP)
      line = assert_cut_short(group, 0, number, again)
    assert 'the last checkpoint is from step ' in line

  @both_signals
  def test_one_whose_peer_never_comes_ends(self, data_dir, tmp_path, number):
    hosts = processes.addresses(2)
    with processes.Processes() as group:
      words = train(data_dir, tmp_path, **equal(hosts, 0))
      terngrad(group, 'train', 'mnist', *words, **LONG)
      # TensorFlow holds Python's lock from about then on.
      while not watchdog.answers(hosts[0]):
        assert group.processes[0].poll() is None, group.log(0)
      assert ends(group, 0, number) == 128 + number, group.log(0)


@pytest.mark.cluster
@pytest.mark.parametrize('sync', [True, False])
class TestServers:
  @both_signals
  def test_the_chief_saves_and_all_end(self, data_dir, tmp_path, number, sync):
    with processes.Processes() as group:
      start_served(group, data_dir, tmp_path, LONG, sync=sync)
      read_until(group, 2, 'step 30,')
      assert_saved_and_ended(group, 2, number, tmp_path)
      codes = [one.wait(processes.LIMIT) for one in group.processes]
    assert codes == [0, 0, 128 + number]

  @pytest.mark.parametrize('stopped', [0, 1])
  @pytest.mark.parametrize(('number', 'again'), ONCE_AND_TWICE)
  def test_a_chief_whose_ps_or_worker_is_stopped_ends(
    self, data_dir, tmp_path, number, sync, stopped, again
  ):
    with processes.Processes() as group:
      environment = LONG if again else SHORT
      start_served(group, data_dir, tmp_path, environment, sync=sync)
      read_until(group, 2, 'step 30,')
      group.processes[stopped].send_signal(signal.SIGSTOP)
      assert_cut_short(group, 2, number, again)

  @pytest.mark.parametrize(('number', 'again'), ONCE_AND_TWICE)
  def test_a_ps_and_a_worker_end_while_the_chief_is_stopped(
    self, data_dir, tmp_path, number, sync, again
  ):
    with processes.Processes() as group:
      environment = LONG if again else SHORT
      start_served(group, data_dir, tmp_path, environment, sync=sync)
      read_until(group, 2, 'step 30,')
      group.processes[2].send_signal(signal.SIGSTOP)
      assert ends(group, 0, number, again) == 128 + number, group.log(0)
      assert ends(group, 1, number, again) == 128 + number, group.log(1)

  @pytest.mark.parametrize(('number', 'again'), ONCE_AND_TWICE)
  def test_tasks_whose_others_never_come_end(
    self, data_dir, tmp_path, number, sync, again
  ):
    with processes.Processes() as group:
      environment = LONG if again else SHORT
      tasks = ('ps', 0), ('worker', 0)
      start_served(group, data_dir, tmp_path, environment, tasks, sync=sync)
      read_until(group, 0, 'serves')
      read_until(group, 1, 'waiting for worker 1')
      # The chief would tell the ps to end, as a failure.
      for index in (0, 1):
        code = ends(group, index, number, again)
        assert code == 128 + number, group.log(index)


@pytest.mark.cluster
class TestLaunch:
  def start(self, group, data_dir, train_dir, **environment):
    command = ['--', 'train', 'mnist', *train(data_dir, train_dir)]
    terngrad(group, 'launch', *command, **environment)
    read_until(group, 0, 'step 10,')

  def trainers(self, process):
    """The processes of the tasks, by their `--task_id`."""
    found = {}
    for number in signal_guard.descendants(process.pid):
      line = pathlib.Path(f'/proc/{number}/cmdline').read_text()
      _, flag, after = line.partition('--task_id=')
      if flag:
        found[after.partition('\0')[0]] = number
    return [found[key] for key in sorted(found)]

  @both_signals
  def test_a_stopped_trainer_is_woken_and_all_save(
    self, data_dir, tmp_path, number
  ):
    with processes.Processes() as group:
      self.start(group, data_dir, tmp_path, **LONG)
      os.kill(self.trainers(group.processes[0])[1], signal.SIGSTOP)
      assert_saved_and_ended(group, 0, number, tmp_path)

  @both_signals
  def test_trainers_that_are_stopped_again_are_killed(
    self, data_dir, tmp_path, number
  ):
    with processes.Processes() as group:
      self.start(group, data_dir, tmp_path, **LONG)
      trainers = self.trainers(group.processes[0])
      for trainer in trainers:
        os.kill(trainer, signal.SIGSTOP)
      code = ends(group, 0, number, again=True)
      assert code == 128 + number, group.log(0)
    assert not any(map(alive, trainers))


@pytest.mark.cluster
@both_signals
def test_an_exchange_takes_its_processes_along(number):
  with processes.Processes() as group:
    process = terngrad(
      *(group, 'measure', 'exchange', '--net=lenet', '--rounds=100000'),
      **LONG,
    )
    while len(family(process)) < 3:
      assert process.poll() is None, group.log(0)
      select.select([], [], [], 0.05)
    assert ends(group, 0, number) == 128 + number, group.log(0)


@pytest.mark.slow
@both_signals
def test_a_sweep_saves_and_leaves_no_process(data_dir, tmp_path, number):
  (tmp_path / 'sweep.ini').write_text(
    '[sweep]\nseeds = 1\nbaseline = ternary\n[flags]\n--batch_size = 4\n'
    '--max_steps = 100000\n[eval]\n--batch_size = 9\n[codec]\n'
    'ternary = --codec=ternary\n'
  )
  log = tmp_path / 'work' / 'ternary_seed1' / 'log.txt'
  with processes.Processes() as group:
    words = f'--data_dir={data_dir}', f'--work_dir={tmp_path / "work"}'
    terngrad(group, 'sweep', tmp_path, *words, **LONG)
    while not (log.exists() and 'step 10,' in log.read_text()):
      assert group.processes[0].poll() is None, group.log(0)
      select.select([], [], [], 0.05)
    assert ends(group, 0, number) == 128 + number, group.log(0)
  assert f'stopped by signal {signal.SIGTERM}' in log.read_text()


@pytest.mark.gate_every(2)
@both_signals
def test_an_evaluation_that_waits_for_checkpoints_ends(
  data_dir, tmp_path, number
):
  words = ['eval', 'mnist', f'--data_dir={data_dir}']
  words += [f'--checkpoint_dir={tmp_path}', f'--eval_dir={tmp_path / "eval"}']
  with programs.Program('terngrad.cli.main', words) as program:
    program.read_until('no checkpoint in')
    program.send(number)
    ended = program.wait()
  assert ended.code == 128 + number, ended.err
