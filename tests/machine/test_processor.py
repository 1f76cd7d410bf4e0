"""The processor's name, model and instructions, from Linux's description."""

import pytest

from terngrad.machine import processor

INFO = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: Made up 5 GHz
flags\t\t: fpu avx2 sse2 fma avx sse4_1

processor\t: 1
model name\t: Another
"""


@pytest.fixture
def info(tmp_path):
  path = tmp_path / 'cpuinfo'
  path.write_text(INFO)
  return path


def test_the_first_core_is_described(info):
  assert processor.name(info) == 'Made up 5 GHz'
  assert processor.model(info) == 'AuthenticAMD family 25 model 1'
  assert processor.instructions(info) == 'avx avx2 fma sse4_1'


def test_fields_that_are_missing_are_left_out(tmp_path):
  path = tmp_path / 'cpuinfo'
  path.write_text('CPU implementer\t: 0x41\nFeatures\t: fp asimd sve\n')
  assert processor.instructions(path) == 'asimd sve'
  assert processor.model(path) == processor.name(path) != ''


@pytest.mark.parametrize('content', [None, b'', b'\xff\xfe'])
def test_without_a_description_there_is_a_name(tmp_path, content):
  path = tmp_path / 'cpuinfo'
  if content is not None:
    path.write_bytes(content)
  assert processor.name(path)
  assert processor.instructions(path) == ''
