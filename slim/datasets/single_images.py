"""Image files by themselves, as evaluation would see them in a data set."""

import os
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets.photographs import images as image_files
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


def load(path: str | os.PathLike, target: Target) -> tf.Tensor:
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
  name = target.preprocessing or preprocessing.name_for(
    dataset.preprocessing, target.net
  )
  chosen = preprocessing.get(name)
  if isinstance(chosen, contract.Batched):
    chosen = contract.single(chosen)
  pixels = _pixels(path, dataset.image_size or 0)
  if dataset.channels == 1:
    pixels = tf.image.rgb_to_grayscale(pixels)
  return chosen.evaluate.one(
    photographs.of_pixels(pixels),
    tf.zeros([2], tf.int64),  # evaluation draws nothing
    target.image_size,
  )


def _pixels(path: str | os.PathLike, side: int) -> np.ndarray:
  """uint8 [H, W, 3]."""
  try:
    content = pathlib.Path(path).read_bytes()
    encoded = image_files.to_pixels(content, side)
  except (OSError, image_files.ImageError) as error:
    raise errors.DataError(
      f'{path}: {error}. Give an image file that can be read.'
    ) from error
  pixels = np.frombuffer(encoded.content, np.uint8)
  return pixels.reshape(encoded.height, encoded.width, 3)
