import numpy as np
import tensorflow as tf

from terngrad.measure import timing


def test_jobs_alternate_and_warm_up_is_not_timed():
  order = []
  jobs = {name: (lambda n=name: order.append(n), 5) for name in 'abc'}
  seconds = timing.alternate(jobs, rounds=3, warm_up=2)
  # Every job goes once for nothing before it is timed.
  assert order == [*'abc' * 2, *'aabbcc' * 3]
  assert {name: len(values) for name, values in seconds.items()} == {
    'a': 3,
    'b': 3,
    'c': 3,
  }


def test_calls_in_a_row_are_timed_together(monkeypatch):
  clock = [0.0]
  monkeypatch.setattr(timing.time, 'perf_counter', lambda: clock[0])
  # Every second call is slow.
  lengths = iter([7.0, 1.0, 3.0, 1.0, 3.0] * 2)

  def job():
    clock[0] += next(lengths)

  seconds = timing.alternate({'a': (job, 1)}, rounds=2, warm_up=0, in_a_row=4)
  assert seconds == {'a': [2.0, 2.0]}


def test_ratio_is_the_median_of_the_ratios_within_rounds():
  # The second round was slow for both.
  seconds = {'work': [2.0, 60.0, 4.0], 'base': [1.0, 20.0, 1.0]}
  assert timing.ratio(seconds, 'work', 'base') == 3.0


def test_a_repeatable_work_runs_the_given_number_of_times():
  counter = tf.Variable(0)

  def work(i, value):
    counter.assign_add(i)
    return [value + 1.0, tf.zeros([0])]

  run = timing.repeatable(work, tf.constant([2.0, 3.0]))
  assert run(5) == 5 * 4.0
  assert counter.numpy() == 0 + 1 + 2 + 3 + 4


def test_memory_copy_works_for_any_size():
  for size in (0, 1, 1001):
    timing.memory_copy(size, 3)()


def test_seconds_are_per_repetition(monkeypatch):
  clock = iter(np.arange(0.0, 100.0, 6.0))
  monkeypatch.setattr(timing.time, 'perf_counter', lambda: next(clock))
  seconds = timing.alternate({'a': (lambda: None, 3)}, rounds=1, warm_up=0)
  assert seconds == {'a': [2.0]}
