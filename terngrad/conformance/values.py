"""Claims about the decoded means."""

import numpy as np

from terngrad.conformance import failures
from terngrad.conformance import subject as subjects

expect = failures.expect
# (Gradients, largest mean.) A code that sends one of the 5035 elements without
# bias multiplies it by 5035.
_HUGE, _SUBNORMAL = (1e30, 1e34), (1e-40, 1e-36)


def means_have_the_shapes_of_the_gradients(
  subject: subjects.MethodUnderTest,
) -> None:
  """Decoded means are finite float32 in the shapes of the variables."""
  remedy = 'Let decode return one float32 tensor per entry of context.shapes.'
  expect(
    len(subject.means) == len(subjects.SHAPES),
    f'{len(subjects.SHAPES)} means',
    len(subject.means),
    remedy,
  )
  for mean, shape in zip(subject.means, subjects.SHAPES, strict=True):
    received = f'{mean.dtype.name} {mean.shape}'
    expected = f'float32 {shape}'
    expect(received == expected, expected, received, remedy)
    count = np.count_nonzero(~np.isfinite(mean))
    expect(
      not count,
      f'finite means of finite gradients of shape {shape}',
      f'{count} numbers that are not finite',
      'Look for a division by 0 in a variable without elements or with one.',
    )


def zeros_give_zeros(subject: subjects.MethodUnderTest) -> None:
  """Gradients of zeros decode to means of zeros."""
  zeros = [np.zeros(shape, np.float32) for shape in subjects.SHAPES]
  for mean in subject.step([zeros] * subjects.WORKERS):
    expect(
      not mean.any(),
      'zeros',
      f'up to {np.abs(mean).max(initial=0):g}',
      'Do not divide by a scale of 0, and scale codes by 0 then.',
    )


def huge_and_subnormal_gradients_stay_finite_and_small(
  subject: subjects.MethodUnderTest,
) -> None:
  """Gradients of 1e30 give means up to 1e34; of 1e-40, up to 1e-36."""
  for value, limit in (_HUGE, _SUBNORMAL):
    values = [np.full(shape, value, np.float32) for shape in subjects.SHAPES]
    for mean in subject.step([values]):
      expect(
        np.isfinite(mean).all() and np.all(np.abs(mean) <= limit),
        f'means up to {limit:g} from gradients of {value:g}',
        f'up to {np.abs(mean).max(initial=0):g}',
        'Sum squares in float64, as terngrad.codec.stages.statistics does.',
      )


def scale_is_preserved(subject: subjects.MethodUnderTest) -> None:
  """Gradients times 2**-86 and 2**100 decode to the means times the same."""
  if not subject.method.traits.preserves_scale:
    raise failures.NotApplicable('traits.preserves_scale is False')
  for exponent in (-86, 100):
    scale = 2.0**exponent
    scaled = [
      [np.float32(v * scale) for v in g] for g in subject.worker_gradients
    ]
    for mean, plain in zip(subject.step(scaled), subject.means, strict=True):
      error = np.abs(mean / scale - plain).max(initial=0)
      expect(
        np.allclose(mean / scale, plain, rtol=1e-5, atol=1e-6),
        f'2**{exponent} times the means of the gradients',
        f'a difference of {error:g} times it',
        'Compare magnitudes with a scale of the variable, not with constants; '
        'or declare preserves_scale=False in traits.',
      )


def lossless_trait_matches_exact_means(
  subject: subjects.MethodUnderTest,
) -> None:
  """With traits.lossless, one worker's mean has the bits of its gradient."""
  if not subject.codec.lossless:
    raise failures.NotApplicable('traits.lossless is False')
  alone = subject.worker_gradients[:1]
  failures.expect_equal(
    failures.bits_of(subject.step(alone)),
    failures.bits_of(alone[0]),
    'the bits of the gradient, as traits.lossless is True',
    'Declare lossless=False in traits.',
  )
