"""A page about a run: its curves, and predictions for test images.

The page is one self-contained HTML file: plots are inline SVG, images are PNG
in data URLs, and there is no script.
"""

import base64
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.checkpoint import checkpoints
from terngrad.report import curves
from terngrad.report import html_page
from terngrad.report import predicted_classes
from terngrad.training import metric
from terngrad.training import metrics

_PAGE = """\
{% extends 'base' %}
{% block style %}
svg { max-width: 620px; width: 100%; }
.grid { display: flex; flex-wrap: wrap; gap: 10px; }
.grid figure { margin: 0; padding: 4px; width: 128px; border: 2px solid; }
.grid img { width: 128px; image-rendering: pixelated; display: block; }
.RIGHT { border-color: green; } .RIGHT b { color: green; }
.WRONG { border-color: red; } .WRONG b { color: red; }
{% endblock %}
{% block body %}
<table>
{% for name, value in facts.items() %}
<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}
</table>
{% for plot in plots %}
{{ plot | safe }}
{% endfor %}
{% if examples %}
<h2>Test images</h2>
{% set right = examples | selectattr('right') | list %}
<p>{{ right | length }} of {{ examples | length }} right. Images are the inputs
of the net, scaled to the full range of brightness.</p>
<div class="grid">
{% for example in examples %}
{% set word = 'RIGHT' if example.right else 'WRONG' %}
<figure class="{{ word }}"><img alt="" src="{{ png(example.image) }}">
{%- set sure = '{:.0%}'.format(example.predicted.confidence) -%}
<figcaption><b>{{ word }}</b><br>{{ example.predicted.name }} {{ sure }}
{%- if not example.right %}<br>is {{ example.truth }}{% endif -%}
</figcaption></figure>
{% endfor %}
</div>
{% endif %}
{% endblock %}
"""


class Prediction(NamedTuple):
  """A test image and its predicted class.

  Attributes:
    image: float32 [H, W, C], C 1 or 3, as the net receives it.
    predicted: the most probable class.
    truth: name of the true class.
    right: True if the prediction is correct.
  """

  image: np.ndarray
  predicted: predicted_classes.PredictedClass
  truth: str
  right: bool


def predictions(
  images: np.ndarray,
  labels: np.ndarray,
  probabilities: np.ndarray,
  names: Mapping[int, str] | None,
) -> list[Prediction]:
  """Combines images with their predictions.

  Args:
    images: float32 [n, H, W, C].
    labels: int [n].
    probabilities: float32 [n, classes].
    names: names of the labels, if known.
  """
  found = []
  for image, label, row in zip(images, labels, probabilities, strict=True):
    predicted = predicted_classes.top_classes(row, names, 1)[0]
    truth = predicted_classes.name_of(label, names)
    found.append(Prediction(image, predicted, truth, predicted.label == label))
  return found


def facts_of_run(layout: checkpoints.Layout) -> dict[str, str]:
  """Returns the page's facts about a checkpoint, by name."""
  return {
    'net': layout.net,
    # Older checkpoints store it in a separate field.
    'codec': str((layout.may_change or {}).get('codec') or layout.codec),
    'nodes': f'{layout.num_workers} on {layout.num_devices} devices',
    'optimizer': layout.optimizer,
  }


def page(
  title: str,
  facts: Mapping[str, str],
  trained: Sequence[Mapping[str, Any]],
  scored: Sequence[Mapping[str, Any]],
  examples: Sequence[Prediction],
) -> str:
  """Renders the page.

  Args:
    title: title of the page.
    facts: values about the run, by name.
    trained: records of training, as for `curves.plots`.
    scored: records of evaluation.
    examples: images and predictions; may be empty.

  Returns:
    HTML.
  """
  return html_page.render(
    _PAGE,
    title,
    facts=facts,
    plots=[curves.svg(plot) for plot in curves.plots(trained, scored)],
    examples=examples,
    png=_png,
  )


def last_values(
  losses: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
  """Returns the newest values of a run.

  Args:
    losses: records of training, at least one.
    scores: records of evaluation.

  Returns:
    Values as text, by label.
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
      *_, value = (record[name] for record in losses if name in record)
      facts[f'{shown.label}, {subset}'] = shown.show(value)
  return facts


def _png(image: np.ndarray) -> str:
  """Returns a PNG data URL; the least value is black, the greatest white."""
  least, greatest = image.min(), image.max()
  scaled = (image - least) * (255.0 / max(greatest - least, 1e-6))
  content = tf.io.encode_png(np.uint8(np.rint(scaled))).numpy()
  return f'data:image/png;base64,{base64.b64encode(content).decode("ascii")}'
