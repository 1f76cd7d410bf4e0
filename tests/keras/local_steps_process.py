"""Runs `examples/local_steps.py` with other options, or until it is killed.

    local_steps_process.py FOLDER JSON

JSON may have `options` of `LocalSteps` that replace the example's; `kill`,
ranks and an epoch, at whose begin their processes get SIGKILL, after all these
have saved the epoch before (after the last epoch: when training ends);
`interrupt`, an epoch at whose begin `fit` ends by KeyboardInterrupt and is
called again; `normalize`, True for a model with moving
statistics; and `resume`, True to continue from the model of an earlier run.
"""

import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import signal
import sys
import time

import keras

import terngrad.keras

EXAMPLE = pathlib.Path(__file__).parents[2] / 'examples/local_steps.py'


class KillingBackup(keras.callbacks.BackupAndRestore):
  """Kills the process when an epoch begins."""

  ranks, epoch = (), None

  def on_epoch_begin(self, epoch, logs=None):
    if epoch == self.epoch:
      folder = pathlib.Path(self.backup_dir).parent
      while not all(map(self._is_saved, [folder / f'{r}' for r in self.ranks])):
        time.sleep(0.05)
      os.kill(os.getpid(), signal.SIGKILL)

  def on_train_end(self, logs=None):
    self.on_epoch_begin(self.params['epochs'])
    super().on_train_end(logs)

  def _is_saved(self, folder):
    with contextlib.suppress(OSError, ValueError):
      text = (folder / 'training_metadata.json').read_text()
      return json.loads(text)['epoch'] == self.epoch
    return False


class Interrupt(keras.callbacks.Callback):
  """Ends `fit` when an epoch begins, once, in place of a backup."""

  def __init__(self, epoch):
    super().__init__()
    self._epoch = epoch

  def on_epoch_begin(self, epoch, logs=None):
    if epoch == self._epoch:
      self._epoch = None
      raise KeyboardInterrupt


def fit_again(model, fit, epoch, *arguments, **options):
  try:
    fit(model, *arguments, **options)
  except KeyboardInterrupt:
    fit(model, *arguments, **options, initial_epoch=epoch)


def main(folder, request):
  request = json.loads(request)
  *ranks, epoch = request.get('kill', [None])
  rank = json.loads(os.environ['TF_CONFIG'])['task']['index']
  if rank in ranks:
    KillingBackup.ranks, KillingBackup.epoch = ranks, epoch
    keras.callbacks.BackupAndRestore = KillingBackup
  if epoch := request.get('interrupt'):
    pathlib.Path(folder).mkdir(exist_ok=True)
    keras.callbacks.BackupAndRestore = lambda folder: Interrupt(epoch)
    keras.Sequential.fit = functools.partialmethod(
      fit_again, keras.Model.fit, epoch
    )
  original, options = terngrad.keras.LocalSteps, request.get('options', {})
  if request.get('resume'):
    options['resume_from'] = f'{folder}/{rank}.keras'
  terngrad.keras.LocalSteps = lambda **given: original(**given | options)
  if request.get('normalize'):
    keras.Sequential = functools.partial(_normalized, keras.Sequential)
  spec = importlib.util.spec_from_file_location('example', EXAMPLE)
  example = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(example)
  example.main(folder)


def _normalized(sequential, layers):
  return sequential([layers[0], keras.layers.BatchNormalization(), *layers[1:]])


if __name__ == '__main__':
  main(*sys.argv[1:])
