"""One program for all commands: lists, what it refuses, and older names."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

from terngrad import version
from terngrad.cli import commands
from terngrad.cli import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
STARTERS = sorted(
  path.stem
  for path in (ROOT / 'terngrad' / 'bin').glob('*.py')
  if path.stem != '__init__'
)


def python(*arguments, **environment):
  """Runs Python in a process of its own."""
  return subprocess.run(
    [sys.executable, *arguments],
    capture_output=True,
    check=False,
    text=True,
    timeout=300,
    env=os.environ | {'PYTHONPATH': str(ROOT)} | environment,
  )


@pytest.mark.parametrize('words', [[], ['--help'], ['-h']])
def test_groups_are_listed(words, capsys):
  assert main.run(words) == 0
  lines = capsys.readouterr().out.splitlines()
  for name, group in commands.COMMANDS.items():
    assert any(
      line.split()[:1] == [name] and line.endswith(group.summary)
      for line in lines
    )


@pytest.mark.parametrize(
  ('words', 'code'), [(['train'], 2), (['train', '--help'], 0)]
)
def test_a_group_lists_its_commands(words, code, capsys):
  assert main.run(words) == code
  out = capsys.readouterr().out
  assert out.startswith('terngrad train: ')
  listed = [line.split()[0] for line in out.splitlines()[2:]]
  assert listed == list(commands.find(('train',)).members)


@pytest.mark.parametrize(
  ('words', 'messages'),
  [
    (['trian'], ["received 'trian'", "Did you mean 'train'?"]),
    (['xyzzy'], ['expected one of convert, train,', 'See terngrad --help.']),
    (
      ['train', 'mnits', '--data_dir=D'],
      ['terngrad train: expected one of mnist,', "Did you mean 'mnist'?"],
    ),
    (['train', 'xyzzy'], ['See terngrad train --help.']),
    (['train', '--data_dir=D'], ["received '--data_dir=D'"]),
    (['--batch_size=3'], ["received '--batch_size=3'"]),
  ],
)
def test_unknown_commands_are_refused(words, messages, capsys):
  assert main.run(words) == 2
  out, err = capsys.readouterr()
  assert out == ''
  (line,) = err.splitlines()
  assert line.startswith('error: terngrad')
  for message in messages:
    assert message in line


def test_the_version_is_printed(capsys):
  assert main.run(['--version']) == 0
  assert capsys.readouterr().out == f'terngrad {version.__version__}\n'


def test_help_shows_a_command_as_it_was_typed(capsys):
  assert main.run(['train', 'mnist', '--help']) == 0
  out = capsys.readouterr().out
  assert out.startswith('terngrad train mnist: trains a net on MNIST.\n')
  assert '{program}' not in out


def test_a_bad_flag_is_refused(capsys):
  assert main.run(['train', 'mnist', '--bach_size=3']) == 2
  assert 'Did you mean --batch_size?' in capsys.readouterr().err


@pytest.mark.parametrize('name', STARTERS)
def test_a_starter_runs_its_command_by_its_older_name(
  name, monkeypatch, capsys
):
  module = importlib.import_module(f'terngrad.bin.{name}')
  path, _ = module.run.args
  assert f'Starts `terngrad {" ".join(path)}`' in module.__doc__
  monkeypatch.setattr(sys, 'argv', [name, '--help'])
  assert module.run() == 0
  out = capsys.readouterr().out
  assert out.startswith(f'{name}: ')
  assert '{program}' not in out


def test_a_starter_runs_as_a_program_and_returns_the_exit_code():
  done = python('-m', 'terngrad.bin.measure_codec', '--nosuch=1')
  assert done.returncode == 2
  assert done.stderr.startswith('error: --nosuch: expected a flag')


def test_help_and_bad_flags_need_no_tensorflow():
  script = """
import importlib, sys, types
def run(name, word):
  sys.argv[:] = [name, word]
  return importlib.import_module(f'terngrad.bin.{name}').run()
for name in sys.argv[1].split():
  assert run(name, '--help') == 0, name
assert run('mnist_train', '--nosuch') == 2
for name in ('keras', 'matplotlib', 'numpy', 'pandas', 'tensorflow'):
  # A module that waits for its first use is of another type.
  assert type(sys.modules.get(name)) is not types.ModuleType, name
"""
  done = python('-c', script, ' '.join(STARTERS))
  assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
  ('words', 'talks'), [([], False), (['--verbosity=1'], True)]
)
# tests/test_quiet.py has a program without the flag.
@pytest.mark.slow
def test_start_up_messages_of_tensorflow_are_shown_on_demand(
  words, talks, monkeypatch
):
  monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)
  done = python('-m', 'terngrad.cli.main', 'report', 'versions', *words)
  assert done.returncode == 0
  assert done.stdout.startswith(f'terngrad {version.__version__}, TensorFlow ')
  assert bool(done.stderr) == talks, done.stderr
