import numpy as np
import pytest

from slim.datasets import catalog
from slim.datasets import single_images
from terngrad.checkpoint import checkpoints
from terngrad.cli import command
from terngrad.cli import predict
from tests.checkpoint import test_pretrained
from tests.slim import image_files


def test_classes_of_an_image_folder_are_those_of_its_training_split(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'ape': 1, 'bee': 1})
  image_files.write_folders(tmp_path / 'test', {'bee': 1})
  flags = predict.PredictFlags(
    data_dir=str(tmp_path), dataset_name='image_folder'
  )
  dataset = catalog.find('image_folder')
  assert predict.class_names(flags, dataset) == {0: 'ape', 1: 'bee'}
  (tmp_path / 'labels.txt').write_text('bee\nape\n')
  assert predict.class_names(flags, dataset) == {0: 'bee', 1: 'ape'}


@pytest.fixture
def predicted(tmp_path, capsys):
  """Predicts with a net that sees class 3, trained with --labels_offset=1."""
  run = test_pretrained.Started().run
  for replica in run.replicas:
    values = dict(zip(run.names, replica.variables(), strict=True))
    values['logits/bias'].assign(np.float32(50 * (np.arange(10) == 3)))
  recorded = {
    'dataset_name': 'mnist',
    'image_size': test_pretrained.SIZE,
    'preprocessing': 'cifarnet',
    'labels_offset': 1,
  }
  layout = run.layout._replace(must_keep={}, may_change=recorded)
  folder = str(tmp_path / 'train')
  checkpoints.Writer(folder, layout, run.replicas, run.names).save(7)
  image = tmp_path / 'a.png'
  image.write_bytes(image_files.saved(image_files.picture(), 'PNG'))
  names = '\n'.join(f'{label}:name {label}' for label in range(11))
  (tmp_path / 'labels.txt').write_text(names)

  def run_command(*words):
    usual = (
      f'--checkpoint_dir={folder}',
      f'--images={image}',
      f'--data_dir={tmp_path}',
      '--restore_avg_var=false',
    )
    code = command.run(predict.COMMAND, 'predict', [*usual, *words])
    return code, capsys.readouterr()

  return run_command


def test_an_image_is_prepared_and_named_as_in_the_training(
  predicted, monkeypatch
):
  targets, load = [], single_images.load

  def look(path, target):
    targets.append(target)
    return load(path, target)

  monkeypatch.setattr(single_images, 'load', look)
  code, done = predicted('--top=1')
  assert (code, done.out.partition(': ')[2]) == (0, 'name 4 100.00 %\n')
  assert targets == [
    single_images.Target('mnist', 'lenet', test_pretrained.SIZE, 'cifarnet')
  ]


@pytest.mark.parametrize(
  ('word', 'message'),
  [
    ('--top=0', 'top: expected a number >= 1, received 0'),
    ('--top=-8', 'top: expected a number >= 1, received -8'),
    ('--labels_offset=-3', 'labels_offset: expected a number >= 0'),
  ],
)
def test_numbers_that_are_too_small_are_refused(predicted, word, message):
  code, done = predicted(word)
  assert (code, done.out) == (command.REFUSED, '')
  assert message in done.err
