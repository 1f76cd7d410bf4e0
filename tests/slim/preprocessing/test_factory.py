import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets import factory as datasets
from slim.preprocessing import factory
from slim.preprocessing import photographs


def test_every_data_set_has_a_preprocessing_for_every_net():
  for dataset in datasets.DATASETS.values():
    for net in ('alexnet', 'vgg_a', 'vgg_16', 'googlenet', 'lenet', ''):
      chosen = factory.default_name(dataset.preprocessing, net)
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
  assert factory.default_name(preferred, net) == expected


def test_unknown_preprocessing_is_refused_by_name():
  with pytest.raises(errors.UnknownNameError, match='expected one of alexnet'):
    factory.get('imagenet')


def test_caffe2_takes_its_numbers():
  rng = np.random.default_rng(3)
  pixels = tf.constant(rng.integers(0, 256, (40, 50, 3)), tf.uint8)
  photograph = photographs.from_pixels(pixels)
  seed = tf.constant([1, 2], tf.int64)
  texts = (
    'caffe2:mean=0,std=1,scale=40,mirror=false',
    'caffe2:mean=100,std=50,scale=40',
  )
  plain, changed = (
    factory.get(text).evaluate(photograph, seed, 30) for text in texts
  )
  # At its own size nothing is resized, and the centre is cut out.
  np.testing.assert_array_equal(plain, np.float32(pixels[5:35, 10:40]))
  np.testing.assert_allclose(changed, (plain - 100) / 50, rtol=1e-6)


@pytest.mark.parametrize(
  ('text', 'said'),
  [
    ('caffe2:men=3', "Did you mean 'mean'"),
    ('caffe2:std=0', 'std > 0'),
    ('caffe2:scale=0', 'scale from 1 to 4096, received .* scale=0'),
    ('caffe2:scale=4097', 'scale from 1 to 4096, received .* scale=4097'),
    ('caffe2:scale=x', 'expected a whole number for scale'),
    ('vgg:mean=3', 'none \\(it has no options\\)'),
  ],
)
def test_invalid_options_are_refused(text, said):
  with pytest.raises(errors.DataError, match=said):
    factory.get(text)


@pytest.mark.parametrize(
  'name', ['alexnet', 'caffe2:std=1', 'inception', 'vgg']
)
def test_preprocessing_of_rgb_is_refused_for_grey_images(name):
  with pytest.raises(
    errors.DataError,
    match=rf'with 1 channel.* received {name}, which needs 3.* Choose another',
  ):
    factory.choose(name, 'mnist', 'lenet', 1)
  factory.choose(name, 'mnist', 'lenet', 3)
  factory.choose('', 'mnist', 'lenet', 1)
