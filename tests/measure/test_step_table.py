"""Steps are compared within rounds, with the faster kind of Keras's."""

import pandas as pd
import tensorflow as tf

from terngrad.measure import step_table


def test_ratios_are_medians_within_rounds_to_the_faster_keras():
  # The second round was slow.
  seconds = pd.DataFrame(
    {
      step_table.TOWERS: [0.04, 0.40, 0.06],
      step_table.KERAS: [0.03, 0.30, 0.04],
      step_table.KERAS_COMPILED: [0.02, 0.10, 0.02],
    }
  )
  table = step_table.compare(seconds)
  assert table['milliseconds'].tolist() == [60.0, 40.0, 20.0]
  assert table['to plain Keras'].tolist() == [3.0, 2.0, 1.0]
  assert table['to float32 towers'].tolist()[0] == 1.0


def test_without_towers_there_is_no_ratio_to_them():
  table = step_table.compare(pd.DataFrame({step_table.KERAS: [0.5]}))
  assert [*table] == ['milliseconds', 'to plain Keras']


def test_keras_compiles_only_on_gpus_without_op_determinism(monkeypatch):
  assert step_table.keras_kinds() == [step_table.KERAS]
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: ['one'])
  assert step_table.keras_kinds() == [*step_table.KERAS_KINDS]
  monkeypatch.setattr(
    step_table.determinism, 'is_op_determinism_enabled', lambda: True
  )
  assert step_table.keras_kinds() == [step_table.KERAS]


def test_the_device_is_waited_for_once_after_all_steps(monkeypatch):
  events = []
  monkeypatch.setattr(
    step_table.launches, 'wait', lambda: events.append('wait')
  )
  step_table.repeat(lambda: events.append('step'), 3)
  assert events == ['step'] * 3 + ['wait']
