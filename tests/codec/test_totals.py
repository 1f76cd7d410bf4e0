import functools

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec import policy
from terngrad.codec import totals
from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from terngrad.codec.stages import wire
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from tests.codec import one_round

SHAPES = [(3, 7), (401,), (5,), (64, 3)]
CODES = (
  'ternary',
  'ternary:packing=two_bit',
  'ternary:packing=radix,workers=5',
  'ternary:packing=radix,workers=5,word_bits=64',
  'ternary:packing=bitmap_sign',
  'ternary:packing=huffman243',
  'ternary:group_size=50',
  'identity',
  'fp16',
  'eden3',
)


def codec_of(name, plain=(2,)):
  """A codec with one bucket of `name` and one of plain floats."""
  specs = [policy.VariableSpec(str(i), s) for i, s in enumerate(SHAPES)]
  coded, floats = registry.parse(name), registry.identity()
  codecs = [floats if i in plain else coded for i in range(len(SHAPES))]
  return bucketing.gradient_codec(specs, codecs)


def pushed_words(codec, num_workers):
  """What workers push: (payloads [workers, words], the agreed probe)."""
  rng = np.random.default_rng(4)
  found = [
    [tf.constant(rng.normal(size=s), tf.float32) for s in SHAPES]
    for _ in range(num_workers)
  ]
  probes = tf.stack([one_round.probe(codec, g) for g in found])
  shared_probe = gradients.agree(probes)
  keys = [
    codec.keys(1, tf.constant(0, tf.int64), tf.constant(w))
    for w in range(num_workers)
  ]
  payloads = [
    one_round.encode(codec, g, probes[w], shared_probe, keys[w])
    for w, g in enumerate(found)
  ]
  return tf.stack(payloads), shared_probe


def decode_by_servers(
  codec, payloads, shared_probe, num_servers, num_devices=2
):
  """The means that workers decode from what servers summed."""

  zero = tf.constant(0, tf.int64)

  @tracing.function
  def exchange(payloads, shared_probe):
    num_workers = payloads.shape[0]
    found = totals.Totals(codec.messages(0), num_workers, num_servers)
    parts = [payloads[i::num_devices] for i in range(num_devices)]
    sums = []
    for server, (start, stop) in enumerate(found.ranges):
      if start < stop:
        cut = [found.select_words(server, part) for part in parts]
        sums.append(found.add(server, cut))
        assert sums[-1].shape == [found.num_words[server]]
    return decode(found.unpack(sums), shared_probe)

  @tracing.function(jit_compile=codec.compiled)
  def decode(received, shared_probe):
    turn = gradients.WorkerStep(
      zero, zero, payloads.shape[0], shared_probe=shared_probe
    )
    return codec.decode([received], [()] * len(codec.buckets), turn)[0]

  return exchange(payloads, shared_probe)


@pytest.mark.parametrize('name', CODES)
@pytest.mark.parametrize('num_servers', [1, 3])
@pytest.mark.gate_every(3)
def test_sums_of_servers_decode_to_the_mean_bit_for_bit(
  name, num_servers, eager_functions
):
  check_mean(name, num_servers)


def test_compiled_servers_give_the_same_bits():
  check_mean('ternary', 2)


@functools.cache
def pushed_and_mean(name):
  """(codec, payloads, the agreed probe, the mean gradients)."""
  codec = codec_of(name)
  payloads, shared_probe = pushed_words(codec, 5)
  decode = functools.partial(one_round.decode_mean, codec)
  mean = tracing.function(decode, jit_compile=True)([payloads], shared_probe)
  return codec, payloads, shared_probe, mean


def check_mean(name, num_servers):
  codec, payloads, shared_probe, expected = pushed_and_mean(name)
  received = decode_by_servers(codec, payloads, shared_probe, num_servers)
  for one, other in zip(expected, received, strict=True):
    np.testing.assert_array_equal(
      one.numpy().view(np.uint32), other.numpy().view(np.uint32)
    )


def test_codes_with_kernels_give_the_same_bits(eager_functions):
  codec = codec_of('ternary')
  payloads, shared_probe = pushed_words(codec, 2)
  expected = one_round.decode_mean(codec, [payloads], shared_probe)
  fast = bucketing.on_kernels(codec)
  received = decode_by_servers(fast, payloads, shared_probe, 2)
  for one, other in zip(expected, received, strict=True):
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('num_servers', [1, 2, 3])
def test_gathered_messages_are_forwarded_unchanged(num_servers):
  rng = np.random.default_rng(6)
  messages = [
    method.gathered(7),
    method.float_sum(5),
    method.gathered(11),
  ]
  words = rng.integers(-(2**31), 2**31, [3, 23], dtype=np.int32)
  words[:, 7:12] = rng.normal(size=[3, 5]).astype(np.float32).view(np.int32)
  found = totals.Totals(messages, 3, num_servers)
  parts = [tf.constant(words[i::2]) for i in range(2)]
  pulled = [
    found.add(server, [found.select_words(server, part) for part in parts])
    for server in range(num_servers)
  ]
  one, total, other = found.unpack(pulled)
  (first,), (second,) = one.parts, other.parts
  np.testing.assert_array_equal(first, words[:, :7])
  np.testing.assert_array_equal(second, words[:, 12:])
  floats = words[:, 7:12].view(np.float32)
  np.testing.assert_array_equal(
    total.sum(messages[1]), floats[0] + floats[1] + floats[2]
  )
  assert found.bits() == 32 * (3 * 7 + 5 + 3 * 11)


def test_sum_of_two_workers_takes_32_13ths_bits_per_element():
  specs = [policy.VariableSpec('w', (13 * 2000,))]
  codec = bucketing.gradient_codec(specs, [registry.ternary()])
  found = totals.Totals(codec.messages(0), 2, 1)
  assert found.num_words == [2000]
  assert found.bits() == 32 * 2000


def test_servers_share_the_words_evenly():
  specs = [policy.VariableSpec('w', (9000,)), policy.VariableSpec('b', (1,))]
  codec = bucketing.gradient_codec(specs, [registry.ternary()] * 2)
  ranges = totals.Totals(codec.messages(0), 2, 4).ranges
  sizes = [stop - start for start, stop in ranges]
  assert sum(sizes) == codec.num_words
  assert max(sizes) - min(sizes) <= 1
  assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]


@pytest.mark.parametrize('name', ['huffman243', 'bitmap_sign'])
def test_unused_words_are_not_pushed(name):
  codec = codec_of(f'ternary:packing={name}')
  payloads, _ = pushed_words(codec, 3)
  coded, floats = codec.messages(0)
  found = totals.Totals([coded, floats], 3, 1)
  first, second = found.select_words(0, payloads)
  used = np.max(payloads[:, 0] & 0xFFFFFF)
  assert first.shape == [3, used]
  assert used < coded.num_words
  assert second.shape == [3, floats.num_words]


def test_payload_of_variable_length_is_not_split():
  codec = codec_of('ternary:packing=bitmap_sign', plain=())
  (message,) = codec.messages(0)
  assert isinstance(message.packing, wire.VariablePacking)
  sizes = [b - a for a, b in totals.Totals(codec.messages(0), 2, 3).ranges]
  assert sorted(sizes) == [0, 0, codec.num_words]


def test_unsplit_payload_goes_to_the_server_with_its_larger_part():
  codec = codec_of('ternary:packing=bitmap_sign', plain=(2,))
  coded, floats = codec.messages(0)
  assert floats.num_words < coded.num_words
  found = totals.Totals(codec.messages(0), 2, 2).ranges
  whole = coded.num_words + floats.num_words
  assert found == [(0, coded.num_words), (coded.num_words, whole)]
