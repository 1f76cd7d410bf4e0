"""Claims about equal results: compiled, in parts, in other orders, natively."""

from collections.abc import Callable

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
  """Eager code and XLA agree on every bit; without `compiled`, the graph."""
  shapes = [(size,) for size in _SIZES]
  codec = subject.codec_for(shapes, subject.method_alone)

  def steps_of_new_worker() -> Callable[..., list[tf.Tensor]]:
    group = workers.Workers(codec, 1)
    return lambda *values: group.take(codec, [values], subjects.STEP).means

  eager = steps_of_new_worker()
  traced = tracing.function(steps_of_new_worker(), jit_compile=codec.compiled)
  rng = subjects.rng()
  for scale in (1.0, 7e5):
    values = [
      tf.constant(rng.standard_t(3, size=size) * scale, tf.float32)
      for size in _SIZES
    ]
    failures.expect_equal(
      failures.bits_of(traced(*values)),
      failures.bits_of(eager(*values)),
      'the bits of eager code',
      'Multiply by a constant 1 / n instead of dividing by n, and sum with '
      'terngrad.codec.stages.statistics.',
    )


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


def devices_do_not_change_the_order_of_workers(
  subject: subjects.MethodUnderTest,
) -> None:
  """Payloads from 1, 2 or 3 devices decode to the same bits."""
  codec = subject.codec
  if subject.method.num_rounds > 1:
    raise failures.NotApplicable('it has several rounds')
  begun = [
    subject.begin(v, w)[1] for w, v in enumerate(subject.worker_gradients)
  ]
  probe = gradients.agree(tf.stack(begun))
  rows = [
    subject.words_of(values, worker, probe)[0]
    for worker, values in enumerate(subject.worker_gradients)
  ]
  step = gradients.WorkerStep(
    1,
    tf.constant(subjects.STEP, tf.int64),
    subjects.WORKERS,
    shared_probe=probe,
  )
  states, found = workers.Workers(codec, 1).shared, []
  for devices in (1, 2, 3):
    stacks = [tf.stack(rows[d::devices]) for d in range(devices)]
    pieces = [methods.Piece(0, stacks)]
    received = [methods.payloads(codec.messages(0), pieces)]
    found.append(failures.bits_of(codec.decode(received, states, step)[0]))
  for bits in found[1:]:
    failures.expect_equal(
      bits,
      found[0],
      'the bits of one device',
      'Read gathered words with method.stack_by_worker(message.parts) and add '
      'them in this order.',
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
