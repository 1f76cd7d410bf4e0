"""What a net is made of: its layers, their parameters and multiply-adds."""

import html
import math
from typing import NamedTuple

import keras

_WIDTH, _HEIGHT, _GAP = 190, 34, 14  # pixels of a box, and between two


class Row(NamedTuple):
  """A layer.

  Attributes:
    name: of the layer.
    kind: its class.
    shape: of its output, without the batch; the first where it has several.
    parameters: trainable ones.
    multiply_adds: of convolutions and dense layers, for one example.
  """

  name: str
  kind: str
  shape: tuple
  parameters: int
  multiply_adds: int


def rows(model):
  """The layers of a net.

  Args:
    model: `keras.Model`, made of layers by calls.

  Returns:
    List of `Row`.
  """
  return [
    Row(
      layer.name,
      type(layer).__name__,
      _shape(layer),
      sum(math.prod(v.shape) for v in layer.trainable_variables),
      _multiply_adds(layer),
    )
    for layer in model.layers
  ]


def text(model):
  """A table of the layers, and their sums, as lines."""
  found = rows(model)
  head = ('layer', 'kind', 'output', 'parameters', 'multiply-adds')
  cells = [
    (
      row.name,
      row.kind,
      'x'.join(map(str, row.shape)),
      f'{row.parameters:,}',
      f'{row.multiply_adds:,}',
    )
    for row in found
  ]
  widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
  lines = [
    '  '.join(
      cell.rjust(width) if i > 2 else cell.ljust(width)
      for i, (cell, width) in enumerate(zip(line, widths, strict=True))
    ).rstrip()
    for line in (head, *cells)
  ]
  lines.append(total(found))
  if len(model.outputs) > 1:
    alone = rows(keras.Model(model.inputs, model.outputs[0]))
    lines.append(f'without auxiliary logits: {total(alone)}')
  return '\n'.join(lines)


def total(found):
  """A line of the sums of `rows`."""
  parameters = sum(row.parameters for row in found)
  multiply_adds = sum(row.multiply_adds for row in found)
  return (
    f'{len(found)} layers, {parameters:,} parameters, {multiply_adds:,} '
    'multiply-adds an example'
  )


def drawing(model):
  """The graph of the layers, from the images down.

  Args:
    model: `keras.Model`, made of layers by calls.

  Returns:
    str, an SVG file.
  """
  sources = {
    layer.name: [
      origin.name for node in layer._inbound_nodes for origin in _origins(node)
    ]
    for layer in model.layers
  }
  depths = {}
  for layer in model.layers:  # each after those that it takes from
    above = [depths[name] for name in sources[layer.name] if name in depths]
    depths[layer.name] = 1 + max(above, default=-1)
  places, used = {}, {}
  for row in rows(model):
    depth = depths[row.name]
    column = used[depth] = used.get(depth, -1) + 1
    places[row.name] = (
      _GAP + column * (_WIDTH + _GAP),
      _GAP + depth * (_HEIGHT + _GAP),
      row,
    )
  return _svg(places, sources)


def _svg(places, sources):
  """`drawing` of {name: (x, y, `Row`)} and {name: names that it takes from}."""
  lines, boxes = [], []
  for name, (x, y, row) in places.items():
    for source in sources[name]:
      if source in places:
        lines.append(_edge(*places[source][:2], x, y))
    shape = 'x'.join(map(str, row.shape))
    said = f'{row.kind} {shape}'
    boxes.append(
      f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>'
      f'<text x="{x + 6}" y="{y + 14}">{html.escape(name[:32])}</text>'
      f'<text x="{x + 6}" y="{y + 27}" opacity="0.6">{html.escape(said)}</text>'
    )
  width = max(x for x, _, _ in places.values()) + _WIDTH + 3 * _GAP
  height = max(y for _, y, _ in places.values()) + _HEIGHT + _GAP
  return (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
    f'height="{height}" font-family="sans-serif" font-size="11">'
    '<rect width="100%" height="100%" fill="white"/>'
    f'<g stroke="gray">{"".join(lines)}</g>'
    f'<g fill="#eef" stroke="#88a">{"".join(boxes)}</g></svg>\n'
  ).replace('<text', '<text fill="black" stroke="none"')


def _edge(left, top, x, y):
  """From a box to one below it; round what is between them."""
  if y - top == _HEIGHT + _GAP:
    return (
      f'<line x1="{left + _WIDTH / 2}" y1="{top + _HEIGHT}" '
      f'x2="{x + _WIDTH / 2}" y2="{y}"/>'
    )
  begin, end = top + _HEIGHT / 2, y + _HEIGHT / 2
  side = max(left, x) + _WIDTH + 3 * _GAP
  return (
    f'<path fill="none" d="M {left + _WIDTH} {begin} C {side} {begin} {side} '
    f'{end} {x + _WIDTH} {end}"/>'
  )


def _origins(node):
  """The layers that a node of Keras's graph takes from."""
  return [
    history.operation
    for history in (
      getattr(tensor, '_keras_history', None) for tensor in node.input_tensors
    )
    if history is not None
  ]


def _shape(layer):
  output = layer.output
  first = output[0] if isinstance(output, list | tuple) else output
  return tuple(first.shape[1:])


def _multiply_adds(layer):
  """For one example; 0 for layers without a kernel."""
  shape = _shape(layer)
  if isinstance(layer, keras.layers.DepthwiseConv2D | keras.layers.Conv2D):
    # Each weight acts once at every place of the output.
    return math.prod(layer.kernel.shape) * math.prod(shape[:2])
  if isinstance(layer, keras.layers.Dense):
    return math.prod(layer.kernel.shape) * math.prod(shape[:-1])
  return 0
