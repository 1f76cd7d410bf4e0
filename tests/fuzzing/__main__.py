"""Fuzzes every parser and decoder of bytes from elsewhere.

  python -m tests.fuzzing --inputs=10000 --seed=1 --output=T

Each target is searched in a process of its own, whose memory and time an input
may not exceed. An input that fails is kept as T/TARGET.failed, with the command
that repeats it; T/found.jsonl has a line a target, and the table at the end
shows them. Exits with 1 where anything failed.
"""

import argparse
import fnmatch
import json
import pathlib
import shutil
import signal
import sys
import time

import pandas as pd
import tqdm

from terngrad.sweep import warm
from tests.fuzzing import targets


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--inputs', type=int, default=10_000, help='per target')
  parser.add_argument('--seed', type=int, default=1, help='of all inputs')
  parser.add_argument('--target', default='*', help='patterns, with , between')
  parser.add_argument('--input', type=pathlib.Path, help='try this file alone')
  parser.add_argument('--output', type=pathlib.Path, required=True)
  options = parser.parse_args()
  options.output.mkdir(parents=True, exist_ok=True)
  patterns = options.target.split(',')
  names = [
    name
    for name in targets.TARGETS
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
  ]
  if not names:
    parser.error(f'--target: expected one of {", ".join(targets.TARGETS)}')
  rows = []
  with open(options.output / 'found.jsonl', 'a', encoding='utf-8') as log:
    for name in tqdm.tqdm(names, unit='target', disable=None):
      rows.append(run(name, options))
      log.write(json.dumps(rows[-1]) + '\n')
      log.flush()
  shown = pd.DataFrame(rows).drop(columns=['failure', 'shares'])
  say(shown.round(1).to_string(index=False))
  failed = [row for row in rows if row['failure']]
  for row in failed:
    say(f'\n{row["target"]}: {row["failure"]}')
    say(
      f'repeat: scripts/fuzz.sh --target={row["target"]} '
      f'--input={options.output / row["target"]}.failed'
    )
  return 1 if failed else 0


def say(text):
  sys.stdout.write(f'{text}\n')
  sys.stdout.flush()


def run(name, options):
  """What is logged of a target."""
  folder = (options.output / name).resolve()
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir()
  before = time.monotonic()
  what = options.input.resolve() if options.input else options.inputs
  with open(folder / 'log', 'wb') as log:
    process = warm.start(
      'tests.fuzzing.child', [name, options.seed, what, folder], log, log
    )
    process.join()
  found = folder / 'found.json'
  row = {'target': name, 'inputs': 0, 'failure': '', 'shares': {}}
  if process.exitcode == 0:
    row |= json.loads(found.read_text(encoding='utf-8'))
  else:
    row['failure'] = _death(process.exitcode, folder / 'log')
  row.pop('content', None)
  row['seconds'] = time.monotonic() - before
  shares = row['shares'].values()
  row['lines'] = ' '.join(f'{100 * some / all:.0f}%' for some, all in shares)
  if row['failure'] and not options.input and (folder / 'input').exists():
    shutil.copy(folder / 'input', options.output / f'{name}.failed')
  if not row['failure']:
    shutil.rmtree(folder)
  return row


def _death(code, log):
  """How a process ended that left nothing else to tell it."""
  if -code in (signal.SIGVTALRM, signal.SIGALRM):
    return 'it took too long'
  how = f'signal {-code}' if code < 0 else f'exit code {code}'
  said = log.read_text(encoding='utf-8', errors='replace')
  return f'the process ended with {how}: {said[-4000:]}'


if __name__ == '__main__':
  sys.exit(main())
