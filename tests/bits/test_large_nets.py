"""Bits of a net that needs more memory than TensorFlow assumes a CPU has."""

import pytest

from tests import forked


@pytest.mark.slow
def test_resnet_50_in_parts_reproduces_the_bits_of_the_whole():
  done = forked.run('tests.bits.large_net', limit=1200)
  assert done.returncode == 0, done.stderr
  whole, in_parts = done.stdout.split()
  assert whole == in_parts
