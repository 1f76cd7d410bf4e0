"""docs/codecs.md lists every codec, with the traits that it declares."""

import pathlib
import re

import pytest

from terngrad.codec import method as methods
from terngrad.codec.methods import registry

TEXT = (pathlib.Path(__file__).parents[1] / 'docs' / 'codecs.md').read_text()
ROWS = {
  name: line
  for line in TEXT.splitlines()
  if line.startswith('| `')
  for name in re.findall('`(.*?)`', line.split('|')[1])
}
NAMES = (*registry.CODECS, *registry.METHODS, *registry.ALIASES)


def test_every_code_has_a_row_and_every_row_a_code():
  elsewhere = {'ef_signsgd'}  # in the row of sign
  assert {*ROWS} | elsewhere == {*NAMES, *registry.WRAPPERS}
  assert '`ef_signsgd`' in ROWS['sign']


@pytest.mark.parametrize('name', [n for n in NAMES if n in ROWS])
def test_rows_match_the_declared_traits(name):
  method = registry.method(name, workers=4)
  _, _, _, mean, states, travels, _, _ = ROWS[name].split('|')
  assert ('unbiased' in mean or 'exact' in mean) == (
    method.traits.unbiased or name == 'thc'  # whose clipping is declared
  )
  shapes = ((300, 300), (10,))
  assert bool(states.strip()) == bool(method.states(shapes))
  (first, *_) = method.messages(shapes)[0]
  assert ('gather' in travels) == (first.combine == methods.GATHER)


def test_every_command_line_on_the_page_names_codes():
  texts = re.findall(
    r'`((?:error_feedback|momentum|bidirectional)[+:].*?)`', TEXT
  )
  for text in [*texts, *re.findall(r'--codec=(\S+)', TEXT)]:
    if 'NAME' in text or text.endswith('+'):
      continue
    known = '+' in text or text.split(':')[0] in NAMES
    wrapped = text if known else f'{text}+topk'
    assert registry.method(wrapped, workers=4)
