"""Runs the emulated kernels with random changes; not part of the gate.

  python -m tests.native.gpu.mutants FOLDER [COUNT] [SEED] [FILES]

Changes one operator, constant or barrier of the GPU kernels in a copy, and
prints the changes after which the bits still equal those of the CPU's kernels.
FILES is a regular expression that names of files match.
"""

import pathlib
import random
import re
import shutil
import subprocess
import sys

from tests.native.gpu import emulated

OPERATORS = {
  '<': '<=',
  '<=': '<',
  '>=': '>',
  '>': '>=',
  '==': '!=',
  '!=': '==',
  '+': '-',
  '-': '+',
  '*': '+',
  '/': '*',
  '%': '/',
  '&': '|',
  '|': '&',
  '^': '|',
  '>>': '<<',
  '<<': '>>',
  '&&': '||',
  '||': '&&',
  '+=': '-=',
  '*=': '+=',
  '^=': '|=',
}
# The formatter puts spaces around binary operators only.
TOKEN = re.compile(
  r'(?<= )(?:'
  + '|'.join(map(re.escape, sorted(OPERATORS, key=len)[::-1]))
  + r')(?= )|(?<![\w.])\d+(?=U?[\s;,)\]])|__sync\w+\(\)'
)
TRIALS = 60


def find(text):
  """Yields (start, stop, replacement) of every change of a source."""
  start = text.index('namespace terngrad_gpu')
  for line in re.finditer('.+', text[start:]):
    code = line[0].partition('//')[0]
    if code.startswith(('#', 'constexpr int kReads')):
      continue
    for found in TOKEN.finditer(code):
      token = found[0]
      if token in OPERATORS:
        other = OPERATORS[token]
      else:
        other = str(int(token) + 1) if token.isdigit() else ''
      first = start + line.start()
      yield first + found.start(), first + found.end(), other


def is_caught(sources, folder):
  """Returns whether the test fails, or the source does not compile."""
  try:
    program = emulated.build(folder, '-O1', sources=sources)
    done = emulated.run(program, 1, TRIALS, timeout=120)
  except subprocess.CalledProcessError:
    return None
  except subprocess.TimeoutExpired:
    return True
  return done.returncode != 0


def main():
  """Prints every survivor, and the counts for each file."""
  folder = pathlib.Path(sys.argv[1]).resolve()
  count, seed = (int(value) for value in [*sys.argv[2:4], '100', '1'][:2])
  files = re.compile(sys.argv[4] if len(sys.argv) > 4 else '')
  sources = folder / 'src'
  shutil.rmtree(sources, ignore_errors=True)
  shutil.copytree(emulated.SOURCES, sources)
  changes = [
    (path, change)
    for path in sorted((sources / 'gpu').iterdir())
    if not path.name.endswith('tables.h') and files.search(path.name)
    for change in find(path.read_text(encoding='utf-8'))
  ]
  chosen = random.Random(seed).sample(changes, min(count, len(changes)))
  table = {}
  for path, (start, stop, other) in chosen:
    text = path.read_text(encoding='utf-8')
    path.write_text(text[:start] + other + text[stop:], encoding='utf-8')
    caught = is_caught(sources, folder)
    path.write_text(text, encoding='utf-8')
    if caught is None:
      continue
    row = table.setdefault(path.name, [0, 0])
    row[0] += caught
    row[1] += 1
    if not caught:
      number = text.count('\n', 0, start) + 1
      line = text.splitlines()[number - 1].strip()
      sys.stdout.write(
        f'{path.name}:{number}: {text[start:stop]!r} -> {other!r}: {line}\n'
      )
      sys.stdout.flush()
  for name, (caught, tried) in sorted(table.items()):
    sys.stdout.write(f'{name}: {caught} of {tried} caught\n')


if __name__ == '__main__':
  main()
