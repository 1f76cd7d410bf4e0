"""What stops a run: numbers of a step, or no folder to begin in."""

import contextlib
import functools
import resource
import signal
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config as tf_config

from terngrad import errors
from terngrad.config import options as options_lib
from terngrad.config import servers
from terngrad.config import training as configs
from terngrad.machine import determinism
from terngrad.parameter_server import server_run
from terngrad.step import schedules
from terngrad.training import assembly
from terngrad.training import evaluation
from terngrad.training import execution
from terngrad.training import loop
from terngrad.training import records
from terngrad.training import run_writer
from terngrad.training import start
from tests.bin import programs

RUN = types.SimpleNamespace(parameters=['fc/kernel', 'fc/bias'])
CODEC = types.SimpleNamespace(probed_variables=lambda: [0, 1])


def check(probes, entropy=(1.0, 1.0, 1.0, 1.0)):
  result = types.SimpleNamespace(
    entropy=tf.constant(entropy),
    probes=tf.constant(np.array(probes, np.float32)),
    worker_labels=None,
  )
  loop._check_finite(RUN, loop._Taken(7, result, CODEC, 0.1))


def test_finite_numbers_do_not_stop_the_run():
  check([[0.0, 8e37]] * 4)


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_stops_the_run(value):
  probes = [[1.0, 1.0], [1.0, value], [1.0, 1.0], [1.0, 1.0]]
  with pytest.raises(
    errors.TrainingError, match='^Step 7: .*the gradient of fc/bias on worker 1'
  ):
    check(probes)


def test_gradients_that_add_up_to_infinity_stop_the_run():
  """Four of 3e38 are finite, and so is their mean, but not their sum."""
  with pytest.raises(
    errors.TrainingError, match='the sum of fc/kernel on worker 0, sum of'
  ):
    check([[3e38, 1.0]] * 4)


def test_a_loss_that_is_not_finite_stops_the_run():
  with pytest.raises(errors.TrainingError, match='the loss of worker 3'):
    check([[1.0, 1.0]] * 4, (1.0, 1.0, 1.0, np.nan))


@pytest.mark.usefixtures('eager_functions')
def test_files_are_written_within_a_time_limit(tmp_path, monkeypatch):
  """A lost task that TensorFlow waits for must not keep the process alive."""
  limits, seen = [], []
  close, save = records.Recorder.close, run_writer.RunWriter.save

  @contextlib.contextmanager
  def local_time_limit(self, what):
    limits.append(what)
    yield
    limits.remove(what)

  monkeypatch.setattr(execution.Hooks, 'local_time_limit', local_time_limit)
  monkeypatch.setattr(
    records.Recorder,
    'close',
    lambda *values: (seen.append([*limits]), close(*values)),
  )
  monkeypatch.setattr(
    run_writer.RunWriter,
    'save',
    lambda *values: seen.append([*limits]) or save(*values),
  )
  config = options_lib.build(
    configs.TrainConfig,
    net='lenet',
    dataset_name='mnist',
    batch_size=4,
    max_steps=1,
    train_dir=str(tmp_path),
    benchmark_mode=True,
    image_size=8,
  )
  start.train(config, lambda line: None)
  assert seen == [['Checkpoint of step 1'], ['End of the records']]


def short_config(train_dir, **changes):
  """LeNet on constant images for six steps."""
  values = {'max_steps': 6, 'save_iter': 1, 'batch_size': 4} | changes
  return options_lib.build(
    configs.TrainConfig,
    net='lenet',
    dataset_name='mnist',
    train_dir=str(train_dir),
    benchmark_mode=True,
    image_size=8,
    **values,
  )


def short_run(train_dir, hooks=None, **changes):
  """Trains as `short_config` says; returns the log."""
  lines = []
  start.train(short_config(train_dir, **changes), lines.append, hooks=hooks)
  return lines


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize(
  ('codec', 'is_decoded'),
  [('ternary', True), ('ef21+topk', False), ('thc', False)],
)
def test_histograms_decode_only_words_that_need_nothing_else(
  tmp_path, codec, is_decoded
):
  short_run(tmp_path, codec=codec, max_steps=2, save_iter=1)
  assert programs.checkpoint_steps(tmp_path)[-1] == 2
  tags = {event.tag for event in programs.events(tmp_path)}
  assert any('/binary/' in tag for tag in tags) == is_decoded
  assert any(tag.startswith('tower_0/') for tag in tags)


@pytest.mark.usefixtures('eager_functions')
def test_the_averages_of_a_fragment_count_its_own_turns(tmp_path, monkeypatch):
  seen, decay = [], schedules.averaging_decay
  monkeypatch.setattr(
    schedules,
    'averaging_decay',
    lambda step, limit: seen.append(step) or decay(step, limit),
  )
  short_run(tmp_path / 'run', local_steps=2, fragments=2)
  assert seen == [number // 2 for number in range(len(seen))] and len(seen) > 2


def ahead(run, log_every=4):
  """Hooks as on a GPU, with a log line every few steps."""
  hooks = execution.Hooks()
  hooks.runs_ahead, hooks.log_every = True, log_every
  del run
  return hooks


def without_times(path):
  return [
    {name: value for name, value in one.items() if 'sec' not in name}
    for one in records.read(path)
  ]


@pytest.mark.usefixtures('eager_functions')
def test_results_that_are_read_later_give_the_same_records(
  tmp_path, monkeypatch
):
  """On GPUs the host reads results at log lines, epochs and checkpoints."""
  waits, take = [], loop._take_step

  def look(*arguments):
    waits.append(arguments[-1])
    return take(*arguments)

  monkeypatch.setattr(loop, '_take_step', look)
  options = {'max_steps': 7, 'save_iter': 3, 'grad_bits': 1}
  short_run(
    tmp_path / 'later', functools.partial(ahead, log_every=2), **options
  )
  waited = [step for step, wait in enumerate(waits, 1) if wait]
  assert waited == [2, 3, 4, 6, 7]
  monkeypatch.setattr(execution.Hooks, 'log_every', 2)
  short_run(tmp_path / 'at_once', **options)
  assert all(waits[7:])
  found, expected = map(
    without_times, (tmp_path / 'later', tmp_path / 'at_once')
  )
  assert found == expected
  assert {one['step'] for one in found} == {2, 3, 4, 6, 7}
  for step in (3, 6, 7):
    prefixes = (
      tmp_path / name / f'model.ckpt-{step}' for name in ('later', 'at_once')
    )
    later, at_once = map(programs.tensors, prefixes)
    assert later == at_once


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize(
  ('function', 'hooks'), [('_take_step', ahead), ('_read', None)]
)
def test_a_stopped_run_continues_the_means_of_its_epoch(
  tmp_path, monkeypatch, function, hooks
):
  """The signal arrives in a step without a log line, or just after it."""
  called, calls = getattr(loop, function), []

  def call(*arguments):
    found = called(*arguments)
    calls.append(function)
    if len(calls) == 3:
      signal.raise_signal(signal.SIGTERM)
    return found

  monkeypatch.setattr(loop, function, call)
  options = {'max_steps': 5, 'save_iter': 10}
  for folder in ('stopped', 'stopped', 'whole'):
    short_run(tmp_path / folder, hooks, **options)
  stopped = without_times(tmp_path / 'stopped')
  assert stopped[0]['step'] == 3
  assert stopped[-1] == without_times(tmp_path / 'whole')[-1]


@pytest.mark.usefixtures('eager_functions')
def test_a_late_read_names_the_step_that_was_not_finite(tmp_path):
  with pytest.raises(errors.TrainingError, match='^Step 2: expected finite'):
    short_run(tmp_path, ahead, initial_learning_rate=1e38, save_iter=6)
  assert not [*tmp_path.glob('model.ckpt-*')]


@pytest.mark.usefixtures('eager_functions')
def test_a_run_has_the_op_determinism_that_it_logs(tmp_path, monkeypatch):
  seen, assemble = [], assembly.assemble

  def look(config):
    seen.append(tf_config.is_op_determinism_enabled())
    return assemble(config)

  monkeypatch.setattr(assembly, 'assemble', look)
  monkeypatch.setattr(determinism, 'has_gpu', lambda: True)
  for steps, deterministic in enumerate((True, False), start=1):
    lines = short_run(tmp_path, max_steps=steps, deterministic=deterministic)
    assert not tf_config.is_op_determinism_enabled()
    (line,) = (line for line in lines if 'operations: ' in line)
    assert ('two equal runs' in line) != deterministic
  assert seen == [True, False]
  assert any(
    'deterministic was True before and is now False' in line for line in lines
  )


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize(
  ('steps', 'keep'), [((), 3), (('2', '3'), 2), (('2', '99'), 3)]
)
@pytest.mark.gate_every(2)
def test_checkpoints_are_kept_and_steps_profiled_as_asked(
  tmp_path, steps, keep
):
  """A profile of steps beyond the end of the run ends with it."""
  lines = short_run(tmp_path, keep_checkpoints=keep, profile_steps=steps)
  found = {path.stem for path in tmp_path.glob('model.ckpt-*.index')}
  assert found == {f'model.ckpt-{step}' for step in range(7 - keep, 7)}
  profiles = [*tmp_path.glob('plugins/profile/*/*.xplane.pb')]
  said = [line for line in lines if 'wrote a profile' in line]
  assert len(profiles) == len(said) == bool(steps)
  # The name of the steps' events is in the file's table of strings.
  assert all(b'step_num' in path.read_bytes() for path in profiles)


@pytest.mark.usefixtures('eager_functions')
def test_a_profiler_that_fails_does_not_end_the_run(tmp_path, monkeypatch):
  def refuse(folder):
    raise tf.errors.AlreadyExistsError(None, None, 'another profiler runs')

  monkeypatch.setattr(tf.profiler.experimental, 'start', refuse)
  lines = short_run(tmp_path, profile_steps=('2', '3'), max_steps=3)
  assert (tmp_path / 'model.ckpt-3.index').exists()
  (line,) = [line for line in lines if '--profile_steps' in line]
  assert 'received: another profiler runs. Training goes on' in line
  lines = short_run(tmp_path, profile_steps=('2', '3'), max_steps=4)
  assert any('none of the steps 2 to 3 was taken' in line for line in lines)


def test_a_run_without_a_folder_does_not_begin():
  """2017's default was one folder for all runs, which the next continued."""
  with pytest.raises(errors.ConfigError, match='train_dir: .*Give --train_dir'):
    start.train(
      options_lib.build(configs.TrainConfig, benchmark_mode=True), None
    )
  hosts = {'worker_hosts': 'localhost:1', 'ps_hosts': 'localhost:2'}
  config = options_lib.build(servers.ServerConfig, job_name='worker', **hosts)
  with pytest.raises(errors.ConfigError, match='train_dir: .*Give --train_dir'):
    server_run.train(config, None)


@pytest.mark.parametrize('name', ['checkpoint_dir', 'eval_dir'])
def test_an_evaluation_without_a_folder_does_not_begin(name):
  folders = {'checkpoint_dir': '/a', 'eval_dir': '/b'} | {name: ''}
  with pytest.raises(errors.ConfigError, match=f'{name}: expected a folder'):
    evaluation.evaluate(options_lib.build(configs.EvalConfig, **folders), None)


def test_a_net_that_does_not_fit_into_memory_is_refused(tmp_path):
  config = options_lib.build(
    configs.TrainConfig,
    net='lenet',
    dataset_name='mnist',
    image_size=100_000_000,
    benchmark_mode=True,
    train_dir=str(tmp_path / 'run'),
  )
  with pytest.raises(errors.ConfigError, match='fit into the memory, received'):
    start.train(config, lambda line: None)
  assert not (tmp_path / 'run').exists()


@pytest.fixture
def disk():
  """Limits the size of files, like a full disk, until the test ends."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)

  def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

  yield limit
  resource.setrlimit(resource.RLIMIT_FSIZE, before)


def logs_every_step(run):
  del run
  hooks = execution.Hooks()
  hooks.log_every = 1
  return hooks


@pytest.mark.usefixtures('eager_functions')
def test_a_full_disk_is_one_line_for_the_run_and_for_its_continuation(
  tmp_path, disk
):
  path = tmp_path / records.FILE_NAME

  def report(line):
    if ': step 3,' in line:
      disk(path.stat().st_size)

  config = short_config(tmp_path, max_steps=4, save_iter=2, log_to=())
  message = rf'{tmp_path}: expected to write .* File too large\. Free some'
  with pytest.raises(errors.TrainingError, match=message):
    start.train(config, report, hooks=logs_every_step)
  assert records.read(tmp_path)[-1]['step'] == 3
  disk(1)
  with pytest.raises(errors.TrainingError, match=message):
    start.train(config, report)
  disk(resource.RLIM_INFINITY)
  short_run(tmp_path, max_steps=4, log_to=())
  assert records.read(tmp_path)[-1]['step'] == 4


@pytest.mark.usefixtures('eager_functions')
def test_records_that_cannot_be_closed_do_not_hide_why_a_run_stopped(
  tmp_path, monkeypatch
):
  close = records.Recorder.close

  def refuse(recorder, failed):
    close(recorder, failed)
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(records.Recorder, 'close', refuse)
  with pytest.raises(errors.TrainingError, match='^Step 2: expected finite'):
    short_run(tmp_path / 'fails', ahead, initial_learning_rate=1e38)
  with pytest.raises(errors.TrainingError, match='No space left on device'):
    short_run(tmp_path / 'ends', max_steps=1)


@pytest.mark.usefixtures('eager_functions')
def test_a_log_that_nobody_reads_is_no_full_disk(tmp_path):
  def report(line):
    if ': step 1,' in line:
      raise BrokenPipeError

  with pytest.raises(BrokenPipeError):
    start.train(short_config(tmp_path), report, hooks=logs_every_step)
