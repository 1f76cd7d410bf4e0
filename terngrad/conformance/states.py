"""Claims about the states that a method keeps from step to step."""

from collections.abc import Sequence

import numpy as np

from terngrad.codec import method as methods
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects
from terngrad.reduce import workers

_SIZE, _STEPS, _GROWTH = 64, 32, 1e6


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


def states_stay_small_if_the_gradient_stays(
  subject: subjects.MethodUnderTest,
) -> None:
  """After 32 steps with one gradient, no state is a million times as large.

  Nor than its square, for second moments. Residuals of contractive methods add
  up at most 32 gradients in this time.
  """
  method = subject.method_alone
  codec = subject.codec_for([(_SIZE,)], method)
  value = np.float32(subjects.rng().uniform(-2, 2, _SIZE))
  group = workers.Workers(codec, 1)
  if not group.states(0)[0]:
    raise failures.NotApplicable('it has no states')
  for number in range(_STEPS):
    group.take(codec, [[value]], number)
  limit = _GROWTH * np.square(value).max()
  (bucket,) = codec.buckets
  for state, found in zip(bucket.states, group.states(0)[0], strict=True):
    largest = np.max(np.abs(np.asarray(found, np.float64)), initial=0.0)
    failures.expect(
      largest <= limit,
      f'the state {state.name!r} to stay below {limit:.2g} in {_STEPS} steps '
      'with one gradient, of up to 2',
      f'{largest:.4g}',
      'Bound what the state adds up.',
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
