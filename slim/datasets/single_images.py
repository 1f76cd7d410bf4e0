"""Loads single image files as evaluation loads images of a data set."""

import functools
import os
from typing import NamedTuple

import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets.photographs import image_files
from slim.datasets.photographs import images
from slim.preprocessing import contract
from slim.preprocessing import factory as preprocessing
from slim.preprocessing import photographs


class Target(NamedTuple):
  """The data set and the net for which an image is preprocessed.

  Attributes:
    dataset: name of a data set, as `slim.datasets.catalog.find` takes it.
    net: name of a net.
    image_size: height and width of the result, in pixels.
    preprocessing: a key of `slim.preprocessing.factory.PREPROCESSINGS`; ''
      uses the default of the data set and the net.
  """

  dataset: str
  net: str
  image_size: int
  preprocessing: str = ''


def load(path: str | os.PathLike[str], target: Target) -> tf.Tensor:
  """Reads and preprocesses an image file.

  If all images of the data set have one size, the file is first resized to it,
  without keeping its aspect ratio.

  Args:
    path: path of a JPEG, PNG, GIF, BMP or WebP file.
    target: the data set and the net.

  Returns:
    float32 [image_size, image_size, C], with the data set's channels.

  Raises:
    slim.errors.DataError: the file is not an image, is damaged or too large,
      or the data set or preprocessing is unknown.
  """
  dataset = catalog.find(target.dataset)
  chosen = contract.single(
    preprocessing.choose(
      target.preprocessing, dataset.preprocessing, target.net, dataset.channels
    )
  )
  unused_seed = tf.zeros([2], tf.int64)
  try:
    photograph = _photograph(path, dataset)
    return chosen.evaluate(photograph, unused_seed, target.image_size)
  except tf.errors.OpError as error:
    raise errors.DataError(
      f'{path}: expected an image; received "{error.message}". Give an image '
      'file that can be read.'
    ) from error


def _photograph(
  path: str | os.PathLike[str], dataset: catalog.Dataset
) -> photographs.Photograph:
  if not dataset.image_size:
    stored = image_files.read(path, images.to_decodable)
    return photographs.from_encoded(
      tf.constant(stored.content),
      image_format=tf.constant(stored.image_format),
      size=tf.constant(stored.size),
      boxes=tf.zeros([0, 4]),
      channels=dataset.channels,
    )
  resized = functools.partial(images.to_pixels, side=dataset.image_size)
  image = image_files.read(path, resized)
  pixels = tf.io.decode_raw(image.content, tf.uint8)
  pixels = tf.reshape(pixels, [image.height, image.width, 3])
  if dataset.channels == 1:
    pixels = tf.image.rgb_to_grayscale(pixels)
  return photographs.from_pixels(pixels)
