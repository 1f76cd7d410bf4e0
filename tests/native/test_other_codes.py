"""Kernels of codes of groups and of few elements give their twins' bits."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec.methods import grouped
from terngrad.codec.methods import registry
from terngrad.codec.methods.sparse import elias_fano
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import tracing
from terngrad.native import ops
from terngrad.native import sparse_ops
from tests.native import test_kernels

pytestmark = pytest.mark.skipif(
  not native.available(), reason='the native kernels are not built here'
)

CODES = (
  'qsgd',
  'qsgd:levels=1,group_size=0',
  'qsgd:levels=127,norm=l2',
  'qsgd:levels=255,norm=l2,group_size=0',
  'minmax:bits=1',
  'minmax:bits=2,group_size=33',
  'minmax:bits=4,group_size=5000',
  'int8',
  'sign',
  'topk:ratio=0.3',
  'topk:ratio=0.01',
  'stc:ratio=0.01',
  'stc:ratio=1',
  'threshold:above=1.5,capacity=0.1',
  'sparseloco:chunk=512,kept=8',
)
# Lanes of 4, 8 and 16, sums of 32, groups of 512, and words of 4 to 32 places.
BORDERS = (0, 1, 7, 16, 31, 32, 33, 511, 512, 513, 1025, 16_385)
# Variables whose words, groups and samples are of many blocks.
LARGE = (140_003, 5, 70_001)


def assert_twins(text, gradients, num_workers=3, scales=None):
  """Fails unless words, probes' meaning and sums agree to the bit."""
  twin = registry.parse(text)
  codec = twin.on_kernels()
  assert codec is not twin
  np.testing.assert_allclose(
    codec.probe(gradients), twin.probe(gradients), rtol=1e-6
  )
  words = []
  for worker in range(num_workers):
    key = test_kernels.keys(worker)
    some = [gradient * (worker + 1.0) for gradient in gradients]
    expected = twin.encode(some, None, None, key)
    actual = codec.encode(some, None, None, key)
    np.testing.assert_array_equal(actual, expected)
    words.append(expected)
  shapes = [gradient.shape for gradient in gradients]
  assert_decodes_alike(text, words, shapes, scales)


def assert_decodes_alike(text, words, shapes, scales=None):
  twin = registry.parse(text)
  codec = twin.on_kernels()
  parts = [tf.stack(words[0::2]), tf.stack(words[1::2])]
  for scale in scales or (1.0, 1.0 / len(words)):
    expected = twin.decode_sum(parts, None, shapes, scale)
    actual = codec.decode_sum(parts, None, shapes, scale)
    for a, b in zip(actual, expected, strict=True):
      assert a.shape == b.shape
      np.testing.assert_array_equal(test_kernels.bits(a), test_kernels.bits(b))


@pytest.mark.parametrize('text', CODES)
@pytest.mark.parametrize('sizes', [BORDERS, LARGE], ids=['borders', 'large'])
@pytest.mark.gate_every(2)
def test_words_and_sums_equal_tensorflow(text, sizes):
  gradients = test_kernels.gradients_of(sizes, seed=len(sizes))
  # Of many variables one scale: their operations take seconds.
  assert_twins(text, gradients, scales=[1 / 3] if sizes == BORDERS else None)


@pytest.mark.parametrize('text', CODES)
@pytest.mark.parametrize(
  'kind',
  [
    'zeros',
    'signed zeros',
    'equal',
    'ties',
    'two',
    'tiny',
    'huge',
    'largest',
    'hidden',
  ],
)
@pytest.mark.gate_every(4)
def test_odd_gradients_are_coded_as_in_tensorflow(text, kind):
  rng = np.random.default_rng(5)
  size = 70_001
  values = {
    'zeros': lambda: np.zeros(size),
    'signed zeros': lambda: rng.choice([0.0, -0.0], size),
    'equal': lambda: np.full(size, -0.3),
    'ties': lambda: rng.integers(-2, 3, size),
    # Few are larger than those of which some are sent.
    'two': lambda: np.where(rng.random(size) < 0.005, 3.0, -1.0),
    'tiny': lambda: rng.normal(size=size) * 2.0**-110,
    'huge': lambda: rng.normal(size=size) * 2.0**120,
    # Multiples of a step that no int32 could count.
    'largest': lambda: np.where(np.arange(size) % 7, 1.0, -3e38),
    # What a sample of every third element sees is large, the others are not.
    'hidden': lambda: np.where(np.arange(size) % 3, 1e-3, 5.0),
  }[kind]()
  assert_twins(text, [tf.constant(values, tf.float32)], num_workers=2)


# What a payload has for a scale that is not a number, on every processor.
NAN_WORD = 0x7FC00000


def with_nan(size, index, bits=NAN_WORD):
  """float32 [size] with a NaN of these bits, and the least element before."""
  values = np.random.default_rng(size).normal(size=size).astype(np.float32)
  values[1] = -5.0
  values.view(np.uint32)[index] = bits
  return tf.constant(values)


@pytest.mark.parametrize(
  ('text', 'scale'),
  [
    ('minmax', NAN_WORD),
    ('minmax:group_size=0', NAN_WORD),
    ('sign', NAN_WORD),
    # The step, as of a group of zeros.
    ('qsgd', 0),
    ('qsgd:group_size=0', 0),
    ('qsgd:norm=l2,group_size=0', 0),
  ],
)
@pytest.mark.parametrize('bits', [NAN_WORD, 0xFFC00000, 0x7FFFFFFF])
@pytest.mark.gate_every(3)
def test_nan_decides_the_scale_of_its_group_wherever_it_is(text, scale, bits):
  twin = registry.parse(text)
  codec = twin.on_kernels()
  key = test_kernels.keys(3)
  compiled = tracing.function(
    lambda some: twin.encode(some, None, None, key), jit_compile=True
  )
  # In the first and other vectors, groups and blocks of 16,384 elements.
  for size, index in ((256, 0), (256, 9), (256, 255), (40_000, 20_000)):
    gradients = [with_nan(size, index, bits)]
    words = codec.encode(gradients, None, None, key).numpy()
    is_whole = text not in ('minmax', 'qsgd')
    group = 0 if is_whole else index // 512
    groups = 1 if is_whole else -(-size // 512)
    assert words[group] == scale
    others = np.delete(words[:groups].view(np.float32), group)
    assert np.all(np.isfinite(others) & (others != 0.0))
    for expected in (
      twin.encode(gradients, None, None, key),
      compiled(gradients),
    ):
      np.testing.assert_array_equal(words, expected)


def test_the_largest_of_a_group_is_never_rounded_above_all_levels():
  # Their step is exact, some of the products with its inverse are too large.
  steps = np.random.default_rng(1).integers(1, 4096, 2_000_000)
  gradient = tf.constant(127 * steps, tf.float32)
  assert_twins('qsgd:levels=127,group_size=1', [gradient], num_workers=2)


@pytest.mark.parametrize('text', CODES)
def test_flat_and_listed_gradients_give_the_same_words(text):
  codec = registry.parse(text).on_kernels()
  sizes = (70, 0, 1001)
  gradients = test_kernels.gradients_of(sizes)
  key = test_kernels.keys(1)
  listed = codec.encode_pieces(gradients, sizes, None, None, key)
  flat = codec.encode_pieces(
    [tf.concat(gradients, axis=0)], sizes, None, None, key
  )
  np.testing.assert_array_equal(flat, listed)


@pytest.mark.parametrize('text', ['qsgd:levels=3', 'minmax:bits=4', 'sign'])
def test_any_codes_decode_as_in_tensorflow(text):
  """Replicas of mixed builds must not part on damaged codes."""
  twin = registry.parse(text)
  size = 3001
  rng = np.random.default_rng(7)
  words = []
  for worker in range(3):
    (gradient,) = test_kernels.gradients_of([size], seed=worker)
    word = twin.encode([gradient], None, None, test_kernels.keys(worker))
    word = word.numpy()
    codes = slice(30, None)  # past the scales
    word[codes] = rng.integers(-(2**31), 2**31, word[codes].shape)
    words.append(tf.constant(word))
  assert_decodes_alike(text, words, [(size,)])


@pytest.mark.parametrize(
  'text', ['qsgd:levels=3', 'qsgd:levels=255', 'minmax:bits=8', 'minmax:bits=1']
)
def test_any_scales_decode_as_in_tensorflow(text):
  """Nor on scales of which a compiler could round products with a sum."""
  size = 3001
  rng = np.random.default_rng(9)
  odd = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 2.0**-100, 0.0, -1.0]
  words = []
  for _ in range(3):
    scales = rng.normal(size=12).astype(np.float32)
    where = rng.random(12) < 0.4
    scales[where] = rng.choice(odd, where.sum())
    codes = rng.integers(
      -(2**31), 2**31, registry.parse(text).num_words(size)
    ).astype(np.int32)
    codes[:12] = scales.view(np.int32)
    words.append(tf.constant(codes))
  assert_decodes_alike(text, words, [(size,)])


@pytest.mark.parametrize('text', ['sign', 'minmax:bits=1', 'qsgd'])
def test_subnormal_scales_decode_as_in_tensorflow(text):
  """In a graph, whose threads take subnormals for zeros where they compute."""
  twin = registry.parse(text)
  words = np.zeros([1, twin.num_words(77)], np.int32)
  words[0, 0] = 131_072  # of 1.8e-40

  @tracing.function
  def decoded(words):
    kernels = twin.on_kernels()
    return [
      codec.decode_sum([words], None, [(77,)])[0] for codec in (twin, kernels)
    ]

  a, b = decoded(tf.constant(words))
  np.testing.assert_array_equal(test_kernels.bits(a), test_kernels.bits(b))


@pytest.mark.parametrize('levels', [1, 2, 7, 127, 255])
def test_steps_of_an_encoder_are_unchanged(levels):
  spans = [0.0, 1e-30, 2.0**-100, 1.0, 1 / 3, 0.7, 2.0**126, 2.0**127]
  steps = grouped.step(tf.constant(spans), levels)
  np.testing.assert_array_equal(grouped.limit_steps(steps, levels), steps)
  odd = tf.constant([np.nan, np.inf, -np.inf, 3.4e38, -1.5, 1e-45])
  largest = grouped.limit_steps(odd, levels) * levels
  assert np.all(np.isfinite(largest)) and np.all(largest >= 0)


@pytest.mark.parametrize(
  'text', ['topk:ratio=0.1', 'stc:ratio=0.1', 'threshold:above=1']
)
def test_any_indices_decode_as_in_tensorflow(text):
  sizes = (501, 90)
  twin = registry.parse(text)
  words = twin.words_of(sizes)
  rng = np.random.default_rng(8)
  for _ in range(20):
    # Of each word some bits, so that some indices are inside.
    some = rng.integers(0, 2**31, words) >> rng.integers(0, 31, words)
    one = tf.constant(some.astype(np.int32))
    assert_decodes_alike(text, [one, one], [(n,) for n in sizes], [0.5])


def test_largest_elements_equal_tensorflow():
  for size in (1, 100, 70_001):
    (values,) = test_kernels.gradients_of([size], seed=size)
    for number in {1, max(1, size // 50), size}:
      indices, found = sparse_ops.largest(values, number)
      expected = np.sort(topk.largest(values, number))
      np.testing.assert_array_equal(indices, expected)
      np.testing.assert_array_equal(found, tf.gather(values, expected))


@pytest.mark.parametrize(
  ('number', 'size'),
  [(1, 1), (1, 2**31 - 1), (5, 5), (33, 1000), (700, 70_001)],
)
def test_packed_indices_equal_tensorflow(number, size):
  rng = np.random.default_rng(number)
  indices = {*rng.integers(0, size, number), size - 1}
  while len(indices) < number:
    indices.add(int(rng.integers(0, size)))
  indices = tf.constant(sorted(indices)[-number:], tf.int32)
  words = elias_fano.pack(indices, size) if size < 10**6 else None
  packed = sparse_ops.pack_indices(indices, size)
  if words is not None:
    np.testing.assert_array_equal(packed, words)
  np.testing.assert_array_equal(
    sparse_ops.unpack_indices(packed, number, size), indices
  )


@pytest.mark.parametrize('indices', [[3, 2], [2, 2], [-1, 2], [2, 10]])
def test_indices_that_are_not_ascending_are_refused(indices):
  with pytest.raises(tf.errors.InvalidArgumentError, match='rising'):
    sparse_ops.pack_indices(tf.constant(indices), 10)


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf], ids=str)
def test_a_norm_is_not_finite_where_one_element_is_not(value):
  for size in (1, 33, 16_385):
    for index in {0, size // 2, size - 1}:
      values = np.ones(size, np.float32)
      values[index] = value
      norms = ops.norms([tf.constant(values), tf.ones([size])])
      np.testing.assert_array_equal(np.isfinite(norms), [False, True])


def test_payloads_of_another_length_are_refused():
  codec = registry.parse('qsgd').on_kernels()
  with pytest.raises(tf.errors.InvalidArgumentError, match='expected shapes'):
    codec.decode_sum([tf.zeros([1, 9], tf.int32)], None, [(1000,)])
