"""Codes that are biased and have no error feedback are named once."""

import keras
import numpy as np
import pytest

import terngrad.keras
from terngrad.codec.methods import registry
from terngrad.keras import biased_codes
from tests.codec import rounds

BIASED = (
  'topk',
  'threshold',
  'stc',
  'three_lc',
  'sign',
  'signsgd',
  'one_bit',
  'randomk',
  'powersgd',
  'e3m0',
  'statistical',
  'sparseloco',
  'bidirectional+topk',
)
FLOATS = ('fp16', 'bf16', 'fp8', 'fp8:kind=e5m2')
OTHERS = (
  *('identity', *FLOATS),
  *('ternary', 'ternary:packing=radix', 'asymmetric', 'qsgd', 'int8', 'minmax'),
  *('natural', 'drive', 'eden', 'eden3', 'thc', 'randomk:unbiased=1'),
  *('dgc', 'error_feedback+topk', 'error_feedback+bidirectional+topk'),
  *('demo', 'ef21+topk', 'ef21_sgdm+sign', 'diana+qsgd'),
)


@pytest.fixture(autouse=True)
def none_known(monkeypatch):
  monkeypatch.setattr(biased_codes, '_warned', set())


def warnings_of(codec, caplog):
  caplog.clear()
  terngrad.keras.CompressedOptimizer(keras.optimizers.SGD(1.0), codec)
  return [r.getMessage() for r in caplog.records if 'is biased' in r.message]


def test_plain_topk_is_warned_of_once_with_what_to_write(caplog):
  (text,) = warnings_of('topk:ratio=0.1', caplog)
  assert text.startswith('topk:ratio=0.1 is biased')
  assert 'Use error_feedback+topk:ratio=0.1' in text
  assert not warnings_of('topk:ratio=0.1', caplog)
  rules = {'a': 'topk:ratio=0.1', 'b': 'sign', '': 'identity'}
  (text,) = warnings_of(rules, caplog)
  assert text.startswith('sign is biased')


@pytest.mark.parametrize('codec', OTHERS)
def test_other_codes_are_not_warned_of(codec):
  assert not biased_codes.is_biased(registry.method(codec, 1))


@pytest.mark.parametrize('codec', BIASED)
def test_the_remedy_is_a_codec_and_not_biased(codec):
  assert biased_codes.is_biased(registry.method(codec, 1))
  better = registry.method(f'error_feedback+{codec}', 1)
  assert not biased_codes.is_biased(better)


def test_every_code_is_in_one_of_the_two_lists():
  known = {text.rpartition('+')[2].partition(':')[0] for text in BIASED}
  known |= {text.rpartition('+')[2].partition(':')[0] for text in OTHERS}
  assert known == {*registry.CODECS, *registry.METHODS, *registry.ALIASES} - {
    'ef_signsgd'  # named as 'signsgd' with error feedback
  }


@pytest.mark.parametrize('codec', FLOATS)
def test_codes_that_round_err_little_in_every_element(codec):
  generator = np.random.default_rng(0)
  sign = generator.choice([-1.0, 1.0], 1000)
  values = (sign * 2.0 ** generator.uniform(-8, 0, 1000)).astype(np.float32)
  made = rounds.codec_of(registry.method(codec, 1), [(1000,)])
  mean = rounds.Workers(made, 1).step(made, [[values]], 0)[0]
  assert np.abs(mean - values).max() > 0
  assert (np.abs(mean - values) <= np.abs(values) / 8).all()


def test_codes_that_round_are_the_floats_of_fewer_bits():
  rounding = {
    text
    for text in registry.list_kinds()
    if registry.method(text, 8).traits.rounds
  }
  assert rounding == {*FLOATS}
