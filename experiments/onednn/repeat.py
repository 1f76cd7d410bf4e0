r"""Compares the bits of equal runs with other instruction sets and switches.

  PYTHONPATH=. python experiments/onednn/repeat.py --data_dir=D --work_dir=W

Each run trains LeNet for some steps on one processor. A setting limits the
instructions that oneDNN or XLA may use, or switches oneDNN off. repeats.csv has
a row per run: the processor, a digest of the parameters and the loss of the
last step. Runs with a row of this processor there are not repeated; stopped
ones begin again.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import measure
import pandas as pd

from slim.datasets.records import disk
from terngrad.training import records
from tests.bin import clusters

FOLDER = pathlib.Path(__file__).parent
AVX2 = {'ONEDNN_MAX_CPU_ISA': 'AVX2'}
XLA_AVX2 = {'XLA_FLAGS': '--xla_cpu_max_isa=AVX2'}
NO_ONEDNN = {'TF_ENABLE_ONEDNN_OPTS': '0'}
# Variables by setting. 'again' repeats the first one.
SETTINGS = {
  'oneDNN': {},
  'oneDNN, again': {},
  'oneDNN with AVX2': AVX2,
  'oneDNN and XLA with AVX2': AVX2 | XLA_AVX2,
  'no oneDNN': NO_ONEDNN,
  'no oneDNN, AVX2': NO_ONEDNN | AVX2 | XLA_AVX2,
}
CODECS = ('identity', 'ternary')
# Prefixes of variables that choose kernels. A run has only its setting's.
KERNELS = ('ONEDNN_', 'DNNL_', 'XLA_', 'TF_XLA_', 'TERNGRAD_NATIVE')


def train(row: dict[str, str], data_dir: str, folder: pathlib.Path) -> None:
  """Trains a run from its start, with the variables of its setting."""
  inherited = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(KERNELS)
  }
  words = [
    *(sys.executable, '-m', 'terngrad.cli.main', 'train', 'mnist'),
    *('--threads=1', '--num_gpus=1', '--num_nodes=2', '--seed=1'),
    *('--optimizer=momentum', '--quantize_logits', '--batch_size=64'),
    f'--max_steps={row["steps"]}',
    f'--save_iter={row["steps"]}',
    f'--codec={row["codec"]}',
    f'--data_dir={data_dir}',
    f'--train_dir={folder}',
  ]
  shutil.rmtree(folder, ignore_errors=True)
  variables = {'TF_ENABLE_ONEDNN_OPTS': '1'} | SETTINGS[row['setting']]
  subprocess.run(words, env=inherited | variables, check=True)


def compared(folder: pathlib.Path, steps: int) -> dict[str, object]:
  """Returns what is compared of a finished run."""
  state = clusters.state(folder, steps)
  digest = hashlib.sha256()
  for name in sorted(state):
    digest.update(name.encode() + state[name].tobytes())
  last = [r for r in records.read(folder) if 'total_loss' in r][-1]
  return {
    'parameters': digest.hexdigest()[:16],
    'loss': last['total_loss'],
  }


def main() -> None:
  """Runs the missing runs and adds their rows to the table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--data_dir', required=True, help='Folder of MNIST.')
  parser.add_argument(
    '--work_dir', type=pathlib.Path, required=True, help='Folder for the runs.'
  )
  parser.add_argument('--steps', type=int, default=50, help='Steps per run.')
  parser.add_argument(
    '--output', type=pathlib.Path, default=FOLDER / 'repeats.csv'
  )
  chosen = parser.parse_args()
  rows = measure.read(chosen.output)
  for codec in CODECS:
    for setting in SETTINGS:
      row = {'processor': measure.processor(), 'codec': codec}
      row |= {'setting': setting, 'steps': str(chosen.steps)}
      if any(row.items() <= known.items() for known in rows):
        continue
      name = '_'.join(row.values()).replace(' ', '_').replace('/', '_')
      folder = chosen.work_dir / name
      train(row, chosen.data_dir, folder)
      rows.append(row | compared(folder, chosen.steps))
      disk.write_text(chosen.output, pd.DataFrame(rows).to_csv(index=False))


if __name__ == '__main__':
  main()
