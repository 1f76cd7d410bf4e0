"""Runs with increasing numbers of devices and processes, and their table."""

import math
import os
import signal
import sys

import pytest

from terngrad import errors
from terngrad import signals
from terngrad.children import captured
from terngrad.cli import flags
from terngrad.cli.measure import scaling as command
from terngrad.measure import scaling
from terngrad.training import records

COMMAND = ('train', 'mnist', '--benchmark_mode', '--net=lenet')
POINTS = scaling.points([1, 2], [1, 4], ['identity', 'ternary'])


def words(over, count, kind):
  point = scaling.Point(over, count, kind, 'ternary')
  return scaling.words(point, COMMAND, 16, 5, 'T')


def test_points_cover_codecs_counts_and_kinds_of_scaling():
  assert len(POINTS) == len(set(POINTS)) == 2 * 2 * (2 + 2)
  assert {p.count for p in POINTS if p.over == scaling.PROCESSES} == {1, 4}


def test_weak_scaling_grows_the_batch_and_strong_splits_it():
  assert '--batch_size=32' in words('devices', 2, 'weak')
  assert '--batch_size=16' in words('devices', 2, 'strong')
  assert '--num_gpus=2' in words('devices', 2, 'strong')


def test_each_launched_process_has_one_device():
  several = words('processes', 4, 'weak')
  assert several[:3] == ['launch', '--num_workers=4', '--']
  assert several[3:7] == list(COMMAND)
  assert '--num_gpus=1' in several and '--batch_size=64' in several
  assert words('processes', 1, 'weak')[:1] == ['train']


def test_speed_up_compares_the_same_codec_and_scaling():
  speeds = {
    point: [100.0 * point.count, 50.0 * point.count] for point in POINTS
  }
  rows = scaling.table(speeds).set_index(list(scaling.Point._fields))
  one = rows.loc['processes', 4, 'strong', 'ternary']
  assert one['images/s'] == 300
  assert one['speed-up'] == 4
  assert (one['least'], one['most']) == (200, 400)


def test_speed_up_is_nan_without_a_run_on_one_device():
  point = scaling.Point('devices', 2, 'weak', 'ternary')
  (row,) = scaling.table({point: [7.0]}).to_dict('records')
  assert math.isnan(row['speed-up'])


def test_chart_has_two_panels_with_an_ideal_line():
  rows = scaling.table({point: [100.0 * point.count] for point in POINTS})
  left, right = scaling.chart(rows, 'title').axes
  assert (left.get_xlabel(), right.get_xlabel()) == ('devices', 'processes')
  # Two codes, weak, strong and ideal.
  assert len(left.lines) == len(right.lines) == 6


def test_error_of_a_failed_run_shows_its_last_lines():
  point = scaling.Point('devices', 1, 'weak', 'no_such_code')
  with pytest.raises(errors.TrainingError, match='no_such_code') as raised:
    scaling.measure([point], COMMAND, 8, 2, 1)
  assert 'received exit code 2 after these lines' in str(raised.value)
  assert 'codec: expected' in str(raised.value)


def test_the_first_logged_interval_is_not_timed(monkeypatch):
  """It has the tracing of the step."""
  rows = [{'sec_per_batch': seconds} for seconds in (9.0, 0.5, 0.25, 0.25)]
  monkeypatch.setattr(captured, 'run', lambda words: (0, ''))
  monkeypatch.setattr(records, 'read', lambda folder: rows)
  table = scaling.measure([POINTS[0]], COMMAND, 8, scaling.LEAST_STEPS, 1)
  assert list(table['images/s']) == [32.0]


@pytest.mark.slow
@pytest.mark.cluster
def test_devices_and_processes_are_measured(tmp_path, capsys):
  command.act(
    command.MeasureScalingFlags(
      batch_size=8,
      codecs=('ternary',),
      steps=20,
      output=str(tmp_path),
      command=COMMAND,
    )
  )
  out = capsys.readouterr().out
  assert out.count(' ternary ') == 8
  assert (tmp_path / 'scaling.png').stat().st_size
  header, *rows = (tmp_path / 'scaling.csv').read_text().splitlines()
  assert header == 'over,count,scaling,codec,images/s,speed-up,least,most'
  assert len(rows) == 8


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    ({'command': ()}, 'received .nothing'),
    ({'command': ('eval', 'mnist')}, 'eval mnist'),
    ({'devices': ('0',)}, 'whole numbers above 0'),
    ({'processes': ('two',)}, 'whole numbers above 0'),
    # All of them are before the first log line.
    ({'steps': 10}, 'steps: expected a number >= 11, received 10'),
  ],
)
def test_invalid_flags_are_refused(change, said):
  values = {'command': COMMAND} | change
  with pytest.raises((flags.UsageError, errors.ConfigError), match=said):
    command.act(command.MeasureScalingFlags(**values))


def test_a_signal_ends_the_measured_run(tmp_path, monkeypatch):
  started, never = tmp_path / 'started', tmp_path / 'never'
  os.mkfifo(started)
  os.mkfifo(never)
  script = tmp_path / 'python'
  # The signal comes when the run is at work, which would take minutes. It
  # prints more than a pipe holds, so that its output is being read by then. And
  # it comes every second: one that comes between two reads in C does not wake
  # the second, in programs the thread of `signal_guard` ends that.
  outlived = tmp_path / 'outlived'
  script.write_text(
    f'#!/usr/bin/env bash\necho $$ >{started}\nprintf %200000s\n'
    f'for _ in {{1..200}}; do kill -TERM $PPID; read -r -t 1 <>{never}; done\n'
    f'touch {outlived}\n'
  )
  script.chmod(0o755)
  monkeypatch.setattr(sys, 'executable', str(script))
  with open(started, 'r+b', buffering=0) as pipe:

    def interrupt(number, frame):
      del frame
      raise signals.Interrupted(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
      with pytest.raises(signals.Interrupted):
        captured.run(['train'])
    finally:
      signal.signal(signal.SIGTERM, before)
    process = int(pipe.readline())
  with pytest.raises(ProcessLookupError):
    os.kill(process, 0)
  assert not outlived.exists()
