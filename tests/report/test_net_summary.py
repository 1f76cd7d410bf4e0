"""Parameters and multiply-adds of nets, against arithmetic and papers."""

import xml.etree.ElementTree

import keras
import pytest

from slim.nets import factory as nets
from terngrad.report import net_summary


def small_net():
  images = keras.Input((8, 6, 3), name='images')
  x = keras.layers.Conv2D(4, 3, padding='same', name='conv')(images)
  y = keras.layers.Conv2D(4, 1, groups=2, use_bias=False, name='grouped')(x)
  x = keras.layers.Add(name='sum')([x, y])
  x = keras.layers.DepthwiseConv2D(3, strides=2, name='depthwise')(x)
  x = keras.layers.BatchNormalization(name='norm')(x)
  x = keras.layers.Flatten(name='flat')(x)
  return keras.Model(images, keras.layers.Dense(5, name='logits')(x))


def test_counts_of_layers_match_those_by_hand():
  found = {row.name: row for row in net_summary.rows(small_net())}
  counts = {n: (r.parameters, r.multiply_adds) for n, r in found.items()}
  assert counts == {
    'images': (0, 0),
    'conv': (3 * 3 * 3 * 4 + 4, 3 * 3 * 3 * 4 * 8 * 6),
    # Each of two groups sees half of the channels.
    'grouped': (2 * 4, 2 * 4 * 8 * 6),
    'sum': (0, 0),
    'depthwise': (3 * 3 * 4 + 4, 3 * 3 * 4 * 3 * 2),
    'norm': (8, 0),
    'flat': (0, 0),
    'logits': (24 * 5 + 5, 24 * 5),
  }
  assert found['depthwise'].shape == (3, 2, 4)


def test_the_table_ends_with_the_totals():
  lines = net_summary.text(small_net()).splitlines()
  assert len(lines) == 1 + 8 + 1
  assert lines[0].split() == [
    *('layer', 'kind', 'output', 'parameters', 'multiply-adds')
  ]
  assert lines[2].split() == ['conv', 'Conv2D', '8x6x4', '112', '5,184']
  assert lines[-1] == (
    '8 layers, 293 parameters, 5,904 multiply-adds per example'
  )


def test_multiply_adds_of_language_models_are_those_of_a_token():
  model = nets.build('gpt_nano:blocks=1,width=8,heads=2', num_classes=11)
  lines = net_summary.text(model).splitlines()
  assert lines[1].split()[-3:] == ['T', '0', '0']
  found = {row.name: row for row in net_summary.rows(model)}
  embedding = found.pop('embedding')
  assert embedding.parameters == embedding.multiply_adds == 8 * 11
  # Keys, queries, values and output; a perceptron of four times the width.
  dense = 4 * 8 * 8 + 2 * 4 * 8 * 8
  assert sum(row.multiply_adds for row in found.values()) == dense
  assert lines[-1].endswith(
    f' {dense + 8 * 11:,} multiply-adds per token, without those of attention'
  )
  xml.etree.ElementTree.fromstring(net_summary.drawing(model))


@pytest.mark.parametrize(
  ('name', 'parameters', 'billions'),
  [
    # Szegedy et al., arXiv 1512.00567, section 1: under 25 million, 5 billion.
    ('inception_v3', 25_000_000, (5.0, 6.0)),
    # He et al., arXiv 1512.03385, table 1: 3.8 billion at 224 pixels.
    ('resnet_v1_50', 25_600_000, (3.4, 4.2)),
  ],
)
@pytest.mark.slow
def test_totals_match_published_figures(name, parameters, billions):
  model = nets.build(name, num_classes=1000)
  found = net_summary.rows(keras.Model(model.inputs, model.outputs[0]))
  assert 0.9 * parameters < sum(r.parameters for r in found) < parameters
  total = sum(r.multiply_adds for r in found) / 1e9
  assert billions[0] < total < billions[1]


def test_auxiliary_logits_are_counted_separately():
  images = keras.Input((4,), name='images')
  heads = [keras.layers.Dense(3, name=n)(images) for n in ('logits', 'other')]
  lines = net_summary.text(keras.Model(images, heads)).splitlines()
  assert lines[-2].startswith('3 layers, 30 parameters, 24 multiply-adds')
  assert lines[-1].startswith('without auxiliary logits: 2 layers, 15 param')


def test_a_drawing_has_every_layer_and_every_edge():
  root = xml.etree.ElementTree.fromstring(net_summary.drawing(small_net()))
  space = '{http://www.w3.org/2000/svg}'
  texts = [t.text for t in root.iter(f'{space}text')]
  for name in ('images', 'conv', 'grouped', 'sum', 'logits'):
    assert texts.count(name) == 1
  # The sum takes from a layer two above it, past the one between.
  assert len(list(root.iter(f'{space}line'))) == 7
  assert len(list(root.iter(f'{space}path'))) == 1
  assert len(list(root.iter(f'{space}rect'))) == 1 + 8
