"""Claims about probes, messages and declarations."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects
from terngrad.reduce import gradients
from terngrad.reduce import workers

expect = failures.expect
_NOT_FINITE = (np.nan, np.inf, -np.inf)
_PLAIN = (str, int, tuple, type(None))


def probe_shows_elements_that_are_not_finite(
  subject: subjects.MethodUnderTest,
) -> None:
  """A NaN or an infinity shows in the numbers of its variable only."""
  variables = subject.codec.probed_variables()
  for number, (index, place) in enumerate(_places()):
    value = _NOT_FINITE[number % len(_NOT_FINITE)]
    values = [v.copy() for v in subject.worker_gradients[0]]
    values[index].reshape(-1)[place] = value
    probe = subject.begin(values, 0)[1].numpy()
    found = sorted({*variables[~np.isfinite(probe)].tolist()})
    expect(
      found == [index],
      f'a probe that is not finite in the numbers of variable {index} only, '
      f'for {value} in element {place}',
      f'those of variables {found}',
      'Let begin return for each variable a number that covers all of its '
      'elements, such as statistics.norms(gradients).',
    )


def _places() -> Iterator[tuple[int, int]]:
  """Yields variables and their first, middle and last element."""
  for index, size in enumerate(methods.sizes_of(subjects.SHAPES)):
    for place in sorted({0, size // 2, size - 1}) if size else ():
      yield index, place


def payload_has_the_declared_number_of_words(
  subject: subjects.MethodUnderTest,
) -> None:
  """`send` returns the words that `messages` declares, `begin` the probes."""
  rounds = len(subject.method.messages(subjects.SHAPES))
  expect(
    rounds == subject.method.num_rounds,
    f'messages of {subject.method.num_rounds} rounds, as num_rounds says',
    f'{rounds}',
    'Declare num_rounds in the class.',
  )
  codec, (words, probe) = subject.codec, subject.first_words
  for name, tensor, dtype in (
    ('words', words, tf.int32),
    ('a probe', probe, tf.float32),
  ):
    expect(
      tensor.dtype == dtype,
      f'{name} of {dtype.name}',
      tensor.dtype.name,
      'Convert float32 to words with tf.bitcast(values, tf.int32).',
    )
  declared, count = codec.round_words(0), codec.num_probes
  remedy = 'Declare in messages and num_probes what send and begin return.'
  expected = f'{declared} words in round 0'
  expect(words.shape == (declared,), expected, words.shape.as_list(), remedy)
  expect(probe.shape == (count,), f'{count} probes', probe.shape, remedy)
  sent = int(codec.sent_words(words[tf.newaxis])[0])
  expect(
    0 < sent <= declared and not words[sent:].numpy().any(),
    f'1 to {declared} sent words, and zeros after them',
    f'{sent} sent words, then {np.count_nonzero(words[sent:])} that are not 0',
    'Pad a message of variable length with zeros.',
  )
  if any(m.packing and not m.num_elements for m in codec.messages(0)):
    return  # Of these only the packing knows the mean length.
  most = 32 * (codec.num_words + count)
  bits = codec.bits(subjects.WORKERS)
  expect(bits <= most, f'at most {most} bits', f'{bits:g}', remedy)


def workers_draw_differently_if_and_only_if_private(
  subject: subjects.MethodUnderTest,
) -> None:
  """Two workers with one gradient send other words if randomness is private.

  A worker then sends other words in the next step too.
  """
  words, probe = subject.first_words
  again, other = (
    subject.words_of(subject.worker_gradients[0], worker, probe)[0].numpy()
    for worker in (0, 1)
  )
  failures.expect_equal(
    again,
    words.numpy(),
    'the same words from the same worker in the same step',
    'Draw random bits from context.element_key only.',
  )
  randomness = subject.method.traits.randomness
  differ = not np.array_equal(again, other)
  expect(
    differ == (randomness == 'private'),
    f'{"other" if randomness == "private" else "equal"} words from two workers '
    f'with equal gradients, as traits.randomness is {randomness!r}',
    f'{"other" if differ else "equal"} words',
    "Declare 'private' if send draws from context.element_key; 'shared' or "
    "'none' otherwise.",
  )
  if randomness == 'private':
    first = subject.worker_gradients[0]
    later = subject.words_of(first, 0, probe, subjects.STEP + 1)[0].numpy()
    expect(
      not np.array_equal(again, later),
      'other words in the next step, for the same gradients',
      'equal words',
      'Draw random bits from context.element_key, which differs in each step.',
    )


def declarations_are_plain_values(subject: subjects.MethodUnderTest) -> None:
  """The declarations of the class are texts, numbers, tuples or None."""
  wrong = {
    name: value
    for name in methods.Method.__annotations__
    if not isinstance(value := getattr(subject.method, name, ...), _PLAIN)
  }
  expect(
    not wrong,
    f'text, number, tuple or None for {", ".join(wrong)}',
    f'{wrong}',
    'Set the attribute in the class or in __init__.',
  )


def any_words_decode_to_the_declared_shapes(
  subject: subjects.MethodUnderTest,
) -> None:
  """`decode` of arbitrary words neither fails nor returns other shapes."""
  codec, rng = subject.codec, subjects.rng()
  probe = tf.ones([codec.num_probes])
  step = gradients.WorkerStep(
    1,
    tf.constant(subjects.STEP, tf.int64),
    subjects.WORKERS,
    shared_probe=probe,
  )
  states = workers.Workers(codec, 1).shared
  for low in (-(2**31), -3, 0):
    received = []
    for number in range(codec.num_rounds):
      shape = (subjects.WORKERS, codec.round_words(number))
      words = rng.integers(low, -low or 2**31, size=shape).astype(np.int32)
      pieces = [methods.Piece(0, [tf.constant(words)])]
      received.append(methods.payloads(codec.messages(number), pieces))
    means, _ = codec.decode(received, states, step)
    shapes = tuple(tuple(mean.shape) for mean in means)
    expect(
      shapes == subjects.SHAPES,
      f'means of shapes {subjects.SHAPES}',
      shapes,
      'Clip received indices and lengths to their range before use.',
    )
