"""Steps are compared within rounds, with the faster kind of Keras's."""

import pandas as pd
import pytest
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


@pytest.mark.parametrize(
  ('without_xla', 'with_xla', 'kept'),
  [
    (2.0, 1.0, step_table.KERAS_COMPILED),
    (1.0, 2.0, step_table.KERAS),
    (1.0, None, step_table.KERAS),
  ],
)
def test_the_slower_keras_is_dropped_and_so_is_one_that_xla_cannot_run(
  without_xla, with_xla, kept, monkeypatch
):
  now = [0.0]
  monkeypatch.setattr(step_table.timing.time, 'perf_counter', lambda: now[0])

  def build(seconds):
    def step():
      if seconds is None:
        raise tf.errors.UnimplementedError(None, None, 'no such operation')
      now[0] += seconds

    return lambda: step

  kinds = {
    step_table.TOWERS: build(1.5),
    step_table.coded_kind('ternary', 2): build(3.0),
    step_table.KERAS: build(without_xla),
    step_table.KERAS_COMPILED: build(with_xla),
  }
  monkeypatch.setattr(step_table, 'kinds', lambda *_: kinds)
  config = step_table.configs.TrainConfig()
  config = step_table.options.replace(config, codec='ternary')
  table = step_table.measure(config, [2], 1, 1).table
  keras = [name for name in table.index if name in step_table.KERAS_KINDS]
  assert keras == [kept]
  assert table.loc[kept, 'to plain Keras'] == 1
  assert table.loc[step_table.TOWERS, 'to plain Keras'] == 1.5


def test_the_device_is_waited_for_once_after_all_steps(monkeypatch):
  events = []
  monkeypatch.setattr(
    step_table.launches, 'wait', lambda: events.append('wait')
  )
  step_table.repeat(lambda: events.append('step'), 3)
  assert events == ['step'] * 3 + ['wait']
