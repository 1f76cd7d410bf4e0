"""Updates that decode on their way give the bits of those that do not."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec import method
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from terngrad.native import ops
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from terngrad.step import fused_updates
from terngrad.step import loss_scaling
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates
from tests.step import small

pytestmark = pytest.mark.skipif(
  not native.available(), reason='the native kernels are not built here'
)

# Borders of vectors, words and blocks; see tests/native/test_kernels.py.
SIZES = (0, 1, 15, 17, 31, 513, 20 * 512, 20 * 512 * 3 + 7)
RULES = {
  'descent': optimizers.GradientDescent(),
  'momentum': optimizers.Momentum(0.9),
  'momentum of 0': optimizers.Momentum(0.0),
}
NUMBERS = (tf.constant(0, tf.int64), tf.constant(0.0371), tf.constant(0.9876))


def replica_of(optimizer, averages, sizes=SIZES, seed=0):
  """Values of many magnitudes.

  None that is or becomes subnormal: what a thread makes of those is its own
  matter. TensorFlow's make zeros of them, Python's does not.
  """
  rng = np.random.default_rng(seed)

  def variables():
    return tuple(
      tf.Variable(
        (rng.standard_t(2, n) * 10.0 ** rng.integers(-25, 25, n)).astype(
          np.float32
        ),
        trainable=False,
      )
      for n in sizes
    )

  parameters = variables()
  slots = [dict.fromkeys(optimizer.slots, v) for v in variables()]
  return replicas.Replica(
    '/CPU:0', parameters, (), tuple(slots), variables() if averages else ()
  )


def codec_of(sizes, text='ternary'):
  specs = [policy.VariableSpec(f'v{i}', (n,)) for i, n in enumerate(sizes)]
  codes = [registry.method(text)] * len(sizes)
  return bucketing.on_kernels(bucketing.gradient_codec(specs, codes))


def pieces_of(columns, workers=(2, 1), seed=0):
  """`method.Piece`s of so many columns from devices of so many workers.

  Every word is one of trits, and the bits of a float of 1e-19 to 1e20.
  """
  rng = np.random.default_rng(seed)
  found, first = [], 0
  for width in columns:
    sizes = [(count, width) for count in workers]
    parts = [rng.integers(2**29, 3 * 2**29, s, dtype=np.int32) for s in sizes]
    found.append(method.Piece(first, [tf.constant(part) for part in parts]))
    first += width
  return found


def received_of(codec, pieces):
  """What a device received in the one round of a codec."""
  return [method.payloads(codec.messages(0), pieces)]


def step_of(shared, workers=3):
  """A `gradients.WorkerStep` of so many workers."""
  zero = tf.constant(0, tf.int64)
  return gradients.WorkerStep(zero, zero, workers, shared_probe=shared)


def means_of(codec, pieces, shared):
  """The mean gradients that pieces stand for."""
  states = [()] * len(codec.buckets)
  step = step_of(shared)
  return codec.decode(received_of(codec, pieces), states, step)[0]


def assert_same_bits(ours, other):
  for a, b in zip(ours.variables(), other.variables(), strict=True):
    np.testing.assert_array_equal(
      a.numpy().view(np.int32), b.numpy().view(np.int32)
    )


@pytest.mark.parametrize('averages', [False, True])
@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize('text', ['ternary', 'ternary:packing=two_bit'])
@pytest.mark.gate_every(3)
def test_bits_are_those_of_the_compiled_update(text, rule, averages):
  optimizer, codec = RULES[rule], codec_of(SIZES, text)
  ours, other = (replica_of(optimizer, averages) for _ in range(2))
  fused = fused_updates.make(ours, optimizer, None, codec)

  @tracing.function
  def fused_update(pieces, shared, numbers):
    fused(received_of(codec, pieces), step_of(shared), numbers)

  update = updates.Update(other, optimizer, None)
  shared = tf.constant(np.geomspace(1e-30, 1e20, codec.num_probes), tf.float32)
  # Three times: on what the one before has written.
  size = codec.num_words
  for seed, columns in enumerate([(size,), (size,), (17, 512, size - 529)]):
    pieces = pieces_of(columns, seed=seed)
    fused_update(pieces, shared, NUMBERS)
    means = means_of(codec, pieces, shared)
    update(means, None, NUMBERS)
    assert_same_bits(ours, other)


@pytest.mark.parametrize('cut', [1, 10, 11, 900])
def test_buckets_without_a_kernel_are_decoded_and_then_updated(cut):
  # The second of three variables is sent as it is, and pieces end within it, on
  # its borders and elsewhere.
  sizes = (200, 900, 30)
  specs = [policy.VariableSpec(f'v{i}', (n,)) for i, n in enumerate(sizes)]
  kinds = [registry.method(text) for text in ('ternary', 'identity', 'ternary')]
  codec = bucketing.on_kernels(bucketing.gradient_codec(specs, kinds))
  optimizer = optimizers.Momentum()
  ours, other = (replica_of(optimizer, True, sizes) for _ in range(2))
  fused_update = fused_updates.make(ours, optimizer, None, codec)
  update = updates.Update(other, optimizer, None)
  pieces = pieces_of((cut, 12, codec.num_words - cut - 12))
  shared = tf.constant([0.5, 1.0, 0.25])
  fused_update(received_of(codec, pieces), step_of(shared), NUMBERS)
  means = means_of(codec, pieces, shared)
  update(means, None, NUMBERS)
  assert_same_bits(ours, other)


def test_a_scaler_of_nan_changes_only_its_variable():
  optimizer, codec = optimizers.Momentum(0.9), codec_of((30, 30))
  replica = replica_of(optimizer, averages=True, sizes=(30, 30))
  fused_update = fused_updates.make(replica, optimizer, None, codec)
  pieces = pieces_of((codec.num_words,))
  shared = tf.constant([1.0, np.nan])
  fused_update(received_of(codec, pieces), step_of(shared), NUMBERS)
  finite = [np.isfinite(v.numpy()).all() for v in replica.trainable]
  assert finite == [True, False]


def test_an_update_does_not_change_values_read_before():
  optimizer, codec = optimizers.Momentum(0.9), codec_of((1000,))
  replica = replica_of(optimizer, averages=True, sizes=(1000,))
  read = [variable.read_value() for variable in replica.variables()]
  before = [value.numpy().copy() for value in read]
  fused_update = fused_updates.make(replica, optimizer, None, codec)
  # The first piece makes copies, of which it changes but a part.
  pieces = pieces_of((2, codec.num_words - 2))
  step = step_of(tf.constant([1e30]))
  fused_update(received_of(codec, pieces), step, NUMBERS)
  for value, old, now in zip(read, before, replica.variables(), strict=True):
    np.testing.assert_array_equal(value, old)
    assert not np.array_equal(now, old)
    assert np.isfinite(now).all()


@pytest.mark.parametrize('held', [False, True])
def test_a_piece_changes_the_elements_of_its_words(held):
  optimizer, codec = optimizers.Momentum(0.9), codec_of((1000,))
  replica = replica_of(optimizer, averages=True, sizes=(1000,))
  tensors = fused_updates.update_tensors(replica, optimizer)
  before = [variable.numpy().copy() for variable in replica.variables()]
  read = [variable.read_value() for variable in replica.variables()]
  if not held:
    del read
  (piece,) = pieces_of((2,), workers=(3,))
  (bucket,) = codec.buckets
  ops.fused_update(
    bucket.method.digits,
    piece._replace(first=7),
    tf.constant([1e30]),
    1.0,
    tensors,
    NUMBERS[1:],
  )
  # Word w of 50 holds elements w, w + 50, w + 100 and so on.
  changes = np.isin(np.arange(1000) % 50, [7, 8])
  _, velocity, _ = changed = [
    now.numpy() != old
    for old, now in zip(before, replica.variables(), strict=True)
  ]
  assert not any(one[~changes].any() for one in changed)
  # Others may be too large to notice.
  assert velocity[changes].all()


@pytest.mark.parametrize('averages', [False, True])
@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize('dtype', [tf.int8, tf.int32, tf.float32], ids=str)
@pytest.mark.gate_every(3)
def test_updates_from_sums_equal_those_from_gradients(dtype, rule, averages):
  optimizer = RULES[rule]
  ours, others = (replica_of(optimizer, averages) for _ in range(2))
  rng = np.random.default_rng(3)
  total = sum(SIZES)
  sums = tf.constant(rng.integers(-9, 10, total + 5), dtype)
  scalers = tf.constant(rng.random(len(SIZES)).astype(np.float32))
  shapes = [(size,) for size in SIZES]
  means = ops.scale_sums(sums, scalers, shapes, 1 / 3)
  updates.Update(others, optimizer, None)(means, None, NUMBERS)
  # In pieces that end anywhere, the last with digits past the last element.
  borders = [0, 1, 70, 71, 20_000, total + 5]
  tensors = fused_updates.update_tensors(ours, optimizer)
  for first, stop in zip(borders, borders[1:], strict=False):
    piece = sums[first:stop]
    ops.fused_update_of_sums(piece, first, scalers, 1 / 3, tensors, NUMBERS[1:])
  for one, other in zip(ours.variables(), others.variables(), strict=True):
    np.testing.assert_array_equal(
      one.numpy().view(np.int32), other.numpy().view(np.int32)
    )


def test_a_piece_past_the_last_element_changes_nothing():
  optimizer = RULES['momentum']
  replica = replica_of(optimizer, averages=True, sizes=(10,))
  before = [variable.numpy() for variable in replica.variables()]
  rest = (
    tf.ones([1]),
    1.0,
    fused_updates.update_tensors(replica, optimizer),
    NUMBERS[1:],
  )
  # What lies past the last element.
  ops.fused_update_of_sums(tf.ones([3]), 10, *rest)
  for value, old in zip(replica.variables(), before, strict=True):
    np.testing.assert_array_equal(value, old)


@pytest.fixture
def made(monkeypatch):
  """Counts the calls of what `fused_updates.make` makes."""
  calls, make = [], fused_updates.make

  def counted(*arguments):
    fused_update = make(*arguments)
    return fused_update and (lambda *a: calls.append(1) or fused_update(*a))

  monkeypatch.setattr(fused_updates, 'make', counted)
  return calls


@pytest.mark.parametrize(
  ('options', 'times'),
  [
    ({}, 1),
    ({'devices': 2, 'part_bytes': 200}, 4),
    pytest.param(
      {'optimizer': optimizers.GradientDescent()}, 1, marks=pytest.mark.slow
    ),
    pytest.param(
      {'codec': 'ternary:packing=two_bit,sharing=requantize'},
      1,
      marks=pytest.mark.slow,
    ),
    pytest.param(
      {'plain': ('logits/kernel', 'logits/bias')}, 1, marks=pytest.mark.slow
    ),
    pytest.param(
      {'trained': lambda name: 'logits' in name}, 1, marks=pytest.mark.slow
    ),
    ({'devices': 2, 'local_statistics': True}, 2),
    # Nothing to decode on its way.
    pytest.param(
      {'optimizer': optimizers.Momentum().with_clip_norm(0.1)},
      0,
      marks=pytest.mark.slow,
    ),
    ({'scaling': loss_scaling.START}, 0),
    ({'decoupled': True}, 0),
  ],
  ids=[
    *('momentum', 'parts', 'descent', 'thin', 'plain logits', 'frozen'),
    *('own statistics', 'clip', 'loss scale', 'decoupled'),
  ],
)
@pytest.mark.gate_every(5)
def test_steps_with_and_without_fused_updates_are_equal(
  monkeypatch, made, options, times
):
  options = {'devices': 1, 'workers': 4, 'on_kernels': True, **options}
  build = small.conv_net if 'local_statistics' in options else small.dense_net
  ours = small.Training(build, **options)
  ours.run(3 if times else 1)
  if not times:
    assert not made
    return
  # Once for each time that the step is traced.
  assert made
  assert len(made) % times == 0
  monkeypatch.setattr(fused_updates, 'make', lambda *_: None)
  other = small.Training(build, **options)
  other.run(3)
  np.testing.assert_array_equal(ours.values(), other.values())


@pytest.mark.parametrize(
  ('optimizer', 'text'),
  [
    (optimizers.Adam(), 'ternary'),
    (optimizers.RMSProp(), 'ternary'),
    (optimizers.Momentum(), 'eden3'),
    (optimizers.Momentum(), 'ternary:group_size=64'),
  ],
  ids=['adam', 'rmsprop', 'eden3', 'groups'],
)
def test_rules_and_codes_without_a_kernel_get_no_fused_update(optimizer, text):
  replica = replica_of(optimizer, averages=True, sizes=(30,))
  codec = codec_of((30,), text)
  assert fused_updates.make(replica, optimizer, None, codec) is None


@pytest.mark.parametrize(
  ('text', 'of_sums', 'of_payloads'),
  [
    ('ternary', True, True),
    ('ternary:packing=huffman243', True, False),
    ('identity', True, False),
    ('fp16', True, False),
  ],
)
def test_fits_depends_on_the_kind_of_the_received_messages(
  text, of_sums, of_payloads
):
  codec = codec_of((30,), text)
  dtype = tf.int8 if 'ternary' in text else tf.float32
  sums = [[method.Sum([tf.zeros([33], dtype)])]]
  assert fused_updates.fits(codec, sums) == of_sums
  pieces = [method.Piece(0, [tf.zeros([2, codec.num_words], tf.int32)])]
  assert fused_updates.fits(codec, received_of(codec, pieces)) == of_payloads


@pytest.mark.parametrize('device', ['/GPU:0', '/job:worker/task:1/CPU:0'])
def test_devices_that_the_trial_does_not_cover_have_no_kernel(device):
  optimizer = optimizers.Momentum()
  replica = replica_of(optimizer, averages=True, sizes=(30,))
  other = replica._replace(device=device)
  assert fused_updates.make(other, optimizer, None, codec_of((30,))) is None


@pytest.fixture
def untried():
  fused_updates.kernel_roundings.cache_clear()
  yield
  fused_updates.kernel_roundings.cache_clear()


@pytest.mark.usefixtures('untried')
@pytest.mark.parametrize('averages', [False, True])
@pytest.mark.parametrize('rule', ['descent', 'momentum'])
@pytest.mark.parametrize('kernel', ['fused_update', 'fused_update_of_sums'])
def test_a_machine_on_which_bits_differ_uses_no_kernel(
  monkeypatch, kernel, rule, averages
):
  optimizer = RULES[rule]
  replica = replica_of(optimizer, averages, sizes=(30,))
  make = [replica, optimizer, None, codec_of((30,))]
  assert fused_updates.make(*make)
  fused_update = getattr(ops, kernel)

  def rounds_otherwise(*arguments, **options):
    fused_update(*arguments, **options)
    *_, tensors, _ = arguments
    last = (tensors.averages or tensors.parameters)[-1]
    last.assign(np.nextafter(last, np.float32(np.inf)))

  monkeypatch.setattr(ops, kernel, rounds_otherwise)
  fused_updates.kernel_roundings.cache_clear()
  assert fused_updates.make(*make) is None


@pytest.mark.parametrize(('kind', 'has_some'), [('CPU', False), ('GPU', True)])
def test_a_trial_has_subnormal_numbers_where_updates_compute_with_them(
  kind, has_some
):
  replica = fused_updates._trial_replica(RULES['momentum'], True, kind)
  for variable in replica.variables()[1::2]:
    magnitudes = variable.numpy().view(np.int32) & 0x7FFFFFFF
    assert np.any((magnitudes > 0) & (magnitudes < 1 << 23)) == has_some
