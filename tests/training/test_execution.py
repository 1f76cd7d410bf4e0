"""What a run says of itself when it starts."""

import logging
import re

import pytest

from terngrad import native
from terngrad.cluster import devices
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.exchange import towers
from terngrad.machine import onednn
from terngrad.native import gpu
from terngrad.reduce import bucketing
from terngrad.training import execution

CPU = towers.Towers(('/CPU:0',), 2)


def codec_of(*codes):
  specs = [
    policy.VariableSpec(name, (1000 * 10**i,), False)
    for i, name in enumerate('ab')
  ]
  return bucketing.gradient_codec(specs, [registry.method(c) for c in codes])


@pytest.mark.parametrize(
  ('codes', 'expected'),
  [
    (
      ('identity', 'identity'),
      r'32\.01 bits .* sent; --grad_bits=1 sends 1\.6',
    ),
    (
      ('identity', 'ternary'),
      r' 4\.37 bits per element are sent \(1,000 as flo',
    ),
    (('identity', 'ternary'), r'10,000 as clip_by_stddev\(2\.5\) > ternarize'),
  ],
)
def test_log_lines_say_what_is_sent(codes, expected):
  line, _ = execution.remarks(codec_of(*codes), CPU)
  assert line.startswith('gradients: ')

  assert re.search(expected, line), line


def test_requested_float_steps_get_no_hint():
  line, _ = execution.remarks(codec_of('identity', 'identity'), CPU, True)
  assert 'are sent, because of --floating_grad_epoch=1 (' in line


def kernels_line(exchange=CPU):
  return execution.remarks(codec_of('ternary', 'ternary'), exchange)[1]


def test_log_lines_name_kernels_or_why_they_are_not_used(monkeypatch):
  monkeypatch.setattr(onednn, 'is_on', lambda: False)
  monkeypatch.setattr(native, '_load', lambda: (object(), None))
  monkeypatch.setattr(native, 'instruction_set', lambda: 'avx2')
  line = kernels_line()
  assert line == 'kernels: native (avx2); oneDNN is off for the passes'
  monkeypatch.setattr(native, '_load', lambda: (None, 'they were not built.'))
  line = kernels_line()
  assert line.endswith('native kernels are not used: they were not built.')
  gpus = towers.Towers(('/GPU:0', '/GPU:1'), 2)
  monkeypatch.setattr(gpu, 'unavailable_reason', lambda: 'no compiler.')
  assert kernels_line(gpus) == (
    'kernels: compiled by XLA for GPU; CUDA kernels are not used: no compiler.'
  )


def test_the_log_line_of_kernels_names_each_model_of_gpu_once(monkeypatch):
  details = {'a': ('Alpha', (9, 0)), 'b': ('Alpha', (9, 0)), 'c': ('Beta', ())}

  def find(gpu):
    name, capability = details[gpu]
    found = {'device_name': name}
    return found | {'compute_capability': capability} if capability else found

  experimental = devices.tf.config.experimental
  monkeypatch.setattr(
    devices.tf.config, 'get_visible_devices', lambda kind: [*details]
  )
  monkeypatch.setattr(experimental, 'get_device_details', find)
  monkeypatch.setattr(gpu, 'unavailable_reason', lambda: None)
  three = towers.Towers(('/GPU:0', '/GPU:1', '/GPU:2'), 3)
  assert kernels_line(three) == (
    'kernels: CUDA, for codes that have such kernels, on '
    'Alpha (compute capability 9.0), Beta'
  )


@pytest.mark.parametrize(
  ('names', 'reason'),
  [
    (('/task:0/device:GPU:0', '/task:1/device:GPU:0'), 'several processes'),
    (('/GPU:0', '/CPU:0'), 'CPUs compute too'),
  ],
)
def test_the_log_line_says_why_gpus_use_no_kernels(names, reason, monkeypatch):
  monkeypatch.setattr(gpu, 'unavailable_reason', lambda: None)
  line = execution._describe_kernels(names)
  assert f'CUDA kernels are not used: {reason}' in line


@pytest.mark.parametrize('is_requested', [True, False])
def test_missing_kernels_are_a_warning_unless_requested(
  is_requested, monkeypatch, caplog
):
  if is_requested:
    monkeypatch.setenv('TERNGRAD_NATIVE', '0')
  else:
    monkeypatch.setattr(native, '__file__', '/nowhere/__init__.py')
  native._load.cache_clear()
  try:
    with caplog.at_level(logging.INFO, 'absl'):
      assert not native.available()
      assert native.unavailable_reason()
  finally:
    native._load.cache_clear()
  (record,) = [r for r in caplog.records if 'Native kernels' in r.message]
  assert (record.levelname == 'WARNING') != is_requested
  assert is_requested or 'pip install --force-reinstall' in record.message
