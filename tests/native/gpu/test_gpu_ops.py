"""Operations on GPUs, with a driver that runs the kernels on the CPU."""

import json
import os

import pytest

from terngrad import native
from tests import forked
from tests.native.gpu import emulated

pytestmark = pytest.mark.skipif(
  not (emulated.SUPPORTED and native.available()),
  reason='needs the native kernels, and g++ on x86-64',
)


@pytest.fixture(scope='module')
def library(tmp_path_factory):
  return emulated.build_driver(tmp_path_factory.mktemp('driver'))


def run(library, case, **environment):
  """Returns (result, log) of the process."""
  done = forked.run(
    'tests.native.gpu.gpu_process',
    *(library, case),
    folder=emulated.HERE.parents[2],
    environment={**os.environ, **environment},
    limit=600,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout), done.stderr


def launched(result):
  return {call.split()[1] for call in result['calls'] if 'Launch' in call}


def test_codes_on_gpus_give_the_bits_of_cpu_kernels(library):
  result, _ = run(library, 'few')
  assert result['reason'] is None
  assert result['differences'] == []
  assert launched(result) == {
    'terngrad_statistics',
    'terngrad_ternary_encode',
    'terngrad_ternary_decode_base3',
    'terngrad_scale_int8',
    'terngrad_scale_int32',
    'terngrad_scale_float',
    'terngrad_groups_measure',
    'terngrad_groups_encode',
    'terngrad_groups_decode',
    'terngrad_groups_all',
    'terngrad_fp8_encode',
    'terngrad_fp8_decode',
    'terngrad_natural_encode',
    'terngrad_natural_decode',
    'terngrad_rotated_encode',
    'terngrad_rotated_decode',
    'terngrad_digits_pack',
    'terngrad_table_encode',
    'terngrad_table_decode',
    'terngrad_ternary_requantize_base3',
    'terngrad_update_base3',
    'terngrad_update_int8',
    'terngrad_select_sample',
    'terngrad_select_candidates',
    'terngrad_select_digit',
    'terngrad_select_count',
    'terngrad_select_write',
    'terngrad_select_pack',
    'terngrad_add_count',
    'terngrad_add_unpack',
    'terngrad_add_check',
    'terngrad_add_elements',
  }
  # Tables that are too long for a launch.
  assert 'cuMemcpyHtoDAsync' in result['calls']
  # A variable that was read before it was updated.
  assert 'cuMemcpyDtoDAsync' in result['calls']


def test_the_gpu_may_read_what_is_copied_to_it_later(library):
  result, _ = run(library, 'copies', FAKE_CUDA_WAITS='1')
  assert result['reason'] is None
  assert result['differences'] == []
  # Memory of the host is used again.
  calls = result['calls']
  assert calls.count('cuMemHostAlloc') < calls.count('cuMemcpyHtoDAsync') / 2


def test_kernels_are_loaded_once_for_a_gpu(library):
  result, _ = run(library, 'again')
  assert result['calls'].count('cuInit') == 2
  # Of two cubins.
  assert result['calls'].count('cuModuleLoadData') == 2


@pytest.mark.slow
def test_all_codes_with_gpu_kernels_give_the_bits_of_cpu_kernels(library):
  result, _ = run(library, 'all')
  assert result['differences'] == []
  others = {'terngrad_ternary_decode_two_bit', 'terngrad_groups_finish'}
  others |= {'terngrad_select_all', 'terngrad_add_all'}
  assert others <= launched(result)


@pytest.mark.parametrize(
  'function',
  [
    'cuModuleLoad',
    *(
      pytest.param(name, marks=pytest.mark.slow)
      for name in ('cuInit', 'cuDeviceGet', 'cuDevicePrimaryCtx')
    ),
  ],
)
def test_failure_of_the_driver_is_one_line_of_the_log(library, function):
  result, log = run(library, 'load', FAKE_CUDA_FAILS=function)
  assert 'a failure of the test' in result['reason']
  lines = [line for line in log.splitlines() if 'GPU kernels' in line]
  assert len(lines) == 1
  assert 'XLA compiles the codes instead' in lines[0]
  assert function in lines[0]
