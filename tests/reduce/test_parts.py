"""How variables are dealt to parts, and that codes do not depend on it."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.reduce import bucketing
from terngrad.reduce import parts as parts_lib
from terngrad.reduce import programs
from tests.codec import one_round

SHAPES = ((50,), (3, 20), (30,), (100,), (7,))
PLAIN, TERNARY = registry.identity(), registry.ternary()
MIXED = (TERNARY, TERNARY, PLAIN, TERNARY, PLAIN)


def model(codecs=MIXED):
  specs = [
    policy.VariableSpec(f'v{i}', shape) for i, shape in enumerate(SHAPES)
  ]
  return bucketing.gradient_codec(specs, codecs)


@pytest.mark.parametrize(
  ('size', 'expected'),
  [
    (0, [(0, 1, 2, 3, 4)]),
    (1, [(4,), (3,), (2,), (1,), (0,)]),
    # 7 + 100 elements of 4 bytes are enough; then 30 + 60; 50 are left.
    (360, [(3, 4), (1, 2), (0,)]),
    (429, [(2, 3, 4), (0, 1)]),
    (10**9, [(0, 1, 2, 3, 4)]),
  ],
)
def test_parts_take_variables_from_the_last_until_they_have_enough(
  size, expected
):
  found = programs.parts(parts_lib.cut(model(), size))
  assert [part.indices for part in found] == expected
  for part in found:
    assert part.codec.num_elements == sum(
      int(np.prod(SHAPES[i])) for i in part.indices
    )


def test_a_code_that_mixes_elements_makes_one_part():
  codec = model([*MIXED[:4], registry.parse('eden3')])
  assert parts_lib.cut(codec, 1) is codec


@pytest.mark.parametrize(
  'text',
  [
    'ternary:packing=two_bit',
    'ternary:packing=huffman243',
    'ternary:sharing=requantize',
    'ternary:dither=stratified,workers=3',
  ],
)
def test_parts_do_not_change_the_codes_of_elements(text):
  coded = registry.parse(text)
  whole = model([coded, PLAIN, coded, coded, coded])
  rng = np.random.default_rng(0)
  values = [tf.constant(rng.normal(size=shape), tf.float32) for shape in SHAPES]
  expected = decoded(whole, values)
  found = [None] * len(values)
  for part in programs.parts(parts_lib.cut(whole, 200)):
    results = decoded(part.codec, [values[i] for i in part.indices])
    for i, result in zip(part.indices, results, strict=True):
      found[i] = result
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(one, other)


def decoded(codec, values):
  probe = one_round.probe(codec, values)
  keys = codec.keys(1, 2, 1)
  requantizes = any(bucket.method.carries for bucket in codec.buckets)
  shared = 2.0 * probe if requantizes else probe
  words = one_round.encode(codec, values, probe, shared, keys)
  return one_round.decode_mean(codec, [words[tf.newaxis]], shared)


def test_the_joined_probe_of_all_parts_equals_that_of_the_model():
  grouped = registry.parse('ternary:group_size=16')
  whole = model([grouped, TERNARY, grouped, PLAIN, grouped])
  values = [tf.random.stateless_normal(s, [i, 1]) for i, s in enumerate(SHAPES)]
  some = programs.parts(parts_lib.cut(whole, 300))
  assert len(some) == 3
  probes = [
    one_round.probe(p.codec, [values[i] for i in p.indices]) for p in some
  ]
  np.testing.assert_array_equal(
    programs.join_probes(some, probes), one_round.probe(whole, values)
  )
