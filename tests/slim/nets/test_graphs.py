"""Graphs of nets for TensorBoard."""

import keras
import pytest

from slim.nets import factory
from slim.nets import graphs


@pytest.mark.parametrize('net', ['lenet', 'cifarnet', 'cifar_resnet_20'])
def test_a_graph_has_the_operations_of_each_layer(net):
  model = factory.build(net, num_classes=10)
  graph = graphs.trace(model)
  names = {node.name for node in graph.node}
  kernels = (keras.layers.Dense, keras.layers.Conv2D)
  layers = [layer.name for layer in model.layers if isinstance(layer, kernels)]
  assert layers
  for layer in layers:
    assert any(f'/{layer}' in f'/{name}' for name in names), layer
  assert {node.op for node in graph.node} >= {'Placeholder', 'MatMul'}
  assert graph.ByteSize() < 2**20


def test_a_net_of_several_inputs_has_a_graph():
  inputs = [keras.Input((2,), name='left'), keras.Input((2,), name='right')]
  model = keras.Model(inputs, keras.layers.Add()(inputs))
  found = [n for n in graphs.trace(model).node if n.op == 'Placeholder']
  assert [node.name for node in found] == ['left', 'right']
