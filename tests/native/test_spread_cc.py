"""How loops are spread over threads, in C++ alone: spread_test.cc's claims."""

import pathlib
import subprocess

import pytest

from tests.native import test_kernels_cc

pytestmark = test_kernels_cc.pytestmark

HERE = pathlib.Path(__file__).resolve().parent
CLAIMS = (
  'offer_is_taken_without_waking',
  'helper_goes_away',
  'process_ends_while_a_helper_runs',
  'forked_process_asks_for_new_helpers',
  'ranges_of_a_thread_are_adjacent',
)


def build(folder, *options):
  program = folder / 'spread_test'
  command = [test_kernels_cc.COMPILER, '-std=c++17', '-Wall', '-Wextra']
  command += ['-Werror', *options, f'-I{test_kernels_cc.SOURCES}']
  command += [HERE / 'spread_test.cc', '-o', program, '-lpthread']
  subprocess.run(command, check=True, timeout=600)
  return program


@pytest.fixture(scope='module')
def program(tmp_path_factory):
  return build(tmp_path_factory.mktemp('spread'), '-O2')


@pytest.fixture(scope='module')
def sanitized_program(tmp_path_factory):
  """The same with a thread sanitizer."""
  folder = tmp_path_factory.mktemp('watched')
  return build(folder, '-O1', '-g', '-fsanitize=thread')


def assert_holds(program, claim):
  done = subprocess.run(
    [program, claim], capture_output=True, text=True, check=False, timeout=180
  )
  assert (done.returncode, done.stderr) == (0, '')


@pytest.mark.parametrize('claim', CLAIMS)
def test_claim_holds(program, claim):
  assert_holds(program, claim)


@pytest.mark.slow
@pytest.mark.parametrize('claim', CLAIMS)
def test_thread_sanitizer_sees_no_race(sanitized_program, claim):
  assert_holds(sanitized_program, claim)
