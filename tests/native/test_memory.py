"""Memory that coding takes beside what goes in and what comes out."""

import os
import subprocess
import sys

import pytest

from terngrad import native

pytestmark = pytest.mark.skipif(
  not native.available() or not os.path.exists('/proc/self/status'),
  reason='the native kernels, or Linux, are not here',
)

_PROGRAM = """
import tensorflow as tf
from terngrad.codec.methods import registry
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
codec = registry.parse('ternary').on_kernels()
key = random_bits.seed_key(1)

@tracing.function
def encode(gradient):
  probe = codec.probe([gradient])
  return codec.encode([gradient], probe, probe, key), probe

@tracing.function
def decode(words, probe, size):
  return codec.decode_sum([tf.expand_dims(words, 0)], probe, [(size,)])[0]

def kilobytes(name):
  with open('/proc/self/status') as file:
    return next(int(l.split()[1]) for l in file if l.startswith(name))

def work(size):
  gradient = tf.ones([size])
  before = kilobytes('VmRSS:')
  # Once: what is freed is kept for the next time.
  decoded = decode(*encode(gradient), size)
  return kilobytes('VmHWM:') - before - 4 * size // 1024

work(10**6)  # What tracing needs stays.
# So does what TensorFlow's allocator notes of a region that it takes, 1 / 32 of
# it. The region itself is not touched yet.
tf.raw_ops.Empty(shape=[2**28], dtype=tf.float32, init=False)
print(work(64 * 2**20))
"""


@pytest.mark.slow
def test_coding_a_variable_takes_an_eighth_of_it_and_a_megabyte():
  done = subprocess.run(
    [sys.executable, '-c', _PROGRAM],
    capture_output=True,
    text=True,
    check=True,
    timeout=300,
  )
  extra = int(done.stdout)
  # 256 MB; the words take a twentieth.
  assert 256 * 1024 / 21 < extra <= 256 * 1024 / 8 + 1024
