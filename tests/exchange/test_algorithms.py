import re

import pytest

from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.config import cluster as cluster_config
from terngrad.exchange import algorithms
from terngrad.exchange import gathering
from terngrad.reduce import bucketing


def messages_of(text, elements=2**20):
  specs = [policy.VariableSpec('v', (elements,))]
  codec = bucketing.gradient_codec(specs, [registry.method(text)])
  return codec.messages(0)


@pytest.mark.parametrize(
  ('text', 'workers', 'algorithm'),
  [
    ('ternary', 2, 'gather'),
    # Fewer words by two shots, but more work.
    ('ternary', 4, 'gather'),
    ('ternary', 8, 'two_shot'),
    ('ternary', 64, 'two_shot'),
    # Words of a variable length cannot be cut, nor added.
    ('ternary:packing=huffman243', 8, 'gather'),
    # As many words either way: once gathered, or there and back by halves.
    ('identity', 2, 'gather'),
    ('identity', 3, 'slices'),
    # Half a word an element there, a whole one back.
    ('fp16', 3, 'gather'),
    ('fp16', 4, 'slices'),
    # 64-bit words are not cut; they are added.
    ('ternary:packing=radix,workers=8,word_bits=64', 8, 'reduce'),
  ],
)
def test_auto_weighs_bytes_and_work(text, workers, algorithm):
  assert algorithms.choices(messages_of(text), workers, workers) == [algorithm]


def test_small_messages_are_gathered():
  few, more = messages_of('identity', 1000), messages_of('identity', 10_000)
  assert algorithms.choices(few, 3, 3) == ['gather']
  # 64 hops of 50 us, for 20 ms of words.
  assert algorithms.choices(few, 64, 64) == ['gather']
  assert algorithms.choices(more, 64, 64) == ['slices']


@pytest.mark.parametrize(
  ('bandwidth', 'latency', 'algorithm'),
  [
    (1e9, 5e-5, 'gather'),
    # 48 ns an element against 36, and 5 of work.
    (1e8, 5e-5, 'two_shot'),
    # 4 hops of 10 ms for 12 ns of each of a million elements.
    (1e8, 1e-2, 'gather'),
    (1e11, 5e-5, 'gather'),
  ],
)
def test_auto_depends_on_the_network(bandwidth, latency, algorithm):
  network = algorithms.Link(bandwidth, latency)
  messages = messages_of('ternary')
  chosen = algorithms.choices(messages, 4, 4, network=network)
  assert chosen == [algorithm]
  times = algorithms.seconds(messages[0], 4, 4, network)
  assert min(times, key=times.get) == algorithm


def test_seconds_equal_the_formula():
  network = algorithms.Link(1e8, 1e-3)
  messages = messages_of('ternary')
  words = algorithms.sent_words(messages[0], 4, 4)
  times = algorithms.seconds(messages[0], 4, 4, network)
  # No hop of a gather; three more than one of two shots.
  assert times['gather'] == pytest.approx(
    32 * words['gather'] / 1e8 + 3 * 3e-10 * 2**20
  )
  assert times['two_shot'] == pytest.approx(
    32 * words['two_shot'] / 1e8 + 4e-3 + 5e-9 * 2**20
  )
  (floats,) = messages_of('identity')
  words = algorithms.sent_words(floats, 4, 4)
  times = algorithms.seconds(floats, 4, 4, network)
  hops = algorithms.hops('slices', 4)
  assert times['slices'] == pytest.approx(
    32 * words['slices'] / 1e8 + 1e-3 * hops + 3e-9 * 2**20
  )


def test_the_log_line_has_algorithms_megabytes_and_milliseconds():
  messages = [
    *messages_of('ternary', 2**24),
    methods.Message(methods.SCATTER, 400),
  ]
  line = algorithms.describe_plan(messages, 4, 4, 'auto', algorithms.Link(1e8))
  assert re.fullmatch(
    r'exchange: two_shot 7.55 MB in 6\d\d ms \(instead of gather in 8\d\d ms\)'
    r'; scatter 0.0012 MB in 0.146 ms \(per step and process, estimated for '
    r'100 Mbit/s and 50 us\)',
    line,
  ), line


def test_the_old_name_of_describe_plan_gives_a_warning():
  with pytest.warns(DeprecationWarning, match='told is .* Use describe_plan'):
    assert algorithms.told is algorithms.describe_plan


def test_the_default_flags_of_the_network_are_those_of_the_model():
  flags = cluster_config.ClusterOptions()
  assert algorithms.Link(flags.bandwidth, flags.latency) == (algorithms.Link())


def test_auto_takes_slices_for_two_processes_of_two_workers():
  assert algorithms.choices(messages_of('identity'), 4, 2) == ['slices']


def test_messages_that_an_algorithm_does_not_support_are_gathered():
  words = [methods.gathered(7)]
  for algorithm in algorithms.NAMES:
    assert algorithms.choices(words, 4, 4, algorithm) == ['gather']
  floats, codes = messages_of('identity'), messages_of('ternary')
  assert algorithms.choices(floats, 4, 4, 'two_shot') == ['gather']
  assert algorithms.choices(codes, 4, 4, 'reduce') == ['gather']
  assert algorithms.choices(codes, 4, 4, 'slices') == ['gather']
  assert algorithms.choices(codes, 2, 2, 'two_shot') == ['two_shot']


def test_sums_that_do_not_fit_a_word_are_not_packed():
  codes = messages_of('ternary')
  assert algorithms.choices(codes, 2**15 - 1, 1, 'two_shot') == ['two_shot']
  assert algorithms.choices(codes, 2**15, 1, 'two_shot') == ['gather']


def test_words_equal_the_formulas():
  # 20 trits a word; sums of 4 in base 9, 10 digits a word.
  words = 2**20 / 20
  costs = algorithms.sent_words(*messages_of('ternary'), 4, 4)
  assert costs['gather'] == pytest.approx(3 * words, rel=1e-4)
  assert costs['two_shot'] == pytest.approx(
    3 / 4 * words + 3 / 4 * 2**20 / 10, rel=1e-4
  )
  (radix,) = messages_of('ternary:packing=radix,workers=4')
  costs = algorithms.sent_words(radix, 4, 4)
  assert costs['reduce'] == pytest.approx(2 * 3 / 4 * 2**20 / 10, rel=1e-4)


@pytest.mark.parametrize(
  ('nodes', 'processes'), [(1, 2), (1, 3), (2, 2), (5, 4)]
)
def test_words_of_slices_equal_the_formula(nodes, processes):
  elements = 2**20
  there_and_back = (nodes + 1) * (processes - 1) / processes
  (floats,) = messages_of('identity', elements)
  costs = algorithms.sent_words(floats, nodes * processes, processes)
  assert costs['gather'] == nodes * (processes - 1) * elements
  assert costs['slices'] == pytest.approx(there_and_back * elements, rel=1e-4)
  (halves,) = messages_of('fp16', elements)
  costs = algorithms.sent_words(halves, nodes * processes, processes)
  there_and_back = (nodes / 2 + 1) * (processes - 1) / processes
  assert costs['slices'] == pytest.approx(there_and_back * elements, rel=1e-4)


def test_one_process_sends_nothing():
  for text in ('ternary', 'identity'):
    costs = algorithms.sent_words(*messages_of(text), 4, 1)
    assert set(costs.values()) == {0}


@pytest.mark.parametrize('capacity', [1, 7, 2**13, 123_457])
def test_lengths_rise_in_small_steps_to_the_capacity(capacity):
  lengths = gathering.lengths(capacity)
  assert lengths[-1] == capacity
  assert len(lengths) <= 557
  assert lengths[0] <= capacity / 15 + 1
  for before, after in zip(lengths, lengths[1:], strict=False):
    assert before < after <= 1.00501 * before + 1


def test_a_code_of_variable_length_costs_its_expected_words():
  (varying,) = messages_of('ternary:packing=huffman243')
  words = algorithms.sent_words(varying, 2, 2)['gather']
  assert varying.expected_words <= words <= 1.006 * varying.expected_words
  # What the entropy of Gaussian gradients clipped at 2.5 sigma lets one hope.
  assert 32 * words / varying.num_elements <= 1.24
