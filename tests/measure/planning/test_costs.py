"""Costs come from the cache, and are timed where it has none."""

import pytest

from terngrad.measure.planning import cache
from terngrad.measure.planning import coding
from terngrad.measure.planning import costs
from terngrad.measure.planning import model

QUIET = model.Coding(1e-9, 2e-9, 3e-9, 0.01)
NOISY = QUIET._replace(spread=0.5)
OPTIONS = costs.TimingOptions(rounds=1, most_seconds=5)


class Machine:
  """Stands in for the timing: costs by codec, and the calls so far."""

  def __init__(self):
    self.costs = {}
    self.calls = []
    self.lines = []

  def measure_all(self, texts, rounds, most_seconds):
    self.calls.append([*texts])
    return {text: self.costs.get(text, QUIET) for text in texts}

  def find(self, *texts, **changes):
    self.lines = []
    options = OPTIONS._replace(**changes)
    return costs.find(texts, options, self.lines.append)

  @property
  def output(self):
    return '\n'.join(self.lines)


@pytest.fixture
def machine(tmp_path, monkeypatch):
  found = Machine()
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.setattr(coding, 'measure_all', found.measure_all)
  monkeypatch.setattr(costs.os, 'getloadavg', lambda: (0.0, 0.0, 0.0))
  return found


def test_the_second_plan_times_only_what_is_new(machine):
  assert machine.find('ternary') == {'ternary': QUIET}
  assert machine.find('ternary', 'fp16') == {'ternary': QUIET, 'fp16': QUIET}
  assert str(cache.path()) in machine.output
  assert machine.find('fp16', 'ternary')
  assert machine.calls == [['ternary'], ['fp16']]


def test_refresh_times_again_and_replaces_only_these_codes(machine):
  machine.find('ternary', 'fp16')
  machine.costs['ternary'] = QUIET._replace(send=9e-9)
  assert machine.find('ternary', reads=False)['ternary'].send == 9e-9
  found = machine.find('ternary', 'fp16')
  assert found == {'ternary': QUIET._replace(send=9e-9), 'fp16': QUIET}
  assert len(machine.calls) == 2


def test_times_that_another_plan_stores_meanwhile_stay(machine, monkeypatch):
  def measure_all(texts, rounds, most_seconds):
    cache.write(cache.path(), {'fp16': NOISY})
    return dict.fromkeys(texts, QUIET)

  machine.find('sign')
  monkeypatch.setattr(coding, 'measure_all', measure_all)
  machine.find('ternary')
  assert cache.read(cache.path()) == {'fp16': NOISY, 'ternary': QUIET}


def test_without_the_cache_nothing_is_read_or_stored(machine):
  off = {'reads': False, 'writes': False}
  machine.find('ternary', **off)
  assert not cache.path().exists()
  machine.find('ternary')
  machine.find('ternary', **off)
  assert len(machine.calls) == 3


def test_noisy_times_are_warned_of_and_taken_again(machine):
  machine.costs['ternary'] = NOISY
  machine.find('ternary', 'fp16')
  assert 'warning: coding times vary' in machine.output
  assert 'ternary ±50%' in machine.output and 'fp16 ±' not in machine.output
  machine.find('ternary', 'fp16')
  assert machine.calls == [['ternary', 'fp16'], ['ternary']]


def test_of_noisy_times_the_shortest_counts_until_one_is_not_noisy(machine):
  slower = NOISY._replace(send=5e-9)
  for now, expected in [
    *((slower, slower), (NOISY, NOISY), (slower, NOISY)),
    *((QUIET, QUIET), (slower, QUIET)),
  ]:
    machine.costs['ternary'] = now
    assert machine.find('ternary') == {'ternary': expected}
  assert len(machine.calls) == 4


def test_of_noisy_times_encoding_and_decoding_together_are_compared(machine):
  # Sending takes longer than before, both together less.
  first = NOISY._replace(send=2e-9, receive=9e-9)
  second = NOISY._replace(send=3e-9, receive=1e-9)
  for now in (first, second):
    machine.costs['ternary'] = now
    assert machine.find('ternary') == {'ternary': now}


def test_a_busy_machine_is_warned_of(machine, monkeypatch):
  machine.find('ternary')
  assert 'warning' not in machine.output
  monkeypatch.setattr(costs.os, 'getloadavg', lambda: (1000.0, 0.0, 0.0))
  machine.find('fp16')
  assert 'warning: the load of this machine is 1000.0' in machine.output


def test_a_damaged_cache_is_ignored_with_a_word_and_replaced(machine):
  file = cache.path()
  file.parent.mkdir()
  file.write_text('{')
  assert machine.find('ternary') == {'ternary': QUIET}
  assert f'warning: the stored coding times are ignored: {file}' in (
    machine.output
  )
  machine.find('ternary')
  assert len(machine.calls) == 1


def test_a_folder_that_cannot_be_written_is_no_error(
  machine, tmp_path, monkeypatch
):
  (tmp_path / 'file').touch()
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'file'))
  assert machine.find('ternary') == {'ternary': QUIET}
  assert 'warning: the coding times are not stored' in machine.output


@pytest.mark.parametrize(
  ('text', 'is_stored'),
  [
    ('error_feedback+topk:ratio=0.01', True),
    ('momentum:clip_norm=5+dgc', True),
    ('of_a_plug_in', False),
    ('error_feedback+of_a_plug_in:a=1', False),
  ],
)
def test_only_codes_of_this_package_are_stored(machine, text, is_stored):
  machine.find(text)
  assert cache.path().exists() == is_stored
