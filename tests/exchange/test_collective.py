"""Collectives in real processes: equal to towers, to the bit."""

import numpy as np
import pytest

from tests.exchange import processes
from tests.exchange import small_process
from tests.step import small

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RADIX = 'ternary:packing=radix,workers=4'
LONG = [
  {'net': 'conv', 'codec': 'ternary', 'workers': 4, 'devices': 1, 'steps': 50}
]
NAMES = [
  {'net': 'dense', 'workers': 4, 'devices': 1, 'steps': 3} | job
  for job in (
    {'codec': 'identity', 'algorithm': 'reduce'},  # does not add: gathered
    {'codec': 'identity', 'algorithm': 'slices'},
    {'codec': 'fp16', 'algorithm': 'slices'},
    {'codec': 'ternary:packing=huffman243', 'algorithm': 'auto'},
    {'codec': 'ternary', 'algorithm': 'two_shot'},
    {'codec': RADIX, 'algorithm': 'two_shot'},
    {'codec': RADIX, 'algorithm': 'reduce'},
    {'codec': f'{RADIX},word_bits=64', 'algorithm': 'reduce'},
  )
]


FEEDBACK = (
  'error_feedback+topk:ratio=0.05',
  'error_feedback+sign',
  'error_feedback+sign:decide=majority',
  'error_feedback+powersgd:rank=2,min_compression=0.5',
  'error_feedback+ternary:dither=stratified,workers=4',
  'error_feedback+bidirectional:workers=4+stc:ratio=0.05',
  'bidirectional:workers=4+ternary',
)
# Of recipes of local steps, and other methods with states.
OF_RECIPES = (
  'error_feedback+e3m0',
  'error_feedback+statistical',
  'error_feedback:decay=0.95+sparseloco:chunk=64,kept=4',
)
STATES = (
  'ef21+topk:ratio=0.05',
  'ef21_sgdm+topk:ratio=0.05',
  'diana+qsgd:levels=1',
  'demo:count=4',
  'demo:count=4,mean=workers,signs=0',
  'one_bit_adam:workers=4+sign',
)


def of_towers(job):
  training = small.Training(
    small_process.NETS[job['net']],
    devices=2,
    workers=job['workers'],
    codec=job['codec'],
    synchronize=job.get('synchronize', False),
  )
  training.run(job['steps'])
  return training.values()


def assert_equal_to_towers(folder, count, jobs):
  for ended in processes.train_small(folder, count, jobs):
    assert ended.code == 0, ended.log
  for rank in range(count):
    with np.load(folder / f'{rank}.npz') as received:
      for number, job in enumerate(jobs):
        np.testing.assert_array_equal(
          received[f'arr_{number}'], of_towers(job), err_msg=f'{rank} {job}'
        )


def test_four_processes_equal_towers_after_fifty_steps(tmp_path):
  assert_equal_to_towers(tmp_path, 4, LONG)


def test_two_processes_of_two_devices_equal_towers(tmp_path):
  jobs = [LONG[0] | {'devices': 2}]
  assert_equal_to_towers(tmp_path, 2, jobs)


def test_batches_normalized_over_two_processes_equal_towers(tmp_path):
  job = LONG[0] | {'workers': 2, 'steps': 20, 'synchronize': True}
  assert_equal_to_towers(tmp_path, 2, [job])


@pytest.mark.parametrize(
  'codecs',
  [FEEDBACK, OF_RECIPES, STATES],
  ids=['feedback', 'recipes', 'states'],
)
def test_methods_of_rounds_and_states_equal_towers(codecs, tmp_path):
  job = LONG[0] | {'steps': 10}
  jobs = [job | {'codec': codec} for codec in codecs]
  assert_equal_to_towers(tmp_path, 2, jobs)


def test_every_algorithm_of_every_code_equals_towers(tmp_path):
  assert_equal_to_towers(tmp_path, 2, NAMES)
