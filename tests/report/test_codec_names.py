"""Names of codecs from the chains that checkpoints store."""

import pytest

from terngrad.codec.methods import registry
from terngrad.report import codec_names


@pytest.mark.parametrize(
  'text',
  [
    *(name for name in registry.CODECS if name != 'eden'),
    *registry.METHODS,
    'ternary:clip_factor=1',
    'ternary:packing=two_bit',
    'ternary:scaler_rule=stddev',
    'ternary:sharing=requantize',
    'ternary:clip_factor=0,group_size=64',
    'ternary:dither=stratified',
    'topk:ratio=0.05',
    'powersgd:rank=4',
    'minmax:bits=2',
    'error_feedback+powersgd:rank=2',
    'error_feedback:decay=0.9+topk',
    'error_feedback+bidirectional:residual=0+stc',
    'bidirectional+ternary',
    'ef21+topk',
    'ef21_sgdm+topk',
    'ef21_sgdm:eta=0.5+topk',
    'diana+natural',
    'diana:alpha=0.1+natural',
    'demo:count=8',
    'one_bit_adam+sign',
    'one_bit_adam:warm_up=50,beta_1=0.8,beta_2=0.99,epsilon=1e-06+sign',
    'momentum+topk:ratio=0.001',
  ],
)
def test_a_method_s_name_becomes_its_text(text):
  stored = registry.method(text, 4).name
  assert codec_names.codec_name(stored, 4) == text


def test_other_spellings_become_a_text_of_the_same_method():
  # The default of eden is drive.
  for text in ('int8', 'signsgd', 'dgc', 'ef_signsgd', 'eden', 'eden:bits=2'):
    stored = registry.method(text, 4).name
    found = codec_names.codec_name(stored, 4)
    assert '>' not in found and '(' not in found
    assert registry.method(found, 4).name == stored


@pytest.mark.parametrize(
  'stored', ['of another package', '', '((', 'error feedback > <b>', '> ' * 99]
)
def test_unknown_names_stay_as_they_are(stored):
  assert codec_names.codec_name(stored, 4) == stored
