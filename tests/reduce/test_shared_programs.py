"""Parts of equal layout share compiled programs, and no bit changes."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.stages import transport
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from terngrad.reduce import part_programs
from terngrad.reduce import parts as parts_lib
from terngrad.reduce import programs
from terngrad.reduce import weight_decay

SHAPES = ((30,), (5, 4)) * 3
# A part of two variables has 50 elements of 4 bytes.
PART_BYTES = 200


def codec_of(text):
  specs = [
    policy.VariableSpec(f'v{i}', shape) for i, shape in enumerate(SHAPES)
  ]
  code = registry.parse(text)
  return bucketing.gradient_codec(specs, [code] * len(specs))


def reduce_parts(parts, values, parameters=()):
  """Encodes and decodes gradients as one worker; returns (words, means)."""
  seed, step = tf.constant(5, tf.int64), tf.constant(7, tf.int64)
  words, means = [], {}
  for part in parts:
    worker = gradients.WorkerStep(seed, step, 1, tf.constant(0))
    states = [() for _ in part.codec.buckets]
    carried, probe = part.begin(
      part.select(values), part.select(parameters), states, worker
    )
    worker = worker._replace(local_probe=probe)
    carried = part.carry(carried, worker, stacked=False)
    worker = worker._replace(shared_probe=probe)
    sent, _ = part.send(0, carried, states, [], part.add_keys(worker))
    row = transport.to_float32(sent)[tf.newaxis]
    received = [
      methods.payloads(part.codec.messages(0), [methods.Piece(0, [row])])
    ]
    found, _ = part.decode(received, states, worker._replace(worker=None))
    words.append(transport.to_int32(row).numpy())
    means |= zip(part.indices, found, strict=True)
  return words, [means[i].numpy() for i in sorted(means)]


def random_values():
  rng = np.random.default_rng(3)
  return [tf.constant(rng.normal(size=s), tf.float32) for s in SHAPES]


@pytest.mark.parametrize(
  'text',
  [
    # It draws random bits, and compiles faster than the others.
    'ternary:clip_factor=0,packing=two_bit',
    *(
      pytest.param(text, marks=pytest.mark.slow)
      for text in ('ternary', 'ternary:sharing=requantize')
    ),
  ],
)
def test_parts_of_equal_layout_share_programs_and_keep_their_bits(text):
  values = random_values()
  cut = programs.parts(parts_lib.cut(codec_of(text), PART_BYTES))
  assert len(cut) == 3
  assert len({id(part._programs) for part in cut}) == 1
  words, means = reduce_parts(cut, values)
  assert cut[0]._programs.send.experimental_get_tracing_count() == 1
  assert cut[0]._programs.decode.experimental_get_tracing_count() == 1
  # As without XLA, and as if they were not cut.
  for part, row in zip(cut, words, strict=True):
    alone = gradients.GradientCodec(part.codec.buckets)
    (other,) = programs.parts(alone, compiles=False)
    (expected,), _ = reduce_parts([other], part.select(values))
    np.testing.assert_array_equal(row, expected)
  _, whole = reduce_parts(
    programs.parts(codec_of(text), compiles=False), values
  )
  for one, other in zip(means, whole, strict=True):
    np.testing.assert_array_equal(one, other)
  # The parts draw different random bits.
  assert len({row.tobytes() for row in words}) == 3


@pytest.mark.parametrize(
  ('text', 'sizes'), [('randomk:ratio=0.5', (40, 40)), ('ternary', (40, 60))]
)
def test_other_shapes_and_codes_that_must_know_their_place_share_nothing(
  text, sizes
):
  code = registry.method(text, 1)
  specs = [policy.VariableSpec(f'v{i}', (n,)) for i, n in enumerate(sizes)]
  codec = bucketing.gradient_codec(specs, [code] * len(specs))
  cut = programs.parts(parts_lib.cut(codec, 1))
  assert len({id(part._programs) for part in cut}) == len(cut) == 2


class Other:
  """An object of another package."""

  def __init__(self, scale):
    self.scale = scale


def own_program(code, shape=(40,), start=0):
  codec = bucketing.gradient_codec([policy.VariableSpec('v', shape)], [code])
  (bucket,) = codec.buckets
  moved = gradients.GradientCodec((bucket._replace(start=start),))
  (part,) = programs.parts(moved)
  return part._programs


@pytest.mark.parametrize(
  ('text', 'other'),
  [
    ('ternary', 'ternary:clip_factor=0'),
    ('ternary:packing=two_bit', 'ternary:packing=two_bit,clip_factor=0'),
    ('error_feedback+minmax:bits=2', 'error_feedback+minmax:bits=4'),
  ],
)
def test_models_of_equal_codes_share_programs(text, other):
  def program(text, **options):
    return own_program(registry.method(text, 2), **options)

  assert program(text) is program(text)
  assert program(text) is not program(text, shape=(41,))
  # Its random bits are others.
  assert program(text) is not program(text, start=40)
  assert program(text) is not program(other)


@pytest.mark.parametrize(
  'one',
  [
    (1, 'a'),
    [1, 'a'],
    {'a': (1,)},
    np.arange(3),
    registry.method('error_feedback:decay=0.5+ternary'),
    registry.method('eden3'),
  ],
)
def test_keys_of_equal_values_are_equal(one):
  assert part_programs._key(one) == part_programs._key(copy.deepcopy(one))


@pytest.mark.parametrize(
  ('one', 'other'),
  [
    (1, 1.0),
    (0.0, -0.0),
    (True, 1),
    ((1,), [1]),
    (np.arange(2), np.arange(2.0)),
    (np.zeros([2, 1]), np.zeros([1, 2])),
    ({'a': 1}, {'a': 2}),
    (tf.constant(1.0), tf.constant(1.0)),
    *(
      tuple(map(registry.method, texts))
      for texts in (
        ('ternary', 'ternary:clip_factor=2'),
        ('error_feedback+sign', 'error_feedback:decay=0.5+sign'),
        ('qsgd:levels=4', 'qsgd:levels=2'),
      )
    ),
  ],
)
def test_keys_of_other_values_differ(one, other):
  assert part_programs._key(one) != part_programs._key(other)


def test_objects_of_other_packages_are_equal_only_to_themselves():
  one, other = Other(0.5), Other(0.5)
  assert part_programs._key(one) == part_programs._key(one)
  assert part_programs._key(one) != part_programs._key(other)


def variables(*terms):
  made = []
  for shape, term in zip(SHAPES, terms, strict=True):
    made.append(keras.Variable(np.ones(shape, np.float32)))
    made[-1].regularizer = term
  return made


@pytest.mark.slow
def test_parts_share_programs_only_if_their_l2_terms_are_equal():
  l2 = keras.regularizers.L2
  terms = [l2(0.5), None, l2(0.5), None, l2(0.25), None]
  decay = weight_decay.WeightDecay.of(variables(*terms))
  cut = programs.parts(parts_lib.cut(codec_of('ternary'), PART_BYTES), decay)
  first, second, third = (part._programs for part in cut)
  assert first is not second and second is third
  ones = [tf.ones(shape) for shape in SHAPES]
  _, with_terms = reduce_parts(cut, ones, ones)
  # Gradients of 1 plus 2 * 0.5, 2 * 0.25 and none.
  expected = [2.0, 1.0, 2.0, 1.0, 1.5, 1.0]
  for mean, value in zip(with_terms, expected, strict=True):
    np.testing.assert_array_equal(mean, np.full(mean.shape, value, np.float32))


def test_buckets_of_one_code_share_its_kernels():
  whole = codec_of('ternary')
  one = bucketing.on_kernels(
    gradients.GradientCodec(
      tuple(whole.buckets[0].select([i]) for i in range(3))
    )
  )
  assert len({id(bucket.method) for bucket in one.buckets}) == 1
