"""`terngrad measure gpu` starts its parts, and says so if there is no GPU."""

import sys

import pytest

from terngrad import errors
from terngrad.cli.measure import gpu
from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts
from terngrad.measure.gpu import supervisor


@pytest.fixture
def runs(monkeypatch):
  """The commands of each check that was started; all find a device."""
  started = []

  def run(chosen, commands, found, say):
    started.append(commands)
    for name in chosen:
      found.add(name, figures.Figure('number', 3.0, '', 2.0))
      found.end_part(name, 'done in 1 s')
    return True

  monkeypatch.setattr(supervisor, 'run', run)
  return started


def test_chosen_parts_run_in_processes_with_the_same_flags(
  runs, tmp_path, capsys
):
  values = gpu.MeasureGpuFlags(
    parts=('codec', 'words'), small=True, output=str(tmp_path / 'a folder')
  )
  assert gpu.act(values) == 1  # A figure exceeds its limit.
  (commands,) = runs
  assert [*commands] == ['words', 'codec']  # In the order of the check.
  line = commands['words']
  assert line[:3] == [sys.executable, '-m', 'terngrad.cli.main']
  assert line[3:5] == ['measure', 'gpu']
  parsed = gpu.flags.parse(gpu.MeasureGpuFlags, {}, line[5:]).values
  assert parsed.in_process == 'words'
  assert parsed.small and parsed.device == 'gpu:0'
  out = capsys.readouterr().out
  assert 'TOO LARGE' in out
  assert (tmp_path / 'a folder' / 'gpu_check.json').exists()


def test_without_a_gpu_the_check_exits_with_3(monkeypatch, tmp_path):
  monkeypatch.setattr(supervisor, 'run', lambda *_: False)
  assert gpu.act(gpu.MeasureGpuFlags(output=str(tmp_path))) == 3


def test_unknown_parts_are_refused():
  with pytest.raises(errors.ConfigError, match="parts: expected .*'word'"):
    gpu.act(gpu.MeasureGpuFlags(parts=('word',)))


def test_a_part_without_its_gpu_exits_with_3_and_says_what_to_do(capsys):
  values = gpu.MeasureGpuFlags(device='gpu:7', in_process='words')
  assert gpu.act(values) == 3
  error = capsys.readouterr().err
  assert error.startswith('error: device: expected gpu:7, received a machine')
  assert '--device=cpu:0 --small' in error


def test_a_part_in_this_process_prints_lines_for_the_supervisor(
  monkeypatch, capsys
):
  def run(self, settings, report):
    assert settings == parts.CheckSettings('/CPU:0', True)
    report(figures.Figure('number', 3.0))

  monkeypatch.setattr(parts.CheckPart, 'run', run)
  values = gpu.MeasureGpuFlags(device='cpu:0', small=True, in_process='words')
  assert gpu.act(values) == 0
  line = capsys.readouterr().out
  assert figures.decode(line) == figures.Figure('number', 3.0)


def test_help_names_every_part_and_its_limit():
  for name, part in parts.PARTS.items():
    assert f'{name} ' in gpu.USAGE_OF_PARTS
    assert f'{part.summary} ({part.seconds:g})' in gpu.USAGE_OF_PARTS
  assert gpu.USAGE_OF_PARTS in gpu.COMMAND.usage
