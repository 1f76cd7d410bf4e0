"""Reads records with plain TensorFlow, and no code of this project."""

import tensorflow as tf


def examples(paths):
  """Returns a list of {key: list of values}, in the order of the files."""
  found = []
  for path in paths:
    for serialized in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
      features = tf.train.Example.FromString(serialized).features.feature
      found.append(
        {
          key: list(getattr(value, value.WhichOneof('kind')).value)
          for key, value in features.items()
        }
      )
  return found


def only(example, key):
  (value,) = example[key]
  return value


def in_folder(folder, split):
  """Returns the examples of a split."""
  return examples(sorted(folder.glob(f'{split}-*')))
