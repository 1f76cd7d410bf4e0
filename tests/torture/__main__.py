"""Faults in random order against an undisturbed reference.

  python -m tests.torture --minutes=120 --seed=1 --output=T

Stops at the first difference, with the command that repeats it, and exits with
1. T/rounds.jsonl has a line a round; the table at the end counts them.
"""

import argparse
import json
import pathlib
import shutil
import sys
import time
import traceback

import numpy as np
import pandas as pd
import tqdm

from tests.torture import cluster_faults
from tests.torture import disk_faults
from tests.torture import faults
from tests.torture import references

_FAULTS = faults.FAULTS + disk_faults.FAULTS + cluster_faults.FAULTS


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--minutes', type=float, default=10, help='how long')
  parser.add_argument('--seed', type=int, default=1, help='of all rounds')
  parser.add_argument('--round', type=int, help='only this one')
  parser.add_argument('--fault', default='', help='only what is named so')
  parser.add_argument('--output', type=pathlib.Path, required=True)
  options = parser.parse_args()
  options.output.mkdir(parents=True, exist_ok=True)
  reference = references.make_reference(options.output / 'reference')
  rounds = [options.round] if options.round is not None else range(10**9)
  end = time.monotonic() + 60 * options.minutes
  done = []
  with open(options.output / 'rounds.jsonl', 'a', encoding='utf-8') as log:
    for number in tqdm.tqdm(rounds, unit='round', disable=None):
      if options.round is None and time.monotonic() > end:
        break
      done.append(run(number, options, reference))
      log.write(json.dumps(done[-1]) + '\n')
      log.flush()
      if done[-1]['difference']:
        break
  table = pd.DataFrame(done).groupby('fault')
  shown = table.agg(
    rounds=('round', 'size'),
    faults=('count', 'sum'),
    seconds=('seconds', 'sum'),
  )
  say(shown.round().to_string())
  if done[-1]['difference']:
    say(done[-1]['difference'])
    say(
      f'repeat: python -m tests.torture --seed={options.seed} '
      f'--round={done[-1]["round"]} --fault={options.fault} '
      f'--output={options.output}'
    )
    return 1
  say(f'{len(done)} rounds without a difference')
  return 0


def say(text):
  sys.stdout.write(f'{text}\n')


def run(number, options, reference):
  """One round; what is logged of it."""
  rng = np.random.default_rng([options.seed, number])
  chosen = [f for f in _FAULTS if options.fault in f.__name__]
  fault = chosen[rng.integers(len(chosen))]
  folder = options.output / f'round_{number}'
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir()
  before, count, difference = time.monotonic(), 0, ''
  try:
    count = fault(references.Place(folder, reference), rng)
  except Exception:
    difference = traceback.format_exc()
  if not difference:
    shutil.rmtree(folder)
  return {
    'round': number,
    'fault': fault.__name__,
    'count': count,
    'seconds': time.monotonic() - before,
    'difference': difference,
  }


if __name__ == '__main__':
  sys.exit(main())
