"""A tracker gets all numbers in order, and nothing that it does stops a run."""

import importlib.util
import json
import sys
import threading
import types

import pytest

from terngrad import errors
from terngrad.tracking import background
from terngrad.tracking import identities
from terngrad.tracking import trackers
from terngrad.training import records
from tests.tracking import tracked_runs

NAME = 'wandb'


class Recorded:
  """A tracker that keeps what it gets; `act` is called for each part."""

  def __init__(self, run, act):
    self.run, self.act, self.got = run, act, []
    self.identity = {'id': run.identity.get('id', 'first')}
    act('start')

  def log(self, step, values):
    self.act('log')
    self.got.append((step, values))

  def close(self, failed):
    self.act('close')
    self.got.append(failed)


@pytest.fixture
def begun(monkeypatch):
  """Replaces the tracker `wandb`; returns a function and the begun runs."""
  found = []

  def replace(act=lambda part: None, active=''):
    def begin(run):
      found.append(Recorded(run, act))
      return found[-1]

    module = types.ModuleType('replaced')
    module.start, module.find_active = begin, lambda: active
    monkeypatch.setitem(sys.modules, 'replaced', module)
    monkeypatch.setitem(trackers.MODULES, NAME, 'replaced')
    monkeypatch.setattr(trackers, 'check_installed', lambda log_to: None)

  replace.runs = found
  return replace


def train(folder, steps=20, log_to=(NAME,), **changes):
  return tracked_runs.train(folder, steps, log_to, **changes)


@pytest.mark.usefixtures('eager_functions')
def test_a_resumed_run_continues_the_same_run_and_overwrite_begins_another(
  tmp_path, begun
):
  begun()
  train(tmp_path, 2)
  train(tmp_path, 4)
  first, second = begun.runs
  assert not first.run.identity and second.run.identity == {'id': 'first'}
  assert first.run.options['net'] == 'lenet'
  logged = [{'step': s, **v} for s, v in first.got[:-1] + second.got[:-1]]
  assert logged == records.read(tmp_path)
  assert first.got[-1] is second.got[-1] is False
  # Without TensorBoard's name there are no events.
  assert not list(tmp_path.glob('events.*'))
  train(tmp_path, 2, overwrite=True)
  assert not begun.runs[2].run.identity


@pytest.mark.parametrize('part', ['start', 'log', 'close'])
@pytest.mark.parametrize('error', [RuntimeError('no\nroute'), SystemExit(3)])
def test_a_tracker_that_fails_costs_one_warning(
  tmp_path, begun, caplog, part, error
):
  def fail(now):
    if now == part:
      raise error

  begun(fail)
  recorder = records.Recorder(tmp_path, log_to=[NAME])
  recorder.scalars(1, {'loss': 0.5})
  recorder.scalars(2, {'loss': 0.25})
  recorder.close()
  (warning,) = [r.getMessage() for r in caplog.records]
  text = ' '.join(str(error).split())
  assert 'wandb: expected to log the metrics there, received: ' in warning
  assert f'{type(error).__name__}: {text}. Training goes on' in warning
  assert [r['loss'] for r in records.read(tmp_path)] == [0.5, 0.25]


def test_training_ends_although_a_tracker_fails(tmp_path, begun):
  def fail(part):
    raise ConnectionError(part)

  begun(fail)
  assert train(tmp_path, 10).step == 10


def test_a_tracker_that_does_not_answer_is_left_behind(
  tmp_path, begun, caplog, monkeypatch
):
  answers = threading.Event()
  begun(lambda part: answers.wait(60))
  monkeypatch.setattr(background, '_CLOSING_SECONDS', 0.05)
  recorder = records.Recorder(tmp_path, log_to=[NAME])
  recorder.scalars(1, {'loss': 0.5})
  recorder.close()
  answers.set()
  (warning,) = [r.getMessage() for r in caplog.records]
  assert 'received: no answer for 0.05 seconds' in warning


def test_a_run_that_fails_is_marked(tmp_path, begun, monkeypatch):
  begun()

  def fail(*_):
    raise errors.TrainingError('lost')

  monkeypatch.setattr('terngrad.training.loop._take_steps', fail)
  with pytest.raises(errors.TrainingError, match='lost'):
    train(tmp_path)
  assert begun.runs[0].got == [True]


def test_an_active_run_of_the_program_is_passed_on(tmp_path, begun):
  begun(active='theirs')
  records.Recorder(tmp_path, log_to=[NAME]).close()
  assert begun.runs[0].run.active == 'theirs'


@pytest.mark.parametrize('text', ['{', '[]', '{"wandb": 3}', '\x00'])
def test_a_damaged_file_of_ids_begins_new_runs(tmp_path, begun, caplog, text):
  begun()
  path = tmp_path / identities.FILE_NAME
  path.write_text(text, encoding='utf-8')
  records.Recorder(tmp_path, log_to=[NAME]).close()
  assert begun.runs[0].run.identity == {}
  assert 'expected the ids of runs' in caplog.text
  assert json.loads(path.read_text()) == {NAME: {'id': 'first'}}


@pytest.mark.parametrize('names', ['wandb,wandb', 'comet', 'Wandb'])
def test_unknown_and_repeated_names_are_refused(tmp_path, names):
  with pytest.raises(
    errors.ConfigError,
    match=f'log_to: expected names of tensorboard, wandb, mlflow.*{names}',
  ):
    train(tmp_path, log_to=tuple(names.split(',')))


@pytest.mark.parametrize(
  ('names', 'hint'),
  [
    (['tensorboard', 'wandbb'], "Did you mean 'wandb'?"),
    (['wandb', 'wandb'], 'Separate several by commas.'),
  ],
)
def test_a_misspelled_tracker_is_suggested(names, hint):
  with pytest.raises(errors.ConfigError) as caught:
    trackers.check(names)
  assert str(caught.value).endswith(hint)


def test_a_missing_package_names_its_extra(tmp_path, monkeypatch):
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
  with pytest.raises(
    errors.ConfigError, match=r'package mlflow.*pip install .*\[mlflow]'
  ):
    train(tmp_path / 'run', log_to=('mlflow',))
  assert not (tmp_path / 'run').exists()


@pytest.mark.skipif(
  importlib.util.find_spec('mlflow') is not None, reason='mlflow is installed'
)
def test_a_folder_of_the_name_is_not_the_package(tmp_path, monkeypatch):
  (tmp_path / 'mlflow').mkdir()
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(errors.ConfigError, match='expected the package mlflow'):
    trackers.check_installed(['mlflow'])


def test_processes_that_write_no_files_need_no_package_and_log_nothing(
  begun, monkeypatch
):
  """As one of the other processes of a run: its part has no records."""
  begun()
  monkeypatch.setattr(
    trackers, 'check_installed', lambda log_to: pytest.fail('asked')
  )
  monkeypatch.setattr(
    'terngrad.config.cluster.ClusterOptions.writes_files', False
  )
  assert train('').step == 20
  assert not begun.runs
