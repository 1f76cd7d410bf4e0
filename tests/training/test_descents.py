"""Updates that decode on their way give the bits of those that do not."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec import accelerated
from terngrad.codec import gradients
from terngrad.codec import policy
from terngrad.codec import registry
from terngrad.native import ops
from terngrad.training import descents
from terngrad.training import optimizers
from terngrad.training import replicas
from terngrad.training import updates
from tests.training import small

pytestmark = pytest.mark.skipif(
  not native.available(), reason='the native kernels are not built here'
)

# Borders of vectors, words and blocks; see tests/native/test_kernels.py.
SIZES = (0, 1, 15, 17, 31, 513, 20 * 512, 20 * 512 * 3 + 7)
RULES = {
  'descent': optimizers.gradient_descent(),
  'momentum': optimizers.momentum(0.9),
  'momentum of 0': optimizers.momentum(0.0),
}
NUMBERS = (tf.constant(0, tf.int64), tf.constant(0.0371), tf.constant(0.9876))


def replica_of(optimizer, averages, sizes=SIZES, seed=0):
  """Values of many magnitudes, the smallest and the largest among them."""
  rng = np.random.default_rng(seed)

  def variables():
    return tuple(
      tf.Variable(
        (rng.standard_t(2, n) * 10.0 ** rng.integers(-38, 30, n)).astype(
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
  codecs = accelerated.accelerate([registry.parse(text)] * len(sizes))
  return gradients.gradient_codec(specs, codecs)


def payloads_of(codec, workers, seed=0):
  """From so many devices, of so many workers each."""
  rng = np.random.default_rng(seed)
  return [
    tf.constant(
      rng.integers(0, 3**20, [count, codec.num_words])
      .astype(np.uint32)
      .view(np.int32)
    )
    for count in workers
  ]


def assert_same_bits(ours, other):
  for a, b in zip(ours.variables(), other.variables(), strict=True):
    np.testing.assert_array_equal(
      a.numpy().view(np.int32), b.numpy().view(np.int32)
    )


@pytest.mark.parametrize('averages', [False, True])
@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize('text', ['ternary', 'ternary:packing=two_bit'])
def test_bits_are_those_of_the_compiled_update(text, rule, averages):
  optimizer, codec = RULES[rule], codec_of(SIZES, text)
  ours, other = (replica_of(optimizer, averages) for _ in range(2))
  descend = tf.function(descents.make(ours, optimizer, codec))
  update = updates.make_update(other, optimizer, None)
  shared = tf.constant(np.geomspace(1e-30, 1e20, codec.num_probes), tf.float32)
  # Twice: the second time on what the first has written.
  for seed in range(2):
    payloads = payloads_of(codec, (2, 1), seed)
    descend(payloads, shared, NUMBERS)
    update(codec.decode_mean(payloads, shared), [], NUMBERS)
    assert_same_bits(ours, other)


def test_a_scaler_that_is_no_number_reaches_its_variable_alone():
  optimizer, codec = optimizers.momentum(0.9), codec_of((30, 30))
  replica = replica_of(optimizer, averages=True, sizes=(30, 30))
  descend = descents.make(replica, optimizer, codec)
  descend(payloads_of(codec, (2,)), tf.constant([1.0, np.nan]), NUMBERS)
  finite = [np.isfinite(v.numpy()).all() for v in replica.trainable]
  assert finite == [True, False]


def test_what_somebody_has_read_stays_as_it_was():
  optimizer, codec = optimizers.momentum(0.9), codec_of((1000,))
  replica = replica_of(optimizer, averages=True, sizes=(1000,))
  read = [variable.read_value() for variable in replica.variables()]
  before = [value.numpy().copy() for value in read]
  descend = descents.make(replica, optimizer, codec)
  descend(payloads_of(codec, (2,)), tf.constant([1e30]), NUMBERS)
  for value, old, now in zip(read, before, replica.variables(), strict=True):
    np.testing.assert_array_equal(value, old)
    assert not np.array_equal(now, old)


@pytest.mark.parametrize(
  'options',
  [
    {},
    {'devices': 2, 'part_bytes': 200},
    {'optimizer': optimizers.gradient_descent()},
    {'codec': 'ternary:packing=two_bit,sharing=thin'},
  ],
  ids=['momentum', 'parts', 'descent', 'thin'],
)
def test_steps_are_those_with_gradients(monkeypatch, options):
  options = {'devices': 1, 'workers': 4, 'on_kernels': True, **options}
  ran = []
  decode = ops.decode_sum
  monkeypatch.setattr(
    ops, 'decode_sum', lambda *a: ran.append('decode') or decode(*a)
  )
  ours = small.Training(small.conv_net, **options)
  ours.run(3)
  # Thinning decodes a worker's own words.
  before = len(ran)
  monkeypatch.setattr(descents, 'make', lambda *_: None)
  other = small.Training(small.conv_net, **options)
  other.run(3)
  assert len(ran) > 2 * before
  np.testing.assert_array_equal(ours.values(), other.values())


@pytest.mark.parametrize(
  ('optimizer', 'text'),
  [
    (optimizers.adam(), 'ternary'),
    (optimizers.rmsprop(), 'ternary'),
    (optimizers.momentum(), 'identity'),
    (optimizers.momentum(), 'ternary:packing=huffman243'),
  ],
  ids=['adam', 'rmsprop', 'identity', 'huffman243'],
)
def test_rules_and_codes_without_a_kernel_have_none(optimizer, text):
  replica = replica_of(optimizer, averages=True, sizes=(30,))
  assert descents.make(replica, optimizer, codec_of((30,), text)) is None


def test_a_device_that_is_no_cpu_has_none():
  optimizer = optimizers.momentum()
  replica = replica_of(optimizer, averages=True, sizes=(30,))
  gpu = replica._replace(device='/job:worker/task:1/device:GPU:0')
  assert descents.make(gpu, optimizer, codec_of((30,))) is None


def test_a_machine_on_which_bits_differ_does_without(monkeypatch):
  descents.agrees.cache_clear()
  assert descents.agrees()
  descend = ops.descend

  def rounds_twice(digits, parts, scalers, scale, descent, rates):
    descend(digits, parts, scalers, scale, descent, rates)
    for variable in descent.parameters:
      variable.assign(np.nextafter(variable, np.float32(np.inf)))

  monkeypatch.setattr(ops, 'descend', rounds_twice)
  descents.agrees.cache_clear()
  optimizer = optimizers.momentum()
  replica = replica_of(optimizer, averages=True, sizes=(30,))
  assert descents.make(replica, optimizer, codec_of((30,))) is None
  descents.agrees.cache_clear()
