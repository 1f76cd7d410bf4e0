"""Several equal processes of mnist_train: bits, signals and faults."""

import re
import select
import signal

import pytest
import tensorflow as tf

from terngrad.cluster import watchdog
from terngrad.codec.methods.wrappers import bidirectional
from tests.bin import programs
from tests.exchange import processes

STEPS, SAVE_ITER = 50, 20
LAST = f'model.ckpt-{STEPS}'
# Two nodes on two devices of each process.
BOTH_DIRECTIONS = {
  'codec': 'error_feedback+bidirectional+ternary',
  'num_nodes': 4,
  'num_gpus': 2,
}

# Each worker takes steps of its own; the layers are exchanged in two parts.
FRAGMENTS = {
  'fragments': 2,
  'overlap_steps': 1,
  'inner_optimizer': 'adamw',
  'optimizer': 'nesterov',
  'outer_learning_rate': 0.7,
  'initial_learning_rate': 0.001,
}


# A recipe has a code of its own.
NO_CODE = {'grad_bits': None, 'clip_factor': None, 'quantize_logits': None}


def arguments(data_dir, train_dir, hosts, **changes):
  """Flags of a trainer; a change to None leaves a flag out."""
  values = {
    'exchange': 'collective',
    'worker_hosts': ','.join(hosts),
    'data_dir': data_dir,
    'train_dir': train_dir,
    'batch_size': 16,
    'grad_bits': 1,
    'clip_factor': 2.5,
    'quantize_logits': True,
    'max_steps': STEPS,
    'save_iter': SAVE_ITER,
  }
  changed = (values | changes).items()
  return programs.as_flags(**{k: v for k, v in changed if v is not None})


def start_all(group, count, data_dir, train_dir, **changes):
  hosts = processes.addresses(count)
  for rank in range(count):
    # Only the chief's folder is looked at.
    words = arguments(data_dir, train_dir, hosts, task_id=rank, **changes)
    group.start('-m', 'terngrad.bin.mnist_train', *words)
  return hosts


def run_all(count, data_dir, train_dir, **changes):
  with processes.Processes() as group:
    start_all(group, count, data_dir, train_dir, **changes)
    return group.wait()


def read_until(group, index, pattern):
  """Waits for a line of a process, as long as it lives."""
  while not re.search(pattern, group.log(index)):
    process = group.processes[index]
    assert process.poll() is None, group.log(index)
    select.select([], [], [], 0.05)  # lets the others run
  return group.log(index)


def assert_same_run(train_dir, reference, step=STEPS):
  received = programs.tensors(train_dir / f'model.ckpt-{step}')
  expected = programs.tensors(reference / f'model.ckpt-{step}')
  assert received.keys() == expected.keys()
  differing = [n for n in expected if received[n] != expected[n]]
  # The layout tells in how many devices and places a run was.
  assert [n for n in differing if not n.startswith('layout')] == []


@pytest.fixture(scope='module')
def towers(data_dir, tmp_path_factory):
  """Folders of undisturbed towers of 2 and of 4 nodes."""
  folder = tmp_path_factory.mktemp('towers')

  def train(nodes):
    path = folder / str(nodes)
    if not path.exists():
      words = arguments(data_dir, path, [], exchange='towers', num_nodes=nodes)
      finished = programs.run('mnist_train', *words)
      assert finished.code == 0, finished.err
    return path

  return train


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('count', [2, 4])
def test_processes_of_lenet_equal_towers_after_fifty_steps(
  count, data_dir, towers, tmp_path
):
  ended = run_all(count, data_dir, tmp_path / 'run')
  assert [one.code for one in ended] == [0] * count, ended
  assert_same_run(tmp_path / 'run', towers(count))
  # One process talks, and every one warns.
  assert 'step 50' in ended[0].log
  for one in ended:
    assert one.log.count('warning: TensorFlow has no authentication') == 1
    assert 'AutoGraph' not in one.log
  assert not any(': step' in one.log for one in ended[1:])


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
  'changes',
  [
    FRAGMENTS,
    NO_CODE | {'recipe': 'sparseloco'},
    NO_CODE | {'recipe': 'muloco'},
  ],
  ids=lambda changes: changes.get('recipe', 'fragments'),
)
def test_processes_with_separate_parameters_equal_towers(
  changes, data_dir, tmp_path
):
  changes = changes | {'local_steps': 4, 'num_nodes': 4, 'num_gpus': 2}
  words = arguments(
    data_dir, tmp_path / 'towers', [], exchange='towers', **changes
  )
  finished = programs.run('mnist_train', *words)
  assert finished.code == 0, finished.err
  ended = run_all(2, data_dir, tmp_path / 'run', **changes)
  assert [one.code for one in ended] == [0, 0], ended
  assert_same_run(tmp_path / 'run', tmp_path / 'towers')


@pytest.mark.cluster
@pytest.mark.slow
def test_eight_processes_equal_eight_virtual_nodes(data_dir, tmp_path):
  # Sums of floats, of codes and of few elements, and words of all for all.
  codes = {
    'codec': 'ternary',
    'codec_rules': 'rank<2 -> fp16; conv1/* -> qsgd; conv2/* -> topk:ratio=0.1',
    'max_steps': 3,
    'save_iter': 3,
    # Eight of them begin slowly on few cores.
    'start_timeout': 1200,
    'step_timeout': 1200,
  }
  alone = arguments(
    data_dir, tmp_path / 'alone', [], exchange='towers', num_nodes=8, **codes
  )
  finished = programs.run('mnist_train', *alone)
  assert finished.code == 0, finished.err
  ended = run_all(8, data_dir, tmp_path / 'run', **codes)
  assert [one.code for one in ended] == [0] * 8, ended
  assert_same_run(tmp_path / 'run', tmp_path / 'alone', step=3)


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_with_uneven_parts_of_a_batch_equal_towers_with_them(
  data_dir, tmp_path
):
  changes = {'device_weights': '3,1'}
  words = arguments(
    data_dir,
    tmp_path / 'towers',
    [],
    exchange='towers',
    num_gpus=2,
    save_tower=0,
    **changes,
  )
  finished = programs.run('mnist_train', *words)
  assert finished.code == 0, finished.err
  assert 'examples per worker: 12, 4\n' in finished.out
  ended = run_all(2, data_dir, tmp_path / 'run', **changes)
  assert [one.code for one in ended] == [0, 0], ended
  assert_same_run(tmp_path / 'run', tmp_path / 'towers')
  (tmp_path / 'other').mkdir()
  measured = run_all(
    2, data_dir, tmp_path / 'other' / 'run', device_weights='auto', max_steps=2
  )
  assert [one.code for one in measured] == [0, 0], measured


@pytest.mark.cluster
@pytest.mark.slow
def test_a_signal_to_one_stops_all_at_one_step_and_they_continue(
  data_dir, towers, tmp_path
):
  folder = tmp_path / 'run'
  with processes.Processes() as group:
    start_all(group, 2, data_dir, folder)
    read_until(group, 0, 'step 10,')
    group.processes[1].send_signal(signal.SIGTERM)
    ended = group.wait()
  assert [one.code for one in ended] == [128 + signal.SIGTERM] * 2, ended
  steps = [
    re.search(r'stopped by signal 15 after step (\d+)', one.log)[1]
    for one in ended
  ]
  assert steps[0] == steps[1]
  assert programs.checkpoint_steps(folder)[-1] == int(steps[0])
  ended = run_all(2, data_dir, folder)
  assert [one.code for one in ended] == [0, 0], ended
  assert_same_run(folder, towers(2))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_process_is_named_and_all_continue_to_the_same_bits(
  number, data_dir, towers, tmp_path
):
  folder = tmp_path / 'run'
  lose_one_and_continue(number, data_dir, folder)
  assert_same_run(folder, towers(2))


@pytest.mark.cluster
@pytest.mark.slow
def test_states_of_ranges_survive_a_killed_process(data_dir, tmp_path):
  one, other = tmp_path / 'undisturbed', tmp_path / 'killed'
  ended = run_all(2, data_dir, one, **BOTH_DIRECTIONS)
  assert [process.code for process in ended] == [0, 0], ended
  lose_one_and_continue(signal.SIGKILL, data_dir, other, **BOTH_DIRECTIONS)
  stored = programs.tensors(one / LAST)
  residuals = [name for name in stored if bidirectional.RESIDUAL in name]
  assert len(residuals) > 1
  assert_same_run(other, one)


def lose_one_and_continue(number, data_dir, folder, **changes):
  """Loses process 1 of 2 by a signal; all start again and end."""
  # Only the loss of a stopped process shows by time. A step that is compiled on
  # a busy machine takes minutes.
  seconds = 150 if number == signal.SIGSTOP else 1200
  with processes.Processes() as group:
    hosts = start_all(
      group, 2, data_dir, folder, step_timeout=seconds, **changes
    )
    # The checkpoint of step 20 is whole by then.
    read_until(group, 0, 'step 30,')
    group.processes[1].send_signal(number)
    code = group.processes[0].wait(timeout=processes.LIMIT)
    log = group.log(0)
  assert code == watchdog.LOST, log
  (line,) = re.findall('^error: .*', log, re.M)
  assert f'no answer from worker 1 ({hosts[1]})' in line
  assert 'restart all tasks that have ended' in line
  ended = run_all(2, data_dir, folder, **changes)
  assert [one.code for one in ended] == [0, 0], ended
  assert re.search('continuing after step (20|40)', ended[0].log)
  assert 'nothing kept' not in ended[0].log


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_with_other_options_refuse_each_other(data_dir, tmp_path):
  with processes.Processes() as group:
    hosts = processes.addresses(2)
    for rank in range(2):
      words = arguments(
        data_dir, tmp_path / 'run', hosts, task_id=rank, seed=1 + rank
      )
      group.start('-m', 'terngrad.bin.mnist_train', *words)
    ended = group.wait()
  for one in ended:
    assert one.code == 2, one
    assert re.search(
      "error: Fingerprint: expected seed to be '1' .* '2' on worker 1", one.log
    )
  assert not (tmp_path / 'run').exists()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_process_that_never_comes_is_named(data_dir, tmp_path):
  hosts = processes.addresses(2)
  words = arguments(data_dir, tmp_path / 'run', hosts, start_timeout=5)
  with processes.Processes() as group:
    group.start('-m', 'terngrad.bin.mnist_train', *words)
    (ended,) = group.wait()
  assert ended.code == 1
  assert 'error: Start: expected every task to respond' in ended.log
  assert f'no answer from worker 1 ({hosts[1]}) (it took more' in ended.log


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'worker_hosts': '10.0.0.1:1,10.0.0.2:1'}, '--allow_insecure_network'),
    ({'worker_hosts': 'a:1;b:2'}, 'expected host:port'),
    ({'worker_hosts': ''}, 'this task in one of the jobs'),
    ({'task_id': 2}, 'a worker task from 0 to 1, received 2'),
    ({'exchange': 'towers'}, 'Give --exchange=collective'),
    ({'exchange': 'rings'}, 'expected one of towers, collective'),
    ({'collective': 'all'}, 'expected one of auto, gather'),
    ({'communication': 'mpi'}, 'expected one of auto, ring, nccl'),
    pytest.param(
      {'communication': 'nccl'},
      'expected a GPU for nccl',
      marks=pytest.mark.skipif(
        bool(tf.config.list_physical_devices('GPU')), reason='there is a GPU'
      ),
    ),
    ({'bytes_per_bucket': -1}, 'expected bytes >= 0, received -1'),
    ({'ps_hosts': 'localhost:9'}, 'list all processes as workers'),
    ({'num_nodes': 3}, 'a multiple of the 2 processes'),
    ({'cluster': 'tf_config'}, 'worker_hosts: expected none with --cluster=tf'),
    (
      {'cluster': 'tf_config', 'worker_hosts': ''},
      'TF_CONFIG: expected JSON',
    ),
    (
      {'cluster': 'rendezvous', 'worker_hosts': ''},
      'rendezvous_dir: expected a folder',
    ),
    ({'cluster': '/nowhere/hosts'}, 'expected flags, tf_config, slurm'),
    ({'start_timeout': 'nan'}, 'expected seconds from 1'),
  ],
)
def test_invalid_clusters_are_refused_before_anything_is_written(
  changes, message, worker, data_dir, tmp_path
):
  hosts = ['localhost:1', 'localhost:2']
  words = arguments(data_dir, tmp_path / 'run', hosts, **changes)
  finished = worker.run('mnist_train', words)
  assert finished.code == 2, finished
  assert message in finished.error
  assert not (tmp_path / 'run').exists()
