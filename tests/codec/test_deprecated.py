"""What 0.2 made of functions runs with a warning and gives the same bits."""

import importlib
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from slim import spelling
from terngrad.codec import chain
from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec.methods import registry
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.codec.stages import bitmap
from terngrad.codec.stages import clipping
from terngrad.codec.stages import contract
from terngrad.codec.stages import float_words
from terngrad.codec.stages import packing
from terngrad.codec.stages import statistics
from terngrad.codec.stages import ternary
from terngrad.codec.stages import wire
from terngrad.reduce import bucketing
from tests.codec import rounds

SHAPES = [(6, 5), (700,)]
# Its program of 0.2.
OLD_PAGE = pathlib.Path(__file__).parent / 'predicted_0_2.txt'
PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'add_a_codec.md'


def gradients_of(step, workers=2):
  rng = np.random.default_rng([step, 3])
  return [
    [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
    for _ in range(workers)
  ]


def means_of(made, change=lambda codec: codec):
  """The means of two steps of two workers."""
  codec = change(rounds.codec_of(made, SHAPES))
  workers = rounds.Workers(codec, 2)
  return [workers.step(codec, gradients_of(step), step) for step in range(2)]


def assert_same(made, expected, change=lambda codec: codec):
  for ours, others in zip(
    means_of(made, change), means_of(expected, change), strict=True
  ):
    for one, other in zip(ours, others, strict=True):
      np.testing.assert_array_equal(one, other)


@pytest.fixture
def predicted(tmp_path, monkeypatch):
  """The class of the page; and an entry point of its functions of 0.2."""
  text = re.findall('```python\n(.*?)```', PAGE.read_text(), re.DOTALL)[0]
  (tmp_path / 'predicted.py').write_text(text, encoding='utf-8')
  (tmp_path / 'of_functions.py').write_text(OLD_PAGE.read_text())
  info = tmp_path / 'of_functions-1.0.dist-info'
  info.mkdir()
  (info / 'METADATA').write_text('Name: of_functions\nVersion: 1.0\n')
  (info / 'entry_points.txt').write_text(
    '[terngrad.codecs]\nfunctions = of_functions:predicted\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, 'predicted', raising=False)
  return importlib.import_module('predicted').Predicted


@pytest.mark.parametrize('wrapper', ['', 'error_feedback+'])
@pytest.mark.gate_every(2)
def test_method_of_functions_equals_the_class(predicted, wrapper):
  with pytest.warns(DeprecationWarning, match='subclass of .*method.Method'):
    made = registry.method(f'{wrapper}functions:decay=0.5')
  expected = predicted(0.5)
  if wrapper:
    expected = error_feedback.ErrorFeedback(expected)
  assert made.name == expected.name
  assert_same(made, expected)
  assert_same(made, expected, bucketing.on_kernels)
  plain = registry.method('identity')
  assert_same(made, expected, lambda codec: bucketing.in_float(codec, plain))


def float_code():
  """A code of functions: float32, whose sums are enough."""
  code = registry.identity()
  return contract.Codec(
    name='floats',
    probe=statistics.norms,
    encode_pieces=code.encode_pieces,
    decode_sum=code.decode_sum,
    num_words=lambda num_elements: num_elements,
    traits=code.traits,
    stages=(float_words.float32_words(),),
    decode_sums=code.decode_sums,
  )


def test_code_of_functions_equals_the_chain():
  with pytest.warns(DeprecationWarning, match='removed in terngrad 0.4'):
    made = float_code()
  assert isinstance(made, coded.Code)
  assert made.summable and not made.carries
  assert_same(made, registry.identity())
  assert_same(made, registry.identity(), bucketing.on_kernels)
  assert made.bits(10, 2) == registry.identity().bits(10, 2)


def test_code_of_functions_may_have_kernels_and_requantize():
  code = registry.parse('ternary:sharing=requantize')
  with pytest.warns(DeprecationWarning):
    made = contract.Codec(
      code.name,
      code.probe,
      code.encode_pieces,
      code.decode_sum,
      code.num_words,
      code.traits,
      code.stages,
      code.decode_sums,
      requantizes=True,
      native=lambda: code,
    )
  assert made.carries
  assert made.twin() is code
  assert made.max_workers == code.max_workers
  assert_same(made, code)


def of_functions():
  """The stages of TernGrad, of functions."""
  clip, quantizer = clipping.clip_by_stddev(2.5), ternary.ternarize()
  words = packing.base3()
  return (
    contract.Clip(name=clip.name, limit=clip.limit, clip_factor=2.5),
    contract.Quantizer(
      name='ternarize',
      scaler=quantizer.scaler,
      factor=ternary.factor,
      quantize=ternary.quantize,
      dequantize=ternary.dequantize,
      levels=1,
      traits=quantizer.traits,
    ),
    wire.Packing(
      'base3',
      20,
      words.pack,
      words.unpack,
      (contract.CODES, contract.WORDS),
      levels=1,
      digits=(3, 20),
    ),
  )


def test_stages_of_functions_build_the_same_chain_as_classes():
  with pytest.warns(DeprecationWarning) as warned:
    stages = of_functions()
  kinds = [str(one.message).partition(' ')[0] for one in warned]
  assert kinds == ['Clip', 'Quantizer', 'Packing']
  made = chain.chain(*stages)
  assert made.name == registry.ternary().name
  assert_same(made, registry.ternary())
  assert_same(made, registry.ternary(), bucketing.on_kernels)


def test_variable_and_composite_packings_accept_functions():
  known = bitmap.bitmap_sign()
  with pytest.warns(DeprecationWarning, match='VariablePacking'):
    made = wire.VariablePacking(
      name='bits',
      elements_per_word=32,
      pack=known.pack,
      unpack=known.unpack,
      capacity=known.capacity,
      used=known.used,
      expected=known.expected,
      check=known.check,
    )
  code = chain.chain(ternary.ternarize(), made)
  assert_same(code, chain.chain(ternary.ternarize(), known))
  with pytest.warns(DeprecationWarning, match='CompositePacking'):
    whole = wire.CompositePacking(
      name='whole',
      num_words=lambda n: n,
      planes=lambda words, n: tf.bitcast(words, tf.float32),
      check=lambda words, n: None,
    )
  words = tf.ones([2, 7], tf.int32)
  np.testing.assert_array_equal(whole.sent_words(words), [7, 7])
  assert whole.expected_words(7) == 7


def test_copy_with_a_replaced_function_has_no_kernels():
  with pytest.warns(DeprecationWarning, match='Ternarize of functions'):
    never = ternary.ternarize()._replace(
      quantize=lambda scaled, positions, key: tf.zeros_like(positions, tf.int32)
    )
  code = chain.chain(never, packing.base3())
  assert code.on_kernels() is code
  assert not any(np.any(mean) for mean in means_of(code)[0])


def test_names_that_moved_are_found_with_a_warning():
  chains = importlib.import_module('terngrad.codec.stages.chain')
  with pytest.warns(DeprecationWarning, match='use terngrad.codec.coded.Code'):
    assert contract.Codec is coded.Code
  with pytest.warns(DeprecationWarning, match='use terngrad.codec.chain.chain'):
    assert chains.chain is chain.chain
  with pytest.raises(AttributeError, match="has no attribute 'Decoder'"):
    contract.Decoder  # noqa: B018


def test_a_subclass_takes_no_functions():
  class Mine(method.Method):
    name = 'mine'

  with pytest.raises(TypeError, match='Mine takes no arguments'):
    Mine(name='yours')


TEXTS = [
  'ternary',
  'ternary:packing=huffman243',
  'identity',
  'qsgd',
  'minmax',
  'sign',
  'topk',
  'stc',
  'threshold',
  'eden3',
  'thc',
  'bf16',
  'three_lc',
  'error_feedback+ternary',
  'momentum+topk',
  'bidirectional:workers=2+qsgd',
]


@pytest.mark.parametrize('text', TEXTS)
def test_replaced_values_also_apply_to_kernels(text):
  with pytest.warns(DeprecationWarning):
    made = registry.method(text)._replace(name='mine', agrees=True)
  expected = registry.method(text)
  for change in ('on_kernels', 'on_gpus'):
    one, other = getattr(made, change)(), getattr(expected, change)()
    assert type(one) is type(other)
    assert one.name == 'mine'
    assert one.agrees


def test_a_copy_that_requantizes_does_so_on_kernels():
  with pytest.warns(DeprecationWarning):
    made = registry.parse('ternary')._replace(requantizes=True)
  assert made.on_kernels().carries
  assert made.on_gpus().carries
  expected = registry.parse('ternary:sharing=requantize')
  assert_same(made, expected, bucketing.on_kernels)


def test_the_old_name_of_the_estimated_round_is_replaced():
  with pytest.warns(DeprecationWarning):
    made = registry.method('powersgd')._replace(telling=0)
  assert made.estimated_round == 0


@pytest.mark.parametrize('text', ['ternary', 'qsgd'])
def test_replaced_stages_also_apply_to_kernels(text):
  code = registry.parse(text)
  stages = tuple(code.stages)
  with pytest.warns(DeprecationWarning):
    made = code._replace(stages=stages)
  assert made.on_kernels().stages == stages
  assert_same(made, code, bucketing.on_kernels)


def test_a_copy_without_kernels_has_none():
  with pytest.warns(DeprecationWarning):
    made = registry.parse('qsgd')._replace(native=None)
  assert made.on_kernels() is made
  with pytest.warns(DeprecationWarning):
    made = registry.method('thc')._replace(on_kernels=None)
  assert made.on_kernels() is made


def test_wrappers_accept_a_renamed_code():
  with pytest.warns(DeprecationWarning):
    made = registry.parse('ternary')._replace(name='mine')
  wrapped = error_feedback.ErrorFeedback(made)
  assert wrapped.on_kernels().name == 'error feedback > mine'
  assert_same(
    wrapped, registry.method('error_feedback+ternary'), bucketing.on_kernels
  )


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: coded.Code('a', len, len, len), "argument: 'num_words'"),
    (lambda: contract.Clip(limit=len), "argument: 'name'"),
    (lambda: contract.Clip('a', len, 1.0, 'b', 'c'), 'too many positional'),
    (lambda: contract.Clip('a', len, limmit=1), "argument 'limmit'"),
    (lambda: contract.Clip('a', len, name='b'), "multiple values .*'name'"),
    (lambda: wire.Fixed('a'), 'Fixed takes no arguments'),
  ],
)
def test_arguments_that_0_2_refused_are_refused(make, message):
  with pytest.raises(TypeError, match=message):
    make()


def test_a_copy_with_an_unknown_name_is_refused():
  with pytest.raises(ValueError, match="unexpected field names: .'nmae'"):
    registry.parse('ternary')._replace(nmae='mine')


def test_repr_of_a_stage_of_functions_names_its_class():
  with pytest.warns(DeprecationWarning):
    made = contract.Clip('mine', len)
  assert repr(made).startswith('<terngrad.codec.stages.contract.Clip object')


@pytest.mark.parametrize('item', ['decay=1', 'values=1', 'named=1'])
def test_a_class_without_parameters_has_no_options_in_texts(item):
  class Mine(method.Method):
    name = 'mine'

  with pytest.raises(ValueError, match='none .it has no options.'):
    spelling.make('codec', f'mine:{item}', {'mine': Mine})
