"""What every exchange must do, as one class of tests.

A subclass says how many workers there are and gives an exchange of this
process, or, where an exchange takes several processes, what `share` and
`combine` below returned in each of them.
"""

import functools
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.methods.sparse import threshold
from terngrad.codec.methods.transforms import thc
from terngrad.codec.stages import bitmap
from terngrad.codec.stages import float_words
from terngrad.codec.stages import huffman
from terngrad.codec.stages import packing
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire
from terngrad.exchange import device_groups
from terngrad.exchange import server

# Of codes that are not 0, step after step: lengths change.
DENSITIES = (0.3, 0.02, 0.9)
PROBES = 3
# As float32 a signalling NaN, a subnormal, -0, and the largest subnormal:
# arithmetic would quiet, flush or normalize them.
FRAGILE = np.array(
  [0x7F800001, 0x00000001, 0x80000000, 0x807FFFFF], np.uint32
).view(np.int32)
# Workers of the largest exchange that is tested.
MOST_WORKERS = 8


class Sent(NamedTuple):
  """One message: what it is, and what makes the words of all workers.

  Attributes:
    message: `codec.method.Message`.
    draw: takes (NumPy generator, number of workers, density); returns (int32
      [workers, words]; the sum of their numbers [num_elements], None for
      GATHER).
  """

  message: methods.Message
  draw: object


def of_codes(form, size):
  """Ternary codes in words of a packing."""

  def draw(rng, workers, density):
    signs = rng.choice([-1, 1], [workers, size])
    codes = np.where(rng.random([workers, size]) < density, signs, 0)
    codes = codes.astype(np.int32)
    return np.stack([_packed(form, row) for row in codes]), codes.sum(
      axis=0, dtype=np.int32
    )

  return Sent(methods.code_sum(form, size, 1), draw)


def of_entries(form, levels, size):
  """Integers up to `levels` that a packing has numbers for, all or some."""

  def draw(rng, workers, density):
    del density
    # Not before: processes are configured after they have imported this.
    entries = np.unique(form.unpack(tf.range(2**16)))
    codes = rng.choice(entries, [workers, size]).astype(np.int32)
    return np.stack([form.pack_flat(tf.constant(row)) for row in codes]), (
      codes.sum(axis=0, dtype=np.int32)
    )

  return Sent(methods.code_sum(form, size, levels), draw)


def of_floats(size):
  """float32 of many magnitudes, whose sums depend on the order."""

  def draw(rng, workers, density):
    del density
    scales = 10.0 ** rng.integers(-6, 7, [workers, size])
    values = (rng.standard_normal([workers, size]) * scales).astype(np.float32)
    return values.view(np.int32), _sum_in_order(values)

  return Sent(methods.float_sum(size), draw)


def of_halves(size):
  """float16, two a word, whose sums are float32."""
  form = float_words.float16_words()

  def draw(rng, workers, density):
    del density
    values = rng.standard_normal([workers, size]) * 100
    values = values.astype(np.float16).astype(np.float32)
    words = np.stack([_packed(form, row) for row in values])
    return words, _sum_in_order(values)

  words = form.num_words(size)
  return Sent(methods.Message(methods.SUM, words, size, form), draw)


def of_words(count):
  """Any words, which are not summed."""

  def draw(rng, workers, density):
    del density
    words = rng.integers(-(2**31), 2**31, [workers, count], np.int64)
    words = words.astype(np.int32)
    words[:, : len(FRAGILE)] = FRAGILE[:count]
    return words, None

  return Sent(methods.gathered(count), draw)


def of_parts(count):
  """Any words, of which each worker needs a part; of all numbers of workers."""
  sent = of_words(12 * count)
  return sent._replace(message=methods.Message(methods.SCATTER, 12 * count))


def of_some_words(form, size):
  """Words of variable length, which are not summed."""
  capacity = form.num_words(size)

  def draw(rng, workers, density):
    words = np.zeros([workers, capacity], np.int32)
    for row in words:
      used = 1 + 2 * int(density * size * rng.random())
      row[:used] = rng.integers(1, 2**31, used)
      row[0] = used // 2
    return words, None

  return Sent(methods.gathered(capacity, form), draw)


def _packed(form, values):
  width = form.width(len(values))
  missing = width * form.elements_per_word - len(values)
  padded = np.pad(values, [0, missing]).reshape([-1, width])
  return form.pack([tf.constant(plane) for plane in padded]).numpy()


def _sum_in_order(values):
  total = values[0]
  for row in values[1:]:
    total = total + row
  return total


# What a round sends. Sizes are no multiples of a word, of 2 or of 3 processes;
# those of codes of varying length are large enough for less to be sent.
ROUNDS = {
  'base3': [of_codes(packing.base3(), 1003)],
  'two_bit': [of_codes(packing.two_bit(), 1003)],
  'radix': [of_codes(packing.radix(MOST_WORKERS), 1003)],
  'radix64': [of_codes(packing.radix(MOST_WORKERS, 64), 1003)],
  'huffman243': [of_codes(huffman.huffman243(), 200_003)],
  'short huffman243': [of_codes(huffman.huffman243(), 57)],
  'float32': [of_floats(20_003)],
  'one float32': [of_floats(1)],
  'fp16': [of_halves(20_003)],
  'gather': [of_words(20_003)],
  'scatter': [of_parts(501)],
  'mixed': [
    of_codes(packing.base3(), 1003),
    of_words(5),
    of_floats(7),
    of_codes(bitmap.bitmap_sign(), 150_001),
    of_halves(20_003),
    of_words(11),
    of_parts(3),
    of_codes(packing.radix(MOST_WORKERS), 77),
    of_codes(huffman.huffman243(), 200_003),
    of_entries(thc.entries(3.0), 15, 1001),
    of_some_words(threshold.Threshold(1.0, 1.0).packing, 30_000),
  ],
}
# 'mixed' has messages of the kinds of all the others but words of 64 bits.
QUICK = ('radix64', 'one float32', 'mixed')
NAMES = [
  pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
  for name in ROUNDS
]


@functools.cache
def draws(name, num_workers):
  """For each step a list of what `Sent.draw` returned, one a message."""
  rng = np.random.default_rng([len(name), num_workers])
  return [
    [sent.draw(rng, num_workers, density) for sent in ROUNDS[name]]
    for density in DENSITIES
  ]


def combine(exchange, name):
  """What an exchange makes of the messages of all steps of a round.

  Args:
    exchange: see `exchange.towers.Towers`.
    name: of `ROUNDS`.

  Returns:
    For each step and each device of this process a list of dict, one a
    message: 'words' to int32 [workers, words] where those are received, 'sum'
    to the sum of numbers, 'parts' to int32 [workers, k, words of a part] of
    what is scattered, and 'first' to the worker that the first part is for.
  """
  messages = [sent.message for sent in ROUNDS[name]]

  @tracing.function
  def step(*payloads):
    found = []
    words = list(map(transport.to_float32, payloads))
    combined = exchange.combine(messages, words)
    for device, received in zip(exchange.devices, combined, strict=True):
      with tf.device(device):
        pairs = zip(messages, received, strict=True)
        found.append([_read(*pair, is_first=not found) for pair in pairs])
    return found

  results = []
  for drawn in draws(name, exchange.num_workers):
    words = np.concatenate([words for words, _ in drawn], axis=1)
    found = step(*of_devices(exchange, words))
    found = [found[index] for index in exchange.local_devices]
    results.append(tf.nest.map_structure(lambda tensor: tensor.numpy(), found))
  return results


def _read(message, received, is_first):
  """dict of what a device has of a message: its sum, the words of all, both."""
  found = {}
  if isinstance(received, methods.Scattered):
    rows = transport.to_int32(received.rows)
    return {'parts': rows, 'first': tf.constant(received.first)}
  if isinstance(received, methods.Payloads):
    parts = received.parts
    total = sum(part.shape[0] for part in parts)
    rows = [parts[i % len(parts)][i // len(parts)] for i in range(total)]
    found['words'] = tf.stack(rows)
    # The sum of the words follows from them; compiling it takes a second.
    if not is_first or isinstance(message.packing, wire.VariablePacking):
      return found
  if message.combine == methods.SUM:
    add = tracing.function(received.sum, jit_compile=True)
    found['sum'] = add(message)[: message.num_elements]
  return found


def of_devices(exchange, rows):
  """For each device that has workers their rows, there."""
  found = []
  for index, device in enumerate(exchange.devices):
    if exchange.workers_of(index):
      with tf.device(device):
        found.append(tf.constant(rows[list(exchange.workers_of(index))]))
  return found


def rows(num_workers):
  """The rows that `share` gathers, float32 [workers, PROBES]."""
  rng = np.random.default_rng(num_workers)
  return rng.standard_normal([num_workers, PROBES]).astype(np.float32)


def conclude(all_rows):
  """The difference of the first two workers, or so: their order counts."""
  weights = tf.range(1.0, all_rows.shape[0] + 1.0)[:, tf.newaxis]
  return tf.reduce_max(all_rows, axis=0), tf.argmax(all_rows * weights)


def share(exchange):
  """The rows that an exchange gathers, and each device's conclusion."""

  @tracing.function
  def step(*parts):
    return exchange.gather_metadata(list(parts), conclude)

  all_rows, concluded = step(*of_devices(exchange, rows(exchange.num_workers)))
  return all_rows.numpy(), [
    [value.numpy() for value in concluded[i]] for i in exchange.local_devices
  ]


def examples(exchange):
  """What each worker of an exchange is given to learn from, as their numbers.

  The examples of worker w are images of w and labels of -w, on its process: the
  one whose program this is, and those that `Servers.feeds` stand for.

  Returns:
    For each worker of a device of this program (its number, image, label).
  """
  if isinstance(exchange, server.Servers):
    numbers, *others = (
      range(process, exchange.num_workers, exchange.num_processes)
      for process in range(exchange.num_processes)
    )
    feeds = [server.LocalBatch(*_numbered(other)) for other in others]
    exchange = exchange._replace(feeds=feeds)
  else:
    numbers = range(exchange.first, exchange.first + exchange.num_local_workers)
  found = []
  leading = device_groups.leading_devices(exchange)
  batches = exchange.batches(*_numbered(numbers))
  for index, batch in zip(leading, batches, strict=True):
    for worker in exchange.workers_of(index):
      image, label = batch.for_worker(tf.constant(worker))
      found.append((worker, int(image[0]), int(label[0])))
  return found


def _numbered(numbers):
  values = tf.constant(list(numbers))[:, tf.newaxis]
  return values, -values


def _parts(words, parts, first):
  """What `_read` should have of words that were scattered."""
  count, here = parts.shape[:2]
  rows = words.reshape(count, count, -1)[:, first : first + here]
  return {'parts': rows, 'first': np.int32(first)}


class _OfExchange:
  """A subclass has `num_workers`, and `exchange` or the other methods."""

  num_workers = 1

  def exchange(self):
    """An exchange of `num_workers`, all in this process."""
    raise NotImplementedError

  def shared(self):
    """What `share` returned, of each process."""
    return [share(self.exchange())]

  def combined(self, name):
    """What `combine` returned, of each process."""
    return [combine(self.exchange(), name)]

  def received_examples(self):
    """What `examples` returned, of each process."""
    return [examples(self.exchange())]


class RowsConformance(_OfExchange):
  """The tests of what is not in the messages of a codec."""

  def test_every_worker_receives_its_examples(self):
    found = [
      worker for process in self.received_examples() for worker in process
    ]
    assert sorted(found) == [(w, w, -w) for w in range(self.num_workers)]

  def test_every_device_gathers_rows_in_the_order_of_the_workers(self):
    expected = rows(self.num_workers)
    largest, index = conclude(tf.constant(expected))
    for all_rows, concluded in self.shared():
      np.testing.assert_array_equal(all_rows, expected)
      for values in concluded:
        np.testing.assert_array_equal(values[0], largest)
        np.testing.assert_array_equal(values[1], index)


class SumsConformance(_OfExchange):
  """The test of the messages of codecs."""

  @pytest.mark.gate_every(3)
  @pytest.mark.parametrize('name', NAMES)
  def test_every_device_receives_exact_sums_and_words_in_order(self, name):
    expected = draws(name, self.num_workers)
    for steps in self.combined(name):
      for step, devices in enumerate(steps):
        drawn = expected[step]
        for received in devices:
          assert len(received) == len(drawn)
          for got, (words, total) in zip(received, drawn, strict=True):
            wanted = {'words': words, 'sum': total}
            if 'parts' in got:
              wanted = _parts(words, **got)
            assert ('sum' not in got) or total is not None
            assert got.keys() & {'words', 'sum', 'parts'}
            for key, values in got.items():
              assert values.dtype == wanted[key].dtype
              np.testing.assert_array_equal(
                values.view(np.int32),
                wanted[key].view(np.int32),
                err_msg=f'step {step}',
              )


class ExchangeConformance(RowsConformance, SumsConformance):
  """All tests."""
