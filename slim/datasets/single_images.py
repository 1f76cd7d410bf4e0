"""Image files by themselves, as evaluation would see them in a data set."""

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
  """What the images are for.

  Attributes:
    dataset: see `slim.datasets.catalog.find`.
    net: name of a net.
    image_size: height and width to deliver, in pixels.
    preprocessing: a key of the table of preprocessings; '' for the one that
      data set and net have.
  """

  dataset: str
  net: str
  image_size: int
  preprocessing: str = ''


def load(path: str | os.PathLike[str], target: Target) -> tf.Tensor:
  """Reads an image file.

  Where the data set's images are all of one size, the file is first brought to
  it, not keeping its aspect.

  Args:
    path: of a JPEG, PNG, GIF, BMP or WebP file.
    target: what for.

  Returns:
    float32 [image_size, image_size, C], with the data set's channels.

  Raises:
    slim.errors.DataError: it is no such file, is damaged or too large, or
      there is no such data set or preprocessing.
  """
  dataset = catalog.find(target.dataset)
  chosen = contract.single(
    preprocessing.get(
      target.preprocessing
      or preprocessing.name_for(dataset.preprocessing, target.net)
    )
  )
  nothing_drawn = tf.zeros([2], tf.int64)
  try:
    photograph = _photograph(path, dataset)
    return chosen.evaluate.one(photograph, nothing_drawn, target.image_size)
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
    return photographs.of_encoded(
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
  return photographs.of_pixels(pixels)
