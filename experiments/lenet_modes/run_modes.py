r"""Trains LeNet with four methods in four modes, and compares the bits.

  PYTHONPATH=. python experiments/lenet_modes/run_modes.py --data_dir=D \
      --work_dir=W

Four workers train on the same examples as four nodes of one device (nodes), two
on each of two devices (towers), two in each of two processes (collective) and
two in each of two processes with a parameter server (servers). With parameter
servers each worker has other examples, so these runs are compared with towers
that have the same ones (servers_towers). results.csv has one row per run: a
digest of the parameters, one of the optimizer's slots and the methods' states,
and the test accuracy. After an interruption, run the same command again: it
skips runs with a row there or in the folder for the runs; a stopped run begins
again. Runs that are compared must be of one processor, which older rows do not
name. The exit code is 1 if bits differ that should be equal.
"""

import csv
import hashlib
import itertools
import pathlib
import shutil
import subprocess
import sys
import time

import pandas as pd
import tqdm
from absl import app
from absl import flags

from slim.datasets.records import disk
from terngrad.machine import processor
from terngrad.training import records
from tests.bin import clusters

DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of MNIST.')
WORK_DIR = flags.DEFINE_string('work_dir', None, 'Folder for the runs.')
STEPS = flags.DEFINE_integer('steps', 2000, 'Steps per run.')
ONLY = flags.DEFINE_list(
  'only', [], 'Runs to start, as METHOD/MODE; empty: all.'
)

_FOLDER = pathlib.Path(__file__).parent
_LENET = _FOLDER.parent / 'lenet'
_CODECS = {
  'topk': 'error_feedback+topk:ratio=0.01',
  'powersgd': 'error_feedback+powersgd:rank=2',
  'sign': 'error_feedback+sign:decide=majority',
  'error_feedback': 'error_feedback+ternary',
}
# Modes with the same examples for each worker; they end at the same bits.
_EQUAL = (('nodes', 'towers', 'collective'), ('servers', 'servers_towers'))
_WORKERS, _PROCESSES, _BATCH = 4, 2, 64
_OPTIONS = {
  'optimizer': 'momentum',
  'initial_learning_rate': 0.01,
  'learning_rate_decay_type': 'polynomial',
  'quantize_logits': True,
  'seed': 123,
}
_SECONDS = 3600


def main(arguments):
  """Runs the missing runs; returns the exit code."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  wanted = ONLY.value or [
    f'{method}/{mode}'
    for method in _CODECS
    for modes in _EQUAL
    for mode in modes
  ]
  commit = _commit()
  work = pathlib.Path(WORK_DIR.value, f'{STEPS.value}_steps')
  finished = _finished(work)
  done = {f'{row.method}/{row.mode}' for row in finished.itertuples()}
  missing = [name for name in wanted if name not in done]
  _check_processors(missing, finished)
  for name in tqdm.tqdm(missing, unit='run'):
    _run(*name.split('/'), work / name, commit)
  return _report(_finished(work), work)


def _results(work):
  """Returns the path of the table; with other --steps it is in --work_dir."""
  return (_FOLDER if STEPS.value == 2000 else work) / 'results.csv'


def _finished(work):
  """Returns a row for each finished run, including those of earlier calls."""
  files = [_results(work), *sorted(work.glob('*/*/row.csv'))]
  rows = [pd.read_csv(path) for path in files if path.exists()]
  rows = rows or [pd.DataFrame(columns=['method', 'mode', 'steps'])]
  found = pd.concat(rows)
  if 'processor' not in found:
    found['processor'] = ''
  found = found.fillna({'processor': ''})
  return found.drop_duplicates(['method', 'mode'], keep='last')


def _check_processors(missing, finished):
  """Raises if a missing run would be compared with one of another processor."""
  here = processor.model()
  others = finished[finished['processor'] != here]
  for name, row in itertools.product(missing, others.itertuples()):
    method, mode = name.split('/')
    if row.method == method and any({mode, row.mode} <= {*m} for m in _EQUAL):
      raise app.UsageError(
        f'{name}: expected runs of {here} to compare it with, received '
        f'{method}/{row.mode} of {row.processor or "an unknown processor"}. '
        'Remove the row and the folder of that run, so that it runs again.'
      )


def _run(method, mode, work, commit):
  """Trains and evaluates, then writes the run's row."""
  shutil.rmtree(work, ignore_errors=True)
  train_dir = work / 'train'
  train_dir.parent.mkdir(parents=True, exist_ok=True)
  before = time.monotonic()
  _train(mode, _CODECS[method], train_dir)
  seconds = time.monotonic() - before
  subprocess.run(
    [
      *(sys.executable, '-m', 'terngrad.bin.mnist_eval'),
      f'--flagfile={_LENET / "eval.flags"}',
      f'--data_dir={DATA_DIR.value}',
      f'--checkpoint_dir={train_dir}',
      f'--eval_dir={work / "eval"}',
      '--run_once',
    ],
    stdout=subprocess.DEVNULL,
    check=True,
  )
  state = clusters.state(train_dir, STEPS.value)
  shared = clusters.state(train_dir, STEPS.value, 'states/')
  row = {
    'method': method,
    'mode': mode,
    'codec': _CODECS[method],
    'steps': STEPS.value,
    'seed': _OPTIONS['seed'],
    'parameters': _digest(state),
    'states': _digest(shared),
    'accuracy': records.read(work / 'eval')[-1]['precision_at_1'],
    'seconds': round(seconds),
    'commit': commit,
    'processor': processor.model(),
  }
  with disk.replace_file(work / 'row.csv') as hidden:
    with open(hidden, 'w', encoding='utf-8', newline='') as file:
      writer = csv.DictWriter(file, row)
      writer.writeheader()
      writer.writerow(row)


def _train(mode, codec, train_dir):
  """Trains to the end; raises if a process fails."""
  options = [f'--{name}={value}' for name, value in _OPTIONS.items()]
  common = [
    f'--data_dir={DATA_DIR.value}',
    f'--train_dir={train_dir}',
    f'--codec={codec}',
    f'--max_steps={STEPS.value}',
    f'--save_iter={STEPS.value}',
    *options,
  ]
  whole = [*common, f'--batch_size={_BATCH}', f'--num_nodes={_WORKERS}']
  share = _WORKERS // _PROCESSES
  if mode in ('nodes', 'towers'):
    devices = f'--num_gpus={1 if mode == "nodes" else 2}'
    command = [sys.executable, '-m', 'terngrad.bin.mnist_train']
    subprocess.run(
      [*command, *whole, devices], stdout=subprocess.DEVNULL, check=True
    )
  elif mode == 'collective':
    clusters.complete(
      *(0, _PROCESSES, [*whole, '--exchange=collective']),
      program='mnist_train',
      limit=_SECONDS,
    )
  elif mode == 'servers':
    each = [f'--batch_size={_BATCH // _PROCESSES}', f'--num_nodes={share}']
    clusters.complete(1, _PROCESSES, [*common, *each], limit=_SECONDS)
  elif mode == 'servers_towers':
    clusters.towers(
      *(DATA_DIR.value, train_dir, _PROCESSES),
      nodes=share,
      steps=STEPS.value,
      codec=codec,
      batch_size=_BATCH // _PROCESSES,
      save_iter=STEPS.value,
      **_OPTIONS,
    )
  else:
    raise app.UsageError(f'--only: expected a known mode, received {mode!r}.')


def _digest(arrays):
  """Returns a digest of all arrays in the order of their names, or ''."""
  digest = hashlib.sha256()
  for name in sorted(arrays):
    digest.update(name.encode())
    digest.update(arrays[name].tobytes())
  return digest.hexdigest()[:16] if arrays else ''


def _report(table, work):
  """Writes results.csv; returns the exit code."""
  table = table.sort_values(['method', 'mode'], kind='stable')
  disk.write_text(_results(work), table.to_csv(index=False))
  code = 0
  for method, runs in table.groupby('method'):
    for modes in _EQUAL:
      same = runs[runs['mode'].isin(modes)]
      if len(same[['parameters', 'states']].drop_duplicates()) > 1:
        sys.stderr.write(f'{method}: bits differ between {", ".join(modes)}\n')
        code = 1
  sys.stdout.write(f'{table.to_string(index=False)}\n')
  return code


def _commit():
  head = subprocess.run(
    ['git', 'describe', '--always', '--dirty', '--exclude=*'],
    cwd=_FOLDER,
    capture_output=True,
    text=True,
    check=False,
  )
  return head.stdout.strip() or 'unknown'


if __name__ == '__main__':
  flags.mark_flags_as_required(['data_dir', 'work_dir'])
  app.run(main)
