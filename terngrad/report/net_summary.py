"""Summary of a net: its layers, their parameters and multiply-adds."""

import collections
import html
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import keras

from slim.nets.blocks import tokens as token_layers

_WIDTH, _HEIGHT, _GAP = 190, 34, 14  # pixels: box size, gap between boxes


class LayerRow(NamedTuple):
  """The summary of a layer.

  Attributes:
    name: name of the layer.
    kind: class name of the layer.
    shape: output shape without the batch, with None for the length of a text;
      of the first of several outputs.
    parameters: number of trainable parameters.
    multiply_adds: of convolutions and of dense and tied layers, for one example
      or, with texts, one token.
  """

  name: str
  kind: str
  shape: tuple[int | None, ...]
  parameters: int
  multiply_adds: int


def rows(model: keras.Model) -> list[LayerRow]:
  """Returns the layers of a functional model."""
  return [
    LayerRow(
      layer.name,
      type(layer).__name__,
      _shape(layer),
      sum(math.prod(v.shape) for v in layer.trainable_variables),
      _multiply_adds(layer),
    )
    for layer in model.layers
  ]


def text(model: keras.Model) -> str:
  """Returns a table of the layers and their totals, as lines of text."""
  found = rows(model)
  cells = [('layer', 'kind', 'output', 'parameters', 'multiply-adds')]
  cells += [
    (
      row.name,
      row.kind,
      _describe(row.shape),
      f'{row.parameters:,}',
      f'{row.multiply_adds:,}',
    )
    for row in found
  ]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  form = '  '.join(
    f'{{:{side}{width}}}' for side, width in zip('<<<>>', widths, strict=True)
  )
  lines = [form.format(*line) for line in cells]
  lines.append(total(found))
  if len(model.outputs) > 1:
    main_rows = rows(keras.Model(model.inputs, model.outputs[0]))
    lines.append(f'without auxiliary logits: {total(main_rows)}')
  return '\n'.join(lines)


def total(found: Sequence[LayerRow]) -> str:
  """Returns a line with the totals of `rows`."""
  parameters = sum(row.parameters for row in found)
  multiply_adds = sum(row.multiply_adds for row in found)
  has_texts = any(None in row.shape for row in found)
  unit = 'token, without those of attention' if has_texts else 'example'
  return (
    f'{len(found)} layers, {parameters:,} parameters, {multiply_adds:,} '
    f'multiply-adds per {unit}'
  )


def drawing(model: keras.Model) -> str:
  """Draws the graph of the layers from the input down, as SVG."""
  sources = {
    layer.name: [
      parent.operation.name
      for node in layer._inbound_nodes
      for parent in node.parent_nodes
    ]
    for layer in model.layers
  }
  depths: dict[str, int] = {}
  for layer in model.layers:  # a layer follows its inputs
    above = [depths[name] for name in sources[layer.name] if name in depths]
    depths[layer.name] = 1 + max(above, default=-1)
  positions: dict[str, tuple[int, int, LayerRow]] = {}
  columns = collections.Counter[int]()
  for row in rows(model):
    depth = depths[row.name]
    positions[row.name] = (
      _GAP + columns[depth] * (_WIDTH + _GAP),
      _GAP + depth * (_HEIGHT + _GAP),
      row,
    )
    columns[depth] += 1
  return _svg(positions, sources)


def _svg(
  positions: Mapping[str, tuple[int, int, LayerRow]],
  sources: Mapping[str, Sequence[str]],
) -> str:
  """Draws {name: (x, y, `LayerRow`)} and {name: names of its input layers}."""
  lines, boxes = [], []
  for name, (x, y, row) in positions.items():
    lines += [
      _edge(*positions[source][:2], x, y)
      for source in sources[name]
      if source in positions
    ]
    text = f'{row.kind} {_describe(row.shape)}'
    boxes.append(
      f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>'
      f'<text x="{x + 6}" y="{y + 14}">{html.escape(name[:32])}</text>'
      f'<text x="{x + 6}" y="{y + 27}" opacity="0.6">{html.escape(text)}</text>'
    )
  width = max(x for x, _, _ in positions.values()) + _WIDTH + 3 * _GAP
  height = max(y for _, y, _ in positions.values()) + _HEIGHT + _GAP
  return (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
    f'height="{height}" font-family="sans-serif" font-size="11">'
    '<rect width="100%" height="100%" fill="white"/>'
    f'<g stroke="gray">{"".join(lines)}</g>'
    f'<g fill="#eef" stroke="#88a">{"".join(boxes)}</g></svg>\n'
  ).replace('<text', '<text fill="black" stroke="none"')


def _edge(left: int, top: int, x: int, y: int) -> str:
  """Draws an edge to a box below; it passes beside the boxes between them."""
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


def _describe(shape: tuple[int | None, ...]) -> str:
  """Writes a shape, with T for the length of a text."""
  return 'x'.join('T' if size is None else str(size) for size in shape)


def _shape(layer: keras.layers.Layer) -> tuple[int | None, ...]:
  output = layer.output
  first = output[0] if isinstance(output, list | tuple) else output
  return tuple(first.shape[1:])


def _multiply_adds(layer: keras.layers.Layer) -> int:
  """Returns the multiply-adds per example; 0 for layers without a product."""
  shape = [size or 1 for size in _shape(layer)]
  if isinstance(layer, keras.layers.DepthwiseConv2D | keras.layers.Conv2D):
    # Each weight is used once at every output position.
    return math.prod((*layer.kernel.shape, *shape[:2]))
  if isinstance(layer, keras.layers.Dense):
    return math.prod((*layer.kernel.shape, *shape[:-1]))
  if isinstance(layer, token_layers.TiedEmbedding):
    # Lookups cost nothing; the logits are a product with all rows.
    return math.prod(layer.embeddings.shape)
  return 0
