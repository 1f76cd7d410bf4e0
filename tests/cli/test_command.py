"""How a command is run: what is refused, and when."""

import dataclasses
import io
import os
import subprocess
import sys

import pytest

from terngrad import quiet
from terngrad import signal_guard
from terngrad.cli import command
from terngrad.config import options
from terngrad.launching import exit_codes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """A flag that must be given."""

  folder: str = options.option('', 'Folder.')


def made(acted):
  return command.Command(
    '{program}: acts.',
    Flags,
    lambda values: acted.append(values.folder),
    required=('folder',),
  )


def test_a_missing_flag_is_refused_before_tensorflow_is_loaded(
  monkeypatch, capsys
):
  def load():
    raise AssertionError('TensorFlow was loaded')

  monkeypatch.setattr(quiet, 'import_tensorflow', load)
  acted = []
  assert command.run(made(acted), 'x', []) == command.REFUSED
  assert '--folder: expected a value; received none' in capsys.readouterr().err
  assert acted == []
  with pytest.raises(AssertionError, match='was loaded'):
    command.run(made(acted), 'x', ['--folder=y'])


def test_a_missing_package_is_named_before_tensorflow_is_loaded(
  monkeypatch, capsys
):
  monkeypatch.setattr(quiet, 'import_tensorflow', None)
  monkeypatch.setattr(
    command.extras.importlib.util, 'find_spec', lambda _: None
  )
  acted = []
  needing = made(acted)._replace(packages=('pandas',))
  found = command.run(needing, 'terngrad plan', ['--folder=y'])
  assert (found, acted) == (command.REFUSED, [])
  assert 'expected the package pandas' in capsys.readouterr().err


@pytest.mark.parametrize('text', ['2m', '', 'nan'])
def test_a_time_limit_that_is_no_number_is_refused(monkeypatch, capsys, text):
  monkeypatch.setenv(signal_guard.VARIABLE, text)
  acted = []
  found = command.run(made(acted), 'x', ['--folder=y'])
  assert (found, acted) == (command.REFUSED, [])
  lines = capsys.readouterr().err.splitlines()
  assert lines == [
    'error: TERNGRAD_STOP_SECONDS: expected seconds, such as 27, received '
    f'{text!r}. Give a number, or unset the variable.'
  ]


@pytest.mark.parametrize('is_converter', [True, False])
def test_every_error_begins_with_the_same_word(capsys, is_converter):
  command_ = made([])._replace(is_converter=is_converter)
  command.run(command_, 'terngrad convert dataset', [])
  assert capsys.readouterr().err.startswith('error: --folder: expected')


def test_a_command_runs_with_the_given_values():
  acted = []
  assert command.run(made(acted), 'x', ['--folder=y']) == command.DONE
  assert acted == ['y']


def test_what_the_output_cannot_encode_is_escaped(monkeypatch):
  written = io.BytesIO()
  strict = io.TextIOWrapper(written, encoding='utf-8', errors='strict')
  monkeypatch.setattr(sys, 'stdout', strict)
  # As Python decodes the byte 0xe9 of a file name.
  command.say('Left out caf\udce9')
  assert written.getvalue() == b'Left out caf\\udce9\n'


def test_errors_name_the_flags_of_the_command_line(capsys):
  def act(values):
    raise command.flags.UsageError(
      'task_id: expected 0, received task_ids in /task_id/a or my-task_id/. '
      'Set --task_id, or a task_id.'
    )

  renaming = command.Command(
    '{program}: fails.',
    Flags,
    act,
    needs_tensorflow=False,
    flag_names={'task_id': 'shard_id'},
  )
  assert command.run(renaming, 'x', []) == command.REFUSED
  assert capsys.readouterr().err == (
    'error: shard_id: expected 0, received task_ids in /task_id/a or '
    'my-task_id/. Set --shard_id, or a shard_id.\n'
  )


def test_an_unexpected_error_ends_the_process_without_an_abort(
  monkeypatch, capsys
):
  """Python's own end waits for, or is aborted by, TensorFlow's servers."""

  def act(values):
    raise RuntimeError('unforeseen')

  def end(code):
    raise SystemExit(code)

  monkeypatch.setattr(command.os, '_exit', end)
  failing = command.Command(
    '{program}: fails.',
    Flags,
    act,
    needs_tensorflow=False,
    ends_process=True,
  )
  with pytest.raises(SystemExit) as ended:
    command.run(failing, 'x', [])
  assert ended.value.code == command.FAILED
  assert 'RuntimeError: unforeseen' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('codes', 'code'),
  [
    ([], 0),
    ([0, 0], 0),
    ([0, 75], 75),
    ([75, 137], 137),
    ([137, 75, 0], 137),
    ([75, 134, 143], 143),
    ([143, 3, 75], 3),
    ([75, 1], 1),
    # Others fail after one was killed; TensorFlow aborts them.
    ([1, 137], 137),
    ([139, 134, 1], 139),
    ([134, 1], 1),
    # `sys.exit(-1)`, not a signal.
    ([75, 255, 1], 255),
    # Killed, not ended after a request.
    ([143, -15, 1], -15),
    # Of two failures the one that ended first.
    ([2, 1], 2),
  ],
)
def test_the_exit_code_of_the_cause_is_decisive(codes, code):
  assert exit_codes.decisive(codes) == code


def test_a_misspelled_codec_is_refused_before_tensorflow_is_imported():
  program = (
    'import sys\n'
    'from terngrad.cli import main\n'
    "code = main.run(['measure', 'fit', '--codec=tenary'])\n"
    "import types; loaded = type(sys.modules.get('tensorflow'))\n"
    'sys.exit(90 if loaded is types.ModuleType else code)\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, check=False
  )
  assert done.returncode == 2, done.stderr
  assert "Did you mean 'ternary'?" in done.stderr


SPEAKING = """
import dataclasses, sys
from terngrad.cli import command
Flags = dataclasses.make_dataclass('Flags', [])
speaking = command.Command(
  '{program}: speaks.', Flags, lambda _: command.say(1), needs_tensorflow=False
)
sys.exit(command.run(speaking, 'x', []))
"""


@pytest.mark.parametrize('unbuffered', ['', '1'])
def test_an_output_that_nobody_reads_is_one_line(unbuffered):
  reader, writer = os.pipe()
  os.close(reader)
  with open(writer, 'wb') as out:
    done = subprocess.run(
      [sys.executable, '-c', SPEAKING],
      stdout=out,
      stderr=subprocess.PIPE,
      text=True,
      check=False,
      env=os.environ | {'PYTHONUNBUFFERED': unbuffered},
    )
  assert done.returncode == command.FAILED
  (line,) = done.stderr.splitlines()
  assert line.startswith('error: the output: expected a program that reads it')


HELP = 'train mnist --help'


@pytest.mark.parametrize(
  ('words', 'redirection', 'code'),
  [
    *((words, '>/dev/full', 1) for words in ('--version', '--help', HELP)),
    *((HELP, redirection, 0) for redirection in ('>&-', '2>&-')),
    *(
      pytest.param(words, redirection, 0, marks=pytest.mark.slow)
      for words in ('--version', '--help')
      for redirection in ('>&-', '2>&-')
    ),
  ],
)
def test_a_lost_output_of_help_is_at_most_one_line(words, redirection, code):
  program = f'{sys.executable} -m terngrad.cli.main {words}'
  done = subprocess.run(
    ['bash', '-c', f'{program} {redirection}'],
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == code
  assert len(done.stderr.splitlines()) == code
  assert 'Traceback' not in done.stderr


def test_a_refusal_without_standard_error_has_its_exit_code():
  program = f'{sys.executable} -m terngrad.cli.main train mnist --no_flag=1'
  done = subprocess.run(['bash', '-c', f'{program} 2>&-'], check=False)
  assert done.returncode == command.REFUSED


@pytest.mark.parametrize('words', [['--version'], ['--help']])
def test_help_that_nobody_reads_is_one_line(words):
  reader, writer = os.pipe()
  os.close(reader)
  with open(writer, 'wb') as out:
    done = subprocess.run(
      [sys.executable, '-m', 'terngrad.cli.main', *words],
      stdout=out,
      stderr=subprocess.PIPE,
      text=True,
      check=False,
    )
  assert done.returncode == command.FAILED
  (line,) = done.stderr.splitlines()
  assert line.startswith('error: the output: expected a program that reads it')


def test_a_pipe_that_is_not_the_output_is_an_unexpected_error():
  def act(values):
    raise BrokenPipeError('a socket')

  broken = made([])._replace(act=act, required=(), needs_tensorflow=False)
  with pytest.raises(BrokenPipeError, match='a socket'):
    command.run(broken, 'x', [])
