"""Runs the cells of a notebook in a separate process, as a kernel does.

    python -m tests.examples.notebook NOTEBOOK FOLDER

Figures that it shows are saved in FOLDER, as 0.png, 1.png, ...; the titles of
their axes are printed, each with its colour.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use('agg')


def code_of(path):
  """The sources of the cells with code."""
  notebook = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
  return [
    ''.join(cell['source'])
    for cell in notebook['cells']
    if cell['cell_type'] == 'code'
  ]


def main(path, folder):
  import matplotlib.pyplot as plt

  count = 0

  def show():
    nonlocal count
    figure = plt.gcf()
    figure.savefig(pathlib.Path(folder) / f'{count}.png')
    for axes in figure.axes:
      sys.stdout.write(f'title: {axes.get_title()} {axes.title.get_color()}\n')
    plt.close(figure)
    count += 1

  plt.show = show
  names = {'__name__': '__main__'}
  for number, text in enumerate(code_of(path)):
    exec(compile(text, f'cell {number}', 'exec'), names)


if __name__ == '__main__':
  main(*sys.argv[1:])
