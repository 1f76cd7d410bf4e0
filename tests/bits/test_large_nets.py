"""Bits of nets whose passes are larger than TensorFlow takes a CPU to be."""

import pytest

from tests import forked


@pytest.mark.slow
def test_resnet_50_ends_at_equal_bits_whole_and_in_parts():
  done = forked.run('tests.bits.large_net', limit=1200)
  assert done.returncode == 0, done.stderr
  whole, in_parts = done.stdout.split()
  assert whole == in_parts
