"""The model of a step, against sums by hand."""

import math

import pytest

from terngrad.exchange import algorithms
from terngrad.measure import gradient_codecs
from terngrad.measure.planning import model

SHAPES = [(1000, 1000)]
SIZE = 10**6
GIGABIT = model.Network(1e9, 0.0, 2)
FREE = model.Coding(0.0, 0.0, 0.0)
COST = model.Coding(1e-9, 2e-9, 3e-9)


def plan(text, network=GIGABIT, cost=FREE, **options):
  return model.plan(text, SHAPES, 0.1, network, cost, **options)


def test_wire_is_bytes_over_bandwidth():
  # 4 MB and a probe to one other.
  assert plan('identity').wire == pytest.approx(8 * 4e6 / 1e9, rel=1e-4)
  assert plan('ternary').wire == pytest.approx(1.6e6 / 1e9, rel=1e-3)
  slow = model.set_bandwidth(GIGABIT, 1e7)
  assert plan('ternary', slow).wire == pytest.approx(0.16, rel=1e-3)


def test_every_hop_adds_latency():
  far = GIGABIT._replace(latency=1.0, workers=5)
  # The row of probes, and a gather: four hops each.
  assert round(plan('eden3', far).wire) == 8
  # Slices: all to all at once, and a gather; 51 s on the wire.
  slow = far._replace(bandwidth=1e6)
  assert plan('identity', slow).wire == pytest.approx(9 + 51.2, rel=1e-3)


def test_gathered_messages_cost_decoding_for_every_worker():
  many = GIGABIT._replace(workers=10)
  assert plan('eden3', many, COST).coding == pytest.approx(
    (1e-9 + 2e-9 + 8 * 3e-9) * SIZE
  )


def test_added_messages_cost_adding_and_no_further_decoding():
  many = GIGABIT._replace(workers=10)
  (message,) = gradient_codecs.build('identity', SHAPES, 10).messages(0)
  adding = algorithms.adding_seconds('slices', message)
  assert adding > 0
  coding = plan('identity', many, COST._replace(adding=2.0)).coding
  assert coding == pytest.approx(3e-9 * SIZE + 2 * adding)


def test_buckets_overlap_with_one_of_the_local_steps():
  slow = GIGABIT._replace(bandwidth=1e6)
  one, many = (
    plan('identity', slow, overlap=0.6, local_steps=steps) for steps in (1, 10)
  )
  assert one.hidden == pytest.approx(0.06)
  assert many.hidden == pytest.approx(0.06 / 10)
  delayed = plan('identity', slow, overlap=1.0, local_steps=10)
  assert delayed.hidden == pytest.approx(0.1)


def test_overlap_hides_at_most_the_transfer():
  assert plan('identity', overlap=1.0).step == pytest.approx(0.1)
  part = plan('identity', overlap=0.1)
  assert part.hidden == pytest.approx(0.01)
  assert part.step == pytest.approx(0.1 + part.wire - 0.01)


def test_local_steps_share_an_exchange():
  whole, shared = (
    plan('ternary', cost=COST),
    plan('ternary', cost=COST, local_steps=10),
  )
  assert shared.computing == whole.computing == 0.1
  assert shared.coding == pytest.approx(whole.coding / 10)
  assert shared.wire == pytest.approx(whole.wire / 10)
  assert shared.step == pytest.approx(0.1 + (whole.step - 0.1) / 10)


def test_an_exchange_that_is_applied_later_overlaps_with_all_local_steps():
  slow = model.set_bandwidth(GIGABIT, 32e6)
  # A second on the wire, and 0.5 s of computing in five steps.
  found = plan('identity', slow, overlap=1.0, local_steps=5)
  assert found.hidden == pytest.approx(0.5 / 5)
  assert found.step == pytest.approx(0.1 + 0.5 / 5, rel=1e-3)
  assert plan('identity', slow, overlap=1.0, local_steps=20).step == (
    pytest.approx(0.1)
  )


@pytest.mark.parametrize(('overlap', 'steps'), [(0.0, 91), (1.0, 10)])
def test_the_fewest_local_steps_wait_below_a_tenth(overlap, steps):
  # A second on the wire: 1 / (1 + 9.1) < 0.1, and (1 - 0.9) / (1 + 0.1) < 0.1.
  slow = model.set_bandwidth(GIGABIT, 32e6)

  def plan_of(count):
    return plan('identity', slow, overlap=overlap, local_steps=count)

  found = model.fewest_local_steps(plan_of)
  assert found == steps
  assert plan_of(found).waiting < 0.1 <= plan_of(found - 1).waiting


def test_no_number_of_local_steps_is_enough_for_a_wire_that_is_too_slow():
  slow = model.set_bandwidth(GIGABIT, 1e3)
  found = model.fewest_local_steps(
    lambda count: plan('identity', slow, local_steps=count)
  )
  assert found is None


def test_sparse_gradients_are_gathered_uncompressed():
  many = GIGABIT._replace(workers=5)
  bare, rows = plan('ternary', many), plan('ternary', many, row_bytes=1e6)
  assert rows.wire - bare.wire == pytest.approx(4 * 8e6 / 1e9)
  far = many._replace(latency=1.0)
  # Values and indices, four hops each.
  hops = plan('ternary', far, row_bytes=1).wire - plan('ternary', far).wire
  assert round(hops) == 8
  alone = GIGABIT._replace(workers=1)
  assert plan('ternary', alone, row_bytes=1e6) == plan('ternary', alone)


def test_moving_statistics_go_to_every_other_worker_with_the_probes():
  far = GIGABIT._replace(workers=5, latency=1.0)
  bare, more = plan('ternary', far), plan('ternary', far, statistics=1e6)
  # No further hop.
  assert more.wire - bare.wire == pytest.approx(4 * 4 * 8e6 / 1e9)


def test_a_network_that_carries_less_is_a_slower_one():
  half = GIGABIT._replace(efficiency=0.5)
  slow = model.set_bandwidth(GIGABIT, 5e8)
  assert plan('ternary', half) == plan('ternary', slow)
  costs = {'identity': FREE, 'ternary': COST}

  def limit(network):
    found = model.table(['ternary'], SHAPES, 0.1, network, costs)
    return found.set_index('codec')[model.LIMIT]['ternary']

  # The bandwidth is the nominal one, of which half carries payload.
  assert limit(half) == pytest.approx(2 * limit(GIGABIT), rel=2e-3)


def test_noise_is_that_of_the_coding():
  cost = COST._replace(spread=0.1)
  costs = {'identity': FREE, 'ternary': cost}
  table = model.table(['ternary'], SHAPES, 0.1, GIGABIT, costs)
  rows = table.set_index('codec')
  assert rows[model.NOISE]['ternary'] == pytest.approx(0.1 * 3e-9 * SIZE)
  assert rows[model.NOISE]['identity'] == 0


def test_table_is_sorted_by_step_and_has_break_even_bandwidths():
  costs = {'identity': FREE, 'ternary': COST, 'fp16': FREE}
  table = model.table(['ternary', 'fp16'], SHAPES, 0.1, GIGABIT, costs)
  assert list(table['codec']) == ['ternary', 'fp16', 'identity']
  rows = table.set_index('codec')
  assert rows['over float32']['identity'] == 1
  # (32 - 1.6) Mbit take 3 ms at that rate.
  assert rows['pays below Mbit/s']['ternary'] == pytest.approx(
    (32 - 1.6) / 3e-3, rel=0.01
  )
  assert rows['pays below Mbit/s']['fp16'] == math.inf


def test_break_even_is_0_if_the_codec_never_pays():
  assert model.break_even(lambda rate: (2.0, 1.0)) == 0


def test_break_even_is_infinite_only_if_the_codec_always_pays():
  assert model.break_even(lambda rate: (1.0, 2.0)) == math.inf
  # More bytes and less computing: it pays above 1 Gbit/s only.
  assert math.isnan(model.break_even(lambda rate: (1.0, rate / 1e9)))


def test_break_even_is_where_a_loss_between_two_gains_begins():
  def times(rate):
    return (2.0 if 1e8 < rate < 1e9 else 0.5), 1.0

  assert model.break_even(times) == pytest.approx(1e8, rel=1e-3)
