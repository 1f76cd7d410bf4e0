"""Claims about the error of the decoded means."""

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import contract
from terngrad.codec.stages import tracing
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects
from terngrad.reduce import workers

expect = failures.expect
_SIZE, _DRAWS = 1000, 128
# Of each worker's gradients, so that local and shared scales differ.
_SCALES = (1.0, 0.5, 0.1)
# Of the norm. The sum of three numbers and its product with 1 / 3 are rounded
# by 2**-24 each, and so are the 13 sums of a rotation of 2**13 elements.
# Decoding and estimates may have 64 such roundings in sequence.
_ROUNDING = 64 * 2.0**-24
_UNBIASED = 'Declare unbiased=False in traits, or round at random without bias.'


def mean_over_draws_is_the_gradient_if_unbiased(
  subject: subjects.MethodUnderTest,
) -> None:
  """With traits.unbiased, the error of the mean of 128 draws is their spread.

  So is the error of its length, where a wrong factor shows first. Three workers
  have gradients of different scales. They are uniform, so clipping at 1.74
  standard deviations or more does not change them.
  """
  if not subject.method.traits.unbiased:
    raise failures.NotApplicable('traits.unbiased is False')
  codec = subject.codec_for([(_SIZE,)])
  rng = subjects.rng()
  values = [np.float32(rng.uniform(-scale, scale, _SIZE)) for scale in _SCALES]
  exact = np.mean(values, axis=0, dtype=np.float64)
  group = workers.Workers(codec, len(values))

  @tracing.function
  def draw(number: tf.Tensor) -> tf.Tensor:
    each = [[tf.constant(value)] for value in values]
    return group.take(codec, each, number).means[0]

  numbers = (tf.constant(i, tf.int64) for i in range(_DRAWS))
  found = np.stack([draw(i).numpy() for i in numbers]).astype(np.float64)
  error = np.sum((found.mean(axis=0) - exact) ** 2)
  variance = found.var(axis=0, ddof=1).sum() / _DRAWS
  # A sum of 1000 squares, nearly chi-square, within 7 standard deviations.
  limit = variance * (1 + 7 * (2 / _SIZE) ** 0.5)
  limit += np.sum((_ROUNDING * exact) ** 2)
  expect(
    error <= limit,
    f'a squared error of at most {limit:.4g} after {_DRAWS} draws',
    f'{error:.4g}',
    _UNBIASED,
  )
  lengths = np.sum(found * exact, axis=1) / np.sum(np.square(exact))
  # A mean of numbers that are nearly normal, within 7 standard deviations.
  limit = 7 * lengths.std(ddof=1) / _DRAWS**0.5 + _ROUNDING
  expect(
    abs(lengths.mean() - 1) <= limit,
    f'a length along the mean gradient of 1, up to {limit:.2g}, in the mean '
    f'of {_DRAWS} draws',
    f'{lengths.mean():.4g}',
    _UNBIASED,
  )


def biased_methods_are_contractive(subject: subjects.MethodUnderTest) -> None:
  """Without traits.unbiased, the squared error is below the square.

  That of each variable, or of the bucket if it is the scope. Otherwise the
  residuals of error feedback grow without bound.
  """
  if subject.method.traits.unbiased:
    raise failures.NotApplicable('traits.unbiased is True')
  for number in range(3):
    values = subject.worker_gradients[0]
    means = subject.step([values], number=number)
    for mean, value in zip(
      by_scope(subject, means), by_scope(subject, values), strict=True
    ):
      if not value.size:
        continue
      square = np.sum(value.astype(np.float64) ** 2)
      error = np.sum((mean.astype(np.float64) - value) ** 2)
      expect(
        error < square,
        f'a squared error below {square:.4g}, for {value.size} elements',
        f'{error:.4g}',
        'Scale the decoded gradient down, for example by the mean magnitude.',
      )


def mean_of_workers_is_the_mean_of_their_estimates(
  subject: subjects.MethodUnderTest,
) -> None:
  """Three workers give the mean of what each sent, up to rounding.

  Without estimates or traits.averages, or with several rounds, three workers
  with equal gradients give the mean of one, if the method draws no random
  numbers and sends no parts to workers, which are others for three.
  """
  method, codec = subject.method, subject.codec
  expected, found = 'the mean of the estimates of three workers', subject.means
  is_linear = method.traits.averages and method.num_rounds == 1
  if method.estimates and is_linear:
    rows = [
      np.float64(subject.outcome.estimate(codec, worker))
      for worker in range(subjects.WORKERS)
    ]
  elif method.traits.randomness == 'none' and method is subject.method_alone:
    expected = 'the mean of one worker, for three with equal gradients'
    alone = subject.worker_gradients[0]
    found = subject.step([alone] * subjects.WORKERS)
    rows = [np.concatenate([np.ravel(m) for m in subject.step([alone])])]
  else:
    raise failures.NotApplicable(
      'no estimates average, and it draws or sends parts to workers'
    )
  ends = np.cumsum(methods.sizes_of(subjects.SHAPES))[:-1]
  each = [by_scope(subject, np.split(row, ends)) for row in rows]
  for mean, *sent in zip(by_scope(subject, found), *each, strict=True):
    error = np.linalg.norm(mean - np.mean(sent, axis=0, dtype=np.float64))
    norm = np.mean([np.linalg.norm(one) for one in sent])
    expect(
      error <= _ROUNDING * norm,
      f'{expected}, up to {_ROUNDING:.2g} of the norm {norm:.4g}',
      f'an error of norm {error:.4g}, for {mean.size} elements',
      'Let decode add the words of all workers, and multiply by context.scale; '
      'or declare averages=False in traits, for a vote.',
    )


def by_scope(
  subject: subjects.MethodUnderTest, arrays: subjects.Arrays
) -> list[np.ndarray]:
  """Returns one flat float64 array per variable, or one for scope BUCKET."""
  flat = [np.ravel(array).astype(np.float64) for array in arrays]
  if subject.method.scope == contract.BUCKET:
    return [np.concatenate(flat)]
  return flat
