"""scripts/gpu_check.sh starts the command, with its exit code."""

import pytest


@pytest.fixture
def python(project, tmp_path):
  """A stand-in for an interpreter with terngrad on a machine without a GPU."""
  return project.program(tmp_path / 'bin' / 'python', 'record "$@"; exit 3')


def test_the_check_gets_the_flags_and_its_exit_code_is_passed_on(
  project, python
):
  flags = '--output=a folder', '--device=cpu:0', '--small', '--parts=words'
  status, _, err = project.run('gpu_check.sh', *flags, PYTHON=python)
  assert status == 3, err
  assert project.calls() == [
    ['-m', 'terngrad.cli.main', 'measure', 'gpu', *flags]
  ]


def test_unknown_arguments_and_a_missing_interpreter_are_refused(project):
  status, _, err = project.run('gpu_check.sh', '--minutes=6')
  assert status == 2
  assert 'unknown argument: --minutes=6' in err and 'usage:' in err
  status, _, err = project.run('gpu_check.sh')
  assert status == 2
  assert 'run scripts/setup.sh, or set PYTHON' in err
