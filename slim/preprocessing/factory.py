"""Preprocessings by name.

To add one: a module with a `contract.Batched` or a `contract.Single`, one entry
in `PREPROCESSINGS`; in `WITH_OPTIONS` too, where there is a function that makes
it, for `NAME:option=value`.
"""

from slim import errors
from slim import spelling
from slim.preprocessing import cifar
from slim.preprocessing import contract
from slim.preprocessing import inception
from slim.preprocessing import mnist
from slim.preprocessing import scaled

Preprocessing = contract.Batched | contract.Single

PREPROCESSINGS: dict[str, Preprocessing] = {
  'alexnet': scaled.ALEXNET,
  'caffe2': scaled.CAFFE2,
  'cifar10': cifar.CIFAR10,
  'cifarnet': cifar.CIFARNET,
  'inception': inception.INCEPTION,
  'inception_fast': inception.INCEPTION_FAST,
  'lenet': mnist.LENET,
  'mnist': mnist.MNIST,
  'vgg': scaled.VGG,
}


# Functions of the options of those that have some.
WITH_OPTIONS = {'caffe2': scaled.image_input}


def get(text: str) -> Preprocessing:
  """Returns a preprocessing.

  Args:
    text: a key of `PREPROCESSINGS`, or one of `WITH_OPTIONS` with options, as
      'caffe2:mean=120,scale=300,mirror=false'.

  Raises:
    slim.errors.UnknownNameError: there is none of this name.
    slim.errors.DataError: it has no such option, or the value cannot be.
  """
  name, items = spelling.split(text)
  chosen = errors.lookup(PREPROCESSINGS, name, 'preprocessing')
  if not items:
    return chosen
  makers = {name: WITH_OPTIONS.get(name, lambda: chosen)}
  try:
    return spelling.make('preprocessing', text, makers)
  except ValueError as error:
    raise errors.DataError(str(error)) from error


def name_for(preferred: str, net: str) -> str:
  """Chooses by data set and net, as the trainer of 2017 did.

  Args:
    preferred: the data set's preprocessing for every net, '' for none; see
      `slim.datasets.catalog.Dataset`.
    net: name of a net.

  Returns:
    A key of `PREPROCESSINGS`.
  """
  if preferred:
    return preferred
  if net == 'alexnet':
    return 'alexnet'
  return 'vgg' if net.startswith(('vgg', 'slim_vgg')) else 'inception'
