"""Claims about the states that a method keeps from step to step."""

from collections.abc import Sequence

import numpy as np

from terngrad.codec import method as methods
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects
from terngrad.reduce import workers


def states_stay_finite_and_have_one_owner(
  subject: subjects.MethodUnderTest,
) -> None:
  """States are declared well and stay finite, `send` keeps shared ones."""
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
  _expect_known_values(subject.bucket.states)
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


def _expect_known_values(states: Sequence[methods.State]) -> None:
  """Checks the texts of declarations."""
  shared = {(s.name, s.variable) for s in states if s.owner == methods.SHARED}
  for state in states:
    means = {name for name, variable in shared if variable == state.variable}
    for name, value, known in (
      ('owner', state.owner, {methods.WORKER, methods.SHARED}),
      ('resharding', state.resharding, {methods.MEAN, methods.RANGES}),
      ('mean_state', state.mean_state, {'', *means}),
    ):
      failures.expect(
        value in known,
        f'one of {sorted(known)} as {name} of the state {state.name!r}',
        repr(value),
        'Correct the declaration in states.',
      )
