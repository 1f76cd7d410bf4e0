"""Parts run one after the other, and none outlives its time limit."""

import json
import os
import pathlib
import sys

import pytest

from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts
from terngrad.measure.gpu import results
from terngrad.measure.gpu import supervisor

WORKS = 'print(\'figure ["speed", 3.0, "GB/s", null]\')'
# Starts another process, and waits for it without end.
HANGS = """
import os, subprocess, sys
program = 'import signal; signal.pause()'
child = subprocess.Popen([sys.executable, '-c', program])
print(f'figure ["child", {child.pid}, "", null]', flush=True)
child.wait()
"""
FAILS = 'import sys; print("before"); sys.exit("the cause")'
CRASHES = 'import os, signal; os.kill(os.getpid(), signal.SIGSEGV)'
NO_DEVICE = 'import sys; sys.stderr.write("error: no GPU"); sys.exit(3)'


class TestTimer:
  """Calls the function when the check prints a figure named `child`."""

  __test__ = False

  def __init__(self):
    self.limits, self.kill = [], None

  def make(self, seconds, kill):
    self.limits.append(seconds)
    self.kill = kill
    return self

  def start(self):
    pass

  def cancel(self):
    self.kill = None


@pytest.fixture
def check(tmp_path):
  """Returns a function that runs programs as parts, and what it returned."""

  def run(total=0.0, **programs):
    timer, lines = TestTimer(), []

    def say(line):
      lines.append(line)
      if 'child: ' in line:
        timer.kill()

    found = results.CheckResults(tmp_path, '/GPU:0')
    chosen = {name: parts.CheckPart(name, 7.0, '') for name in programs}
    commands = {n: [sys.executable, '-c', p] for n, p in programs.items()}
    total = total or 7.0 * len(programs)
    exists = supervisor.run(chosen, commands, found, say, total, timer.make)
    return exists, found, lines, timer.limits

  return run


def read(folder):
  return json.loads((folder / 'gpu_check.json').read_text(encoding='utf-8'))


def is_running(pid):
  """Whether a process exists and is not a zombie."""
  try:
    stat = pathlib.Path(f'/proc/{pid}/stat').read_text(encoding='ascii')
  except (FileNotFoundError, ProcessLookupError):
    return False
  return stat.rpartition(')')[2].split()[0] != 'Z'


def test_a_part_is_killed_at_its_limit_with_its_children_and_the_next_runs(
  check, tmp_path
):
  exists, found, lines, limits = check(hangs=HANGS, works=WORKS)
  assert exists and not found.passed
  assert found.statuses['hangs'] == 'killed at its limit of 7 s'
  assert found.statuses['works'].startswith('done in ')
  assert 'works: speed: 3 GB/s' in lines
  assert limits[0] == pytest.approx(7.0, abs=0.1)
  stored = read(tmp_path)
  assert stored['parts'] == found.statuses
  child, speed = stored['figures']
  assert not is_running(child['value'])
  assert speed == {
    **{'part': 'works', 'name': 'speed', 'value': 3.0},
    **{'unit': 'GB/s', 'limit': None},
  }


def test_a_part_that_fails_shows_its_cause_and_the_next_runs(check, tmp_path):
  exists, found, lines, _ = check(fails=FAILS, works=WORKS)
  assert exists and not found.passed
  assert found.statuses['fails'] == 'failed with exit code 1'
  assert 'before' in lines
  log = tmp_path / 'fails.log'
  message = f'the cause\nfails: failed with exit code 1; see {log}'
  assert message in lines
  assert 'works: speed: 3 GB/s' in lines


def test_a_part_that_a_signal_killed_names_it_and_where_and_what_to_do(
  check, tmp_path
):
  _, found, lines, _ = check(crashes=CRASHES, works=WORKS)
  assert found.statuses['crashes'] == 'failed with signal 11 (SIGSEGV)'
  said = '\n'.join(lines)
  assert 'Fatal Python error: Segmentation fault' in said
  log = tmp_path / 'crashes.log'
  assert (
    f'crashes: failed with signal 11 (SIGSEGV); see {log}. A library crashed. '
    'To run this part alone, use --parts=crashes.'
  ) in said
  assert 'works: speed: 3 GB/s' in lines


def test_without_the_device_nothing_else_runs_and_no_results_are_written(
  check, tmp_path
):
  exists, found, lines, _ = check(first=NO_DEVICE, works=WORKS)
  assert not exists
  assert lines[-1] == 'error: no GPU'
  assert not found.statuses
  assert not (tmp_path / 'gpu_check.json').exists()


def test_limits_shrink_to_the_time_that_is_left_and_then_parts_are_skipped(
  check, monkeypatch
):
  # Start, then the begin and the end of each part.
  clock = iter([0.0, 0.0, 4.0, 4.0, 9.0, 10.0])
  monkeypatch.setattr(supervisor.time, 'monotonic', lambda: next(clock))
  _, found, _, limits = check(10.0, a=WORKS, b=WORKS, c=WORKS)
  assert limits == [7.0, 6.0]
  assert [*found.statuses.values()] == [
    'done in 4 s',
    'done in 5 s',
    'skipped: 10 s are over',
  ]


def test_time_that_earlier_parts_did_not_need_prolongs_later_limits(
  check, monkeypatch
):
  clock = iter([0.0, 0.0, 1.0, 1.0, 2.0])
  monkeypatch.setattr(supervisor.time, 'monotonic', lambda: next(clock))
  _, _, _, limits = check(20.0, a=WORKS, b=WORKS)
  assert limits == [13.0, 19.0]


def test_files_are_complete_after_each_figure(check, tmp_path):
  # The second part reads what was written before it ended.
  second = f"""
import json, pathlib
path = pathlib.Path({str(tmp_path / 'gpu_check.json')!r})
stored = json.loads(path.read_text())
figures, parts = len(stored['figures']), len(stored['parts'])
print('figure ["before", %d%d, "", null]' % (figures, parts))
"""
  _, found, lines, _ = check(works=WORKS, second=second)
  assert found.passed
  assert 'second: before: 11' in lines
  assert not [*tmp_path.glob('.*')]
  assert os.listdir(tmp_path).count('gpu_check.txt') == 1


def test_the_figures_of_a_running_part_are_stored(tmp_path):
  found = results.CheckResults(tmp_path, '/GPU:0')
  found.add('words', figures.Figure('topk', 0, 'words differ', 0.0))
  stored = read(tmp_path)
  assert stored['parts'] == {'words': 'running'} and not found.passed
  assert stored['figures'][0]['name'] == 'topk'


def test_a_figure_above_its_limit_is_marked_and_a_later_one_replaces_it(
  tmp_path,
):
  found = results.CheckResults(tmp_path, '/GPU:0')
  found.add('words', figures.Figure('topk', 2, 'words differ', 0.0))
  found.end_part('words', 'done in 1 s')
  assert not found.passed
  assert 'TOO LARGE' in (tmp_path / 'gpu_check.txt').read_text()
  found.add('words', figures.Figure('topk', 0, 'words differ', 0.0))
  found.end_part('words', 'done in 1 s')
  assert found.passed
  assert len(read(tmp_path)['figures']) == 1


def test_the_limits_of_all_parts_add_up_to_six_minutes():
  assert (
    sum(part.seconds for part in parts.PARTS.values()) == parts.TOTAL == 360
  )
