"""Predicted steps, against the plan's formula by hand."""

import pytest

from terngrad import errors
from terngrad.config import devices
from terngrad.config import options
from terngrad.measure.planning import model
from terngrad.report.targets import costs

SHAPES = ((1000, 1000),)
FREE = model.Coding(0.0, 0.0, 0.0)
# 32 Mbit are a second; no latency.
SETTING = costs.Setting(0.5, 32e6, 0.0, 2)


def seconds(setting=SETTING, cost=FREE, **flags):
  chosen = options.build(devices.DeviceOptions, **flags)
  return costs.seconds_of_step(chosen, 'identity', SHAPES, setting, cost)


def megabytes(codec, workers, bits):
  chosen = options.build(devices.DeviceOptions)
  return costs.megabytes_of_step(chosen, codec, SHAPES, workers, bits)


def test_a_ratio_is_float32_on_the_wire_over_computing():
  bandwidth = costs.bandwidth_of(2, 1_000_000, 0.5)
  assert bandwidth == 32e6


def test_a_gather_sends_encoded_bits_to_each_other_worker():
  sent = [
    megabytes('error_feedback+stc', workers, bits=0.8) for workers in (1, 2, 4)
  ]
  assert sent == pytest.approx([0, 0.1, 0.3])


def test_slices_of_float32_are_sent_once_to_add_and_once_added():
  found = megabytes('identity', 4, bits=32)
  assert found == pytest.approx(4 * 2 * 3 / 4, rel=1e-4)


@pytest.mark.parametrize('seconds', ['-1', '0', 'nan', 'inf'])
def test_measured_seconds_that_are_not_above_0_are_refused(tmp_path, seconds):
  path = tmp_path / 'measured.csv'
  path.write_text(f'variant,network,seconds\nt,1G,{seconds}\n')
  with pytest.raises(errors.ConfigError, match='measured: expected a CSV file'):
    costs.read_measured(path)


def test_a_step_computes_codes_and_sends():
  # Two workers send every element once.
  assert seconds() == pytest.approx(0.5 + 1.0, rel=1e-3)
  coding = model.Coding(1e-7, 2e-7, 0.0)
  assert seconds(cost=coding) == pytest.approx(0.5 + 0.3 + 1.0, rel=1e-3)


def test_local_steps_compute_between_two_exchanges():
  found = seconds(local_steps=10)
  assert found == pytest.approx(10 * 0.5 + 1.0, rel=1e-3)


def test_a_fragment_sends_its_share_after_its_share_of_the_steps():
  found = seconds(local_steps=10, fragments=5)
  assert found == pytest.approx(2 * 0.5 + 0.2, rel=1e-3)


def test_a_fragment_waits_for_the_latency_of_every_hop():
  slow = SETTING._replace(latency=3.0)
  whole, part = (
    seconds(slow, local_steps=10, fragments=n)
    - seconds(local_steps=10, fragments=n)
    for n in (1, 5)
  )
  assert whole == pytest.approx(part) and whole >= 3.0


def test_overlapped_local_steps_hide_the_transfer():
  found = seconds(local_steps=10, overlap_steps=1)
  assert found == pytest.approx(10 * 0.5 + 0.5, rel=1e-3)
  assert seconds(local_steps=10, overlap_steps=9) == pytest.approx(5.0)
