r"""Compares the bits of equal runs with other instruction sets and switches.

  PYTHONPATH=. python experiments/onednn/repeat.py --data_dir=D --work_dir=W

Each run trains LeNet for some steps on one processor. A setting limits the
instructions that oneDNN or XLA may use, or switches oneDNN off. repeats.csv has
a row per run: a digest of the parameters, the loss of the last step, and the
processor. Runs that are in --work_dir are not repeated.
"""

import hashlib
import os
import pathlib
import subprocess
import sys

import pandas as pd
from absl import app
from absl import flags

from slim.datasets.records import disk
from terngrad.machine import processor
from terngrad.training import records
from tests.bin import clusters

DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of MNIST.')
WORK_DIR = flags.DEFINE_string('work_dir', None, 'Folder for the runs.')
STEPS = flags.DEFINE_integer('steps', 50, 'Steps per run.')

_FOLDER = pathlib.Path(__file__).parent
_ONEDNN, _XLA = 'ONEDNN_MAX_CPU_ISA', 'XLA_FLAGS'
_AVX2 = {_ONEDNN: 'AVX2'}
_XLA_AVX2 = {_XLA: '--xla_cpu_max_isa=AVX2'}
# Variables by setting. 'again' repeats the first one.
_SETTINGS = {
  'oneDNN': {},
  'oneDNN, again': {},
  'oneDNN with AVX2': _AVX2,
  'oneDNN and XLA with AVX2': _AVX2 | _XLA_AVX2,
  'no oneDNN': {'TF_ENABLE_ONEDNN_OPTS': '0'},
  'no oneDNN, AVX2': {'TF_ENABLE_ONEDNN_OPTS': '0'} | _AVX2 | _XLA_AVX2,
}
_CODECS = ('identity', 'ternary')


def main(arguments: list[str]) -> None:
  """Runs the missing runs and writes the table."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  rows = []
  for codec in _CODECS:
    for setting, variables in _SETTINGS.items():
      folder = pathlib.Path(WORK_DIR.value, codec, setting.replace(' ', '_'))
      if not (folder / records.FILE_NAME).exists():
        _train(codec, folder, variables)
      rows.append({'codec': codec, 'setting': setting} | _row(folder))
      text = pd.DataFrame(rows).to_csv(index=False)
      disk.write_text(_FOLDER / 'repeats.csv', text)


def _train(codec: str, folder: pathlib.Path, variables: dict[str, str]) -> None:
  """Trains one run in a process with these environment variables."""
  known = {'TF_ENABLE_ONEDNN_OPTS': '1'} | variables
  words = [
    *(sys.executable, '-m', 'terngrad.cli.main', 'train', 'mnist'),
    *('--threads=1', '--num_gpus=1', '--num_nodes=2', '--seed=1'),
    *('--optimizer=momentum', '--quantize_logits', '--batch_size=64'),
    f'--max_steps={STEPS.value}',
    f'--save_iter={STEPS.value}',
    f'--codec={codec}',
    f'--data_dir={DATA_DIR.value}',
    f'--train_dir={folder}',
  ]
  subprocess.run(words, env=os.environ | known, check=True)


def _row(folder: pathlib.Path) -> dict[str, object]:
  """Returns what is compared, and the processor."""
  state = clusters.state(folder, STEPS.value)
  digest = hashlib.sha256()
  for name in sorted(state):
    digest.update(name.encode() + state[name].tobytes())
  last = [r for r in records.read(folder) if 'total_loss' in r][-1]
  return {
    'steps': STEPS.value,
    'parameters': digest.hexdigest()[:16],
    'loss': last['total_loss'],
    'processor': processor.model(),
  }


if __name__ == '__main__':
  flags.mark_flags_as_required(['data_dir', 'work_dir'])
  app.run(main)
