"""Writes TFRecord files, for the tests of slim."""

import tensorflow as tf

FRAMING_BYTES = 16  # length, its CRC, the payload's CRC


def write(path, payloads):
  with tf.io.TFRecordWriter(str(path)) as writer:
    for payload in payloads:
      writer.write(payload)


def example(png, label):
  return tf.train.Example(
    features=tf.train.Features(
      feature={
        'image/encoded': tf.train.Feature(
          bytes_list=tf.train.BytesList(value=[png])
        ),
        'image/class/label': tf.train.Feature(
          int64_list=tf.train.Int64List(value=[label])
        ),
      }
    )
  ).SerializeToString()
