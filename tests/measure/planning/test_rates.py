"""Bandwidths with and without units."""

import pytest

from terngrad import errors
from terngrad.measure.planning import rates


@pytest.mark.parametrize(
  ('text', 'bits'),
  [
    ('1e9', 1e9),
    ('100000000', 1e8),
    ('1', 1),
    ('100Mbit', 1e8),
    ('100 Mbit/s', 1e8),
    ('100mbit', 1e8),
    ('100Mb', 1e8),
    ('100Mbps', 1e8),
    ('1Gbit', 1e9),
    ('2.5Gbit/s', 2.5e9),
    ('1e3kbit', 1e6),
    ('10bits', 10),
    ('25GB/s', 2e11),
    ('25GBps', 2e11),
    ('1TB', 8e12),
    ('3 bytes', 24),
    ('1MiB/s', 8 * 2**20),
    ('1Kibit', 1024),
  ],
)
def test_a_bandwidth_is_read_in_bits_per_second(text, bits):
  assert rates.parse('bandwidth', text) == pytest.approx(bits, rel=1e-12)


def test_a_number_is_bits_per_second():
  assert rates.parse('bandwidth', 1e7) == 1e7


@pytest.mark.parametrize(
  'text',
  ['', 'fast', 'Mbit', '100Xbit', '1e999', 'inf', 'nan', '-5', '0', '0.5']
  + ['1ibit', '1..5Mbit', '5 m', '1Mbit Mbit', '1/s'],
)
def test_something_else_is_refused_with_a_remedy(text):
  with pytest.raises(errors.ConfigError, match='bandwidth: expected') as caught:
    rates.parse('bandwidth', text)
  assert repr(text) in str(caught.value)
  assert '--bandwidth=100Mbit' in str(caught.value)


@pytest.mark.parametrize(
  ('bits', 'text'),
  [
    (1, '1 bit/s'),
    (1e7, '10 Mbit/s'),
    (999e6, '999 Mbit/s'),
    (2.5e9, '2.5 Gbit/s'),
    (2e14, '200 Tbit/s'),
  ],
)
def test_bandwidths_are_described_with_units(bits, text):
  assert rates.describe(bits) == text
  assert rates.read(text) == pytest.approx(bits)
