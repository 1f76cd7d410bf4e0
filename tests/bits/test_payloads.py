"""Payloads of fixed gradients equal the recorded words."""

import numpy as np
import pytest

from tests.bits import payloads
from tests.bits import recorded


@pytest.mark.parametrize(
  'how',
  [
    'eager',
    pytest.param('XLA', marks=pytest.mark.slow),
    pytest.param('kernels', marks=pytest.mark.slow),
  ],
)
@pytest.mark.parametrize('name', payloads.KINDS)
def test_payloads_equal_the_recorded_words(name, how):
  expected = recorded.read('payloads')[name]
  probes = payloads.probes_of(expected)
  found = payloads.coded(payloads.KINDS[name], probes, how)
  # Sums of squares round in another order on another processor.
  np.testing.assert_allclose(found.probes, probes, rtol=1e-6)
  assert payloads.summary(found._replace(probes=probes)) == expected


def test_every_recorded_payload_is_tested():
  assert set(recorded.read('payloads')) == set(payloads.KINDS)
