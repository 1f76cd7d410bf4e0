"""Draws docs/step.svg, the README's picture, from race.csv.

python experiments/network/draw.py
"""

import pathlib

import matplotlib as mpl
import pandas as pd
from matplotlib import figure

_FOLDER = pathlib.Path(__file__).parent
_PROCESSOR = 'AuthenticAMD family 25 model 17'
_OUTPUT = _FOLDER.parents[1] / 'docs' / 'step.svg'
# Cases of the race, in the order of the bars, and their labels.
_BARS = {
  'ddp:hook=fp16': 'PyTorch DDP, fp16',
  'ddp:hook=powersgd,rank=1': 'PyTorch DDP, PowerSGD rank 1',
  'ddp:hook=powersgd,rank=4': 'PyTorch DDP, PowerSGD rank 4',
  'error_feedback+powersgd:rank=1': 'terngrad, PowerSGD rank 1',
  'error_feedback+stc': 'terngrad, stc',
  'ternary': 'terngrad, ternary',
}


def label_of(rows: pd.DataFrame) -> str:
  """Returns the label of the seconds of these rows of race.csv."""
  batch, starts = (
    ' or '.join(map(str, rows[name].unique())) for name in ('batch', 'starts')
  )
  return (
    'seconds a step: AlexNet, 2 hosts, 1 Gbit/s\n'
    f'batch {batch} and one thread a host; {starts} starts, 95 % intervals'
  )


def main():
  """Writes the picture; equal tables give equal bytes."""
  race = pd.read_csv(_FOLDER / 'race.csv')
  condition = {
    'net': 'single_column_alexnet',
    'mbit_s': 1000,
    'batch': 2,
    'processor': _PROCESSOR,
  }
  chosen = (race[[*condition]] == [*condition.values()]).all(axis=1)
  rows = race[chosen].set_index('case').loc[list(_BARS)]
  drawn = figure.Figure(figsize=(7, 2.4), layout='constrained')
  axes = drawn.subplots()
  bars = axes.barh(
    list(_BARS.values()),
    rows['seconds'],
    xerr=rows['95 %'],
    capsize=3,
    color=['0.6'] * 3 + ['tab:green'] * 3,
  )
  axes.bar_label(bars, fmt='%.2f s', padding=3)
  axes.invert_yaxis()
  longest = (rows['seconds'] + rows['95 %']).max()
  axes.set(xlabel=label_of(rows), xlim=(0, 1.2 * longest))
  axes.spines[['top', 'right']].set_visible(False)
  with mpl.rc_context({'svg.hashsalt': _OUTPUT.name}):
    drawn.savefig(_OUTPUT, metadata={'Date': None})


if __name__ == '__main__':
  main()
