"""The C++ of bitmap_sign and huffman243 against its twin, and fuzzed."""

import re
import subprocess

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.stages import huffman_tables
from tests.codec import bounds
from tests.native import varlen_library

NAMES = pytest.mark.parametrize('name', ['bitmap_sign', 'huffman243'])
# Borders of words, of symbols, of words of symbols and of blocks.
LENGTHS = (0, 1, 4, 5, 6, 19, 20, 21, 31, 32, 33, 63, 64, 65, 2559, 2560, 2561)
MORE_LENGTHS = (*range(43), 100, 1000, 10_240, 12_345)
DENSITIES = (0.0, 0.01, 0.15, 0.3175, 0.66, 1.0)


@pytest.fixture(scope='session')
def library(tmp_path_factory):
  return varlen_library.Library(tmp_path_factory.mktemp('varlen'))


@pytest.fixture(scope='session')
def fuzzer(tmp_path_factory):
  return varlen_library.fuzzer(tmp_path_factory.mktemp('fuzzer'))


def codec_of(name):
  return registry.ternary(packing=name)


def codes_of(size, density, seed=20170522):
  rng = np.random.default_rng([seed, size, int(1e4 * density)])
  fires = rng.random(size) < density
  return (fires * rng.choice([-1, 1], size=size)).astype(np.int8)


def twin_encode(name, codes):
  """The words that the Python twin makes of codes."""
  ones = tf.ones([1])
  key = tf.constant([1, 2], tf.uint32)
  # With a scaler of 1, codes are gradients that are coded exactly.
  gradient = tf.constant(codes, tf.float32)
  return codec_of(name).encode([gradient], ones, ones, key).numpy()


def twin_decode(name, words, size):
  payload = tf.constant(words)[tf.newaxis]
  (total,) = codec_of(name).decode_sum([payload], tf.ones([1]), [(size,)])
  return total.numpy().astype(np.int8)


def twin_accepts(name, words, size):
  try:
    validation.validate(codec_of(name), words, size)
  except ValueError:
    return False
  return True


@NAMES
@pytest.mark.parametrize(
  'lengths',
  [LENGTHS, pytest.param(MORE_LENGTHS, marks=pytest.mark.slow)],
  ids=['borders', 'more'],
)
def test_words_and_codes_equal_python_bit_for_bit(library, name, lengths):
  cases = [(size, DENSITIES[i % 6]) for i, size in enumerate(lengths)]
  cases += [(12_345, density) for density in DENSITIES]
  for size, density in cases:
    codes = codes_of(size, density)
    status, words, used = library.encode(name, codes)
    assert status == varlen_library.OK
    expected = twin_encode(name, codes)
    np.testing.assert_array_equal(words, expected, err_msg=f'{size} {density}')
    assert used == codec_of(name).sent_words(tf.constant(expected)).numpy()
    # With the zeros after the used words and without.
    for sent in (words, words[:used]):
      status, back = library.decode(name, sent, size)
      assert status == varlen_library.OK
      np.testing.assert_array_equal(back, codes)


def test_all_tables_equal_python(library):
  # 63 densities, one table each.
  expected = huffman_tables.tables().lengths
  for step in range(1, 64):
    status, lengths = library.lengths(step)
    assert status == varlen_library.OK
    np.testing.assert_array_equal(lengths, expected[step])
    codes = codes_of(1000, step / 64)
    _, words, _ = library.encode('huffman243', codes)
    np.testing.assert_array_equal(words, twin_encode('huffman243', codes))
  for step in (-1, 0, 64):
    assert library.lengths(step)[0] == varlen_library.HEADER


@NAMES
@bounds.few_examples
@hypothesis.given(data=strategies.data())
def test_corrupted_payloads_are_validated_as_in_python(library, name, data):
  size = data.draw(strategies.sampled_from([5, 64, 700]))
  density = data.draw(strategies.sampled_from(DENSITIES))
  _, words, used = library.encode(name, codes_of(size, density))
  words = words[: data.draw(strategies.sampled_from([used, words.size]))]
  for _ in range(data.draw(strategies.integers(1, 3))):
    at = data.draw(strategies.integers(0, words.size - 1))
    bit = data.draw(strategies.integers(0, 31))
    words[at] ^= np.uint32(1 << bit).view(np.int32)
  status, codes = library.decode(name, words, size)
  accepted = status == varlen_library.OK
  assert accepted == twin_accepts(name, words, size)
  if accepted:
    padded = np.pad(words, [0, library.capacity(name, size) - words.size])
    np.testing.assert_array_equal(twin_decode(name, padded, size), codes)


@NAMES
@bounds.few_examples
@hypothesis.given(
  words=strategies.lists(strategies.integers(-(2**31), 2**31 - 1), max_size=9),
  size=strategies.integers(0, 70),
)
def test_any_words_are_validated_as_in_python(library, name, words, size):
  words = np.array(words, np.int32)
  status, _ = library.decode(name, words, size)
  accepted = status == varlen_library.OK
  assert accepted == twin_accepts(name, words, size)


def header(used, step=0):
  return used + (step << 24)


@pytest.mark.parametrize(
  ('name', 'words', 'size', 'status'),
  [
    ('bitmap_sign', [], 3, varlen_library.LENGTH),
    ('bitmap_sign', [2], 3, varlen_library.LENGTH),
    ('bitmap_sign', [2, 0, 0, 0], 3, varlen_library.LENGTH),
    ('bitmap_sign', [1, 0, 0], 3, varlen_library.HEADER),
    ('bitmap_sign', [2, 1, 0], 3, varlen_library.HEADER),
    ('bitmap_sign', [3, 0, 0], 3, varlen_library.HEADER),
    ('bitmap_sign', [2, 0, 1], 3, varlen_library.TAIL),
    ('bitmap_sign', [2, 8, 0], 3, varlen_library.TAIL),
    ('bitmap_sign', [3, 5, 4], 3, varlen_library.TAIL),
    ('bitmap_sign', [3, 5, 2], 3, varlen_library.OK),
    ('huffman243', [], 3, varlen_library.LENGTH),
    ('huffman243', [header(0), 0], 3, varlen_library.LENGTH),
    ('huffman243', [header(2)], 3, varlen_library.LENGTH),
    ('huffman243', [header(2, 64), 0], 3, varlen_library.HEADER),
    ('huffman243', [header(1, 9), 0], 3, varlen_library.HEADER),
    ('huffman243', [header(1), 0], 3, varlen_library.HEADER),
    ('huffman243', [header(2, 9), 1], 3, varlen_library.BLOCKS),
    ('huffman243', [header(2), 3**20 - 2**32], 20, varlen_library.DIGIT),
    ('huffman243', [header(2), 0], 19, varlen_library.TAIL),
    ('huffman243', [header(2), 0], 20, varlen_library.OK),
  ],
)
def test_malformed_words_are_refused_with_a_reason(
  library, name, words, size, status
):
  words = np.array(words, np.int64).astype(np.int32)
  received, _ = library.decode(name, words, size)
  assert library.message(received) == library.message(status)
  assert twin_accepts(name, words, size) == (status == varlen_library.OK)


def test_payload_that_is_not_the_shortest_is_refused(library):
  codes = np.zeros(1000, np.int8)
  _, words, _ = library.encode('huffman243', codes)
  words[0] += 1 << 24  # the tables for 1 and 2 of 64 code zeros alike
  status, _ = library.decode('huffman243', words, 1000)
  assert status == varlen_library.NOT_SHORTEST
  raw = np.full(51, (3**20 - 1) // 2, np.int32)
  raw[0] = header(51)
  status, _ = library.decode('huffman243', raw, 1000)
  assert status == varlen_library.NOT_SHORTEST


@NAMES
def test_encoder_refuses_invalid_codes_and_sizes(library, name):
  for bad in (-2, 2, 127, -128):
    status, _, _ = library.encode(name, [0, 1, bad, 0])
    assert status == varlen_library.BAD_CODE
  status, _, _ = library.encode(name, [0] * 40, capacity=1)
  assert status == varlen_library.CAPACITY
  assert library.capacity(name, 2**28) > 0
  assert library.capacity(name, 2**28 + 1) == 0


def test_every_status_has_a_message(library):
  messages = {library.message(status) for status in range(10)}
  assert len(messages) == 10
  assert library.message(10) == library.message(-1) == 'unknown status'


def run_fuzzer(fuzzer, executions, seed):
  """(inputs kept, edges by them, edges by the seeds alone)."""
  done = subprocess.run(
    [str(fuzzer), str(executions), str(seed)],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  counts = [int(number) for number in re.findall(r'\d+', done.stdout)]
  assert counts[0] == executions
  return counts[1], counts[3], counts[4]


@pytest.mark.slow
def test_fuzzer_guided_by_coverage_finds_no_fault_in_a_short_run(fuzzer):
  kept, edges, seed_edges = run_fuzzer(fuzzer, 2000, seed=1)
  assert kept > 0
  # It is guided: what it keeps goes where the seeds do not.
  assert edges > seed_edges


@pytest.mark.slow
@pytest.mark.parametrize('seed', [2, 3])
def test_fuzzer_guided_by_coverage_finds_no_fault_in_a_long_run(fuzzer, seed):
  run_fuzzer(fuzzer, 50_000, seed)
