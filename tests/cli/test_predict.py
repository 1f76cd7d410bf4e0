from slim.datasets import catalog
from terngrad.cli import predict
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
