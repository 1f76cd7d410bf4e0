r"""Runs the experiment of a folder: every variant and seed, then the table.

  python experiments/run_experiment.py --folder=experiments/lenet_workers \
      --program=mnist --data_dir=D --work_dir=W

The folder holds base.flags, one <variant>.flags a variant with what differs,
runs.csv with the columns variant and seed and, where the evaluator's defaults
are not enough, eval.flags. Each run trains and evaluates
in W/<variant>_seed<seed>. The command can be stopped at any time and given
again: finished runs are kept and a broken one continues. After every run
<folder>/results.csv is written anew, with the command's commit.
"""

import csv
import datetime
import json
import pathlib
import subprocess
import sys

import pandas as pd
import tqdm
from absl import app
from absl import flags

from slim.datasets.records import disk
from terngrad.training import records

FOLDER = flags.DEFINE_string('folder', None, 'Folder of the experiment.')
PROGRAM = flags.DEFINE_string(
  'program',
  'mnist',
  'Trainer and evaluator: mnist for mnist_train, mnist_eval.',
)
DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of the data set.')
WORK_DIR = flags.DEFINE_string('work_dir', None, 'Folder for the runs.')
EXTRA = flags.DEFINE_multi_string(
  'extra', [], 'A further flag for every training run, such as --max_steps=10.'
)
_RESULT = 'result.json'


def main(arguments):
  """Runs what is missing; returns the exit code."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  folder = pathlib.Path(FOLDER.value)
  with open(folder / 'runs.csv', encoding='utf-8') as file:
    runs = list(csv.DictReader(file))
  failed = []
  commit = _commit()  # Before results.csv changes the folder.
  for run in tqdm.tqdm(runs, unit='run'):
    name = f'{run["variant"]}_seed{run["seed"]}'
    work = pathlib.Path(WORK_DIR.value) / name
    if not (work / _RESULT).exists() and not _run(folder, run, work, commit):
      failed.append(name)
    _write_results(folder, runs)
  for name in failed:
    sys.stderr.write(f'failed: {name}; see {WORK_DIR.value}/{name}/log.txt\n')
  return 1 if failed else 0


def _run(folder, run, work, commit):
  """Trains and evaluates one run; True where both went well."""
  work.mkdir(parents=True, exist_ok=True)
  train = [
    sys.executable,
    '-m',
    f'terngrad.bin.{PROGRAM.value}_train',
    f'--flagfile={folder / "base.flags"}',
    f'--flagfile={folder / run["variant"]}.flags',
    f'--seed={run["seed"]}',
    f'--data_dir={DATA_DIR.value}',
    f'--train_dir={work / "train"}',
    *EXTRA.value,
  ]
  score = [
    sys.executable,
    '-m',
    f'terngrad.bin.{PROGRAM.value}_eval',
    f'--data_dir={DATA_DIR.value}',
    f'--checkpoint_dir={work / "train"}',
    f'--eval_dir={work / "eval"}',
    *_evaluation_flags(folder),
    '--run_once',
  ]
  with open(work / 'log.txt', 'a', encoding='utf-8') as log:
    for command in (train, score):
      if subprocess.call(command, stdout=log, stderr=log):
        return False
  last = [r for r in records.read(work / 'train') if 'total_loss' in r][-1]
  result = {
    'variant': run['variant'],
    'seed': int(run['seed']),
    'steps': last['step'],
    'accuracy': records.read(work / 'eval')[-1]['precision_at_1'],
    'bits_per_element': last['bits_per_element'],
    'loss': last['total_loss_smoothed'],
    'seconds': last['seconds'],
    'ended': datetime.datetime.now().isoformat(timespec='seconds'),
    'commit': commit,
    'flags': ' '.join(
      [f'{run["variant"]}.flags', f'--seed={run["seed"]}', *EXTRA.value]
    ),
  }
  disk.write_text(work / _RESULT, json.dumps(result))
  return True


def _evaluation_flags(folder):
  file = folder / 'eval.flags'
  return [f'--flagfile={file}'] if file.exists() else ['--batch_size=100']


def _write_results(folder, runs):
  """Writes results.csv from the runs that are finished."""
  found = []
  for run in runs:
    work = pathlib.Path(WORK_DIR.value) / f'{run["variant"]}_seed{run["seed"]}'
    if (work / _RESULT).exists():
      found.append(json.loads((work / _RESULT).read_text(encoding='utf-8')))
  if found:
    # Runs that were changed on the command line are not the experiment's.
    home = pathlib.Path(WORK_DIR.value) if EXTRA.value else folder
    pd.DataFrame(found).to_csv(home / 'results.csv', index=False)


def _commit():
  head = subprocess.run(
    ['git', 'describe', '--always', '--dirty', '--exclude=*'],
    cwd=pathlib.Path(__file__).parent,
    capture_output=True,
    text=True,
    check=False,
  )
  return head.stdout.strip() or 'unknown'


if __name__ == '__main__':
  flags.mark_flags_as_required(['folder', 'data_dir', 'work_dir'])
  app.run(main)
