"""Claims about the messages of which exchanges move only the sums."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import totals as totals_lib
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects
from terngrad.exchange import towers
from terngrad.reduce import gradients


class SummingTowers(towers.Towers):
  """Workers of one device that receive packed sums, as from a server."""

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[methods.Received]]:
    """Adds the messages that allow it, and moves the others."""
    totals = totals_lib.Totals(messages, self.num_workers, 1)
    words = [totals.select_words(0, rows) for rows in payloads]
    return [totals.unpack([totals.add(0, words)])]


def codes_are_within_the_declared_levels(
  subject: subjects.MethodUnderTest,
) -> None:
  """No code of a message to sum is larger than the levels of the message."""
  _expect_sums(subject.codec)
  for number, words in enumerate(subject.outcome.words):
    for worker in range(subjects.WORKERS):
      pieces = [methods.Piece(0, [words[worker : worker + 1]])]
      messages = subject.codec.messages(number)
      received = methods.payloads(messages, pieces)
      for message, codes in zip(messages, received, strict=True):
        if message.levels is None or not message.num_elements:
          continue
        largest = np.abs(codes.sum(message)).max(initial=0)
        failures.expect(
          largest <= message.levels,
          f'codes up to {message.levels}, the levels of the message',
          f'{largest:g}',
          'Declare the largest magnitude of the unpacked codes as levels.',
        )


def sums_decode_to_the_bits_of_all_words(
  subject: subjects.MethodUnderTest,
) -> None:
  """The means are the same if only the sums of messages are received."""
  _expect_sums(subject.codec)
  values = subject.worker_gradients
  failures.expect_equal(
    failures.bits_of(
      subject.step(values, subject.codec, exchange=SummingTowers)
    ),
    failures.bits_of(subject.means),
    'the means that the words of all workers give',
    'Read messages to sum with received[round][index].sum(message), and let '
    'decode_sum and decode_sums agree.',
  )


def _expect_sums(codec: gradients.GradientCodec) -> None:
  """Raises NotApplicable if no message can be summed."""
  messages = [m for n in range(codec.num_rounds) for m in codec.messages(n)]
  if not any(message.combine == methods.SUM for message in messages):
    raise failures.NotApplicable('it declares no message to sum')
