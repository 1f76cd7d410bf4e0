"""The native kernels and their twin in TensorFlow give the same bits."""

import _ctypes
import functools
import os
import pathlib
import subprocess

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from terngrad import native
from terngrad.codec import method
from terngrad.codec.methods import registry
from terngrad.codec.stages import random_bits
from terngrad.native import grouped_ops
from terngrad.native import ops
from tests import forked

pytestmark = pytest.mark.skipif(
  not native.available(), reason='the native kernels are not built here'
)

CODECS = (
  'ternary',
  'ternary:packing=two_bit',
  'ternary:scaler_rule=stddev',
  'ternary:clip_factor=0',
  'ternary:packing=radix,workers=200',
  'ternary:dither=stratified,workers=3',
)
# These have kernels for their probe alone.
PROBED = (
  'ternary:packing=radix,workers=201,word_bits=64',
  pytest.param('ternary:packing=bitmap_sign', marks=pytest.mark.slow),
  'ternary:packing=huffman243',
)
# Each kernel cuts its work at its own borders: words of 16 and 20 places,
# vectors of 4, 8 and 16, sums of 32, blocks of 512 words and 16384 elements.
BORDERS = (0, 1, 15, 16, 17, 19, 20, 21, 31, 32, 33, 320, 511, 512, 513)
SPECIAL = np.array(
  [0.0, -0.0, 1e-45, -1e-40, 1e-38, 1.0, -1.0, 3e38, -3.4e38]
  + [np.inf, -np.inf, np.nan, 2.5, -2.5, 0.5, 2.0**-24],
  np.float32,
)


def keys(seed):
  key = random_bits.fold_in(random_bits.seed_key(seed), tf.constant(1))
  # The third, a stratum, counts only for codecs with strata.
  return tf.concat([key, [tf.cast(seed * 40503 % 2**32, tf.uint32)]], axis=0)


def gradients_of(sizes, seed=0):
  rng = np.random.default_rng(seed)
  return [
    tf.constant(rng.standard_t(3, size=size) * 10.0 ** (i % 5 - 2), tf.float32)
    for i, size in enumerate(sizes)
  ]


def assert_twins(
  text, gradients, local_probe, shared_probe, seed=0, num_workers=3
):
  """Fails unless words and sums agree to the bit."""
  twin = registry.parse(text)
  codec = twin.on_kernels()
  assert codec is not twin
  words = []
  for worker in range(num_workers):
    expected = twin.encode(
      gradients, local_probe, shared_probe, keys(seed + worker)
    )
    actual = codec.encode(
      gradients, local_probe, shared_probe, keys(seed + worker)
    )
    np.testing.assert_array_equal(actual, expected)
    words.append(expected)
  parts = [tf.stack(words[0::2]), tf.stack(words[1::2])]
  shapes = [gradient.shape for gradient in gradients]
  for scale in (1.0, 1.0 / num_workers):
    expected = twin.decode_sum(parts, shared_probe, shapes, scale)
    actual = codec.decode_sum(parts, shared_probe, shapes, scale)
    for a, b in zip(actual, expected, strict=True):
      assert a.shape == b.shape
      np.testing.assert_array_equal(bits(a), bits(b))


def bits(values):
  return np.asarray(values, np.float32).view(np.int32)


SIZES = (*BORDERS, 16383, 16384, 40_001, 163_841)
# All sizes of the code of the paper, all codes at a border of each kind.
BORDER_CASES = [
  pytest.param(
    size,
    text,
    marks=[]
    if text == 'ternary' or size in (1, 17, 33, 513)
    else pytest.mark.slow,
  )
  for size in SIZES
  for text in CODECS
]


@pytest.mark.parametrize(('size', 'text'), BORDER_CASES)
@pytest.mark.gate_every(3)
def test_words_and_floats_equal_tensorflow_at_every_border(text, size):
  gradients = gradients_of([size], seed=size)
  local_probe = registry.parse(text).probe(gradients)
  assert_twins(text, gradients, local_probe, 1.25 * local_probe, seed=size)


@pytest.mark.parametrize('text', CODECS[:2])
@pytest.mark.parametrize(
  'sizes', [(1,) * 50, BORDERS, (0, 7, 0), (100_003, 5, 40_000, 1)], ids=str
)
@pytest.mark.gate_every(3)
def test_buckets_equal_tensorflow(text, sizes):
  gradients = gradients_of(sizes)
  local_probe = registry.parse(text).probe(gradients)
  assert_twins(text, gradients, local_probe, 1.25 * local_probe)


# From 3**20 on base3 has words that no encoder makes.
ODD_WORDS = np.concatenate(
  [
    np.array([0xE9AA5979, 2**32 - 1, 3**20, 3**20 - 1], np.uint32),
    3**20 + 59049 * np.arange(14_000, dtype=np.uint32) % (2**32 - 3**20),
    np.random.default_rng(1).integers(0, 2**32, 40_000, dtype=np.uint32),
  ]
)


@pytest.mark.parametrize('packing', ['base3', 'two_bit'])
def test_invalid_words_decode_as_in_tensorflow(packing):
  """Replicas of mixed builds must not part on a damaged payload."""
  twin = registry.parse(f'ternary:clip_factor=0,packing={packing}')
  codec = twin.on_kernels()
  words = np.stack([ODD_WORDS, ODD_WORDS[::-1]]).view(np.int32)
  size = twin.packing.elements_per_word * words.shape[1]
  decoded = [
    each.decode_sum([tf.constant(words)], tf.ones([1]), [(size,)])[0].numpy()
    for each in (twin, codec)
  ]
  np.testing.assert_array_equal(*decoded)
  assert np.abs(decoded[0]).max() == (2 if packing == 'base3' else 4)


@pytest.mark.parametrize('text', PROBED)
@pytest.mark.gate_every(2)
def test_codes_with_only_a_probe_kernel_equal_tensorflow(text):
  gradients = gradients_of((1003, 20))
  local_probe = registry.parse(text).probe(gradients)
  np.testing.assert_allclose(
    registry.parse(text).on_kernels().probe(gradients),
    local_probe,
    rtol=1e-6,
  )
  assert_twins(text, gradients, local_probe, 1.25 * local_probe, num_workers=2)


@pytest.mark.parametrize('dtype', [tf.int8, tf.int32, tf.float32], ids=str)
@pytest.mark.parametrize(
  'sizes', [(1,), (0, 7, 0), BORDERS, (100_003, 5, 40_000)], ids=str
)
def test_precomputed_sums_decode_as_in_tensorflow(dtype, sizes):
  rng = np.random.default_rng(len(sizes))
  # Sums may come with places past the last element.
  total = sum(sizes) + 13
  sums = tf.constant(rng.integers(-127, 128, total), dtype)
  scalers = tf.constant(np.resize([0.3, 0.0, 1e-20, 3e38], len(sizes)))
  scalers = tf.cast(scalers, tf.float32)
  twin = registry.parse('ternary')
  codec = twin.on_kernels()
  for scale in (1.0, 1 / 3):
    expected = twin.decode_sums(sums, scalers, [(n,) for n in sizes], scale)
    actual = codec.decode_sums(sums, scalers, [(n,) for n in sizes], scale)
    for a, b in zip(actual, expected, strict=True):
      np.testing.assert_array_equal(bits(a), bits(b))


@hypothesis.given(data=strategies.data())
@hypothesis.settings(
  max_examples=30, deadline=None, derandomize=True, database=None
)
def test_words_equal_tensorflow_for_any_values(data):
  # Any bits at all as gradients, limits and scalers, NaN and infinity included.
  sizes = data.draw(strategies.lists(strategies.integers(0, 90), max_size=4))
  sizes = [*sizes, data.draw(strategies.integers(1, 700))]
  seed = data.draw(strategies.integers(0, 2**63 - 1))
  rng = np.random.default_rng(seed)
  gradients = []
  for size in sizes:
    values = rng.integers(0, 2**32, size=size, dtype=np.uint32)
    values = values.view(np.float32).copy()
    chosen = rng.random(size) < 0.5
    values[chosen] = rng.choice(SPECIAL, size=chosen.sum())
    gradients.append(tf.constant(values))
  scalers = tf.constant(rng.choice(np.abs(SPECIAL), size=len(sizes)))
  local_probe = tf.constant(rng.choice(np.abs(SPECIAL), size=len(sizes)))
  text = data.draw(strategies.sampled_from(CODECS))
  assert_encodes_as_the_twin(text, gradients, local_probe, scalers, seed)


def assert_encodes_as_the_twin(
  text, gradients, local_probe, shared_probe, seed
):
  twin = registry.parse(text)
  codec = twin.on_kernels()
  expected = twin.encode(
    gradients, local_probe, shared_probe, keys(seed % 2**31)
  )
  actual = codec.encode(
    gradients, local_probe, shared_probe, keys(seed % 2**31)
  )
  np.testing.assert_array_equal(actual, expected)


def test_an_element_fires_from_its_draw_on_and_not_an_ulp_before():
  # With a scaler of 2**23 values are in the units of the draws.
  size = 5000
  positions = tf.range(size, dtype=tf.int32)
  drawn = random_bits.element_bits(keys(1), tf.bitcast(positions, tf.uint32))
  edges = (drawn.numpy() >> 9).astype(np.float32) + np.float32(0.5)
  before = np.nextafter(edges, np.float32(0))
  codec = registry.parse('ternary:clip_factor=0').on_kernels()
  scaler = tf.constant([2.0**23])
  for values, fires in ((edges, True), (-edges, True), (before, False)):
    words = codec.encode([tf.constant(values)], scaler, scaler, keys(1))
    (decoded,) = codec.decode_sum([words[tf.newaxis]], scaler, [(size,)])
    expected = np.sign(values) * fires * np.float32(2.0**23)
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize(
  'num_workers',
  [1, 20, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 8, 60))],
)
def test_sums_of_many_workers_equal_tensorflow(num_workers):
  gradients = gradients_of([5003, 20])
  local_probe = registry.parse('ternary').probe(gradients)
  assert_twins(
    'ternary', gradients, local_probe, local_probe, num_workers=num_workers + 1
  )


def test_flat_and_listed_gradients_give_the_same_words():
  codec = registry.parse('ternary').on_kernels()
  sizes = (70, 0, 1001)
  gradients = gradients_of(sizes)
  local_probe = codec.probe(gradients)
  listed = codec.encode_pieces(
    gradients, sizes, local_probe, local_probe, keys(1)
  )
  flat = tf.concat(gradients, axis=0)
  np.testing.assert_array_equal(
    codec.encode_pieces([flat], sizes, local_probe, local_probe, keys(1)),
    listed,
  )


# Statistics.


@pytest.mark.parametrize('size', [*BORDERS, 16384, 16385, 100_003, 1_000_003])
def test_statistics_agree_with_float64_to_a_millionth(size):
  (gradient,) = gradients_of([size], seed=size)
  stddev, max_abs = ops.statistics([gradient])
  values = gradient.numpy().astype(np.float64)
  expected = values.std() if size else 0.0
  np.testing.assert_allclose(stddev, [expected], rtol=1e-6)
  np.testing.assert_array_equal(max_abs, [np.abs(values).max(initial=0.0)])


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf], ids=str)
def test_statistics_are_not_finite_where_one_element_is_not(value):
  for size in (1, 33, 16384, 50_001):
    for index in {0, size // 2, size - 1}:
      values = np.ones(size, np.float32)
      values[index] = value
      good = tf.ones([size])
      stddev, max_abs = ops.statistics([good, tf.constant(values), good])
      for result in (stddev, max_abs):
        np.testing.assert_array_equal(
          np.isfinite(result), [True, False, True], err_msg=f'{size}, {index}'
        )


@pytest.mark.parametrize('value', [0.1, -1 / 3, 1e30])
def test_statistics_of_a_constant_have_no_deviation(value):
  stddev, max_abs = ops.statistics([tf.fill([10**6], np.float32(value))])
  assert stddev[0] == 0.0
  assert max_abs[0] == abs(np.float32(value))


# Threads and switches, in processes of their own.

_DIGEST = """
import hashlib, os, sys
import numpy as np
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from terngrad import native
from terngrad.codec.methods import registry
from terngrad.codec.stages import random_bits
codec = registry.parse('ternary')
if native.available():
  codec = codec.on_kernels()
rng = np.random.default_rng(0)
sizes = (1_000_003, 17, 300_000)
gradients = [tf.constant(rng.normal(size=n), tf.float32) for n in sizes]
probe = codec.probe(gradients)
key = random_bits.seed_key(3)
words = codec.encode(gradients, probe, probe, key)
decoded = codec.decode_sum(
  [tf.stack([words] * 3)], probe, [(n,) for n in sizes], 1 / 3
)
digest = hashlib.sha256()
for tensor in (words, *decoded):
  digest.update(tensor.numpy().tobytes())
probe = probe.numpy().tobytes().hex()
print(native.available(), digest.hexdigest(), probe, native.instruction_set())
"""


@functools.cache
def digest_of(threads, **environment):
  done = forked.run(
    None, _DIGEST, threads, environment={**os.environ, **environment}
  )
  done.check_returncode()
  available, digest, local_probe, chosen = done.stdout.split()
  return available == 'True', (digest, local_probe), chosen


def test_no_bit_depends_on_the_number_of_threads_or_the_switch():
  one = digest_of(1)
  assert one[0]
  assert digest_of(7) == one
  off, bits, chosen = digest_of(2, TERNGRAD_NATIVE='0')
  assert not off
  assert chosen == 'None'
  # The probes of these gradients agree to the last bit, and so does the rest.
  assert bits == one[1]


@pytest.mark.parametrize('name', ['generic', 'avx2', 'avx512'])
def test_requested_instruction_set_is_used_and_gives_the_same_bits(name):
  try:
    _, bits, chosen = digest_of(2, TERNGRAD_NATIVE=name)
  except subprocess.CalledProcessError as failure:
    # Another processor than most.
    assert 'expected an instruction set that this' in failure.stderr
    pytest.skip(f'this processor has no {name}')
  assert chosen == name
  # As those of any other number of threads, by the test above.
  assert bits == digest_of(1)[1]


def test_invalid_switch_is_refused():
  with pytest.raises(subprocess.CalledProcessError) as failure:
    digest_of(1, TERNGRAD_NATIVE='yes')
  assert (
    "TERNGRAD_NATIVE: expected 0, 1, generic, avx2, avx512, received 'yes'"
    in failure.value.stderr
  )


def test_an_instruction_set_that_the_processor_lacks_is_refused(monkeypatch):
  monkeypatch.setenv('TERNGRAD_NATIVE', 'avx512')
  with pytest.raises(ValueError, match="'avx512'. Unset.* which is 'avx2'"):
    native._check('avx2')


def test_a_library_of_older_sources_is_not_used(monkeypatch):
  """Such as one that was built before an editable checkout moved on."""
  other = pathlib.Path(_ctypes.__file__)
  monkeypatch.setattr(native, '_find', lambda: (other, None))
  operations, reason = native._load.__wrapped__()
  assert operations is None
  assert f'{other.name} was built from older sources.' in reason
  assert 'run pip install --force-reinstall' in reason


# Refusals.


def test_arguments_that_do_not_fit_are_refused():
  flat = tf.zeros([10])
  one = tf.ones([1])
  key = tf.constant([1, 2], tf.uint32)
  base3, trits = ops.EncodeOptions(3, 20), ops.Digits(3, 20)
  cases = {
    'expected 9 elements in all, received 10': lambda: base3.encode(
      [flat], [9], one, one, key
    ),
    'expected 2 tensors, received 3': lambda: base3.encode(
      [flat] * 3, [10, 20], tf.ones([2]), tf.ones([2]), key
    ),
    'gradient 1: expected 11 elements, received 10': lambda: base3.encode(
      [flat] * 2, [10, 11], tf.ones([2]), tf.ones([2]), key
    ),
    'expected 1 of each, received 2 and 1': lambda: base3.encode(
      [flat], [10], tf.ones([2]), one, key
    ),
    'key: expected 2 or 3 numbers, received 4': lambda: base3.encode(
      [flat], [10], one, one, tf.zeros([4], tf.uint32)
    ),
    'received radix 2 and places 20': lambda: ops.EncodeOptions(2, 20).encode(
      [flat], [10], one, one, key
    ),
    'received radix 3 and places 21': lambda: ops.EncodeOptions(3, 21).encode(
      [flat], [10], one, one, key
    ),
    'received radix 5 and places 10': lambda: ops.Digits(5, 10).decode_sum(
      [tf.zeros([1, 1], tf.int32)], one, [(10,)], 1.0
    ),
    'sizes: expected >= 0, received -1': lambda: base3.encode(
      [flat], [-1], one, one, key
    ),
    r'expected shapes \[n, 1\], received \[1,2\]': lambda: ops.Digits(
      3, 20
    ).decode_sum([tf.zeros([1, 2], tf.int32)], one, [(10,)], 1.0),
    'scalers: expected 1, received 2': lambda: trits.decode_sum(
      [tf.zeros([1, 1], tf.int32)], tf.ones([2]), [(10,)], 1.0
    ),
    'expected 1 to 16384 payloads, received 0': lambda: ops.Digits(
      3, 20
    ).decode_sum([tf.zeros([0, 1], tf.int32)], one, [(10,)], 1.0),
  }
  sums = tf.zeros([9], tf.int8)
  cases |= {
    r'sums: expected a vector of 10 or more, received \[9\]': (
      lambda: ops.scale_sums(sums, one, [(10,)], 1.0)
    ),
    'scalers: expected 2, received 1': lambda: ops.scale_sums(
      sums, one, [(4,), (5,)], 1.0
    ),
  }
  digits = grouped_ops.GroupedCode(grouped_ops.STEPS, 7, 15, 0)
  cases |= {
    'expected a code of groups, .* levels 7, base 15, places 0': lambda: (
      grouped_ops.encode([flat], [10], key, 2, digits)
    ),
    'expected a code of groups, .* levels 300': lambda: grouped_ops.decode_sum(
      [tf.zeros([1, 2], tf.int32)], [(10,)], 1.0, digits._replace(levels=300)
    ),
  }
  cases |= _bad_updates()
  for message, call in cases.items():
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
      call()


def _bad_updates():
  """{message: call}."""

  def update(parameters, velocities=(), averages=(), words=1, first=0, **more):
    tensors = ops.UpdateTensors(parameters, velocities, averages, momentum=0.9)
    rate = more.get('rate', tf.constant(0.1))
    piece = method.Piece(first, [tf.zeros([1, words], tf.int32)])
    scalers = tf.ones([len(parameters)])
    rates = rate, tf.constant(0.9)
    ops.fused_update((3, 20), piece, scalers, 1.0, tensors, rates)

  one, two, three = (tf.Variable(tf.zeros([n])) for n in (5, 5, 6))
  half = tf.Variable(tf.zeros([5], tf.float16))
  other = tf.Variable(tf.zeros([5]))
  return {
    'expected none or 2, received 1': lambda: update([one, two], [three]),
    'variables: expected .*received one twice': lambda: update([one, one]),
    r'variable 2: expected float32 \[5\], received .*shape: \[6\]': (
      lambda: update([one, two], [three, half])
    ),
    'variable 3: expected float32 .* received .*type: half': (
      lambda: update([one, two], [other, half])
    ),
    r'piece: expected .* of 1 words, received 2 .*\b0': (
      lambda: update([one, two], words=2)
    ),
    r'piece: expected .* of 1 words, received 1 .* 1\b': (
      lambda: update([one, two], first=1)
    ),
    'piece: expected .* of 1 words, received 1 .*-1': (
      lambda: update([one, two], first=-1)
    ),
    r'expected scalars, received \[2\] and \[\]': (
      lambda: update([one, two], rate=tf.zeros([2]))
    ),
  }


def test_parameters_and_shapes_of_different_lengths_are_refused():
  one, two = (tf.Variable(tf.zeros([5])) for _ in range(2))
  with pytest.raises(tf.errors.InvalidArgumentError, match='expected 1, rec'):
    native.library().terngrad_fused_update(
      parts=[tf.zeros([1, 1], tf.int32)],
      scalers=tf.ones([1]),
      parameters=[one.handle, two.handle],
      velocities=[],
      averages=[],
      learning_rate=0.1,
      decay=0.9,
      first=0,
      count=1,
      shapes=[(5,)],
      scale=1.0,
      momentum=0.9,
      radix=3,
      places=20,
    )
