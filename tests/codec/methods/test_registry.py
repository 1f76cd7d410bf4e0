"""Codecs by name."""

import json
import pathlib
import re
import sys

import hypothesis
import pytest
from hypothesis import strategies

from terngrad.codec import coded
from terngrad.codec.methods import registry
from tests import forked
from tests.codec import bounds
from tests.codec.methods import test_conformance as methods_conformance


@pytest.mark.parametrize(
  ('text', 'name'),
  [
    ('identity', 'float32_words'),
    ('fp16', 'float16_words'),
    ('ternary', 'clip_by_stddev(2.5) > ternarize > base3'),
    ('ternary:', 'clip_by_stddev(2.5) > ternarize > base3'),
    ('ternary:clip_factor=0', 'ternarize > base3'),
    ('ternary:clip_factor=0.0,packing=two_bit', 'ternarize > two_bit'),
    ('ternary:packing=base3', 'clip_by_stddev(2.5) > ternarize > base3'),
    (
      'ternary:scaler_rule=max_clipped,clip_factor=3',
      'clip_by_stddev(3) > ternarize > base3',
    ),
    (
      'ternary:clip_factor=2.25,scaler_rule=stddev,packing=two_bit',
      'ternarize(stddev, 2.25) > two_bit',
    ),
    ('ternary:packing=radix,workers=8,clip_factor=0', 'ternarize > radix(8)'),
    (
      'ternary:word_bits=64,workers=3,packing=radix,clip_factor=0',
      'ternarize > radix(3, 64)',
    ),
    (
      'ternary:packing=bitmap_sign',
      'clip_by_stddev(2.5) > ternarize > bitmap_sign',
    ),
    ('ternary:clip_factor=0,packing=huffman243', 'ternarize > huffman243'),
    ('sign', 'sign'),
    ('topk', 'topk(0.01)'),
    ('topk:ratio=0.5', 'topk(0.5)'),
  ],
)
def test_text_names_a_codec(text, name):
  assert registry.parse(text).name == name


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (
      'ternery',
      r'expected one of asymmetric, bf16, .*, topk, received '
      r"'ternery'\. "
      r"Did you mean 'ternary'\?$",
    ),
    ('', r"received ''\.$"),
    ('Ternary', r"received 'Ternary'\. Did you mean 'ternary'\?"),
    ('zzz:clip_factor=1', r"received 'zzz'\.$"),
    (
      'ternary:clip_facter=1',
      r'of clip_factor, scaler_rule, packing, dither, workers, word_bits, '
      r'group_size, sharing, received '
      r"'clip_facter=1'\. Did you mean 'clip_factor'\?$",
    ),
    ('ternary:zzz=1', r"received 'zzz=1'\.$"),
    ('ternary:clip_factor', r"option=value .* received 'clip_factor'"),
    (
      'identity:clip_factor=1',
      r"none \(it has no options\), received 'clip_factor=1'",
    ),
    (
      'ternary:clip_factor=wide',
      r"codec ternary: expected a number for clip_factor, received 'wide'\. "
      r'Write clip_factor=2\.5, the default, or another\.$',
    ),
    (
      'ternary:clip_factor=1%',
      r"expected a number for clip_factor, received '1%'\. Write "
      r'clip_factor=0\.01\.$',
    ),
    ('topk:ratio=a%', r'Write ratio=0\.01, the default, or another\.$'),
    ('ternary:clip_factor=', r"expected a number for clip_factor, received ''"),
    ('ternary:clip_factor=-1', r'>= 0, received -1\.0\. Use 2\.5'),
    ('ternary:clip_factor=nan', r'>= 0, received nan'),
    ('ternary:clip_factor=inf', r'>= 0, received inf'),
    ('ternary:clip_factor=-1,scaler_rule=stddev', r'>= 0, received -1\.0'),
    (
      'ternary:packing=base4',
      'packing: expected one of base3, bitmap_sign, huffman243, radix, '
      "two_bit, zero_runs, received 'base4'",
    ),
    (
      'ternary:packing=radix',
      r'from 1 to 32767, received 0\. Set .*packing=radix,workers=8',
    ),
    (
      'ternary:packing=radix,workers=2.5',
      'expected a whole number for workers, rec',
    ),
    ('ternary:packing=radix,workers=2,word_bits=8', '32 or 64, received 8'),
    (
      'ternary:packing=huffman243,word_bits=64',
      'received word_bits=64 with packing=huffman243',
    ),
    (
      'ternary:scaler_rule=mean',
      r"expected one of max_clipped, stddev, received 'mean'",
    ),
    ('topk:ratio=0', r'above 0 and at most 1, received 0\.0\. Use 0\.01'),
    ('topk:ratio=1.5', r'above 0 and at most 1, received 1\.5'),
    ('topk:ratio=nan', r'above 0 and at most 1, received nan'),
    ('sign:decide=vote', "decide: expected one of majority, mean, .* 'vote'"),
    ('sign:decide=majority', "a coded.Code .* received 'sign:decide=maj"),
    ('error_feedback+topk', "received 'error_feedback.topk'. Choose another"),
    ('powersgd', "a wrapper, received 'powersgd'. Choose another"),
    ('thc', "a coded.Code .* received 'thc'. Choose another"),
    ('thd', r"expected one of asymmetric, bf16, .* received 'thd'"),
  ],
)
def test_invalid_codec_text_is_an_error_with_a_reason(text, message):
  with pytest.raises(ValueError, match=message):
    registry.parse(text)


@pytest.mark.parametrize('name', registry.CODECS)
def test_all_codecs_have_default_options(name):
  assert isinstance(registry.parse(name), coded.Code)


def test_listing_is_sorted():
  assert list(registry.CODECS) == sorted(registry.CODECS)


@bounds.few_examples
@hypothesis.given(
  strategies.text(max_size=20)
  | strategies.text('=,.:-0129einaft', max_size=20).map('ternary:{}'.format)
)
def test_any_text_gives_a_codec_or_a_value_error(text):
  try:
    assert isinstance(registry.parse(text), coded.Code)
  except ValueError as error:
    assert 'expected' in str(error)


@pytest.mark.parametrize(
  ('text', 'name'),
  [
    ('fp16', 'float16_words'),
    ('sign:decide=majority', 'sign by majority'),
    ('powersgd', 'powersgd(1)'),
    ('powersgd:rank=4,warm_start=0', 'powersgd(4, cold)'),
    ('error_feedback+topk:ratio=0.5', 'error feedback > topk(0.5)'),
    ('error_feedback+powersgd', 'error feedback > powersgd(1)'),
    ('error_feedback:decay=0.5+sign', 'error feedback(0.5) > sign'),
    ('momentum:masking=0+powersgd', 'momentum(0.9) > powersgd(1)'),
    ('dgc', 'momentum(0.9) > topk(0.001)'),
    ('dgc:ratio=0.01', 'momentum(0.9) > topk(0.01)'),
    ('error_feedback+int8', 'error feedback > minmax(8, 0)'),
    ('int8:group_size=64', 'minmax(8, 64)'),
    ('ef_signsgd', 'error feedback > sign'),
    ('signsgd', 'sign by majority'),
  ],
)
def test_text_names_a_method(text, name):
  assert registry.method(text).name == name


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (
      'powersdg',
      r'one_bit, powersgd, qsgd, .*, topk, received .*mean .powersgd',
    ),
    (
      'powersgd:rank=0',
      r'rank >= 1, .* received rank=0, .*Use powersgd:rank=2',
    ),
    ('powersgd:warm_start=2', 'epsilon=1e-08, warm_start=2 and'),
    ('powersgd:epsilon=0', 'epsilon >= 1e-30, .* rank=1, epsilon=0.0, warm'),
    ('powersgd:epsilon=inf', 'epsilon >= 1e-30, .* rank=1, epsilon=inf, warm'),
    ('powersgd:ranks=1', "'ranks=1'. Did you mean 'rank'"),
    (
      'feedback+topk',
      r'one of bidirectional, .*, momentum, .* before \+, received .feedback',
    ),
    ('error_feedback:decay=0+topk', 'decay above 0 and at most 1, received 0'),
    ('error_feedback:rate=1+topk', "option of decay, received 'rate=1'"),
    ('momentum:momentum=1+topk', 'from 0 to below 1, .* momentum=1.0, mask'),
    ('momentum+powersgd', 'words of one worker, .* Use momentum:masking=0'),
    ('randomk:unbiased=2', 'unbiased: expected 0 or 1, received 2'),
    ('thc:span=1e-40', 'expected a span from 0.5 to 15, received 1e-40'),
    ('thc:span=64', 'from 0.5 to 15, received 64.0'),
    ('thc:span=nan', 'from 0.5 to 15, received nan'),
    ('one_bit_adam:epsilon=inf+sign', r'to 2\*\*127, received .*=inf\.'),
    ('one_bit_adam:epsilon=1e-40+sign', r'from 2\*\*-126 to .*=1e-40\.'),
    ('threshold:above=1e39', 'above to be finite and >= 0, received 1e.39'),
    ('powersgd:min_compression=nan', 'warm_start=1 and min_compression=nan'),
    ('momentum:clip_norm=inf+topk', 'finite clip_norm >= 0, received'),
    ('momentum+statistical', 'resets every velocity'),
    ('momentum+e3m0', 'resets every velocity'),
    (
      'error_feedback+ternary:sharing=requantize',
      'error_feedback: expected a codec that .* Remove sharing=requantize',
    ),
  ],
)
def test_invalid_method_text_is_an_error_with_a_reason(text, message):
  with pytest.raises(ValueError, match=message):
    registry.method(text)


@pytest.fixture
def other_package(tmp_path, monkeypatch):
  """A package with codes of its own, installed as pip would install it."""
  module = tmp_path / 'other_codes.py'
  module.write_text(
    'from terngrad.codec.methods import registry\n\n\n'
    'def mine(clip_factor=1.0):\n'
    "  return registry.parse(f'ternary:clip_factor={clip_factor}')\n\n\n"
    'def fp16():\n'
    '  raise AssertionError\n',
    encoding='utf-8',
  )
  info = tmp_path / 'other_codes-1.0.dist-info'
  info.mkdir()
  (info / 'METADATA').write_text('Name: other-codes\nVersion: 1.0\n')
  (info / 'entry_points.txt').write_text(
    '[terngrad.codecs]\nmine = other_codes:mine\nfp16 = other_codes:fp16\n'
  )
  monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures('other_package')
def test_codec_of_another_package_is_found_by_name():
  made = registry.method('error_feedback+mine:clip_factor=3')
  assert made.name == 'error feedback > clip_by_stddev(3) > ternarize > base3'
  assert registry.parse('mine').name.startswith('clip_by_stddev(1)')
  with pytest.raises(ValueError, match="Did you mean 'mine'"):
    registry.parse('mines')
  # Ours stay what they are.
  assert registry.parse('fp16').name == 'float16_words'


@pytest.mark.usefixtures('other_package')
def test_names_for_help_include_aliases_and_other_packages():
  text = registry.describe_names()
  assert 'or an alias, dgc, ef_signsgd, int8, signsgd, ' in text
  assert 'or of other packages, mine.' in text
  assert '+NAME:..., momentum+NAME:..., one_bit_adam+NAME:... wrap' in text
  with pytest.raises(ValueError, match='expected one of .*dgc.*mine.*signsgd'):
    registry.check_names('no such code')
  # Ours hides theirs.
  assert registry.external_codecs() == {'mine': 'other_codes:mine'}


def test_options_of_aliases_wrappers_and_other_packages_are_suggested(
  other_package,
):
  for text, option in {
    'dgc:ration=0.1': 'ratio',
    'int8:groupsize=4': 'group_size',
    'error_feedback:decai=1+topk': 'decay',
    'mine:clip_facter=1': 'clip_factor',
  }.items():
    with pytest.raises(ValueError, match=f"Did you mean '{option}'"):
      registry.method(text)


def test_codes_that_no_package_registers_can_be_given(other_package):
  extra = {'yours': 'other_codes:mine'}
  made = registry.method('error_feedback+yours:clip_factor=3', 0, extra)
  assert made.name == 'error feedback > clip_by_stddev(3) > ternarize > base3'
  with pytest.raises(ValueError, match="Did you mean 'yours'"):
    registry.check_names('your', extra)
  with pytest.raises(ValueError, match='a name that terngrad does not have'):
    registry.check_names('topk', {'topk': 'other_codes:mine'})
  for location in ('other_codes:absent', 'no_such_module:mine', ':'):
    with pytest.raises(
      ValueError, match='MODULE:NAME .* be imported, received'
    ):
      registry.method('yours', 0, {'yours': location})


BROKEN = """
from terngrad.codec import method

thing = 3


class Plain:
  pass


class Abstract(method.Method):
  pass


def fails(count=1):
  return missing_name + count
"""


@pytest.mark.parametrize(
  ('location', 'message'),
  [
    (
      'broken_codes',
      "a function or class, received 'broken_codes', of type module.",
    ),
    (
      'broken_codes:thing',
      "received 'broken_codes:thing', of type int. Name one",
    ),
    (
      'broken_codes:Plain',
      r'received <broken_codes.Plain object .*>. Derive its class from '
      r'terngrad.codec.method.Method, or',
    ),
    (
      'broken_codes:Abstract',
      "expected 'broken_codes:Abstract' to make a code, received TypeError: "
      "Can't instantiate abstract class Abstract",
    ),
    (
      'broken_codes:fails',
      r"to make a code, received NameError: name 'missing_name' is not "
      r'defined, in .*broken_codes.py, line 16: return missing_name \+ count. '
      'Correct it.',
    ),
    ('half_codes:Half', r'SyntaxError: .*\(half_codes.py, line 1\)'),
    (
      'misspelled_codes:Mine',
      r"NameError: name 'pritn' is not defined, in .*misspelled_codes.py, line "
      r'2: pritn\(1\)',
    ),
  ],
)
def test_mistakes_in_the_code_of_a_user_are_reported_with_their_line(
  tmp_path, monkeypatch, location, message
):
  (tmp_path / 'broken_codes.py').write_text(BROKEN, encoding='utf-8')
  (tmp_path / 'half_codes.py').write_text('class Half(:\n', encoding='utf-8')
  (tmp_path / 'misspelled_codes.py').write_text('\npritn(1)\n', 'utf-8')
  monkeypatch.syspath_prepend(tmp_path)
  # Another folder's, of the previous case.
  monkeypatch.delitem(sys.modules, 'broken_codes', raising=False)
  with pytest.raises(ValueError, match=message):
    registry.method('mine', 0, {'mine': location})


def test_repeated_option_is_refused():
  with pytest.raises(ValueError, match='received clip_factor twice'):
    registry.parse('ternary:clip_factor=2,clip_factor=3')


# Processes choose their devices and join each other after they have read flags.
MAKE_ALL = """
import json, sys
from tensorflow.python.eager import context
from terngrad.codec.methods import registry

for text in json.loads(sys.argv[1]):
  registry.method(text, 2)
  assert not context.context()._initialized, text
"""


def test_building_a_codec_does_not_initialize_tensorflow():
  texts = sorted({*registry.KINDS, *methods_conformance.TEXTS})
  done = forked.run(None, MAKE_ALL, json.dumps(texts))
  assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('tenary', "received 'tenary'. Did you mean 'ternary'"),
    ('dcg', "received 'dcg'. Did you mean 'dgc'"),
    ('error_feedbck+topk', "Did you mean 'error_feedback'"),
    ('error_feedback+ef_signsgd', 'expected error_feedback once'),
    ('momentum+error_feedback+momentum+topk', 'expected momentum once'),
  ],
)
def test_wrong_names_are_refused_with_the_known_ones(text, message):
  for function in (registry.check_names, registry.method):
    with pytest.raises(ValueError, match=re.escape(message)):
      function(text)


@pytest.mark.parametrize('alias', registry.ALIASES)
def test_aliases_are_known_names(alias):
  registry.check_names(alias)
  with pytest.raises(ValueError, match=rf'expected one of .*\b{alias}\b'):
    registry.check_names('no such codec')


ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
  ('document', 'pattern', 'count'),
  [
    ('README.md', r'one of (\d+) codes', 'codes'),
    ('docs/codecs.md', r'has (\d+) codes', 'codes'),
    ('docs/codecs.md', r'and (\d+) aliases', 'aliases'),
    ('docs/codecs.md', r'measures (\d+) variants', 'variants'),
    ('experiments/lenet_codecs/README.md', r'all (\d+) variants', 'trained'),
  ],
)
def test_documents_count_codes_and_variants_as_the_registry(
  document, pattern, count
):
  sweep = ROOT / 'experiments/lenet_codecs/sweep.csv'
  counts = {
    # Float32 is not compression, and an alias is another name.
    'codes': len({*registry.CODECS, *registry.METHODS} - {'identity'}),
    'aliases': len(registry.ALIASES),
    'variants': len(registry.list_kinds()),
    'trained': len(sweep.read_text(encoding='utf-8').splitlines()) - 1,
  }
  text = ' '.join((ROOT / document).read_text(encoding='utf-8').split())
  assert [int(n) for n in re.findall(pattern, text)] == [counts[count]]
