"""Claims about the states that a method keeps from step to step."""

import numpy as np

from terngrad.codec import method as methods
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects
from terngrad.reduce import workers


def states_stay_finite_and_have_one_owner(
  subject: subjects.MethodUnderTest,
) -> None:
  """Names of states differ, states stay finite, `send` keeps shared ones."""
  codec = subject.codec
  declared = [(s.name, s.variable) for s in subject.bucket.states]
  if not declared:
    raise failures.NotApplicable('it has no states')
  failures.expect(
    len({*declared}) == len(declared),
    'another name for each state of a variable',
    declared,
    'Rename a state: checkpoints find states by name and variable.',
  )
  group = workers.Workers(codec, subjects.WORKERS)
  for number in range(3):
    group.take(codec, subject.worker_gradients, number)
  (found,) = group.states(0)
  for (name, variable), value in zip(declared, found, strict=True):
    failures.expect(
      value is not None and np.isfinite(value).all(),
      f'finite numbers in the state {name!r} of variable {variable}',
      'others after 3 steps',
      'Bound what the state adds up.',
    )
  carried, probe, (before,), step = subject.begin(
    subject.worker_gradients[0], 0
  )
  step = step._replace(local_probe=probe, shared_probe=probe)
  carried = codec.carry(carried, step)
  _, (after,) = codec.send(0, carried, [before], [], step)
  for state, old, new in zip(subject.bucket.states, before, after, strict=True):
    if state.owner == methods.SHARED:
      failures.expect_equal(
        failures.bits_of([new]),
        failures.bits_of([old]),
        f'send to leave the SHARED state {state.name!r} unchanged',
        'Change SHARED states in decode, which runs on every device.',
      )
