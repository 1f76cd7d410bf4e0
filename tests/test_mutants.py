"""Mutants change what tests can detect, and the tree is restored."""

import json
import subprocess

import pytest

from tests.mutants import __main__ as program
from tests.mutants import lines
from tests.mutants import mutations
from tests.mutants import trees


def mutants(source):
  """The sources of all mutants, without the spaces around them."""
  source = source.encode()
  return [
    mutation.of(source).decode().strip()
    for mutation in mutations.find(source)
    if mutations.differs(source, mutation)
  ]


@pytest.mark.parametrize(
  ('source', 'expected'),
  [
    ('x = a + b', ['x = a - b']),
    ('x = a < b', ['x = a <= b']),
    ('x = a not in b', ['x = a in b']),
    ('x = (a) * (b)', ['x = (a) // (b)']),
    ('x = -a', ['x = +a']),
    ('x = not a', ['x = a']),
    ('x = 3', ['x = 4']),
    ('x = 0.5', ['x = 1.0']),
    ('x = True', ['x = False']),
    ("x = 'scaler'", ["x = 'xscalerx'"]),
    ('f(x)', ['pass']),
    ('x += y', ['pass', 'x -= y']),
    ('if a: f', ['if (not (a)): f']),
    ('x = b if a else c', ['x = b if (not (a)) else c']),
    ('x = [a for a in b if a]', ['x = [a for a in b if (not (a))]']),
    ('def f():\n  return a', ['def f():\n  return']),
    ('def f(a=1): pass', ['def f(a=2): pass']),
    ('if a == b:\n  raise E', ['if a != b:\n  raise E', 'if a == b:\n  pass']),
  ],
)
def test_operators_constants_conditions_and_statements_are_mutated(
  source, expected
):
  assert sorted(mutants(source)) == sorted(expected)


@pytest.mark.parametrize(
  'source',
  [
    '"""Text, 1."""',
    'import a',
    'def f(a: int | None) -> 3: pass',
    'x: Tuple[1] = y',
    "x = errors.CodecError('text', 1 + 1)",
    "logging.info('Text, %d', 1)",
    "x = 'text for people'",
    "x = f'{a + b}'",
    'x = zip(a, b, strict=True)',
    '@cache(1)\ndef f(): pass',
    'assert a + b',
    "if __name__ == '__main__': f(1)",
  ],
)
def test_code_that_no_test_can_see_is_not_mutated(source):
  assert not mutants(source)


def test_equal_programs_are_no_mutants():
  source = b'x = (  # a + b\n  c + d)'
  (mutation,) = mutations.find(source)
  assert mutations.differs(source, mutation)
  same = mutation._replace(start=0, stop=0, text=b'# More.\n')
  assert not mutations.differs(source, same)
  assert not mutations.differs(source, mutation._replace(text=b'+ ('))


def test_a_mutation_knows_its_statement_and_its_function():
  source = b'def f(a=1):\n  if (a or\n      b):\n    return c\n'
  found = {m.text: (m.lines, m.function) for m in mutations.find(source)}
  assert found == {
    b'2': ((1, 1), (1, 4)),
    b'and': ((2, 3), (1, 4)),
    b'(not (a or\n      b))': ((2, 3), (1, 4)),
    b'return': ((4, 4), (1, 4)),
  }


def test_a_seed_chooses_the_same_mutants_and_a_larger_count_appends():
  twenty, thirty = (
    program.choose(trees.ROOT, 'exchange', 3, count) for count in (20, 30)
  )
  assert thirty[:20] == twenty
  assert program.choose(trees.ROOT, 'exchange', 4, 20) != twenty


def test_a_mutated_file_is_restored_after_an_error(tmp_path):
  path = tmp_path / 'module.py'
  path.write_text('x = 1\n')
  before = path.stat().st_mtime_ns
  (mutation,) = mutations.find(path.read_bytes())
  with pytest.raises(KeyError), trees.mutated(path, mutation):
    assert path.read_text() == 'x = 2\n'
    # Python takes no compiled file of another time.
    assert path.stat().st_mtime_ns != before
    raise KeyError
  assert path.read_text() == 'x = 1\n'
  assert path.stat().st_mtime_ns == before


def test_tests_of_a_line_run_with_the_mirrored_and_fast_first(
  tmp_path,
):
  near, far = 'tests/reduce/test_parts.py::', 'tests/codec/test_totals.py::'
  costs = {f'{far}a': 1, f'{near}b': 3, f'{near}c': 2, f'{far}d': 1}
  path = 'terngrad/reduce/parts.py'
  executed = {name: [[path, 2]] for name in costs} | {f'{far}d': [[path, 9]]}
  (tmp_path / 'map').write_text(
    json.dumps(
      {
        'costs': costs,
        'failed': [],
        'lines': executed,
        'converted': dict.fromkeys(costs, ()),
      }
    )
  )
  found = lines.Map(tmp_path / 'map')
  (mutation,) = mutations.find(b'def f(a):\n  return a\n')
  names = found.tests(path, mutation, 'f', budget=100, spare=100)
  assert names == ([f'{near}c', f'{near}b', f'{far}a', f'{far}d'], 3)
  names = found.tests(path, mutation, 'f', budget=5, spare=0)
  assert names == ([f'{near}c', f'{near}b', f'{far}d'], 2)


@pytest.mark.slow
def test_a_mutant_gets_a_verdict_and_the_tree_is_unchanged(tmp_path):
  def status():
    line = ['git', 'status', '-s', 'terngrad/exchange']
    return subprocess.check_output(line, cwd=trees.ROOT)

  before = status()
  words = ['--folder=exchange', '--count=1', '--jobs=1', '--output', tmp_path]
  words += ['--tests', 'tests/exchange/test_algorithms.py']
  script = trees.ROOT / 'scripts' / 'mutants.sh'
  done = subprocess.run([script, *words], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert program.read(tmp_path)[0]['verdict'] in ('caught', program.SURVIVED)
  assert status() == before
