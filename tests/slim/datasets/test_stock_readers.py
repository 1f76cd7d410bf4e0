"""tensorflow-datasets reads shards as its own, by links with its names."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from slim.datasets.records import manifest
from tests.slim import image_files
from tests.slim import programs


def offer_to_tfds(folder, found, as_folder):
  """Links shards by tfds's names, beside metadata that tfds writes itself."""
  as_folder.mkdir()
  for split in found.splits.values():
    for shard in split.shards:
      name, _, rest = shard.file.partition('-')
      link = as_folder / f'own-{name}.tfrecord-{rest}'
      link.symlink_to(folder / shard.file)
  image = tfds.features.Image(shape=(None, None, 3))
  label = tfds.features.ClassLabel(num_classes=found.num_classes)
  # Our keys, image/encoded and image/class/label, are nested names there.
  features = {'image': {'encoded': image, 'class': {'label': label}}}
  tfds.folder_dataset.write_metadata(
    data_dir=as_folder,
    features=tfds.features.FeaturesDict(features),
    split_infos=[
      tfds.core.SplitInfo(
        name=name,
        shard_lengths=[shard.num_examples for shard in split.shards],
        num_bytes=0,
      )
      for name, split in found.splits.items()
    ],
  )


@pytest.mark.slow
def test_tfds_reads_every_image_and_label(tmp_path):
  pixels = {}
  for split, count in (('train', 5), ('validation', 3)):
    for label, name in enumerate(('cat', 'dog'), start=1):
      for i in range(count):
        path = tmp_path / split / name / f'{i}.jpg'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image_files.jpeg(seed=10 * label + i))
        decoded = tf.io.decode_jpeg(path.read_bytes(), channels=3).numpy()
        pixels.setdefault(split, []).append((label, decoded))
  finished = programs.start(
    'build_image_data',
    f'--train_directory={tmp_path / "train"}',
    f'--validation_directory={tmp_path / "validation"}',
    f'--output_directory={tmp_path / "out"}',
    folder=tmp_path,
  )
  assert finished.returncode == 0, finished.stderr
  found = manifest.read(tmp_path / 'out')
  offer_to_tfds(tmp_path / 'out', found, tmp_path / 'tfds')
  builder = tfds.builder_from_directory(tmp_path / 'tfds')
  for split, expected in pixels.items():
    read = [
      (int(e['image']['class']['label']), e['image']['encoded'])
      for e in tfds.as_numpy(builder.as_dataset(split=split))
    ]
    assert len(read) == len(expected)
    for label, image in expected:
      same = [
        number
        for number, other in read
        if other.shape == image.shape and np.array_equal(other, image)
      ]
      assert same == [label]
