"""Scalers of groups, and codes that are thinned when the scaler is known."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.stages import clipping
from terngrad.codec.stages import float_words
from terngrad.reduce import bucketing
from tests.codec import conformance
from tests.codec import one_round


def rng():
  return np.random.default_rng(11)


def model(codec, *shapes):
  specs = [
    policy.VariableSpec(f'v{i}', shape, False) for i, shape in enumerate(shapes)
  ]
  codecs = codec if isinstance(codec, list) else [codec] * len(shapes)
  return bucketing.gradient_codec(specs, codecs)


# Groups.


@pytest.mark.parametrize('size', [1, 63, 64, 65, 1000])
@pytest.mark.parametrize('text', ['clip_factor=0', 'clip_factor=2.5'])
def test_groups_are_coded_like_separate_variables(text, size):
  values = (
    rng().normal(size=size) * np.repeat(10.0 ** np.arange(20), 64)[:size]
  ).astype(np.float32)
  codec = registry.parse(f'ternary:{text},group_size=64')
  whole = registry.parse(f'ternary:{text}')
  local_probe = codec.probe([tf.constant(values)])
  parts = [tf.constant(values[i : i + 64]) for i in range(0, size, 64)]
  np.testing.assert_allclose(local_probe, whole.probe(parts), rtol=1e-6)
  # A bucket of the groups is coded as the variable of groups.
  key = conformance.bucket_key()
  words = codec.encode([tf.constant(values)], local_probe, local_probe, key)
  np.testing.assert_array_equal(
    words, whole.encode(parts, local_probe, local_probe, key)
  )
  (decoded,) = codec.decode_sum([words[tf.newaxis]], local_probe, [(size,)])
  expected = whole.decode_sum(
    [words[tf.newaxis]], local_probe, [p.shape for p in parts]
  )
  np.testing.assert_array_equal(decoded, tf.concat(expected, axis=0))


def test_bits_count_the_scalers_of_all_groups():
  code = model(registry.parse('ternary:group_size=64'), (100,), (3,), (0,))
  values = [tf.constant(rng().normal(size=n), tf.float32) for n in (100, 3, 0)]
  assert one_round.probe(code, values).shape == (2 + 1 + 1,)
  assert code.num_probes == 4
  assert code.bits(3) == 32 * (6 + 4)
  assert code.probed_variables().tolist() == [0, 0, 1, 2]


def test_probes_of_mixed_codecs_follow_the_order_of_variables():
  grouped = registry.parse('ternary:clip_factor=0,group_size=2')
  plain = registry.parse('ternary:clip_factor=0')
  code = model([grouped, plain, grouped], (4,), (2,), (3,))
  values = [[1.0, 2, 3, 4], [5, 6], [7, 8, 9]]
  probe = one_round.probe(code, [tf.constant(v, tf.float32) for v in values])
  np.testing.assert_array_equal(probe, [2, 4, 6, 8, 9])
  assert code.probed_variables().tolist() == [0, 0, 1, 2, 2]


def test_unclipped_groups_of_64_have_the_error_of_clipping_at_2_5_sigma():
  values = tf.constant(rng().normal(size=2**17), tf.float32)
  errors = {}
  for text in (
    'clip_factor=2.5',
    'clip_factor=0',
    'clip_factor=0,group_size=64',
  ):
    codec = registry.parse(f'ternary:{text}')
    local_probe = codec.probe([values])
    words = codec.encode(
      [values], local_probe, local_probe, conformance.bucket_key()
    )
    (decoded,) = codec.decode_sum(
      [words[tf.newaxis]], local_probe, [values.shape]
    )
    errors[text] = float(tf.reduce_mean(tf.square(decoded - values)))
  # Known: 1.08, about as much as 2.5 sigma loses, without any bias.
  np.testing.assert_allclose(errors['clip_factor=0,group_size=64'], 1.08, 0.05)
  assert errors['clip_factor=0'] > 2.5


def test_nan_shows_only_in_the_probe_of_its_group():
  codec = registry.parse('ternary:group_size=8')
  values = np.ones(20, np.float32)
  values[9] = np.nan
  probe = codec.probe([tf.constant(values)])
  np.testing.assert_array_equal(np.isfinite(probe), [True, False, True])


@pytest.mark.parametrize(
  'make',
  [
    lambda: registry.ternary(group_size=-1),
    lambda: registry.ternary(group_size=2**24 + 1),
    lambda: chain.chain(float_words.float32_words(), group_size=64),
    lambda: chain.chain(
      clipping.clip_by_stddev(2.5), float_words.float32_words(), group_size=64
    ),
  ],
)
def test_groups_of_an_invalid_size_or_without_a_scaler_are_refused(make):
  with pytest.raises(ValueError, match='group_size: expected the elements'):
    make()


# Thinning.


def requantize(codec, values, local_probe, shared_probe, key):
  words = codec.encode(values, local_probe, local_probe, key)
  return codec.requantize(
    words, local_probe, shared_probe, [v.shape for v in values], key + 99
  )


@pytest.mark.statistical
@pytest.mark.parametrize(
  'text', ['base3', pytest.param('two_bit', marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_requantized_codes_have_the_distribution_of_the_shared_scaler(text):
  codec = registry.parse(f'ternary:sharing=requantize,packing={text}')

  class Late(chain.Chain):
    def encode_pieces(self, pieces, sizes, local_probe, shared_probe, key):
      words = codec.encode_pieces(pieces, sizes, local_probe, local_probe, key)
      shapes = [piece.shape for piece in pieces]
      return codec.requantize(
        words, local_probe, shared_probe, shapes, key + 99
      )

  gradient = rng().uniform(-3, 3, size=1025).astype(np.float32)
  local_probe = conformance.probe(codec, gradient).numpy()
  late = Late(codec.stages)
  sample = conformance.sampler(late, gradient.size)
  for shared_probe in (local_probe, np.float32(3) * local_probe):
    drawn = sample(gradient, local_probe, shared_probe)
    mean = np.clip(gradient.astype(np.float64), -local_probe, local_probe)
    conformance.check_law(drawn, mean, float(shared_probe))


def test_requantizing_to_the_same_scaler_changes_nothing():
  codec = registry.parse('ternary:sharing=requantize')
  values = [tf.constant(rng().normal(size=n), tf.float32) for n in (999, 1)]
  local_probe = codec.probe(values)
  key = conformance.bucket_key()
  np.testing.assert_array_equal(
    requantize(codec, values, local_probe, local_probe, key),
    codec.encode(values, local_probe, local_probe, key),
  )


def test_float_variables_are_exact_beside_requantized_ones():
  codecs = [registry.parse('ternary:sharing=requantize'), registry.identity()]
  code = model(codecs, (500,), (7,))
  assert [b.method.carries for b in code.buckets] == [True, False]
  values = [tf.constant(rng().normal(size=n), tf.float32) for n in (500, 7)]
  local_probe = one_round.probe(code, values)
  keys = code.keys(1, 2, 3)
  words = one_round.encode(code, values, local_probe, 2 * local_probe, keys)
  mean = one_round.decode_mean(code, [words[tf.newaxis]], 2 * local_probe)
  np.testing.assert_array_equal(mean[1], values[1])
  scaler = 2 * local_probe.numpy()[0]
  assert set(np.unique(mean[0])) == {-scaler, 0, scaler}


def test_only_requantizing_buckets_carry_words():
  requantized, plain = (
    registry.parse('ternary:sharing=requantize'),
    registry.ternary(),
  )
  code = model([requantized, plain, registry.identity()], (45,), (5,), (5,))
  assert code.carried_sizes() == [
    (tf.int32, 3),
    (tf.float32, 5),
    (tf.float32, 5),
  ]


def test_unknown_sharing_is_refused():
  with pytest.raises(
    ValueError, match='sharing: expected one of probe, requantize'
  ):
    registry.ternary(sharing='thinned')
