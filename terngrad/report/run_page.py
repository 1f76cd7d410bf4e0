"""A page of a run: its curves, and what its net says of test images.

One HTML file that needs nothing else: plots are inline SVG, images are PNG in
data addresses, and there is no script.
"""

import base64
import html
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.report import curves
from terngrad.report import guesses
from terngrad.report import html_page
from terngrad.training import metric
from terngrad.training import metrics

_STYLE = """
svg { max-width: 620px; width: 100%; }
.grid { display: flex; flex-wrap: wrap; gap: 10px; }
.grid figure { margin: 0; padding: 4px; width: 128px; border: 2px solid; }
.grid img { width: 128px; image-rendering: pixelated; display: block; }
.RIGHT { border-color: green; } .RIGHT b { color: green; }
.WRONG { border-color: red; } .WRONG b { color: red; }
"""


class Shown(NamedTuple):
  """A test image and what the net says of it.

  Attributes:
    image: float32 [H, W, C], C 1 or 3, as the net saw it.
    guess: `guesses.Guess`.
    truth: name of its class.
    right: True where the guess is the truth.
  """

  image: np.ndarray
  guess: guesses.Guess
  truth: str
  right: bool


def shown(images, labels, probabilities, names):
  """Puts images and guesses together.

  Args:
    images: float32 [n, H, W, C].
    labels: int [n].
    probabilities: float32 [n, classes].
    names: dict of label to name, or None.

  Returns:
    List of `Shown`.
  """
  found = []
  for image, label, row in zip(images, labels, probabilities, strict=True):
    guess = guesses.best(row, names, 1)[0]
    truth = guesses.name_of(label, names)
    found.append(Shown(image, guess, truth, guess.label == label))
  return found


def facts_of_run(layout):
  """What is to be said of a `checkpoints.Layout`: a dict of text."""
  return {
    'net': layout.net,
    # Older checkpoints have it in a field of its own.
    'gradient code': (layout.may_change or {}).get('codec') or layout.codec,
    'nodes': f'{layout.num_workers} on {layout.num_devices} devices',
    'optimizer': layout.optimizer,
  }


def page(title, facts, trained, scored, examples):
  """Writes the page.

  Args:
    title: of the run.
    facts: dict of what is to be said of it, both text.
    trained: records of training, see `curves.plots`.
    scored: records of evaluation.
    examples: list of `Shown`, may be empty.

  Returns:
    str, HTML.
  """
  rows = [
    f'<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>'
    for k, v in facts.items()
  ]
  parts = [
    *('<table>', *rows, '</table>'),
    *(curves.svg(plot) for plot in curves.plots(trained, scored)),
  ]
  if examples:
    right = sum(example.right for example in examples)
    parts += [
      '<h2>Test images</h2>',
      f'<p>{right} of {len(examples)} right. Images are as the net sees them, '
      'scaled to be seen.</p><div class="grid">',
      *(_figure(example) for example in examples),
      '</div>',
    ]
  return html_page.document(title, parts, _STYLE)


def last_values(losses, scores):
  """The newest numbers of a run.

  Args:
    losses: records of training, at least one.
    scores: records of evaluation.

  Returns:
    dict of what it is to the number, both text.
  """
  facts = {'steps': str(losses[-1]['step'])}
  for table, found in (
    (metrics.TRAINING, losses),
    (metrics.EVALUATION, scores[-1:]),
  ):
    last = {key: value for record in found for key, value in record.items()}
    for kind, shown in metric.entries(table, 'fact'):
      if last.get(kind.name) is not None:
        facts[shown.label] = shown.show(last[kind.name])
  for kind, shown in metric.entries(metrics.EVALUATION, 'fact'):
    for subset in metrics.epoch_subsets(losses, kind):
      name = metrics.epoch_name(subset, kind)
      value = [record[name] for record in losses if name in record][-1]
      facts[f'{shown.label}, {subset}'] = shown.show(value)
  return facts


def _figure(example):
  word = 'RIGHT' if example.right else 'WRONG'
  content = base64.b64encode(_png(example.image)).decode('ascii')
  said = f'{html.escape(example.guess.name)} {example.guess.confidence:.0%}'
  truth = '' if example.right else f'<br>is {html.escape(example.truth)}'
  return (
    f'<figure class="{word}"><img alt="" src="data:image/png;base64,{content}">'
    f'<figcaption><b>{word}</b><br>{said}{truth}</figcaption></figure>'
  )


def _png(image):
  """A PNG whose darkest value is black and whose brightest is white."""
  least, greatest = image.min(), image.max()
  scaled = (image - least) * (255.0 / max(greatest - least, 1e-6))
  return tf.io.encode_png(np.uint8(np.rint(scaled))).numpy()
