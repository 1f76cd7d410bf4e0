"""What every method keeps, whatever it sends: codes of one message and others.

Codes of ternary digits have a longer class of their own, `conformance`.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods import registry
from terngrad.codec.stages import contract
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import parts
from tests.codec import conformance
from tests.codec import rounds

TEXTS = (
  'asymmetric',
  'asymmetric:clip_factor=0,group_size=100',
  'bf16',
  'drive',
  'eden:bits=2',
  'eden:bits=3',
  'eden:bits=4',
  'eden3',
  'fp16',
  'fp8',
  'fp8:kind=e5m2,group_size=0',
  'identity',
  'minmax:bits=1',
  'minmax:bits=2,group_size=0',
  'minmax:bits=8,group_size=100',
  'natural',
  'one_bit:group_size=100',
  'powersgd',
  'qsgd:levels=1,group_size=0,norm=l2',
  'qsgd:levels=127,group_size=100',
  'randomk:ratio=0.1',
  'randomk:ratio=0.1,unbiased=1',
  'sign',
  'sign:decide=majority',
  'stc:ratio=0.1',
  'ternary:clip_factor=0',
  'thc',
  'three_lc:sparsity=1',
  'threshold:above=1,capacity=0.3',
  'topk:ratio=0.1',
)
# A scalar, an empty one, more than a block of rotations and of groups.
SHAPES = ((5, 7), (), (0, 3), (4999,))
SIZE = 35 + 1 + 4999
WORKERS = 3


def codec_of(text, shapes=SHAPES):
  return rounds.codec_of(registry.method(text, WORKERS), shapes)


@functools.cache
def worker_gradients():
  """For each worker its gradients, of all scales and heavy tails."""
  rng = conformance.rng()
  return [
    [
      np.array(rng.standard_t(3, size=s) * 10.0 ** (i % 3), np.float32)
      for i, s in enumerate(SHAPES)
    ]
    for _ in range(WORKERS)
  ]


def begin_worker(codec, values, worker, seed=1):
  """(what `begin` holds, probe, states, turn) of a worker."""
  step = tf.constant(2, tf.int64)
  keys = codec.keys(seed, step, tf.constant(worker))
  turn = gradients_lib.WorkerStep(
    seed, step, WORKERS, tf.constant(worker), keys
  )
  states = rounds.Workers(codec, 1).states(0)
  held, local_probe = codec.begin(
    [tf.constant(v) for v in values], states, turn
  )
  return held, local_probe, states, turn


def words_of(codec, values, worker, shared_probe=None):
  """(payload, probe) of a worker, by a shared or the local probe."""
  held, local_probe, states, turn = begin_worker(codec, values, worker)
  turn = turn._replace(
    local_probe=local_probe,
    shared_probe=local_probe if shared_probe is None else shared_probe,
  )
  words, _ = codec.send(0, codec.carry(held, turn), states, [], turn)
  return words, local_probe


@functools.cache
def first_words(text):
  """`words_of` the first worker."""
  return words_of(codec_of(text), worker_gradients()[0], 0)


def bits_of(arrays):
  return np.concatenate(
    [np.ravel(a).astype(np.float32).view(np.int32) for a in arrays]
  )


def step(codec, values, number=2):
  """The means of a step of all workers, as arrays."""
  return rounds.Workers(codec, len(values)).step(codec, values, number)


@functools.cache
def means_of(text):
  return step(codec_of(text), worker_gradients())


@pytest.fixture(params=TEXTS)
def text(request):
  return request.param


@pytest.mark.gate_every(3)
def test_means_have_the_shapes_of_the_gradients(text):
  for mean, shape in zip(means_of(text), SHAPES, strict=True):
    assert (mean.dtype, mean.shape) == (np.float32, shape)
    assert np.isfinite(mean).all()


@pytest.mark.gate_every(3)
def test_zeros_give_zeros(text):
  zeros = [[np.zeros(s, np.float32) for s in SHAPES]] * WORKERS
  assert not any(mean.any() for mean in step(codec_of(text), zeros))


@pytest.mark.gate_every(3)
def test_huge_and_subnormal_gradients_stay_finite_and_small(text):
  for value, limit in ((1e30, 1e32), (1e-40, 2.0**-126)):
    values = [[np.full(s, value, np.float32) for s in SHAPES]]
    for mean in step(codec_of(text), values):
      assert np.isfinite(mean).all()
      assert np.all(np.abs(mean) <= limit)


@pytest.mark.parametrize('exponent', [-86, 100])
@pytest.mark.gate_every(15)
def test_very_small_and_large_gradients_are_coded_as_others(text, exponent):
  """In the range that `contract.Traits` declares."""
  if text.startswith(('fp16', 'threshold')):
    pytest.skip('These look at magnitudes themselves.')
  scale = 2.0**exponent
  scaled = [
    [np.float32(v * scale) for v in gradients]
    for gradients in worker_gradients()
  ]
  means = step(codec_of(text), scaled)
  for mean, expected in zip(means, means_of(text), strict=True):
    np.testing.assert_allclose(mean / scale, expected, rtol=1e-5, atol=1e-6)


def test_an_element_that_is_not_finite_shows_in_the_probe(text):
  codec = codec_of(text)
  for index, value in zip((0, 1, 3), conformance.NOT_FINITE, strict=True):
    values = [v.copy() for v in worker_gradients()[0]]
    values[index].reshape(-1)[-1] = value
    local_probe = begin_worker(codec, values, 0)[1]
    assert not np.isfinite(local_probe).all()


def test_payload_has_the_declared_number_of_words(text):
  codec = codec_of(text)
  words, local_probe = first_words(text)
  assert words.shape == (codec.round_words(0),)
  assert local_probe.shape == (codec.num_probes,)
  sent = int(codec.sent_words(words[tf.newaxis])[0])
  assert 0 < sent <= codec.round_words(0)
  assert not words[sent:].numpy().any()
  if not any(m.packing and not m.num_elements for m in codec.messages(0)):
    total = sum(map(codec.round_words, range(codec.num_rounds)))
    assert codec.bits(WORKERS) <= 32 * (total + codec.num_probes)


@pytest.mark.gate_every(3)
def test_workers_draw_differently_if_and_only_if_private(text):
  codec = codec_of(text)
  (bucket,) = codec.buckets
  # Equal gradients: what differs is drawn.
  first, local_probe = first_words(text)
  again, other = (
    words_of(codec, worker_gradients()[0], w, local_probe)[0] for w in (0, 1)
  )
  np.testing.assert_array_equal(first, again)
  private = bucket.method.traits.randomness == 'private'
  assert private != np.array_equal(first, other)


# The others in `scripts/test.sh --all`: to compile takes seconds.
COMPILED = (
  'eden:bits=2',
  'fp8',
  'qsgd:levels=127,group_size=100,norm=l2',
  'stc:ratio=0.1',
  'thc',
  'threshold:above=1,capacity=0.3',
)
MORE_COMPILED = (
  'asymmetric',
  'bf16',
  'eden:bits=4',
  'fp8:kind=e5m2,group_size=0',
  'minmax:bits=2,group_size=0',
  'minmax:bits=8,group_size=100',
  'natural',
  'one_bit:group_size=100',
  'qsgd:levels=1,group_size=0',
  'randomk:ratio=0.1',
  'sign:decide=majority',
  'three_lc:sparsity=1',
)


@pytest.mark.parametrize(
  'text',
  [
    *COMPILED,
    *(pytest.param(text, marks=pytest.mark.slow) for text in MORE_COMPILED),
  ],
)
@pytest.mark.gate_every(6)
def test_compiled_code_gives_the_bits_of_eager_code(text):
  codec = codec_of(text, [(35,), (1063,)])

  def work(*values):
    return rounds.Workers(codec, 1).means(codec, [values], 2)

  # What must not be compiled runs in a graph.
  traced = tf.function(work, jit_compile=codec.compiled)
  rng = conformance.rng()
  for scale in (1.0, 7e5):
    values = [
      tf.constant(rng.standard_t(3, size=n) * scale, tf.float32)
      for n in (35, 1063)
    ]
    np.testing.assert_array_equal(
      bits_of(traced(*values)), bits_of(work(*values))
    )


@pytest.mark.gate_every(3)
def test_parts_of_a_model_give_the_bits_of_the_whole(text):
  cut = parts.cut(codec_of(text), 2**10)
  by_bucket = codec_of(text).buckets[0].method.scope == contract.BUCKET
  assert (len(cut.buckets) == 1) == by_bucket
  actual = bits_of(step(cut, worker_gradients()))
  np.testing.assert_array_equal(actual, bits_of(means_of(text)))


def test_declarations_are_plain_values(text):
  made = registry.method(text, WORKERS)
  kinds = (str, int, tuple, type(None))
  assert {
    name: value
    for name in methods.Method.__annotations__
    if not isinstance(value := getattr(made, name), kinds)
  } == {}


@pytest.mark.gate_every(3)
def test_lossless_property_matches_exact_means(text):
  codec, alone = codec_of(text), worker_gradients()[:1]
  loses_nothing = np.array_equal(
    bits_of(step(codec, alone)), bits_of([tf.constant(v) for v in alone[0]])
  )
  assert loses_nothing == codec.lossless


@pytest.mark.gate_every(3)
def test_the_mean_of_one_worker_is_its_estimate(text):
  codec = codec_of(text)
  (bucket,) = codec.buckets
  if not bucket.method.estimates:
    pytest.skip('only the mean says what a worker sent')
  words, local_probe = first_words(text)
  context = methods.Context(
    bucket.shapes,
    1,
    0,
    0,
    1,
    tf.constant(2, tf.int64),
    tf.constant(0),
    codec.keys(1, tf.constant(2, tf.int64), tf.constant(0))[0],
    local_probe,
    local_probe,
  )
  sizes = [message.num_words for message in bucket.messages(0)]
  said = bucket.method.estimate(tf.split(words, sizes), context)
  means = step(codec, worker_gradients()[:1])
  np.testing.assert_array_equal(bits_of(said), bits_of(means))


@pytest.mark.gate_every(3)
def test_payloads_from_any_number_of_devices_add_in_the_order_of_workers(text):
  codec = codec_of(text)
  (bucket,) = codec.buckets
  if bucket.method.num_rounds > 1:
    pytest.skip('of several rounds')
  probes = tf.stack([begin_worker(codec, v, 0)[1] for v in worker_gradients()])
  shared_probe = gradients_lib.agree(probes)
  rows = [
    words_of(codec, v, w, shared_probe)[0]
    for w, v in enumerate(worker_gradients())
  ]
  turn = gradients_lib.WorkerStep(
    1, tf.constant(2, tf.int64), WORKERS, shared_probe=shared_probe
  )
  found = []
  for devices in (1, 2, 3):
    device_rows = [tf.stack(rows[d::devices]) for d in range(devices)]
    pieces = [methods.Piece(0, device_rows)]
    received = [methods.payloads(codec.messages(0), pieces)]
    found.append(bits_of(codec.decode(received, [()], turn)[0]))
  np.testing.assert_array_equal(found[1], found[0])
  np.testing.assert_array_equal(found[2], found[0])


def test_any_words_decode_to_the_declared_shapes(text):
  codec = codec_of(text)
  rng = conformance.rng()
  turn = gradients_lib.WorkerStep(
    1, tf.constant(2, tf.int64), 2, shared_probe=tf.ones([codec.num_probes])
  )
  states = [[s.first_value() for s in states] for states in codec.states()]
  for low in (-(2**31), -3, 0):
    received = []
    for number in range(codec.num_rounds):
      shape = (2, codec.round_words(number))
      words = rng.integers(low, -low or 2**31, size=shape).astype(np.int32)
      pieces = [methods.Piece(0, [tf.constant(words)])]
      received.append(methods.payloads(codec.messages(number), pieces))
    for mean, shape in zip(
      codec.decode(received, states, turn)[0], SHAPES, strict=True
    ):
      assert mean.shape == shape


def unbiased(text):
  return registry.method(text, WORKERS).traits.unbiased


@pytest.mark.statistical
@pytest.mark.parametrize(
  'text',
  [
    t
    for t in TEXTS
    if unbiased(t) and t != 'asymmetric'  # which clips
  ],
)
@pytest.mark.gate_every(3)
def test_error_of_the_mean_falls_with_the_number_of_draws(text):
  # What is unbiased errs by its variance over the draws, a bias stays.
  size, draws = 1000, 128
  codec = codec_of(text, [(size,)])
  values = conformance.rng().normal(size=size).astype(np.float32)

  @tf.function
  def one(number):
    workers = rounds.Workers(codec, 1)
    return workers.means(codec, [[tf.constant(values)]], number)[0]

  found = np.stack(
    [one(tf.constant(i, tf.int64)).numpy() for i in range(draws)]
  ).astype(np.float64)
  error = np.sum((found.mean(axis=0) - values) ** 2)
  variance = found.var(axis=0, ddof=1).sum() / draws
  if registry.method(text).traits.randomness == 'none':
    assert error == 0
    return
  # A sum of 1000 squares, nearly chi-square, within 7 deviations.
  assert abs(error / variance - 1) < 7 * (2 / size) ** 0.5


@pytest.mark.parametrize('text', TEXTS)
@pytest.mark.gate_every(3)
def test_biased_methods_are_contractive(text):
  method = registry.method(text, WORKERS)
  if method.traits.unbiased:
    pytest.skip('to be used without')
  codec = rounds.codec_of(method, SHAPES)
  for number in range(3):
    values = worker_gradients()[:1]
    for mean, value in zip(step(codec, values, number), values[0], strict=True):
      if value.size:
        left = np.sum((mean.astype(np.float64) - value) ** 2)
        assert left < np.sum(value.astype(np.float64) ** 2)
