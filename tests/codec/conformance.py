"""What every codec must keep, as one abstract test class.

A codec's test module derives a class from `CodecConformance`, or from
`TernaryConformance` and `DrawConformance` for codes of -1, 0 and +1 times a
scaler, and answers its few questions. Nothing here knows how a codec works:
gradients go in, NumPy arrays come out.
"""

import abc
import functools
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import validation
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
from tests.codec import bounds

# No multiple of anything. That larger gradients, whose statistics add in a
# tree, agree too is for the test of statistics: this compiles in half the time.
MODE_SIZE = 1063
# Draws of as many elements: 2 million in all.
NUM_DRAWS, NUM_DRAWN = 2048, 1025
# NumPy shares no stream with the codecs.
RNG_SEED = 20170522

NOT_FINITE = (np.nan, np.inf, -np.inf)


def rng():
  return np.random.default_rng(RNG_SEED)


def bucket_key(seed=1, step=2, worker=3, bucket=4):
  """The key of one bucket's codes, as a training step derives it.

  Its third number, the first stratum, is of use to codes with strata only.
  """
  key = random_bits.worker_key(seed, step, worker)
  key = random_bits.fold_in(key, tf.constant(bucket))
  return tf.concat([key, [0]], axis=0)


# A codec takes buckets of variables; most tests need one variable.


def probe(codec, gradient):
  """The probe of one gradient, float32 []."""
  return codec.probe([tf.constant(gradient, tf.float32)])[0]


def encode(codec, gradient, key=None, local_probe=None, shared_probe=None):
  """The payload of a gradient and the shared value that it is relative to."""
  gradient = tf.constant(gradient, tf.float32)
  local_probe = (
    codec.probe([gradient]) if local_probe is None else vector(local_probe)
  )
  shared_probe = local_probe if shared_probe is None else vector(shared_probe)
  key = bucket_key() if key is None else key
  return codec.encode([gradient], local_probe, shared_probe, key), shared_probe[
    0
  ]


def decode_sum(codec, words, shared_probe, shape, num_parts=1):
  """What int32 [n, w] payloads of one variable sum to, as NumPy.

  The payloads come from `num_parts` devices, to which the workers are dealt.
  """
  parts = [tf.constant(words[i::num_parts]) for i in range(num_parts)]
  (total,) = codec.decode_sum(parts, vector(shared_probe), [shape])
  return total.numpy()


def decode(codec, words, shared_probe, shape):
  """The gradient that one payload stands for, as NumPy."""
  return decode_sum(codec, np.array(words)[np.newaxis], shared_probe, shape)


def round_trip(codec, gradient, **options):
  """The NumPy gradient that a NumPy gradient arrives as."""
  words, shared_probe = encode(codec, gradient, **options)
  return decode(codec, words, shared_probe, np.shape(gradient))


def check_corruption_is_refused(codec, gradient, index, word, message):
  """Fails unless a payload is taken whole and refused with another word."""
  words, _ = encode(codec, gradient)
  words, size = words.numpy(), np.size(gradient)
  np.testing.assert_array_equal(validation.validate(codec, words, size), words)
  words[index] = word
  with pytest.raises(ValueError, match=message):
    validation.validate(codec, words, size)


def vector(value):
  return tf.reshape(tf.constant(value, tf.float32), [1])


def bits_of(values):
  """float32 values as integers: equal to the bit, NaN and -0.0 included."""
  return np.asarray(values, np.float32).view(np.int32)


class Sample(NamedTuple):
  """Many draws of one gradient.

  Attributes:
    mean: float64 [n], of the decoded elements over the draws.
    mean_square: float64 [n], likewise of their squares.
    totals: float64 [draws], the sum of each draw's decoded magnitudes.
  """

  mean: np.ndarray
  mean_square: np.ndarray
  totals: np.ndarray


def sampler(codec, size, draws=NUM_DRAWS):
  """A function of (gradient, local and shared probe) to a `Sample`."""

  # Compiled, because thousands of eager draws take minutes; a conformance test
  # holds eager and compiled codecs equal to the bit.
  @tracing.function(jit_compile=True)
  def run(gradient, local_probe, shared_probe, stratum):
    def body(i, total, squares, totals):
      key = random_bits.fold_in(bucket_key()[:2], i)
      key = tf.concat([key, [stratum]], axis=0)
      words = codec.encode([gradient], local_probe, shared_probe, key)
      (decoded,) = codec.decode_sum(
        [words[tf.newaxis]], shared_probe, [(size,)]
      )
      decoded = tf.cast(decoded, tf.float64)
      return (
        i + 1,
        total + decoded,
        squares + tf.square(decoded),
        totals.write(i, tf.reduce_sum(tf.abs(decoded))),
      )

    zeros = tf.zeros([size], tf.float64)
    totals = tf.TensorArray(tf.float64, size=draws, element_shape=[])
    _, total, squares, totals = tf.while_loop(
      lambda i, *_: i < draws,
      body,
      (tf.constant(0), zeros, zeros, totals),
      maximum_iterations=draws,
    )
    return total / draws, squares / draws, totals.stack()

  def sample(gradient, local_probe, shared_probe, stratum=0):
    results = run(
      tf.constant(gradient),
      vector(local_probe),
      vector(shared_probe),
      tf.constant(stratum, tf.uint32),
    )
    return Sample(*(result.numpy() for result in results))

  return sample


@functools.cache
def sampler_of(conformance):
  """The `sampler` of a class, compiled once."""
  return sampler(conformance().make(), NUM_DRAWN)


# The law of unbiased ternary codes: each element is scaler * sign(mean) with
# probability |mean| / scaler, else 0, independently of all others. Each check
# takes a `Sample`, the float64 [n] that decoded values should average to, and
# the scaler.

# Codecs promise probabilities to 2**-24; two roundings of float32 besides.
_GRAIN = 2.0**-22


def check_law(drawn, mean, scaler):
  """Fails unless the draws are unbiased, as narrow as can be, independent."""
  for check in (check_mean, check_variance, check_independence):
    check(drawn, mean, scaler)


def check_mean(drawn, mean, scaler):
  """Fails if an element, or all elements together, have another mean."""
  draws = drawn.totals.size
  comparisons = mean.size + 1
  variance = _fires_variance(mean, scaler)
  error = (drawn.mean - mean) * np.sign(mean) / scaler
  error = np.where(mean == 0, drawn.mean / scaler, error)
  limit = bounds.bernstein(draws * variance, 1.0, comparisons) / draws + _GRAIN
  worst = np.max(np.abs(error) / limit)
  assert worst <= 1, f'an element is biased: {worst:.2f} times the bound'
  # A bias that no element shows alone.
  limit = bounds.bernstein(draws * variance.sum(), 1.0, comparisons) / draws
  worst = abs(error.sum()) / (limit + mean.size * _GRAIN)
  assert worst <= 1, f'the whole is biased: {worst:.2f} times the bound'


def check_variance(drawn, mean, scaler):
  """Fails if an element's variance is not scaler * |mean| - mean**2."""
  draws = drawn.totals.size
  # That is: if the mean square is not scaler * |mean|.
  error = drawn.mean_square / scaler**2 - np.abs(mean) / scaler
  variance = _fires_variance(mean, scaler)
  limit = bounds.bernstein(draws * variance, 1.0, mean.size) / draws + _GRAIN
  worst = np.max(np.abs(error) / limit)
  assert worst <= 1, f'a variance is wrong: {worst:.2f} times the bound'


def check_independence(drawn, mean, scaler):
  """Fails if elements draw alike, which spreads the totals of the draws."""
  error = (drawn.totals - np.abs(mean).sum()) / scaler
  spread = np.sum(error**2) / _fires_variance(mean, scaler).sum()
  low, high = bounds.chi_square(drawn.totals.size, 1)
  assert low <= spread <= high, (
    f'elements are not independent: chi-square {spread:.0f}, '
    f'expected {low:.0f} to {high:.0f}'
  )


def _fires_variance(mean, scaler):
  p = np.abs(mean) / scaler
  return p * (1 - p)


@functools.cache
def modes_of(conformance):
  """{mode: function of (gradient, probes, key, payloads)} of a class."""
  codec = conformance().make()

  def work(gradient, local_probe, shared_probe, key, payloads):
    return (
      codec.probe([gradient]),
      codec.encode([gradient], local_probe, shared_probe, key),
      codec.decode_sum([payloads], shared_probe, [(MODE_SIZE,)])[0],
    )

  return {
    'eager': work,
    'graph': tracing.function(work),
    'xla': tracing.function(work, jit_compile=True),
  }


class CodecConformance(abc.ABC):
  """Properties of all codecs. Subclasses say which codec and what is exact."""

  # Elements in a word: the borders at which lengths are tried.
  per_word = 1
  # int32 numbers in a word.
  numbers_per_word = 1

  @abc.abstractmethod
  def make(self):
    """A new instance of the codec."""

  @abc.abstractmethod
  def representable(self, size):
    """(float32 [size], local and shared probe) that must come back exactly."""

  def mean(self, gradient, local_probe, shared_probe):
    """float64: what decoded payloads must average to, if it is unbiased."""
    del local_probe, shared_probe
    return gradient.astype(np.float64)

  def expected_values(self, variable):
    """float32: what a code without draws gives back of a variable, to 11 bits.

    All of it, unless a code is made to leave something out.
    """
    return variable

  # Shapes, sizes and the wire.

  @pytest.mark.parametrize(
    'shape',
    [(), (0,), (0, 3), (1,), (1, 1), (7,), (2, 3), (3, 1, 4, 2)],
    ids=str,
  )
  def test_decoding_preserves_shape_and_dtype(self, shape):
    codec = self.make()
    gradient = tf.constant(rng().normal(size=shape), tf.float32)
    local_probe = codec.probe([gradient])
    words = codec.encode([gradient], local_probe, local_probe, bucket_key())
    (decoded,) = codec.decode_sum([words[tf.newaxis]], local_probe, [shape])
    assert (local_probe.dtype, local_probe.shape) == (tf.float32, (1,))
    size = gradient.shape.num_elements()
    assert (words.dtype, words.shape) == (tf.int32, (codec.num_words(size),))
    assert (decoded.dtype, decoded.shape) == (tf.float32, shape)

  def test_representable_values_round_trip_exactly(self):
    border = 7 * self.per_word
    sizes = (self.per_word - 1, self.per_word, self.per_word + 1)
    self.check_lengths([0, 1, 2, *sizes, border - 1, border + 1, 100_007])

  @pytest.mark.slow
  def test_representable_values_round_trip_exactly_at_every_length(self):
    borders = [
      words * self.per_word + more for words in (7, 64) for more in (-1, 0, 1)
    ]
    self.check_lengths([*range(71), *borders, 100_007])

  def check_lengths(self, sizes):
    codec = self.make()
    wrong = []
    for size in sizes:
      gradient, scale = self.representable(size)
      decoded = round_trip(codec, gradient, local_probe=scale)
      if not np.array_equal(bits_of(decoded), bits_of(gradient)):
        wrong.append(size)
    assert wrong == []

  def test_num_words_is_minimal(self):
    codec = self.make()
    # ceil(size / per_word), by counting.
    words = [codec.num_words(size) for size in range(3 * self.per_word + 1)]
    assert words == [0] + [
      n * self.numbers_per_word for n in (1, 2, 3) for _ in range(self.per_word)
    ]

  @pytest.mark.parametrize('size', [0, 1, 41, 1000])
  def test_bits_equal_the_sent_size(self, size):
    codec = self.make()
    words, local_probe = encode(codec, rng().normal(size=size))
    sent = 8 * (words.numpy().nbytes + local_probe.numpy().nbytes)
    for num_workers in (1, 2, 100):
      assert codec.bits(size, num_workers) == sent

  def test_payload_decodes_from_numpy_values_alone(self):
    gradient = rng().normal(size=(23, 3))
    words, shared_probe = encode(self.make(), gradient)
    decoded = decode(
      self.make(), words.numpy().copy(), shared_probe.numpy(), gradient.shape
    )
    expected = round_trip(self.make(), gradient)
    np.testing.assert_array_equal(bits_of(decoded), bits_of(expected))

  @pytest.mark.parametrize('more', [-1, 1, 4096])
  def test_payload_of_another_length_is_refused(self, more):
    codec = self.make()
    words, shared_probe = encode(codec, rng().normal(size=1000))
    words = np.resize(words, len(words) + more)
    # A kernel's, or TensorFlow's.
    expected = (ValueError, tf.errors.InvalidArgumentError)
    with pytest.raises(expected, match='expected'):
      decode(codec, words, shared_probe, (1000,))

  def test_encoding_ignores_the_shape(self):
    codec = self.make()
    gradient = rng().normal(size=(5, 4, 3))
    shaped, _ = encode(codec, gradient)
    flat, _ = encode(codec, gradient.reshape(-1))
    np.testing.assert_array_equal(shaped, flat)

  # Arguments.

  @pytest.mark.parametrize(
    'gradients',
    [tf.ones([2, 3]), np.ones([2, 3], np.float32), [tf.ones([3], tf.float64)]],
    ids=['tensor', 'array', 'float64'],
  )
  def test_gradients_must_be_a_list_of_float32_tensors(self, gradients):
    codec = self.make()
    with pytest.raises(ValueError, match='expected a list of float32 tensors'):
      codec.probe(gradients)
    with pytest.raises(ValueError, match='expected a list of float32 tensors'):
      codec.encode(gradients, vector(1.0), vector(1.0), bucket_key())

  def test_shared_probe_of_wrong_size_is_refused(self):
    codec = self.make()
    gradients = [tf.ones([3]), tf.ones([2])]
    with pytest.raises(ValueError, match='expected a shared probe of 2 numb'):
      codec.encode(gradients, vector(1.0), vector(1.0), bucket_key())

  # Randomness.

  def test_same_key_gives_same_words(self):
    gradient = rng().normal(size=1000)
    first, _ = encode(self.make(), gradient, key=bucket_key())
    second, _ = encode(self.make(), gradient, key=bucket_key())
    np.testing.assert_array_equal(first, second)

  @pytest.mark.parametrize(
    'other',
    [{'seed': 9}, {'step': 9}, {'worker': 9}, {'bucket': 9}],
    ids=lambda other: next(iter(other)),
  )
  def test_other_key_gives_other_words_if_and_only_if_private(self, other):
    codec = self.make()
    gradient = rng().normal(size=1000)
    first, _ = encode(codec, gradient)
    second, _ = encode(codec, gradient, key=bucket_key(**other))
    differ = not np.array_equal(first, second)
    assert differ == (codec.traits.randomness == 'private')

  # Special values.

  @pytest.mark.parametrize('size', [1, 2, 70, 5000])
  def test_zeros_give_zeros(self, size):
    decoded = round_trip(self.make(), np.zeros(size))
    assert not decoded.any()

  @pytest.mark.parametrize('value', [0.1, -1 / 3])
  @pytest.mark.parametrize('size', [1, 2, 7, 1000, 10**6])
  def test_constant_gradient_still_learns(self, size, value):
    decoded = round_trip(self.make(), np.full(size, value, np.float32))
    # 11 bits: the coarsest of the codecs rounds to half precision.
    expected = self.expected_values(np.full(size, value, np.float32))
    np.testing.assert_allclose(decoded, expected, rtol=2.0**-11)

  @pytest.mark.parametrize('value', NOT_FINITE, ids=str)
  @pytest.mark.parametrize('size', [1, 2, 33, 65535, 65536, 65543])
  def test_element_that_is_not_finite_shows_in_probe(self, size, value):
    codec = self.make()
    tail = size - size % 16  # where the statistics' planes end
    for index in {
      0,
      size // 2,
      max(tail - 1, 0),
      min(tail, size - 1),
      size - 1,
    }:
      gradient = np.linspace(-1, 1, size, dtype=np.float32)
      gradient[index] = value
      assert not np.isfinite(probe(codec, gradient)), index

  @pytest.mark.parametrize(
    'mode', ['eager', pytest.param('graph', marks=pytest.mark.slow), 'xla']
  )
  def test_probe_is_finite_only_for_finite_elements(self, mode):
    gradient, *rest = self.mode_arguments()
    for value in (0.0, 1e-45, 3e38, -3.4e38, *NOT_FINITE):
      spoilt = gradient.copy()
      spoilt[-1] = value
      if mode == 'eager':
        local_probe = probe(self.make(), spoilt)
      else:
        local_probe, _, _ = modes_of(type(self))[mode](
          tf.constant(spoilt), *rest
        )
      assert np.isfinite(local_probe) == np.isfinite(value), value

  def test_huge_gradient_stays_finite(self):
    gradient = np.array([3e38, -3e38, 3.4e38, 0.0] * 20, np.float32)
    assert np.isfinite(probe(self.make(), gradient))
    assert np.isfinite(round_trip(self.make(), gradient)).all()

  def test_subnormal_gradient_stays_as_small(self):
    gradient = np.array([1e-40, -1e-45, 1e-38, 0.0] * 20, np.float32)
    decoded = round_trip(self.make(), gradient)
    assert np.max(np.abs(decoded)) <= np.max(np.abs(gradient))

  # Modes.

  def mode_arguments(self):
    codec = self.make()
    gradient = rng().standard_t(3, size=MODE_SIZE).astype(np.float32)
    local_probe = codec.probe([tf.constant(gradient)])
    shared_probe = 1.25 * local_probe
    payloads = tf.stack(
      [
        codec.encode(
          [tf.constant(gradient)],
          local_probe,
          shared_probe,
          bucket_key(worker=w),
        )
        for w in range(3)
      ]
    )
    return gradient, local_probe, shared_probe, bucket_key(), payloads

  @pytest.mark.parametrize('mode', ['graph', 'xla'])
  def test_mode_agrees_with_eager_to_the_bit(self, mode):
    gradient, *rest = self.mode_arguments()
    for scale in (1.0, 1e-3, 7e5):
      values = tf.constant(gradient * np.float32(scale))
      names = ('probe', 'words', 'decoded sum')
      expected = modes_of(type(self))['eager'](values, *rest)
      actual = modes_of(type(self))[mode](values, *rest)
      for name, a, b in zip(names, actual, expected, strict=True):
        a, b = (x.numpy().view(np.int32) for x in (a, b))
        np.testing.assert_array_equal(a, b, err_msg=name)

  # Sums over workers.

  def payloads(self, num_workers, size):
    """(words [num_workers, w], shared probe, float32 [num_workers, size])."""
    codec = self.make()
    values = rng().normal(size=(num_workers, size)).astype(np.float32)
    # Far apart, so that the order of a float sum shows.
    values *= np.float32(4.0) ** rng().integers(-4, 5, size=(num_workers, 1))
    owns = [probe(codec, v).numpy() for v in values]
    shared_probe = max(owns)
    words = [
      encode(codec, v, bucket_key(worker=w), owns[w], shared_probe)[0].numpy()
      for w, v in enumerate(values)
    ]
    decoded = [decode(codec, w, shared_probe, (size,)) for w in words]
    return np.stack(words), shared_probe, np.stack(decoded)

  @pytest.mark.parametrize(
    ('num_workers', 'num_parts'),
    [(1, 1), (5, 1), (2, 2), (4, 3), (8, 3)],
  )
  def test_sum_of_payloads_is_sum_of_gradients_in_order(
    self, num_workers, num_parts
  ):
    size = 203
    words, shared_probe, decoded = self.payloads(num_workers, size)
    total = decode_sum(self.make(), words, shared_probe, (size,), num_parts)
    if self.make().traits.additive:
      # Codes add as integers: as exact as float64, rounded once.
      expected = decoded.astype(np.float64).sum(axis=0).astype(np.float32)
    else:
      expected = np.zeros(size, np.float32)
      for one in decoded:
        expected = expected + one
    np.testing.assert_array_equal(total, expected)

  def test_worker_order_does_not_matter_for_additive_codes(self):
    size = 203
    words, shared_probe, _ = self.payloads(5, size)
    codec = self.make()
    total = decode_sum(codec, words, shared_probe, (size,))
    draws = rng()
    for _ in range(3):
      shuffled = draws.permutation(words)
      again = decode_sum(codec, shuffled, shared_probe, (size,))
      if codec.traits.additive:
        np.testing.assert_array_equal(again, total)
      else:
        np.testing.assert_allclose(again, total, rtol=1e-3, atol=1e-2)

  # Buckets of several variables.

  def bucket(self):
    """Variables of many shapes and scales: one scalar, one empty, one zero."""
    shapes = ((5, 4), (), (0, 3), (33,), (2, 3, 7))
    return [
      tf.constant(rng().normal(size=shape) * scale, tf.float32)
      for shape, scale in zip(shapes, (1, 1e3, 1, 0, 1e-3), strict=True)
    ]

  def test_bucket_sends_one_payload_and_one_probe_per_variable(self):
    codec, variables = self.make(), self.bucket()
    local_probe = codec.probe(variables)
    words = codec.encode(variables, local_probe, local_probe, bucket_key())
    sizes = [20, 1, 0, 33, 42]
    assert (local_probe.dtype, local_probe.shape) == (tf.float32, (5,))
    assert (words.dtype, words.shape) == (tf.int32, (codec.words_of(sizes),))
    sent = 32 * (words.shape[0] + 5)
    if codec.scope == contract.VARIABLE:
      assert sum(codec.bits(size, 2) for size in sizes) == sent
    else:
      assert codec.words_of(sizes) == codec.num_words(sum(sizes))
      assert codec.bits(sum(sizes), 2, 5) == sent

  def test_probe_of_a_variable_does_not_depend_on_its_bucket(self):
    codec, variables = self.make(), self.bucket()
    together = codec.probe(variables)
    np.testing.assert_array_equal(
      together, [probe(codec, variable) for variable in variables]
    )

  def test_bucket_preserves_shapes_and_scales(self):
    codec, variables = self.make(), self.bucket()
    local_probe = codec.probe(variables)
    words = codec.encode(variables, local_probe, local_probe, bucket_key())
    decoded = codec.decode_sum(
      [words[tf.newaxis]], local_probe, [v.shape for v in variables]
    )
    assert len(decoded) == len(variables)
    for sent, arrived, scaler in zip(
      variables, decoded, local_probe, strict=True
    ):
      assert (arrived.dtype, arrived.shape) == (tf.float32, sent.shape)
      assert np.all(arrived * sent >= 0)
      np.testing.assert_array_less(np.abs(arrived), 1.001 * scaler + 1e-30)
      # A scalar is its own scaler; what rounds least keeps 11 bits.
      if sent.shape == () or codec.traits.randomness == 'none':
        expected = self.expected_values(sent.numpy())
        np.testing.assert_allclose(
          arrived, expected, rtol=2.0**-11, atol=2**-24
        )

  def test_bucket_equals_its_concatenation_if_scalers_are_equal(self):
    codec = self.make()
    if codec.scope == contract.VARIABLE:
      self.check_payload_is_those_of_its_variables(codec)
      return
    values = rng().normal(size=93).astype(np.float32)
    parts = [tf.constant(values[:50]), tf.constant(values[50:])]
    local_probe = tf.fill([2], np.abs(values).max())
    words = codec.encode(parts, local_probe, local_probe, bucket_key())
    whole, _ = encode(codec, values, local_probe=local_probe[0])
    np.testing.assert_array_equal(words, whole)

  def check_payload_is_those_of_its_variables(self, codec):
    variables = self.bucket()
    local_probe = codec.probe(variables)
    words = codec.encode(variables, local_probe, local_probe, bucket_key())
    alone = [encode(codec, v)[0] for v in variables]
    np.testing.assert_array_equal(words, np.concatenate(alone))

  # Many variables in a plane, few, and one; with and without padding.
  @pytest.mark.parametrize(
    'sizes', [(1,) * 44, (1,) * 45, (3, 50, 1, 39), (0, 93, 0), (40, 200, 17)]
  )
  @pytest.mark.parametrize('growth', [2.0**5, 2.0**-5])
  @pytest.mark.gate_every(2)
  def test_elements_are_coded_with_the_scaler_of_their_variable(
    self, sizes, growth
  ):
    codec = self.make()
    # +-scaler, which is exact. By a larger scaler it would rarely fire, and by
    # a smaller one it would be clipped or decode to too little.
    scales = (growth ** (np.arange(len(sizes)) % 3)).astype(np.float32)
    variables = [
      tf.constant(rng().choice([-1, 1], size=n) * scale, tf.float32)
      for n, scale in zip(sizes, scales, strict=True)
    ]
    words = codec.encode(
      variables, tf.constant(scales), tf.constant(scales), bucket_key()
    )
    decoded = codec.decode_sum(
      [words[tf.newaxis]], tf.constant(scales), [v.shape for v in variables]
    )
    for arrived, sent in zip(decoded, variables, strict=True):
      np.testing.assert_array_equal(arrived, self.expected_values(sent.numpy()))

  # Honest traits.

  def test_lossless_trait_matches_exact_round_trips(self):
    codec = self.make()
    patterns = rng().integers(0, 2**32, size=4000, dtype=np.uint32)
    gradient = patterns.view(np.float32)
    gradient = gradient[np.isfinite(gradient)]
    decoded = round_trip(codec, gradient)
    same = np.array_equal(bits_of(decoded), bits_of(gradient))
    assert same == codec.traits.lossless
    if codec.traits.randomness == 'none':
      # What always errs in the same way is biased.
      assert same == codec.traits.unbiased

  def test_traits_have_valid_values(self):
    traits = self.make().traits
    assert traits.randomness in ('none', 'private', 'shared')
    if traits.lossless:
      assert traits.unbiased
      assert traits.randomness == 'none'


class TernaryAnswers(abc.ABC):
  """What both classes below ask of codes of -1, 0 and +1 times a scaler."""

  # As of `CodecConformance`.
  per_word = 1

  @abc.abstractmethod
  def make(self):
    """A new instance of the codec."""

  @abc.abstractmethod
  def local_scaler(self, gradient):
    """float64: the scaler that one worker asks for, by the paper's formula."""

  def limit(self, local_probe, shared_probe):
    """The magnitude that nothing decodes beyond on average."""
    del shared_probe
    return local_probe

  def mean(self, gradient, local_probe, shared_probe):
    limit = self.limit(local_probe, shared_probe)
    return np.clip(gradient.astype(np.float64), -limit, limit)

  def representable(self, size):
    # Not a power of two, so that a product with it may round.
    scaler = np.float32(0.1)
    codes = rng().integers(-1, 2, size=size).astype(np.float32)
    return codes * scaler, scaler

  def gradient(self):
    """float32 [1025]: zero, tiny, even, and some beyond 2.5 sigma."""
    values = rng().uniform(-3, 3, size=NUM_DRAWN)
    values[:6] = [0.0, 6.0, -6.0, 1e-6, 5.0, -4.9]
    return values.astype(np.float32)


class TernaryConformance(TernaryAnswers, CodecConformance):
  """Properties of ternary codes and of their packing."""

  def test_traits_are_those_of_terngrad(self):
    assert self.make().traits == contract.Traits(
      unbiased=True, lossless=False, additive=True, randomness='private'
    )

  def test_decoded_values_are_zero_or_the_scaler(self):
    codec = self.make()
    gradient = self.gradient()
    words, shared_probe = encode(codec, gradient)
    decoded = decode(codec, words, shared_probe, gradient.shape)
    scaler = shared_probe.numpy()
    assert set(np.unique(decoded)) == {-scaler, 0.0, scaler}
    assert np.all(decoded * gradient >= 0)


class DrawConformance(TernaryAnswers):
  """Properties of the draws of ternary codes, which no packing changes."""

  def test_probe_is_the_scaler_of_the_formula(self):
    codec = self.make()
    for scale in (1e-20, 1.0, 1e20):
      gradient = self.gradient() * np.float32(scale)
      expected = self.local_scaler(gradient.astype(np.float64))
      # Two roundings to float32.
      np.testing.assert_allclose(
        probe(codec, gradient), expected, rtol=2.0**-23
      )

  # The mean when this worker's scaler is the largest, and when it is not.
  @pytest.mark.statistical
  def test_draws_are_unbiased_independent_and_have_minimal_variance(self):
    codec = self.make()
    gradient = self.gradient()
    local_probe = probe(codec, gradient).numpy()
    sample = sampler_of(type(self))
    for shared_probe in (local_probe, np.float32(3) * local_probe):
      drawn = sample(gradient, local_probe, shared_probe)
      check_law(
        drawn,
        self.mean(gradient, local_probe, shared_probe),
        float(shared_probe),
      )

  def streams(self, keys, size):
    """bool [keys, size]: what fires when everything fires half the time."""
    codec = self.make()
    halves = np.full(size, 0.5, np.float32)
    return np.stack(
      [round_trip(codec, halves, key=k, local_probe=1.0) != 0 for k in keys]
    )

  @pytest.mark.statistical
  def test_streams_of_other_keys_and_elements_are_independent(self):
    size = 2**16
    others = [{'seed': 2}, {'step': 3}, {'worker': 4}, {'bucket': 5}]
    # A number must not stand for the same in two places of the key.
    swapped = [{'step': 3, 'worker': 2}, {'worker': 4, 'bucket': 3}]
    keys = [bucket_key(**change) for change in ({}, *others, *swapped)]
    fires = self.streams(keys, size)
    lags = (0, 1, 2, self.per_word, size // self.per_word)
    pairs = [
      (a, b, lag)
      for a in range(len(keys))
      for b in range(a, len(keys))
      for lag in lags
      if a != b or lag
    ]
    for a, b, lag in pairs:
      agree = np.count_nonzero(fires[a, lag:] == fires[b, : size - lag])
      expected = (size - lag) / 2
      limit = bounds.bernstein(expected / 2, 0.5, len(pairs))
      assert abs(agree - expected) <= limit, (a, b, lag)

  def test_element_of_scaler_magnitude_always_fires_and_zero_never(self):
    codec = self.make()
    for scaler in (0.1, 3e38, 2.0**-100):
      scaler = np.float32(scaler)
      gradient = np.tile([scaler, -scaler, np.float32(0)], 5_000)
      for seed in range(3):
        key = bucket_key(seed=seed)
        decoded = round_trip(codec, gradient, key=key, local_probe=scaler)
        np.testing.assert_array_equal(decoded, gradient)

  @pytest.mark.parametrize('exponent', [-101, -120, -149])
  def test_scaler_below_two_to_minus_100_gives_zeros(self, exponent):
    gradient = np.full(50, 2.0**exponent, np.float32)
    assert not round_trip(self.make(), gradient).any()

  def test_scaler_of_another_worker_may_be_far_larger(self):
    # P(fire) = 2**-60: never, and nothing breaks.
    gradient = np.full(1000, 2.0**-40, np.float32)
    decoded = round_trip(self.make(), gradient, shared_probe=2.0**20)
    assert not decoded.any()
