"""Preprocessings by name.

To add one: a module with a `contract.Batched` or a `contract.Single`, one entry
in `PREPROCESSINGS`.
"""

from slim import errors
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


def get(name: str) -> Preprocessing:
  """Returns a preprocessing.

  Args:
    name: a key of `PREPROCESSINGS`.

  Raises:
    slim.errors.UnknownNameError: there is none of this name.
  """
  return errors.lookup(PREPROCESSINGS, name, 'preprocessing')


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
