"""Draws docs/step.svg, the README's picture, from a run in races.csv.

python experiments/network/draw.py
"""

import pathlib

import matplotlib as mpl
import pandas as pd
from matplotlib import figure

_FOLDER = pathlib.Path(__file__).parent
_OUTPUT = _FOLDER.parents[1] / 'docs' / 'step.svg'
_RUN = '8'
_LABEL = (
  'seconds a step: AlexNet, 2 hosts, 1 Gbit/s, batch 2 and one thread a host'
)
# Cases of the run, in the order of the bars, and their labels.
_BARS = {
  'fp32': 'PyTorch DDP, float32',
  'fp16': 'PyTorch DDP, fp16',
  'powersgd rank 1': 'PyTorch DDP, PowerSGD rank 1',
  'identity (gather+gather+gather)': 'terngrad, float32',
  'ternary (gather+gather+gather)': 'terngrad, ternary',
}


def main():
  """Writes the picture; equal tables give equal bytes."""
  races = pd.read_csv(_FOLDER / 'races.csv', dtype={'run': str})
  run = races[races['run'] == _RUN].set_index('case')
  seconds = [run.loc[case, 'seconds_a_step'] for case in _BARS]
  drawn = figure.Figure(figsize=(7, 2.4), layout='constrained')
  axes = drawn.subplots()
  bars = axes.barh(
    list(_BARS.values()), seconds, color=['0.6'] * 4 + ['tab:green']
  )
  axes.bar_label(bars, fmt='%.2f s', padding=3)
  axes.invert_yaxis()
  axes.set(xlabel=_LABEL, xlim=(0, 2.9))
  axes.spines[['top', 'right']].set_visible(False)
  with mpl.rc_context({'svg.hashsalt': _OUTPUT.name}):
    drawn.savefig(_OUTPUT, metadata={'Date': None})


if __name__ == '__main__':
  main()
