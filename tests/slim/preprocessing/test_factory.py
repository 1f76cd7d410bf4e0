import pytest

from slim import errors
from slim.datasets import factory as datasets
from slim.preprocessing import factory


def test_every_data_set_has_a_preprocessing_for_every_net():
  for dataset in datasets.DATASETS.values():
    for net in ('alexnet', 'vgg_a', 'vgg_16', 'googlenet', 'lenet', ''):
      chosen = factory.name_for(dataset.preprocessing, net)
      assert chosen in factory.PREPROCESSINGS


@pytest.mark.parametrize(
  ('dataset', 'net', 'expected'),
  [
    ('mnist', 'alexnet', 'mnist'),
    ('fashion_mnist', 'lenet', 'mnist'),
    ('cifar10', 'cifar10_alexnet', 'cifar10'),
    ('imagenet', 'alexnet', 'alexnet'),
    # As in 2017, only the exact name.
    ('imagenet', 'alexnet_v2', 'inception'),
    ('imagenet', 'vgg_16', 'vgg'),
    ('imagenet', 'slim_vgg_16', 'vgg'),
    ('imagenet', 'googlenet', 'inception'),
    ('flowers', 'inception_v3', 'inception'),
    ('image_db', 'resnet_50', 'caffe2'),
  ],
)
def test_branches_are_those_of_2017(dataset, net, expected):
  preferred = datasets.DATASETS[dataset].preprocessing
  assert factory.name_for(preferred, net) == expected


def test_unknown_preprocessing_is_refused_by_name():
  with pytest.raises(errors.UnknownNameError, match='expected one of alexnet'):
    factory.get('imagenet')
