"""The codecs of a model's variables together."""

import copy
import itertools

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from terngrad.reduce import workers
from tests.codec import conformance
from tests.codec import one_round

# One is a scalar, two are alike, one is empty.
SHAPES = ((5, 4, 3), (7,), (), (60,), (60,), (0, 3))
TERNARY = registry.ternary()
IDENTITY = registry.identity()
TWO_BIT = registry.ternary(packing='two_bit')
# Buckets: 60 + 1 + 0 elements, 7, and 60 + 60.
MIXED = (TERNARY, IDENTITY, TERNARY, TWO_BIT, TWO_BIT, TERNARY)
# 61 elements at 20 a word, 7 at 1, 120 at 16.
WORDS = (4, 7, 8)


def model(codecs=MIXED, shapes=SHAPES):
  specs = [
    policy.VariableSpec(f'v{i}', shape) for i, shape in enumerate(shapes)
  ]
  return bucketing.gradient_codec(specs, codecs)


def all_of(codec):
  return model([codec] * len(SHAPES))


def some_gradients(seed=0):
  rng = np.random.default_rng(seed)
  values = [rng.normal(size=s).astype(np.float32) for s in SHAPES]
  values[4] = values[3]
  return [tf.constant(v) for v in values]


def send(code, values, worker=0, shared=None):
  probe = one_round.probe(code, values)
  shared = probe if shared is None else shared
  keys = code.keys(0, 0, worker)
  words = one_round.encode(code, code.flatten(values), probe, shared, keys)
  return words, shared


# Buckets.


def test_variables_of_one_codec_form_a_bucket_in_order_of_first_use():
  buckets = model().buckets
  assert [b.indices for b in buckets] == [(0, 2, 5), (1,), (3, 4)]
  codecs = [TERNARY, IDENTITY, TWO_BIT]
  assert [b.method.name for b in buckets] == [c.name for c in codecs]
  assert [b.num_elements for b in buckets] == [61, 7, 120]
  assert [b.num_words(0) for b in buckets] == list(WORDS)
  assert buckets[0].shapes == ((5, 4, 3), (), (0, 3))


def test_every_variable_is_in_a_bucket_even_if_its_codec_is_a_copy():
  code = model([TERNARY, copy.copy(TERNARY)], [(3,), (4,)])
  assert (code.num_variables, code.num_elements) == (2, 7)


def test_counts_are_sums_over_variables():
  code = model()
  assert code.num_variables == len(SHAPES)
  assert code.num_elements == 60 + 7 + 1 + 60 + 60
  assert code.num_words == sum(WORDS)
  assert code.bits(8) == 32 * (sum(WORDS) + len(SHAPES))


def test_bits_equal_the_bits_that_are_sent():
  words, probe = send(model(), some_gradients())
  sent = 8 * (words.numpy().nbytes + probe.numpy().nbytes)
  assert model().bits(3) == sent


def test_sent_words_are_the_used_ones_of_every_bucket():
  huffman = registry.ternary(packing='huffman243')
  code = model([huffman, huffman, TERNARY], [(4000,), (3,), (50,)])
  sparse, rest = np.zeros(4000), [tf.ones([3]), tf.ones([50])]
  sparse[7] = 1
  payloads = tf.stack(
    [
      send(code, [tf.constant(values, tf.float32), *rest])[0]
      for values in (sparse, np.random.default_rng(1).normal(size=4000))
    ]
  )
  sent = code.sent_words(payloads)
  # 801 symbols in two blocks, of which few need more than one bit.
  words = payloads[:, 0].numpy() & 0xFFFFFF
  assert (sent.dtype, sent.shape) == (tf.int32, (2,))
  np.testing.assert_array_equal(sent, words + 3)
  assert sent[0] < 40 < sent[1] < code.num_words
  assert not payloads[0, words[0] : -3].numpy().any()


def test_flatten_concatenates_bucket_after_bucket():
  sizes = [60, 7, 1, 60, 60, 0]
  values = [tf.fill(s, float(i)) for i, s in enumerate(SHAPES)]
  expected = [i for i in (0, 2, 5, 1, 3, 4) for _ in range(sizes[i])]
  np.testing.assert_array_equal(model().flatten(values), expected)


def test_flatten_keeps_the_order_of_elements():
  values = some_gradients()
  flat = model().flatten(values)
  np.testing.assert_array_equal(flat[:60], values[0].numpy().ravel())
  np.testing.assert_array_equal(flat[61:68], values[1])


# Probe, encode, decode.


def test_probe_is_in_order_of_the_variables():
  values = some_gradients()
  probe = one_round.probe(model(), values)
  assert (probe.dtype, probe.shape) == (tf.float32, (len(SHAPES),))
  for codec, value, actual in zip(MIXED, values, probe, strict=True):
    np.testing.assert_array_equal(actual, conformance.probe(codec, value))


@pytest.mark.parametrize('variable', [0, 1, 2, 3, 4])
@pytest.mark.parametrize('value', conformance.NOT_FINITE, ids=str)
def test_probe_shows_which_variable_is_not_finite(variable, value):
  values = some_gradients()
  values[variable] = tf.fill(SHAPES[variable], tf.constant(value, tf.float32))
  finite = np.isfinite(one_round.probe(model(), values))
  np.testing.assert_array_equal(finite, np.arange(len(SHAPES)) != variable)


def test_mean_is_in_order_and_shape_of_the_variables():
  values = some_gradients()
  code = model()
  words, shared = send(code, values)
  assert (words.dtype, words.shape) == (tf.int32, (sum(WORDS),))
  mean = one_round.decode_mean(code, [words[tf.newaxis]], shared)
  assert len(mean) == len(values)
  for actual, value, scaler in zip(mean, values, shared, strict=True):
    assert (actual.dtype, actual.shape) == (tf.float32, value.shape)
    # Codes agree with their own variable in sign, and not with another's.
    assert np.all(actual * value >= 0)
    assert np.all(np.abs(actual) <= scaler)
  np.testing.assert_array_equal(mean[1], values[1])
  np.testing.assert_array_equal(mean[2], values[2])


def test_payload_is_the_buckets_payloads_in_order():
  values = some_gradients()
  words, shared = send(model(), values)
  # The identity's bucket stands between the ternary ones.
  part = words[WORDS[0] : WORDS[0] + WORDS[1]]
  decoded = conformance.decode(IDENTITY, part, shared[1], SHAPES[1])
  np.testing.assert_array_equal(decoded, values[1])
  zeros = [values[0] * 0, *values[1:]]
  changed, _ = send(model(), zeros, shared=shared)
  differ = np.flatnonzero(changed != words)
  assert 0 < differ.size
  assert differ.max() < WORDS[0]


def test_equal_variables_draw_different_bits():
  values = some_gradients()
  # In one bucket they have other positions, in two they have other keys.
  for codecs in (MIXED, (*MIXED[:4], registry.ternary(), MIXED[5])):
    code = model(codecs)
    words, shared = send(code, values)
    mean = one_round.decode_mean(code, [words[tf.newaxis]], shared)
    assert np.any(mean[3] != mean[4])


def test_bits_of_a_bucket_depend_on_its_index_only():
  # The same variables in the second bucket of two models.
  values = some_gradients()
  parts = []
  for first in (IDENTITY, registry.fp16()):
    code = model((first, first, first, TWO_BIT, TWO_BIT, first))
    words, _ = send(code, values)
    parts.append(words[-WORDS[2] :])
  np.testing.assert_array_equal(*parts)


def test_worker_clips_at_its_local_limit_and_decodes_by_the_shared_scaler():
  # One of 100 elements is 8: sigma is 0.8, the limit 2. Another worker asks
  # for 8, so that it fires a quarter of the time, and always if not clipped.
  code = model([TERNARY], [(100,)])
  values = [tf.constant([8.0] + [0.0] * 99)]
  shared = tf.constant([8.0])
  decoded = []
  for worker in range(20):
    words, _ = send(code, values, worker, shared)
    (mean,) = one_round.decode_mean(code, [words[tf.newaxis]], shared)
    decoded.append(mean[0].numpy())
  assert set(decoded) == {0.0, 8.0}
  assert sum(decoded) < 8.0 * 15


def test_one_worker_is_the_identity_if_lossless():
  code = all_of(IDENTITY)
  values = some_gradients()
  words, shared = send(code, values)
  mean = one_round.decode_mean(code, [words[tf.newaxis]], shared)
  for actual, expected in zip(mean, values, strict=True):
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize('num_workers', [2, 3, 7])
def test_mean_is_the_sum_in_order_of_the_workers_over_their_number(num_workers):
  code = all_of(IDENTITY)
  workers = [some_gradients(seed) for seed in range(num_workers)]
  words = tf.stack([send(code, values)[0] for values in workers])
  mean = one_round.decode_mean(code, [words], tf.zeros(len(SHAPES)))
  for i, actual in enumerate(mean):
    total = np.zeros(SHAPES[i], np.float32)
    for values in workers:
      total = total + values[i].numpy()
    # Two roundings: of the reciprocal, which is exact for 2, and the product.
    rtol = 0 if num_workers == 2 else 2.0**-23
    np.testing.assert_allclose(actual, total / np.float32(num_workers), rtol)


@pytest.mark.parametrize(('num_workers', 'num_parts'), [(4, 2), (5, 3)])
def test_mean_is_the_same_from_any_number_of_devices(num_workers, num_parts):
  code = model()
  workers = [some_gradients(seed) for seed in range(num_workers)]
  shared = gradients.agree(
    tf.stack([one_round.probe(code, w) for w in workers])
  )
  words = np.stack([send(code, w, shared=shared)[0] for w in workers])
  parts = [tf.constant(words[i::num_parts]) for i in range(num_parts)]
  means = one_round.decode_mean(code, parts, shared)
  for a, b in zip(
    means, one_round.decode_mean(code, [words], shared), strict=True
  ):
    np.testing.assert_array_equal(a, b)


def test_mean_of_codes_counts_the_workers_that_fired():
  # Element 0: two of three send +S and one -S, S / 3. Element 1: two of three
  # send +S and one zero, 2 S / 3.
  code = model([registry.ternary(0)], [(2,)])
  workers = [[3.0, 3.0], [3.0, 0.0], [-3.0, 3.0]]
  shared = tf.constant([3.0])
  words = tf.stack([send(code, [tf.constant(w)])[0] for w in workers])
  (mean,) = one_round.decode_mean(code, [words], shared)
  np.testing.assert_allclose(mean, [1.0, 2.0], rtol=2.0**-23)


def test_eager_graph_and_xla_give_the_same_bits():
  # Two buckets of the mixed model, the identity's between ternary variables.
  code = model(MIXED[:3], SHAPES[:3])
  values = some_gradients()[:3]
  worker = tf.constant(3)

  def step(values, worker):
    probe = one_round.probe(code, values)
    words = one_round.encode(
      code, code.flatten(values), probe, probe, code.keys(1, 2, worker)
    )
    return words, one_round.decode_mean(code, [tf.stack([words] * 3)], probe)

  expected = tf.nest.flatten(step(values, worker))
  for compiled in (False, True):
    work = tracing.function(step, jit_compile=compiled)
    actual = tf.nest.flatten(work(values, worker))
    for a, b in zip(actual, expected, strict=True):
      np.testing.assert_array_equal(a, b)


# What the workers agree on.


def test_agreed_probe_is_the_largest_of_each_variable():
  probes = tf.constant([[1.0, 5.0, 0.0], [4.0, 2.0, 0.0]])
  np.testing.assert_array_equal(gradients.agree(probes), [4.0, 5.0, 0.0])


@pytest.mark.parametrize('compiled', [False, True], ids=['graph', 'xla'])
@pytest.mark.parametrize('num_workers', [1, 2, 3, 16, 40])
def test_agreed_probe_is_not_finite_if_one_workers_is_not(
  num_workers, compiled
):
  agree = tracing.function(gradients.agree, jit_compile=compiled)
  for worker in range(num_workers):
    probes = np.ones((num_workers, 5), np.float32)
    probes[worker, 1] = np.nan
    probes[worker, 3] = np.inf
    finite = np.isfinite(agree(tf.constant(probes)))
    np.testing.assert_array_equal(finite, [True, False, True, False, True])


def test_worker_key_differs_in_seed_step_and_worker():
  numbers = [0, 1, 2, 2**31 - 1]
  keys = {
    tuple(random_bits.worker_key(*numbers_).numpy())
    for numbers_ in itertools.product(numbers, repeat=3)
  }
  assert len(keys) == 4**3


def test_worker_key_is_the_same_from_int32_and_int64_tensors():
  expected = random_bits.worker_key(1, 2, 3)
  for dtype in (tf.int32, tf.int64):
    key = random_bits.worker_key(*(tf.constant(n, dtype) for n in (1, 2, 3)))
    assert (key.dtype, key.shape) == (tf.uint32, (2,))
    np.testing.assert_array_equal(key, expected)


def test_key_of_a_bucket_is_its_index_folded_into_the_workers_key():
  keys = model().keys(5, tf.constant(6, tf.int64), tf.constant(7))
  assert keys.shape == (len(WORDS), 3)
  for index, key in enumerate(keys.numpy()):
    expected = random_bits.fold_in(random_bits.worker_key(5, 6, 7), index)
    np.testing.assert_array_equal(key, [*expected.numpy(), 0])


def test_keys_of_step_worker_and_bucket_are_all_different():
  # Folded one after another: worker 1's first bucket shares nothing with
  # worker 0's second.
  keys = [
    random_bits.fold_in(random_bits.worker_key(0, s, w), tf.constant(v)).numpy()
    for s, w, v in itertools.product(range(3), repeat=3)
  ]
  assert len({tuple(k) for k in keys}) == 27


def test_codes_of_another_number_or_type_are_refused():
  spec = policy.VariableSpec('v', (3,), False)
  code = registry.ternary()
  with pytest.raises(ValueError, match='one for each of 1 variables, rec.* 2'):
    bucketing.gradient_codec([spec], [code, code])
  with pytest.raises(ValueError, match="a Codec or a Method, received 'tern"):
    bucketing.gradient_codec([spec], ['ternary'])


def test_payloads_that_are_not_stacked_are_refused():
  code = registry.ternary()
  with pytest.raises(ValueError, match=r'a list of int32 \[payloads, words\]'):
    code.decode_sum([tf.zeros([1], tf.int32)], tf.ones([1]), [(3,)])


# One message, and two.
@pytest.mark.parametrize('text', ['natural', 'signsgd'])
def test_an_estimate_concatenates_the_buckets(text):
  specs = [policy.VariableSpec(str(n), (n,)) for n in (5, 70, 3, 9)]
  one, half = registry.method(text), registry.method('fp16')
  codec = bucketing.gradient_codec(specs, [one, half, one, half])
  values = [
    conformance.rng().normal(size=spec.shape).astype(np.float32)
    for spec in specs
  ]
  taken = workers.Workers(codec, 1).take(codec, [values], 0)
  said = codec.estimate([rows[0] for rows in taken.words], taken.steps[0])
  np.testing.assert_array_equal(said, codec.flatten(taken.means))


def test_an_estimate_is_none_unless_every_bucket_has_one():
  specs = [policy.VariableSpec(str(n), (n, n)) for n in (30, 70)]
  low_rank = registry.method('error_feedback+powersgd')
  codec = bucketing.gradient_codec(specs, [low_rank, registry.method('fp16')])
  assert [b.method.estimates for b in codec.buckets] == [False, True]
  assert codec.estimate([], None) is None


def test_a_bucket_may_have_fewer_rounds_than_another():
  specs = [policy.VariableSpec('w', (30, 20)), policy.VariableSpec('b', (50,))]
  low_rank = registry.method('error_feedback+powersgd')
  codec = bucketing.gradient_codec(specs, [low_rank, registry.method('fp16')])
  rounds = [bucket.method.num_rounds for bucket in codec.buckets]
  assert codec.num_rounds == rounds[0] > rounds[1]
  values = [np.full(spec.shape, 0.5, np.float32) for spec in specs]
  taken = workers.Workers(codec, 1).take(codec, [values], 0)
  np.testing.assert_array_equal(taken.means[1], values[1])


def test_joined_gradients_are_split_and_others_are_returned():
  specs = [policy.VariableSpec('a', (2, 3)), policy.VariableSpec('b', (4,))]
  codec = bucketing.gradient_codec(specs, [registry.method('fp16')] * 2)
  (bucket,) = codec.buckets
  zero = tf.constant(0)
  context = methods.Context(
    bucket.shapes, 1, 0, 0, 1, tf.constant(0, tf.int64), zero, None, None, None
  )
  joined = tf.range(10.0)
  first, second = methods.each([joined], context)
  np.testing.assert_array_equal(first, np.arange(6))
  np.testing.assert_array_equal(second, np.arange(6, 10))
  separate = [first, second]
  assert methods.each(separate, context) is separate


def test_without_a_packing_or_elements_all_words_are_expected():
  assert methods.Message(methods.GATHER, 5, 3).expected_words == 5
  packing = methods.float_sum(7).packing
  assert methods.Message(methods.GATHER, 5, 0, packing).expected_words == 5
  assert methods.float_sum(7).expected_words == 7
