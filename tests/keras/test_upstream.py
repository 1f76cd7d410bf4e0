"""Keras's own tests, from its wheel, with every optimizer of theirs compressed.

One process a file: they reset TensorFlow's devices, and each has a strategy.
"""

import pathlib
import subprocess
import sys
from xml.etree import ElementTree

import keras
import pytest

SOURCES = pathlib.Path(keras.__file__).parent / 'src'
OPTIMIZERS = (
  'adadelta',
  'adafactor',
  'adagrad',
  'adam',
  'adamax',
  'adamw',
  'ftrl',
  'lamb',
  'lion',
  'loss_scale_optimizer',
  'multi_optimizer',
  'muon',
  'nadam',
  'optimizer_sparse',
  'optimizer',
  'rmsprop',
  'schedule_free_adamw',
  'sgd',
)
FILES = (
  *(f'optimizers/{name}_test.py' for name in OPTIMIZERS),
  'backend/tensorflow/distribute_test.py',
  'backend/tensorflow/optimizer_distribute_test.py',
  'backend/tensorflow/saved_model_test.py',
  'callbacks/backup_and_restore_test.py',
  'callbacks/learning_rate_scheduler_test.py',
  'callbacks/model_checkpoint_test.py',
  'callbacks/reduce_lr_on_plateau_test.py',
  'callbacks/swap_ema_weights_test.py',
  'saving/saving_lib_test.py',
)
# Why a test does not apply, by the beginning of its name, for a file.
_FLOAT64 = 'trains variables of float64, which codes would round'
_NAMED = "expects the stock optimizer's class or name"
_PATCHED = 'replaces `assign` of the optimizer that it made, which is the outer'
_CONDITION = 'has several replicas decide in a condition; refused'
NOT_APPLIED = {
  'optimizers/adafactor_test.py': {'test_correctness_with_golden': _FLOAT64},
  'optimizers/ftrl_test.py': {'test_correctness_with_golden': _FLOAT64},
  'optimizers/multi_optimizer_test.py': {
    'test_serialization': _NAMED,
    'test_tensorboard_logging_with_multi_optimizer': _NAMED,
  },
  'optimizers/muon_test.py': {
    'test_adamw_weight_decay': "calls Muon's own `_apply_weight_decay`",
  },
  'optimizers/optimizer_sparse_test.py': {
    'test_sparse_gradients_': _PATCHED,
  },
  'optimizers/optimizer_test.py': {
    'test_get_method': _NAMED,
    'test_optimizer_auto_naming': _NAMED,
  },
  'backend/tensorflow/optimizer_distribute_test.py': {
    'test_correctness_with_golden': _FLOAT64,
    'test_ema': _CONDITION,
    'test_gradient_accumulation': _CONDITION,
  },
  'saving/saving_lib_test.py': {
    'test_legacy_load_skips_missing_nested_containers': (
      'reads a file that the wheel does not hold'
    ),
    'test_saved_module_paths_and_class_names': _NAMED,
  },
}


@pytest.mark.slow
@pytest.mark.parametrize('file', FILES)
def test_tests_of_keras_pass_with_compressed_optimizers(file, tmp_path):
  if not (SOURCES / file).is_file():
    pytest.skip(f'Keras {keras.__version__} has no {file}.')
  (tmp_path / 'pytest.ini').write_text('[pytest]\n')
  ran = subprocess.run(
    [
      *(sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider'),
      *('-p', 'tests.keras.wrapped', '-W', 'ignore'),
      *('-c', tmp_path / 'pytest.ini', f'--junitxml={tmp_path}/results.xml'),
      SOURCES / file,
    ],
    cwd=pathlib.Path(__file__).parents[2],
    capture_output=True,
    text=True,
    check=False,
  )
  assert ran.returncode in (0, 1), ran.stdout + ran.stderr
  tests = list(ElementTree.parse(tmp_path / 'results.xml').iter('testcase'))
  failed = {
    test.get('name')
    for test in tests
    if test.find('failure') is not None or test.find('error') is not None
  }
  allowed = tuple(NOT_APPLIED.get(file, ()))
  surprising = {name for name in failed if not name.startswith(allowed)}
  assert not surprising, ran.stdout
  assert len(tests) > len(failed)
