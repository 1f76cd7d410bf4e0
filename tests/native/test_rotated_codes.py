"""Kernels of codes of rotated blocks give their twins' bits."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec import method
from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from terngrad.native import rotated_ops
from terngrad.reduce import bucketing
from tests.codec import rounds
from tests.native import test_kernels

pytestmark = pytest.mark.skipif(
  not native.available(), reason='the native kernels are not built here'
)

CODES = ('eden3', 'drive', 'eden:bits=2', 'eden:bits=3', 'eden:bits=4')
# Blocks of less than a vector, of some, and full ones with a rest; words of one
# plane and of parts of two.
SIZES = (
  (0,),
  (1,),
  (2, 0, 1),
  (7,),
  (100, 31),
  (4095,),
  (4096,),
  (4097, 5, 0, 16_385),
  (140_003, 5, 70_001),
)


def both(text):
  twin = registry.parse(text)
  return twin, twin.on_kernels()


def assert_decodes_alike(text, words, shared_probe, shapes):
  twin, codec = both(text)
  parts = [tf.stack(words[0::2]), tf.stack(words[1::2])]
  for scale in (1.0, 1.0 / 3):
    expected = twin.decode_sum(parts, shared_probe, shapes, scale)
    actual = codec.decode_sum(parts, shared_probe, shapes, scale)
    for a, b in zip(actual, expected, strict=True):
      assert a.shape == b.shape
      np.testing.assert_array_equal(test_kernels.bits(a), test_kernels.bits(b))


def assert_twins(text, gradients):
  twin, codec = both(text)
  shared_probe = twin.probe(gradients)
  np.testing.assert_allclose(codec.probe(gradients), shared_probe, rtol=1e-6)
  words = []
  for worker in range(3):
    key = test_kernels.keys(worker)
    some = [gradient * (worker + 1.0) for gradient in gradients]
    words.append(twin.encode(some, shared_probe, shared_probe, key))
    actual = codec.encode(some, shared_probe, shared_probe, key)
    np.testing.assert_array_equal(actual, words[-1])
  shapes = [gradient.shape for gradient in gradients]
  assert_decodes_alike(text, words, shared_probe, shapes)


@pytest.mark.parametrize('text', CODES)
@pytest.mark.parametrize('sizes', SIZES, ids=str)
@pytest.mark.gate_every(3)
def test_words_and_sums_equal_tensorflow(text, sizes):
  assert_twins(text, test_kernels.gradients_of(sizes, seed=len(sizes)))


@pytest.mark.parametrize('text', CODES)
@pytest.mark.parametrize(
  'kind', ['zeros', 'signed zeros', 'equal', 'few', 'tiny', 'huge']
)
@pytest.mark.gate_every(3)
def test_odd_gradients_are_coded_as_in_tensorflow(text, kind):
  rng = np.random.default_rng(5)
  size = 9001
  values = {
    'zeros': lambda: np.zeros(size),
    'signed zeros': lambda: rng.choice([0.0, -0.0], size),
    # Rotated, nearly all are zeros or at a border.
    'equal': lambda: np.full(size, -0.5),
    'few': lambda: np.where(rng.random(size) < 0.001, 3.0, 0.0),
    'tiny': lambda: rng.normal(size=size) * 2.0**-110,
    'huge': lambda: rng.normal(size=size) * 2.0**120,
  }[kind]()
  assert_twins(text, [tf.constant(values, tf.float32)])


# What a payload has for a scale that is not a number, on every processor.
NAN_WORD = 0x7FC00000


@pytest.mark.parametrize('text', CODES)
@pytest.mark.parametrize(
  'places', [{7: np.nan}, {7: -np.nan}, {7: np.inf}, {7: np.inf, 4000: -np.inf}]
)
@pytest.mark.gate_every(3)
def test_a_block_that_is_not_finite_has_the_scale_and_codes_of_tensorflow(
  text, places
):
  twin, codec = both(text)
  values = np.random.default_rng(5).normal(size=9001).astype(np.float32)
  for index, value in places.items():
    values[index] = value
  shared_probe, key = tf.ones([1]), test_kernels.keys(3)
  gradients = [tf.constant(values)]
  encode = tracing.function(
    lambda some: twin.encode(some, shared_probe, shared_probe, key),
    jit_compile=True,
  )
  words = codec.encode(gradients, shared_probe, shared_probe, key).numpy()
  for expected in (
    twin.encode(gradients, shared_probe, shared_probe, key),
    encode(gradients),
  ):
    np.testing.assert_array_equal(words, expected)
  # Only of the first of three blocks.
  assert words[2] == NAN_WORD
  assert np.isfinite(words[3:5].view(np.float32)).all()


@pytest.mark.parametrize('text', CODES)
def test_flat_and_listed_gradients_give_the_same_words(text):
  _, codec = both(text)
  sizes = (70, 0, 1001)
  gradients = test_kernels.gradients_of(sizes)
  shared_probe = codec.probe(gradients)
  key = test_kernels.keys(1)
  listed = codec.encode_pieces(gradients, sizes, None, shared_probe, key)
  flat = codec.encode_pieces(
    [tf.concat(gradients, axis=0)], sizes, None, shared_probe, key
  )
  np.testing.assert_array_equal(flat, listed)


@pytest.mark.parametrize('text', CODES)
def test_any_codes_decode_as_in_tensorflow(text):
  """Replicas of mixed builds must not part on damaged codes."""
  twin, _ = both(text)
  size = 9001
  rng = np.random.default_rng(7)
  (gradient,) = test_kernels.gradients_of([size])
  shared_probe = twin.probe([gradient])
  words = []
  for worker in range(3):
    key = test_kernels.keys(worker)
    word = twin.encode([gradient], shared_probe, shared_probe, key).numpy()
    word[5:] = rng.integers(-(2**31), 2**31, word[5:].shape)
    words.append(tf.constant(word))
  assert_decodes_alike(text, words, shared_probe, [(size,)])


@pytest.mark.parametrize('text', CODES)
@pytest.mark.gate_every(3)
def test_any_scales_decode_as_in_compiled_tensorflow(text):
  """Nor on scales of which a compiler could round products with a sum."""
  twin, codec = both(text)
  size = 7  # here XLA joins levels and sums
  rng = np.random.default_rng(9)
  odd = [np.nan, np.inf, -np.inf, 3e38, 1e-45, 2.0**-100, 2.0**-101, 0.0, -1.0]
  shared_probe = tf.ones([1])
  compiled = tracing.function(
    lambda words: twin.decode_sum([words], shared_probe, [(size,)]),
    jit_compile=True,
  )
  for _ in range(10):
    words = rng.integers(-(2**31), 2**31, (3, twin.num_words(size)))
    scales = rng.uniform(0.5, 2.0, 3).astype(np.float32)
    scales[rng.random(3) < 0.3] = rng.choice(odd)
    words[:, 2] = scales.view(np.int32)
    words = tf.constant(words, tf.int32)
    expected = compiled(words)[0]
    actual = codec.decode_sum([words], shared_probe, [(size,)])[0]
    np.testing.assert_array_equal(
      test_kernels.bits(actual), test_kernels.bits(expected)
    )


def test_invalid_code_parameters_are_refused():
  for code in (
    rotated_ops.RotatedCode((1,), 2, 0),
    rotated_ops.RotatedCode((0, 5), 3, 20),
    rotated_ops.RotatedCode((1, 2, 3), 16, 8),
  ):
    with pytest.raises(tf.errors.InvalidArgumentError, match='expected 1, 2'):
      rotated_ops.decode_sum(
        [tf.zeros([1, 9], tf.int32)], tf.ones([1]), [(3,)], 1.0, code
      )


def test_words_in_a_graph_equal_tensorflow():
  twin, codec = both('eden3')
  gradients = test_kernels.gradients_of((5000, 70))
  key = test_kernels.keys(3)

  @tracing.function
  def work(gradients):
    shared_probe = codec.probe(gradients)
    words = codec.encode(gradients, shared_probe, shared_probe, key)
    assert words.shape == twin.num_words(5070)
    return words

  shared_probe = twin.probe(gradients)
  expected = twin.encode(gradients, shared_probe, shared_probe, key)
  np.testing.assert_array_equal(work(gradients), expected)


def test_payloads_of_another_length_are_refused():
  _, codec = both('eden3')
  with pytest.raises(ValueError, match='expected payloads of'):
    codec.decode_sum([tf.zeros([1, 9], tf.int32)], tf.ones([1]), [(1000,)])


def steps_of(codec, values, num_workers=3):
  """(words, means) of a step of workers, two steps with states, as NumPy."""
  found = []
  workers = rounds.Workers(codec, num_workers)
  for number in range(2 if any(codec.states()) else 1):
    taken = workers.take(codec, values, number)
    found += [*taken.words[0], *taken.means]
  return [np.asarray(tensor) for tensor in found]


def assert_table_twins(text, sizes, values):
  codec = rounds.codec_of(registry.method(text), [(n,) for n in sizes])
  kernels = bucketing.on_kernels(codec)
  assert kernels.buckets[0].method is not codec.buckets[0].method
  expected = steps_of(codec, values)
  for a, b in zip(steps_of(kernels, values), expected, strict=True):
    np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


@pytest.mark.parametrize(
  ('text', 'sizes'),
  [
    ('thc', (0,)),
    ('thc', (1,)),
    ('thc', (2, 0, 1)),
    ('thc', (100, 31)),
    ('thc:span=1.5', (4097, 5, 0, 16_385)),
    ('error_feedback+thc', (140_003, 5, 70_001)),
  ],
  ids=str,
)
@pytest.mark.gate_every(2)
def test_thc_words_and_means_equal_tensorflow(text, sizes):
  values = [
    [g.numpy() for g in test_kernels.gradients_of(sizes, seed=worker)]
    for worker in range(3)
  ]
  assert_table_twins(text, sizes, values)


def test_thc_of_odd_gradients_equals_tensorflow():
  rng = np.random.default_rng(5)
  size = 4500
  kinds = [
    np.zeros(size),
    rng.choice([0.0, -0.0], size),
    np.full(size, -0.5),
    rng.normal(size=size) * 2.0**-110,
    rng.normal(size=size) * 2.0**120,
    np.where(np.arange(size) < 4096, 0.0, 1.0),  # a block of zeros
  ]
  values = [[kind.astype(np.float32) for kind in kinds]] * 3
  assert_table_twins('thc', [size] * len(kinds), values)


def test_words_of_a_split_bucket_in_a_graph_equal_tensorflow():
  text, sizes = 'thc', (300, 0, 4100)
  plain = registry.method(text)
  fast = plain.on_kernels()
  gradients = test_kernels.gradients_of(sizes)
  zero = tf.constant(0, tf.int64)
  context = method.Context(
    tuple((n,) for n in sizes), 2, 5, 1_234_567, zero, zero, zero
  )
  context = context._replace(key=test_kernels.keys(3))

  @tracing.function
  def words_of(one, gradients):
    carried, probe = one.begin(gradients, (), context)
    probed = context._replace(local_probe=probe, shared_probe=probe)
    (words,), _ = one.send(0, carried, (), [], probed)
    return words

  expected = words_of(plain, gradients)
  np.testing.assert_array_equal(words_of(fast, gradients), expected)
  flat = [tf.concat(gradients, axis=0)]
  np.testing.assert_array_equal(words_of(fast, flat), expected)
