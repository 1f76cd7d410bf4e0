"""Fuzzing finds planted bugs, and each target handles some inputs."""

import os
import signal

import pytest

from terngrad.sweep import warm
from tests.fuzzing import reached
from tests.fuzzing import search
from tests.fuzzing import target as contract
from tests.fuzzing import targets

INPUTS = 10
# These trace and compile functions first.
SLOW = ('payload_', 'photograph', 'decoded_image', 'example')


def parse(content, folder):
  """Refuses what does not begin with ok, and has a bug behind that."""
  del folder
  if content[:2] != b'ok':
    raise ValueError('expected ok')
  if b'!' in content[2:]:
    raise KeyError('a bug')


def target_of(parse, **fields):
  return contract.Target(
    parse, [b'ok then'], (ValueError,), [__name__], (b'!',), **fields
  )


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(
      name, marks=[pytest.mark.slow] if name.startswith(SLOW) else []
    )
    for name in targets.TARGETS
  ],
)
def test_some_inputs_of_every_target_are_accepted_or_refused(name, tmp_path):
  target = targets.get(name)
  inputs = len(target.seeds) + INPUTS
  found = search.search(target, f'gate {name}', inputs, tmp_path, False)
  assert found.failure == '', found.content


def test_a_bug_behind_a_check_is_found_and_its_input_saved(tmp_path):
  tried = []
  found = search.search(
    target_of(parse), 1, 3000, tmp_path, False, tried.append
  )
  assert 'KeyError' in found.failure
  assert b'!' in found.content and found.content == tried[-1]
  assert found.inputs < 3000


def test_equal_seeds_try_equal_inputs(tmp_path):
  runs = {1: [], 2: []}
  for seed in (1, 2):
    for _ in range(2):
      tried = []
      harmless = target_of(lambda content, folder: None)
      search.search(harmless, seed, 50, tmp_path, False, tried.append)
      runs[seed].append(tried)
  assert runs[1][0] == runs[1][1] and runs[2][0] == runs[2][1]
  assert runs[1][0] != runs[2][0]


def test_a_refused_seed_is_an_error(tmp_path):
  target = target_of(parse)._replace(seeds=[b'no'])
  with pytest.raises(RuntimeError, match='a seed was refused'):
    search.search(target, 1, 10, tmp_path, False)


def test_lines_are_counted_once_and_new_steps_are_reported():
  watched = reached.Reached([__name__])
  assert watched.run(parse, b'ok', None) == (True, None)
  assert watched.run(parse, b'ok', None) == (False, None)
  is_new, raised = watched.run(parse, b'no', None)
  assert is_new and isinstance(raised, ValueError)
  ((reached_lines, total),) = watched.shares().values()
  assert 3 <= reached_lines < total


def waste_memory(content, folder):
  del folder
  _ = b'x' * (300 << 20 if b'!' in content else 1)


def waste_time(content, folder):
  del folder
  while b'!' in content:
    pass


def limited(which, path, out):
  """Runs in a separate process, with limits on memory and time."""
  wasteful = {'memory': waste_memory, 'time': waste_time}[which]
  found = search.search(target_of(wasteful, seconds=0.2), 1, 999, path, True)
  os.write(out.fileno(), found.failure.encode())


@pytest.mark.parametrize('which', ['memory', 'time'])
def test_inputs_that_exceed_memory_or_time_are_found(which, tmp_path):
  code = (
    'import pathlib, sys; from tests import test_fuzzing; '
    'test_fuzzing.limited(sys.argv[1], pathlib.Path(sys.argv[2]), sys.stdout)'
  )
  with open(tmp_path / 'out', 'w+') as out, open(tmp_path / 'err', 'w') as err:
    process = warm.start('', [code, which, tmp_path], out, err)
    process.join(60)
  output = (tmp_path / 'out').read_text()
  if which == 'time':
    assert process.exitcode == -signal.SIGVTALRM
  else:
    assert output.startswith('expected at most 64 MiB, took '), output
