"""A page about runs: their curves, and predictions for test images.

The page is one self-contained HTML file: plots are inline SVG, images are PNG
in data URLs, and its script only adds to it.
"""

import base64
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import NamedTuple

import numpy as np

from terngrad import lazy
from terngrad.report import curves
from terngrad.report import predicted_classes
from terngrad.report import varied
from terngrad.report.pages import html_page
from terngrad.training import metrics

if TYPE_CHECKING:
  from terngrad.report import run_facts

tf = lazy.module('tensorflow')

# Points of all curves together; a point takes about 25 bytes.
_MOST_POINTS = 2400
_FEWEST_POINTS, _MOST_OF_A_CURVE = 8, 300

_PAGE = """\
{% extends 'base' %}
{% macro rows(names, field) %}
<div class="wide"><table>
{% if runs | length > 1 %}
<thead><tr><th></th>
{%- for name in runs %}<th>{{ name }}</th>{% endfor %}</tr></thead>
{% endif %}
{% for name in names %}
<tr><th>{{ name }}</th>
{%- for run in runs.values() %}<td>{{ run[field].get(name, '') }}</td>
{%- endfor %}</tr>
{% endfor %}
</table></div>
{% endmacro %}
{% block body %}
{% if plots %}
<div class="plots">
{% for plot in plots %}
{{ plot }}
{% endfor %}
</div>
{% endif %}
<h2>{{ 'Comparison' if runs | length > 1 else 'Run' }}</h2>
{{ rows(fact_names, 'facts') }}
{% for run in runs.values() | selectattr('virtual') %}
{% if loop.first %}
<p class="soft">Virtual nodes share one machine, so seconds and examples/s are
not those of as many workers. They are in metrics.jsonl.</p>
{% endif %}
{% endfor %}
{% if differing %}
<h2>Options that differ</h2>
{{ rows(differing, 'options') }}
{% endif %}
{% if same %}
<details><summary>{{ 'Other options' if differing else 'Options' }}</summary>
{{ rows(same, 'options') }}
</details>
{% endif %}
{% if examples %}
<h2>Test images</h2>
{% set right = examples | selectattr('right') | list %}
<p>{{ right | length }} of {{ examples | length }} right. Images are the inputs
of the net, scaled to the full range of brightness.</p>
<div class="images">
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


def page(
  title: str,
  runs: 'Mapping[str, run_facts.ReportedRun]',
  examples: Sequence[Prediction] = (),
) -> str:
  """Renders the page.

  Args:
    title: title of the page.
    runs: the runs by name, at least one.
    examples: images and predictions; may be empty.

  Returns:
    HTML. Equal arguments give equal text.
  """
  found = {name: _plots(run) for name, run in runs.items()}
  if len(runs) > 1:
    plots, constants = varied.compare(found)
  else:
    ((name, alone),) = found.items()
    plots, values = varied.divide(alone)
    constants = {name: values}
  shown = {
    name: run._replace(facts={**run.facts} | _missing(constants[name], run))
    for name, run in runs.items()
  }
  options = [run.options for run in runs.values()]
  differing = [
    name
    for name in _names(options)
    if len({each.get(name) for each in options}) > 1
  ]
  number = sum(len(plot.curves) for plot in plots)
  most = max(_FEWEST_POINTS, _MOST_POINTS // max(number, 1))
  return html_page.render(
    _PAGE,
    title,
    plots=[
      curves.svg(plot, min(most, _MOST_OF_A_CURVE), len(runs) > 1)
      for plot in plots
    ],
    runs=shown,
    fact_names=_names(run.facts for run in shown.values()),
    differing=differing,
    same=[name for name in _names(options) if name not in differing],
    examples=examples,
    png=_png,
  )


def _plots(run: 'run_facts.ReportedRun') -> list[curves.Plot]:
  """Returns the plots of a run; no examples/s for virtual nodes."""
  return [
    plot
    for plot in curves.plots(run.trained, run.scored)
    if not (run.virtual and plot.title == metrics.SPEED.title)
  ]


def _missing(
  constants: Mapping[str, str], run: 'run_facts.ReportedRun'
) -> dict[str, str]:
  """Returns the constants that are not among the facts of the run."""
  return {k: value for k, value in constants.items() if k not in run.facts}


def _names(tables: Iterable[Mapping[str, str]]) -> list[str]:
  """Returns the names in any of the tables, by their first occurrence."""
  return [*dict.fromkeys(name for table in tables for name in table)]


def _png(image: np.ndarray) -> str:
  """Returns a PNG data URL; the least value is black, the greatest white."""
  least, greatest = image.min(), image.max()
  scaled = (image - least) * (255.0 / max(greatest - least, 1e-6))
  content = tf.io.encode_png(np.uint8(np.rint(scaled))).numpy()
  return f'data:image/png;base64,{base64.b64encode(content).decode("ascii")}'
