"""Models with the shapes of their variables, but no values: soon built."""

import functools

import keras
import numpy as np

from slim.nets import factory


def outline(build, **options):
  """The model that `build` makes, whose variables have no values."""
  try:
    with keras.StatelessScope(initialize_variables=False):
      return build(**options)
  finally:
    # Else the next such scope's end would draw these variables' values.
    keras.utils.clear_session(free_memory=False)


def named(name, num_classes=7, **options):
  """The outline of a net by name."""
  return outline(factory.build, name=name, num_classes=num_classes, **options)


@functools.cache
def usual(name):
  """An outline that tests share: decay 0.25, dropout that keeps 0.75."""
  return named(name, weight_decay=0.25, dropout_keep_prob=0.75)


def path(model, variable):
  """A variable's name as training knows it, 'conv1/kernel'."""
  return variable.path.removeprefix(f'{model.name}/')


def size(variables):
  """The number of elements."""
  return sum(int(np.prod(v.shape)) for v in variables)


def parameters(model, prefix=''):
  """The number of trainable parameters of layers that begin so."""
  return size(v for v in model.trainable_variables if v.path.startswith(prefix))


def statistics(model):
  """The variables of moving statistics."""
  return [v for v in model.variables if '/moving_' in v.path]


def kernels(model):
  """Layer to kernel's shape, in the order in which the net was written."""
  layers = [x for x in model.layers if hasattr(x, 'kernel')]
  layers.sort(key=lambda layer: layer.kernel_initializer.seed)
  return {layer.name: tuple(layer.kernel.shape) for layer in layers}


def names(model):
  """The names of its layers."""
  return [layer.name for layer in model.layers]
