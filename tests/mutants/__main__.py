"""Random mutants of one folder of `terngrad` against the tests of it.

  python -m tests.mutants --folder=codec --count=200 --seed=1 --output=M

M/mutants.jsonl has a line a mutant, and a second call goes on behind it, with
the sources of the first. The table at the end counts them. The first call runs
the tests once and writes to M/map.json which lines each executes; a mutant then
meets only those that execute its own. `--again` asks the tests as they are now
about the survivors: those that execute them, or all of `--tests`.
"""

import argparse
import difflib
import itertools
import json
import os
import pathlib
import random
import shutil
import sys
import time

from tests.mutants import lines
from tests.mutants import mutations
from tests.mutants import trees

SURVIVED = 'survived'


def main():
  options = _options()
  options.output.mkdir(parents=True, exist_ok=True)
  options.output = options.output.resolve()
  _prepare(options.output)
  tree, path = options.output / 'tree', options.output / 'map.json'
  if not tree.exists():
    trees.copy(tree)
  elif options.again:
    trees.copy(tree, 'tests')
  chosen = choose(tree, options.folder, options.seed, options.count)
  if not path.exists() or (options.again and not options.tests):
    _map(options, path)
  found = lines.Map(path)
  for name in found.failed:
    say(f'without a mutant it fails, and is not asked: {name}')
  done = read(options.output)
  todo = [
    number
    for number in range(len(chosen))
    if (number in done) == options.again
    and (not options.again or done[number]['verdict'] == SURVIVED)
  ]
  if options.mutant:
    todo = options.mutant
  slots = [
    _in_child(_work, slot, todo[slot :: options.jobs], chosen, found, options)
    for slot in range(options.jobs)
  ]
  for child in slots:
    os.waitpid(child, 0)
  report(read(options.output), options)


def _options():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--folder', required=True, help='such as codec')
  parser.add_argument('--count', type=int, default=200, help='of mutants')
  parser.add_argument('--seed', type=int, default=1, help='of their choice')
  parser.add_argument('--output', type=pathlib.Path, required=True)
  parser.add_argument('--jobs', type=int, default=1, help='at a time')
  parser.add_argument('--mutant', type=int, action='append', help='only this')
  parser.add_argument('--again', action='store_true', help='the survivors')
  parser.add_argument(
    '--tests', nargs='+', default=[], help='files for --again and --mutant'
  )
  parser.add_argument('--marks', help='of tests, as pytest -m')
  parser.add_argument(
    '--budget', type=float, default=15, help='seconds of tests a mutant'
  )
  return parser.parse_args()


def say(text):
  sys.stdout.write(f'{text}\n')
  sys.stdout.flush()


def choose(root, folder, seed, count):
  """`count` mutants of a folder, the same for a seed; more go on behind them.

  Returns:
    List of (name of the source in the tree, `mutations.Mutation`).
  """
  sources, every = {}, []
  for path in sorted((root / 'terngrad' / folder).rglob('*.py')):
    name = path.relative_to(root).as_posix()
    sources[name] = path.read_bytes()
    every += [(name, m) for m in mutations.find(sources[name])]
  random.Random(seed).shuffle(every)
  good = (one for one in every if mutations.differs(sources[one[0]], one[1]))
  return list(itertools.islice(good, count))


def read(output):
  """{number: its last line of mutants.jsonl}."""
  path = output / 'mutants.jsonl'
  if not path.exists():
    return {}
  entries = map(json.loads, path.read_text(encoding='utf-8').splitlines())
  return {entry['number']: entry for entry in entries}


def _prepare(output):
  """What all children find: TensorFlow, and XLA's cache on the disk."""
  cache = output / 'xla'
  cache.mkdir(exist_ok=True)
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  os.environ.setdefault(
    'TF_XLA_FLAGS', f'--tf_xla_persistent_cache_directory={cache}'
  )
  # Plugins of others take a second of each child, and no test wants them.
  os.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'
  # Here and not above: it reads them when it is imported.
  import hypothesis  # noqa: F401
  import keras  # noqa: F401
  import tensorflow  # noqa: F401


def _in_child(function, *arguments):
  child = os.fork()
  if not child:
    code = 1
    try:
      function(*arguments)
      code = 0
    finally:
      os._exit(code)
  return child


def _map(options, path):
  from tests.mutants import asking

  tree, folder = _tree(options.output, 0)
  say(f'which lines the tests of {options.folder} execute')
  plugin = lines.Lines(os.fspath(tree), f'terngrad/{options.folder}', path)
  before = time.monotonic()
  files = options.tests or [f'tests/{options.folder}']
  words = options.marks or asking.FAST
  code = asking.ask(tree, folder, files, words, plugin, first_ends=False)
  say(f'{time.monotonic() - before:.0f} s, pytest ended with {code}')
  if not path.exists():
    raise SystemExit((folder / 'output').read_text(encoding='utf-8'))


def _tree(output, slot):
  """(a copy of the project, a folder to work in) of a slot."""
  folder = output / f'slot_{slot}'
  # Over what a call that was killed may have left there.
  shutil.copytree(output / 'tree', folder / 'tree', dirs_exist_ok=True)
  return folder / 'tree', folder


def _work(slot, numbers, chosen, found, options):
  """Asks about some mutants, one after the other."""
  tree, folder = _tree(options.output, slot)
  sys.dont_write_bytecode = True
  os.environ['PYTHONDONTWRITEBYTECODE'] = '1'
  for number in numbers:
    entry = judge(tree, folder, *chosen[number], found, options)
    entry = {'number': number} | entry
    with open(options.output / 'mutants.jsonl', 'a', encoding='utf-8') as log:
      log.write(json.dumps(entry) + '\n')
    say(
      f'{number:4d} {entry["verdict"]:9s}{entry["seconds"]:6.1f} s  '
      f'{entry["place"]} {entry["by"]}'
    )


def judge(tree, folder, name, mutation, found, options):
  """What tests say of a mutant; a dict for the log."""
  from tests.mutants import asking

  path = tree / name
  source = path.read_bytes()
  wanted, covering, files = None, None, options.tests
  if not files:
    function = function_name(source, mutation)
    wanted, covering = found.tests(
      name, mutation, function, options.budget, options.budget / 5
    )
    files = list(dict.fromkeys(test.partition('::')[0] for test in wanted))
  before = time.monotonic()
  answer = folder / 'answer'
  verdict = SURVIVED
  # A crash counts where it comes twice: not every one is the mutant's.
  for _ in range(2 if files else 0):
    answer.unlink(missing_ok=True)
    with trees.mutated(path, mutation):
      plugin = asking.Judge(found.costs, wanted, answer)
      words = options.marks or asking.FAST
      code = asking.ask(tree, folder, files, words, plugin)
    verdict = _verdict(code, answer.exists())
    if verdict != 'crashed':
      break
  return {
    'verdict': verdict,
    'by': answer.read_text(encoding='utf-8') if verdict == 'caught' else '',
    'place': f'{name}:{mutation.lines[0]}',
    'kind': mutation.kind,
    'diff': diff(source, mutation),
    'tests': None if wanted is None else len(wanted),
    'covering': covering,
    'seconds': time.monotonic() - before,
  }


def _verdict(code, answered):
  if answered:
    return 'caught'
  if code in (0, 5):
    return SURVIVED
  if code < 0:
    return 'crashed'
  # pytest ends with 1 only after a test has failed: this was the timer.
  return 'hung' if code == 1 else 'broken'


def function_name(source, mutation):
  """The name of the function that a mutation is in; ''."""
  if mutation.function is None:
    return ''
  line = source.splitlines()[mutation.function[0] - 1].decode()
  return line.partition('def ')[2].partition('(')[0]


def diff(source, mutation):
  """The lines that a mutation changes, as diff shows them."""
  before, after = (
    text.decode().splitlines() for text in (source, mutation.of(source))
  )
  changed = list(difflib.unified_diff(before, after, n=0, lineterm=''))[3:]
  return '\n'.join(changed)


def report(done, options):
  """Prints the table, and the survivors."""
  done = {n: e for n, e in done.items() if n < options.count}
  files = sorted({e['place'].partition(':')[0] for e in done.values()})
  say(f'{"":52s}{"mutants":>8s}{"caught":>8s}{"survive":>8s}')
  for name in (*files, ''):
    verdicts = [
      e['verdict'] for e in done.values() if e['place'].startswith(name)
    ]
    left = verdicts.count(SURVIVED)
    say(
      f'{name or "all":52s}{len(verdicts):8d}{len(verdicts) - left:8d}{left:8d}'
    )
  for number, entry in sorted(done.items()):
    if entry['verdict'] == SURVIVED:
      say(
        f'\n{number}: {entry["place"]} {entry["kind"]}, '
        f'{entry["covering"]} tests execute it\n{entry["diff"]}'
      )


if __name__ == '__main__':
  sys.exit(main())
