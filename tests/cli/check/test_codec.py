"""`terngrad check codec` on codes of terngrad, of packages and of a folder."""

import os
import pathlib
import subprocess
import sys

import pytest

from terngrad import errors
from terngrad.cli import command
from terngrad.cli.check import codec
from terngrad.conformance import claims

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOOD = """
from terngrad.codec import chain
from terngrad.codec.stages import float_words


def floats(times=1.0):
  made = chain.chain(float_words.float32_words())
  if times != 1.0:
    made.traits = made.traits._replace(randomness='private')
  return made
"""


def check(folder, *words):
  """Runs the command in a folder outside of the repository."""
  return subprocess.run(
    [*command.line_of('check', 'codec'), *words],
    cwd=folder,
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


@pytest.fixture
def folder(tmp_path):
  """A folder with a module and, in `site`, a package that registers it."""
  (tmp_path / 'mine.py').write_text(GOOD, encoding='utf-8')
  site = tmp_path / 'site'
  info = site / 'plain-1.0.dist-info'
  info.mkdir(parents=True)
  (site / 'plain_codes.py').write_text(GOOD, encoding='utf-8')
  (info / 'METADATA').write_text('Name: plain\nVersion: 1.0\n')
  (info / 'entry_points.txt').write_text(
    '[terngrad.codecs]\nplain = plain_codes:floats\n'
  )
  return tmp_path


@pytest.mark.slow
def test_a_code_that_keeps_all_claims_ends_with_0(folder):
  done = check(folder, 'mine', '--module=mine:floats')
  assert (done.returncode, done.stderr) == (0, '')
  lines = done.stdout.splitlines()
  assert 'ok              zeros give zeros' in lines
  assert (
    'does not apply  states stay finite and have one owner: it has no states'
  ) in lines
  assert lines[-1].startswith('mine: ') and ' 0 failed' in lines[-1]


@pytest.mark.slow
def test_a_code_that_breaks_a_claim_ends_with_1(folder):
  done = check(
    folder,
    'mine:times=2',
    '--module=mine:floats',
    '--skip=compiled code gives the bits of eager code',
  )
  assert (done.returncode, done.stderr) == (1, '')
  (failed,) = [x for x in done.stdout.splitlines() if x.startswith('failed')]
  assert failed == (
    'failed          workers draw differently if and only if private: expected '
    'other words from two workers with equal gradients, as traits.randomness '
    "is 'private', received equal words. Declare 'private' if send draws from "
    "context.element_key; 'shared' or 'none' otherwise."
  )
  assert 'compiled code' not in done.stdout


def test_an_error_of_many_claims_is_shown_once_and_counted(monkeypatch, capsys):
  found = [
    claims.ClaimOutcome('zeros', claims.FAILED, 'expected a, received b.'),
    claims.ClaimOutcome('ones', claims.FAILED, 'expected c, received d.'),
    claims.ClaimOutcome('twos', claims.OK),
    *[claims.ClaimOutcome('more', claims.FAILED, 'expected a, received b.')]
    * 2,
    *[claims.ClaimOutcome('no', claims.NOT_APPLICABLE, 'no states')] * 2,
  ]
  monkeypatch.setattr(codec.claims, 'check', lambda *arguments: found)
  values = codec.CheckCodecFlags(code='identity')
  assert codec.act(values) == command.FAILED
  assert capsys.readouterr().out.splitlines() == [
    'failed          zeros: expected a, received b.',
    'failed          ones: expected c, received d.',
    'ok              twos',
    *['failed          more: the same error'] * 2,
    *['does not apply  no: no states'] * 2,
    'identity: 1 claims hold, 4 failed, 2 do not apply',
    '3 claims failed with one error: expected a, received b.',
  ]


@pytest.mark.slow
def test_a_code_of_an_installed_package_is_found_by_its_name(folder):
  done = subprocess.run(
    [*command.line_of('check', 'codec'), 'plain'],
    cwd=folder,
    env=os.environ | {'PYTHONPATH': os.pathsep.join([str(ROOT), 'site'])},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert (done.returncode, done.stderr) == (0, '')


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    ([], '--code: expected a value; received none'),
    (['tenary'], "received 'tenary'. Did you mean 'ternary'?"),
    (
      ['topk', '--module=mine:floats'],
      'expected a name that terngrad does not have, received',
    ),
    (['feedback+sign'], 'before +, received'),
  ],
)
def test_what_cannot_be_made_ends_with_2(folder, words, message):
  done = check(folder, *words)
  assert (done.returncode, done.stdout) == (2, '')
  assert done.stderr.startswith('error: ') and message in done.stderr


def test_a_mistake_in_the_module_is_refused_before_any_claim(
  folder, monkeypatch
):
  (folder / 'lines_of_mine.py').write_text('\npritn(1)\n', encoding='utf-8')
  monkeypatch.chdir(folder)
  monkeypatch.setattr(sys, 'path', [*sys.path])
  monkeypatch.setattr(codec.claims, 'check', None)
  values = codec.CheckCodecFlags(code='mine', module='lines_of_mine:Mine')
  with pytest.raises(errors.ConfigError, match="'pritn' is not defined, in"):
    codec.act(values)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['topk:ration=1'], "received 'ration=1'. Did you mean 'ratio'?"),
    (['mine', '--module=mine:nothing'], 'that can be imported, received'),
    (['topk', '--skip=zeros give zero'], "did you mean 'zeros give zeros'?"),
  ],
)
def test_wrong_options_modules_and_claims_end_with_2(folder, words, message):
  done = check(folder, *words)
  assert (done.returncode, done.stdout) == (2, '')
  assert message in done.stderr


def test_the_package_needs_neither_tests_nor_pytest():
  sources = (ROOT / 'terngrad' / 'conformance').glob('*.py')
  for source in sources:
    text = source.read_text(encoding='utf-8')
    assert 'pytest' not in text and 'from tests' not in text
