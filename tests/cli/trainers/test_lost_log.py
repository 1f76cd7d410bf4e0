"""A trainer whose log cannot be written stops after a checkpoint."""

import os
import signal
import subprocess
import sys

import pytest

from terngrad.cli import train


def test_the_first_line_that_is_lost_stops_the_run_and_the_next_do_not(
  monkeypatch, capsys
):
  sent = []
  monkeypatch.setattr(os, 'kill', lambda *arguments: sent.append(arguments))
  written = iter([True, False])
  monkeypatch.setattr(train.output, 'try_say', lambda line: next(written))
  log = train.TrainingLog()
  for line in 'abc':
    log(line)
  assert sent == [(os.getpid(), signal.SIGTERM)]
  assert 'training stops after a checkpoint' in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_whose_reader_ends_continues_from_its_last_step(tmp_path):
  command = [
    *(sys.executable, '-m', 'terngrad.cli.main', 'train', 'mnist'),
    *('--benchmark_mode', '--batch_size=8', '--max_steps=1000000'),
    f'--train_dir={tmp_path}',
  ]
  with subprocess.Popen(
    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
  ) as process:
    for line in process.stdout:
      if ': step ' in line:
        break
    process.stdout.close()
    error = process.stderr.read()
  assert process.returncode == 128 + signal.SIGTERM
  assert 'the output: expected a reader' in error
  assert list(tmp_path.glob('model.ckpt-*.index'))
