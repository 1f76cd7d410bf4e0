"""What XLA compiles on GPUs gives the words and the means of plain TensorFlow.

Compiled for this machine's processor: the functions have no other inputs.
"""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from terngrad.reduce import workers

# More elements than `topk.largest` searches without a sample.
SHAPES = (70_001,), (3, 5)
CODES = (
  pytest.param('topk', marks=pytest.mark.slow),
  'stc',
  'threshold:above=1',
  pytest.param('randomk', marks=pytest.mark.slow),
)


def codec_of(text):
  specs = [policy.VariableSpec(str(i), s) for i, s in enumerate(SHAPES)]
  return bucketing.gradient_codec(specs, [registry.method(text)] * 2)


def gradients():
  """Of two workers; with ties, zeros and subnormals."""
  rng = np.random.default_rng(5)
  found = []
  for _ in range(2):
    large, small = (rng.standard_normal(s).astype(np.float32) for s in SHAPES)
    large[1000:1500] = np.float32(3.25) * rng.choice([-1, 1], 500)
    large[::7] = 0
    large[::11] = 1e-40
    found.append([tf.constant(large), tf.constant(small)])
  return found


@pytest.mark.parametrize('text', CODES)
@pytest.mark.gate_every(2)
def test_compiled_words_and_means_are_equal(text):
  plain = codec_of(text)
  compiled = bucketing.on_gpus(plain)
  assert compiled.compiled and not plain.compiled
  taken = []
  for codec in (plain, compiled):
    step = tracing.function(
      lambda codec=codec: workers.Workers(codec, 2).take(codec, gradients(), 3),
      autograph=False,
      jit_compile=codec.compiled,
    )
    taken.append(step())
  one, other = taken
  for words, wanted in zip(other.words, one.words, strict=True):
    np.testing.assert_array_equal(words, wanted)
  for mean, wanted in zip(other.means, one.means, strict=True):
    np.testing.assert_array_equal(
      mean.numpy().view(np.int32), wanted.numpy().view(np.int32)
    )


@pytest.mark.parametrize('text', ['error_feedback+topk', 'momentum+stc'])
def test_wrappers_compile_what_they_wrap(text):
  assert bucketing.on_gpus(codec_of(text)).compiled
