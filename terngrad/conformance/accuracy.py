"""Claims about the error of the decoded means."""

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects
from terngrad.reduce import workers

expect = failures.expect
_SIZE, _DRAWS = 1000, 128


def mean_over_draws_is_the_gradient_if_unbiased(
  subject: subjects.MethodUnderTest,
) -> None:
  """With traits.unbiased, the error of the mean of 128 draws is their spread.

  The gradient is uniform in [-1, 1], so clipping at 1.74 standard deviations or
  more does not change it.
  """
  if not subject.method.traits.unbiased:
    raise failures.NotApplicable('traits.unbiased is False')
  codec = subject.codec_for([(_SIZE,)], subject.method_alone)
  values = subjects.rng().uniform(-1, 1, _SIZE).astype(np.float32)

  group = workers.Workers(codec, 1)

  @tracing.function
  def draw(number: tf.Tensor) -> tf.Tensor:
    return group.take(codec, [[tf.constant(values)]], number).means[0]

  numbers = (tf.constant(i, tf.int64) for i in range(_DRAWS))
  found = np.stack([draw(i).numpy() for i in numbers]).astype(np.float64)
  error = np.sum((found.mean(axis=0) - values) ** 2)
  variance = found.var(axis=0, ddof=1).sum() / _DRAWS
  # A sum of 1000 squares, nearly chi-square, within 7 standard deviations.
  limit = variance * (1 + 7 * (2 / _SIZE) ** 0.5)
  expect(
    error <= limit,
    f'a squared error of at most {limit:.4g} after {_DRAWS} draws',
    f'{error:.4g}',
    'Declare unbiased=False in traits, or round at random without bias.',
  )


def biased_methods_are_contractive(subject: subjects.MethodUnderTest) -> None:
  """Without traits.unbiased, the squared error is below the square.

  Otherwise the residuals of error feedback grow without bound.
  """
  if subject.method.traits.unbiased:
    raise failures.NotApplicable('traits.unbiased is True')
  for number in range(3):
    values = subject.worker_gradients[0]
    means = subject.step([values], number=number)
    for mean, value in zip(means, values, strict=True):
      if not value.size:
        continue
      square = np.sum(value.astype(np.float64) ** 2)
      error = np.sum((mean.astype(np.float64) - value) ** 2)
      expect(
        error < square,
        f'a squared error below {square:.4g}, for a variable of {value.size} '
        'elements',
        f'{error:.4g}',
        'Scale the decoded gradient down, for example by the mean magnitude.',
      )
