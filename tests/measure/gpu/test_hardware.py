"""Facts and speeds of the device that is checked."""

import pytest

from terngrad.measure.gpu import hardware
from terngrad.measure.gpu import parts


def test_a_cpu_reports_versions_its_kernels_and_two_speeds():
  found = {}
  hardware.check(
    parts.CheckSettings('/CPU:0', True),
    lambda f: found.setdefault(f.name, f.value),
  )
  assert found['TensorFlow'] == hardware.tf.__version__
  assert 'kernels' in found and 'GPU' not in found
  assert found['copy, read and written'] > 0
  assert found['smallest launch'] > 0


def test_a_gpu_reports_its_model(monkeypatch):
  monkeypatch.setattr(hardware.devices, 'gpu_name', lambda device: 'Alpha')
  found = hardware.facts('/GPU:0')
  assert found['GPU'] == 'Alpha' and 'kernels' not in found


@pytest.mark.parametrize(
  ('text', 'found'),
  [
    (
      'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  '
      'Release Build\nGCC version:  gcc version 13.3.0\n',
      {'driver': '580.95.05'},
    ),
    ('', {}),
  ],
)
def test_the_driver_s_version_is_read_from_its_text(text, found, tmp_path):
  path = tmp_path / 'version'
  path.write_text(text)
  assert hardware.driver(str(path)) == found
  assert hardware.driver(str(tmp_path / 'missing')) == {}
