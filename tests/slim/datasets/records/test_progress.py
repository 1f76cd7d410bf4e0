"""Progress where there is a terminal, and where there is none."""

import io
import sys

import pytest

from slim.datasets.records import progress


@pytest.fixture
def seconds(monkeypatch):
  """Makes a number of steps pass, each of 7 seconds; what is written."""

  def run(steps, is_terminal=False):
    now = [0.0]
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, 'stderr', stream)
    bar = progress.Progress(range(steps), desc='work', file=stream)
    bar._time = lambda: now[0]
    bar.start_t = bar.last_print_t = 0.0
    for _ in bar:
      now[0] += 7
    return stream.getvalue()

  return run


def test_a_log_file_gets_a_whole_line_every_half_minute(seconds):
  lines = seconds(20).splitlines()
  assert 3 <= len(lines) <= 5
  for line in lines:
    assert line.startswith('work: ') and '\r' not in line and '/20' in line


def test_short_work_leaves_no_line_in_a_log_file(seconds):
  assert seconds(4) == ''


def test_a_terminal_gets_a_bar(seconds):
  assert '\r' in seconds(4, is_terminal=True)


@pytest.mark.parametrize('is_terminal', [False, True])
def test_a_result_is_a_line_of_standard_output(
  monkeypatch, capsys, is_terminal
):
  stream = io.StringIO()
  stream.isatty = lambda: is_terminal
  monkeypatch.setattr(sys, 'stderr', stream)
  with progress.Progress(total=2, file=stream) as bar:
    bar.set_description('next', refresh=False)
    bar.say('first is done')
  assert capsys.readouterr().out == 'first is done\n'
  assert bool(stream.getvalue()) == is_terminal
