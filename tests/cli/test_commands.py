"""Every command: its flags' defaults, and --help, without TensorFlow."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from terngrad.cli import commands
from terngrad.cli import flags
from terngrad.config import options

ROOT = pathlib.Path(__file__).resolve().parents[2]


def paths(members, above=()):
  """The words that name each command."""
  for name, found in members.items():
    here = (*above, name)
    if isinstance(found, commands.Entry):
      yield here
    else:
      yield from paths(found.members, here)


PATHS = list(paths(commands.COMMANDS))

# Each command in a process of its own: one whose module is missing leaves the
# others alone. A lazy module is of another type until one of its names is used.
ASK_ALL = """
import contextlib, io, json, os, sys, traceback, types
from terngrad.cli import main

def ask(path):
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
      code = main.run([*path, '--help'])
    except Exception:
      code = traceback.format_exc()
  loads = type(sys.modules.get('tensorflow')) is types.ModuleType
  return {
    'code': code, 'out': out.getvalue(), 'err': err.getvalue(), 'loads': loads
  }

answers = []
for path in json.loads(sys.argv[1]):
  there, here = os.pipe()
  if not os.fork():
    with open(here, 'w') as file:
      json.dump(ask(path), file)
    os._exit(0)
  os.close(here)
  with open(there) as file:
    answers.append(json.load(file))
  os.wait()
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope='module')
def answers(tmp_path_factory):
  """What each command answers, by its path; from one process."""
  done = subprocess.run(
    [sys.executable, '-c', ASK_ALL, json.dumps(PATHS)],
    cwd=tmp_path_factory.mktemp('help'),
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    check=True,
    timeout=120,
  )
  return dict(zip(PATHS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize('path', PATHS, ids=' '.join)
def test_help_needs_no_tensorflow(path, answers):
  answer = answers[path]
  assert (answer['code'], answer['err']) == (0, '')
  assert answer['out'].startswith(f'terngrad {" ".join(path)}: ')
  assert '{' not in answer['out'].partition('\n\n')[0]
  assert not answer['loads']


@pytest.mark.parametrize('path', PATHS, ids=' '.join)
def test_flags_that_are_left_out_have_their_defaults(path):
  found = commands.load(commands.find(path))
  values = flags.parse(
    found.options, found.defaults, [], found.words, found.rest
  ).values
  expected = options.by_name(found.options()) | found.defaults
  assert options.by_name(values) == expected
