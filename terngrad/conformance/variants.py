"""Claims about equal results: compiled, in parts, in other orders, natively."""

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import contract
from terngrad.codec.stages import tracing
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects
from terngrad.reduce import gradients
from terngrad.reduce import parts
from terngrad.reduce import workers

_SIZES = (35, 1063)
_PART_BYTES = 2**10


def compiled_code_gives_the_bits_of_eager_code(
  subject: subjects.MethodUnderTest,
) -> None:
  """Eager code and XLA agree on every bit; without `compiled`, the graph.

  For the words of one worker and for the means of three, in one program: to
  compile a step of three workers takes twice as long. With states the means are
  those of one worker: XLA may round a product with 1 / 3 and its sum with a
  state together.
  """
  count = 1 if subject.bucket.states else subjects.WORKERS
  alone = subject.method_alone if count == 1 else None
  codec = subject.codec_for([(size,) for size in _SIZES], alone)
  program = functools.partial(_words_and_means, codec, count)
  traced = tracing.function(program, jit_compile=codec.compiled)
  group, rng = workers.Workers(codec, count), subjects.rng()
  for scale in (1.0, 7e5):
    values = [
      [
        tf.constant(rng.standard_t(3, size=size) * scale, tf.float32)
        for size in _SIZES
      ]
      for _ in range(count)
    ]
    states, shared = group.states(0), group.shared
    outcome = group.take(codec, values, subjects.STEP)
    words, means = traced(
      values[0], states, shared, outcome.words, outcome.steps[0].shared_probe
    )
    sent = [rows[0] for rows in outcome.words]
    for actual, wanted in (
      (failures.bits_of(means), failures.bits_of(outcome.means)),
      (np.concatenate(words), np.concatenate(sent)),
    ):
      failures.expect_equal(
        actual,
        wanted,
        'the bits of eager code',
        'Multiply by a constant 1 / n instead of dividing by n, and sum with '
        'terngrad.codec.stages.statistics.',
      )


def _words_and_means(
  codec: gradients.GradientCodec,
  num_workers: int,
  values: Sequence[tf.Tensor],
  states: gradients.BucketTensors,
  shared: gradients.BucketTensors,
  words: Sequence[tf.Tensor],
  probe: tf.Tensor,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
  """Returns what worker 0 sends, and the means that all workers' words give.

  Args:
    codec: of the gradients.
    num_workers: N.
    values: the gradients of worker 0.
    states: of worker 0.
    shared: of all workers.
    words: for each round int32 [workers, words of the round].
    probe: the agreed one.
  """
  number = tf.constant(subjects.STEP, tf.int64)
  step = gradients.WorkerStep(1, number, num_workers, shared_probe=probe)
  received = [
    methods.payloads(codec.messages(index), [methods.Piece(0, [rows])])
    for index, rows in enumerate(words)
  ]
  worker = tf.constant(0)
  own = step._replace(worker=worker, keys=codec.keys(1, number, worker))
  carried, local = codec.begin(values, states, own)
  own = own._replace(local_probe=local)
  carried, sent = codec.carry(carried, own), []
  for index in range(codec.num_rounds):
    known = methods.received_by(worker, received[:index])
    one, states = codec.send(index, carried, states, known, own)
    sent.append(one)
  return sent, codec.decode(received, shared, step)[0]


def parts_of_a_model_give_the_bits_of_the_whole(
  subject: subjects.MethodUnderTest,
) -> None:
  """A bucket that is sent in parts decodes to the same means, by `scope`."""
  cut = parts.cut(subject.codec, _PART_BYTES)
  by_bucket = subject.method.scope == contract.BUCKET
  failures.expect(
    (len(cut.buckets) == 1) == by_bucket,
    f'{"one part" if by_bucket else "several parts"}, as scope is '
    f'{subject.method.scope!r}',
    f'{len(cut.buckets)}',
    'Declare scope as contract.ELEMENT, VARIABLE or BUCKET.',
  )
  failures.expect_equal(
    failures.bits_of(subject.step(subject.worker_gradients, cut)),
    failures.bits_of(subject.means),
    'the same means in parts',
    'Draw from context.element_key, which counts from context.start; or '
    'declare a larger scope.',
  )


def mean_of_one_worker_is_its_estimate(
  subject: subjects.MethodUnderTest,
) -> None:
  """`estimate` returns what `decode` returns for a worker alone."""
  codec, bucket = subject.codec, subject.bucket
  if not bucket.method.estimates:
    raise failures.NotApplicable('estimates is False')
  if bucket.method.num_rounds > 1:
    raise failures.NotApplicable('later rounds change the mean')
  words, probe = subject.first_words
  step = gradients.WorkerStep(
    1,
    tf.constant(subjects.STEP, tf.int64),
    1,
    tf.constant(0),
    local_probe=probe,
    shared_probe=probe,
  )
  step = step._replace(keys=codec.keys(step.seed, step.step, step.worker))
  estimate = codec.estimate([words], step)
  failures.expect_equal(
    failures.bits_of([estimate]),
    failures.bits_of(subject.step(subject.worker_gradients[:1])),
    'the mean of one worker',
    'Let estimate decode the words as decode does with num_workers=1.',
  )


def any_device_decodes_the_same_means_from_words(
  subject: subjects.MethodUnderTest,
) -> None:
  """Another instance decodes the words of 1, 2 or 3 devices to the means.

  It knows the declared states, the agreed probe and the words only. Unless
  draws_in_decode is True, the random numbers of the step do not matter.
  """
  words = [rows.numpy() for rows in subject.outcome.words]
  step = subject.decoding_step
  cases = [(devices, step) for devices in (1, 2, 3)]
  if not subject.method.draws_in_decode:
    cases.append((1, step._replace(seed=step.seed + 1)))
  for devices, with_seed in cases:
    codec = subject.codec_for(subjects.SHAPES, subject.make(subjects.WORKERS))
    received = []
    for number, rows in enumerate(words):
      parts = [tf.constant(rows[d::devices]) for d in range(devices)]
      pieces = [methods.Piece(0, parts)]
      received.append(methods.payloads(codec.messages(number), pieces))
    states = workers.Workers(codec, 1).shared
    if with_seed is step:
      expected = 'the means of the step, from the words of other devices'
      remedy = (
        'Send all that decode needs. Read gathered words with '
        'method.stack_by_worker(message.parts), and add them in this order.'
      )
    else:
      expected = 'the same means with another context.common_key'
      remedy = 'Declare draws_in_decode=True.'
    failures.expect_equal(
      failures.bits_of(codec.decode(received, states, with_seed)[0]),
      failures.bits_of(subject.means),
      expected,
      remedy,
    )


def kernels_give_the_bits_of_the_method(
  subject: subjects.MethodUnderTest,
) -> None:
  """The method that `on_kernels` returns gives the same means."""
  fast = subject.method.on_kernels()
  if fast is subject.method:
    raise failures.NotApplicable('on_kernels returns the method itself')
  codec = subject.codec_for(subjects.SHAPES, fast)
  failures.expect_equal(
    failures.bits_of(subject.step(subject.worker_gradients, codec)),
    failures.bits_of(subject.means),
    'the bits of the method without kernels',
    'Correct the variant that on_kernels returns.',
  )
