"""Codecs for GPUs; those for CPUs are held by tests/native."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec import coded
from terngrad.codec.methods import registry
from terngrad.codec.stages import contract


def changes(codec, other):
  """The names by which another codec is not as one it was made of."""

  def of(one):
    # What an instance holds; and else what its class says.
    of_class = {
      name: inspect.getattr_static(type(one), name) for name in dir(coded.Code)
    }
    return of_class | vars(one)

  before, after = of(codec), of(other)
  return {
    name
    for name in before | after
    if not name.startswith('_') and before.get(name) is not after.get(name)
  }


@pytest.mark.parametrize(
  'text', ['ternary', 'ternary:packing=huffman243', 'ternary:clip_factor=0']
)
def test_gpu_variant_changes_only_the_probe(text):
  codec = registry.parse(text)
  on_gpus = codec.on_gpus()
  assert on_gpus.probe is not codec.probe
  assert changes(codec, on_gpus) == {'probe'}
  gradients = [
    tf.random.stateless_normal([size], [size, 1]) for size in (100_003, 30)
  ]
  np.testing.assert_allclose(
    on_gpus.probe(gradients), codec.probe(gradients), rtol=1e-6
  )


@pytest.mark.parametrize('text', ['identity', 'ternary:group_size=64'])
def test_codes_without_a_gpu_probe_are_returned_unchanged(text):
  codec = registry.parse(text)
  assert codec.on_gpus() is codec


@pytest.mark.parametrize('text', ['qsgd', 'minmax:bits=2', 'sign'])
@pytest.mark.gate_every(3)
def test_without_kernels_codes_that_have_some_are_compiled_separately(
  text, monkeypatch
):
  """Joined to the update a compiler would round decoding with it."""
  monkeypatch.setattr(native, 'available', lambda: False)
  codec = registry.parse(text)
  apart = codec.on_kernels()
  assert codec.compiled
  assert not apart.compiled
  gradients = [tf.random.stateless_normal([5003], [1, 2])]
  key = tf.constant([3, 4], tf.uint32)
  words = codec.encode(gradients, None, None, key)
  np.testing.assert_array_equal(apart.encode(gradients, None, None, key), words)
  parts = [tf.stack([words, words])]
  expected = codec.decode_sum(parts, None, [(5003,)], 0.5)[0]
  np.testing.assert_array_equal(
    apart.decode_sum(parts, None, [(5003,)], 0.5)[0], expected
  )


@pytest.mark.parametrize('text', ['topk', 'stc', 'threshold', 'ternary'])
def test_without_kernels_other_codes_are_returned_unchanged(text, monkeypatch):
  monkeypatch.setattr(native, 'available', lambda: False)
  codec = registry.parse(text)
  assert codec.on_kernels() is codec


@pytest.mark.skipif(not native.available(), reason='no kernels here')
@pytest.mark.parametrize(
  ('packing', 'digits'), [('base3', (3, 20)), ('two_bit', (4, 16))]
)
def test_sums_of_the_common_packings_are_decoded_by_a_kernel(packing, digits):
  codec = registry.ternary(packing=packing)
  fast = codec.on_kernels()
  assert fast.digits == digits
  assert fast.decode_sum is not codec.decode_sum
  assert fast.unit == contract.SCALER


@pytest.mark.skipif(not native.available(), reason='no kernels here')
def test_kernels_of_floats_change_only_the_unit():
  codec = registry.identity()
  fast = codec.on_kernels()
  assert changes(codec, fast) == {'unit'}
  assert fast.unit == contract.ONE


@pytest.mark.parametrize('text', ['fp8', 'natural'])
def test_codes_with_kernels_for_gpus_alone_are_unchanged_on_cpus(text):
  codec = registry.parse(text)
  assert codec.twin() is None
  assert codec.on_kernels() is codec
  assert codec.on_gpus() is codec
