"""A claim fails for a method that breaks it, and says what to do."""

import re

import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
from terngrad.conformance import claims
from terngrad.conformance import subject as subjects


class Floats(methods.Method):
  """Gathers float32 of all workers: keeps every claim."""

  name = 'floats'
  agrees = False
  estimates = True
  traits = contract.Traits(
    unbiased=True, lossless=True, additive=False, randomness='none'
  )

  def messages(self, shapes):
    return ((methods.gathered(sum(methods.sizes_of(shapes))),),)

  def send(self, number, gradients, states, received, context):
    return [tf.bitcast(methods.flat(gradients), tf.int32)], states

  def decode(self, received, states, context):
    rows = tf.unstack(methods.stack_by_worker(received[0][0].parts))
    total = tf.bitcast(rows[0], tf.float32)
    for row in rows[1:]:
      total += tf.bitcast(row, tf.float32)
    return methods.shaped([total * context.scale], context), states

  def estimate(self, words, context):
    return [tf.bitcast(words[0], tf.float32)]


def outcomes(method):
  """{claim: outcome} of a class of methods."""
  subject = subjects.MethodUnderTest('broken', lambda workers: method())
  return {o.name: o for o in claims.check(subject)}


def outcome(claim, method):
  subject = subjects.MethodUnderTest('broken', lambda workers: method())
  chosen = [c for c in claims.CLAIMS if claims.name_of(c) == claim]
  (found,) = claims.check(subject, chosen)
  return found


def test_a_plain_method_keeps_every_claim_that_concerns_it():
  found = outcomes(Floats)
  assert {o.name: o.message for o in found.values() if o.state != 'ok'} == {
    'biased methods are contractive': 'traits.unbiased is True',
    'kernels give the bits of the method': (
      'on_kernels returns the method itself'
    ),
    'states stay finite and have one owner': 'it has no states',
  }


class OtherDeclaration(Floats):
  digits = [3, 20]


class OneWordMore(Floats):
  def messages(self, shapes):
    return ((methods.gathered(1 + sum(methods.sizes_of(shapes))),),)


class BlindProbe(Floats):
  def begin(self, gradients, states, context):
    return gradients, tf.ones([len(context.shapes)])


class Private(Floats):
  traits = Floats.traits._replace(randomness='private')


class Drawing(Floats):
  def send(self, number, gradients, states, received, context):
    size = sum(context.sizes)
    bits = random_bits.range_bits(context.worker_key, size)
    return [tf.bitcast(bits, tf.int32)], states


class Indexing(Floats):
  """Reads a received word as an index."""

  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    rows = methods.stack_by_worker(received[0][0].parts)
    tf.gather(tf.zeros([8]), rows[:, -1] % 2**30)
    return means, states


class Infinite(Floats):
  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean / 0.0 for mean in means], states


class FlatMeans(Floats):
  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [tf.reshape(mean, [-1]) for mean in means], states


class Shifted(Floats):
  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean + 1.0 for mean in means], states


class Squared(Floats):
  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean * mean for mean in means], states


class Biased(Floats):
  traits = Floats.traits._replace(unbiased=False)

  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean * -0.1 for mean in means], states


class Halved(Floats):
  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean * 0.5 for mean in means], states


class Stateful(Floats):
  """Keeps a SHARED state, which `send` changes."""

  def states(self, shapes):
    return tuple(
      methods.State('average', methods.SHARED, i, tuple(s))
      for i, s in enumerate(shapes)
    )

  def send(self, number, gradients, states, received, context):
    words, _ = super().send(number, gradients, states, received, context)
    return words, [state + 1.0 for state in states]


class SameNames(Floats):
  def states(self, shapes):
    shape = tuple(shapes[0])
    return (methods.State('a', methods.WORKER, 0, shape),) * 2


class OtherEstimate(Floats):
  def estimate(self, words, context):
    return [2.0 * tf.bitcast(words[0], tf.float32)]


class OrderOfDevices(Floats):
  """Adds the rows of the devices one device after the other."""

  def decode(self, received, states, context):
    rows = [r for part in received[0][0].parts for r in tf.unstack(part)]
    total = tf.bitcast(rows[0], tf.float32)
    for row in rows[1:]:
      total += tf.bitcast(row, tf.float32)
    return methods.shaped([total * context.scale], context), states


class FromTheStart(Floats):
  """Adds noise by the index in the part, not in the bucket."""

  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    noise = tf.range(sum(context.sizes), dtype=tf.float32)
    noisy = [methods.flat([tf.reshape(m, [-1]) for m in means]) + noise]
    return methods.shaped(noisy, context), states


class OtherKernels(Floats):
  def on_kernels(self):
    return Halved()


class EagerOnly(Floats):
  """Rounds in another way when it runs eagerly."""

  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    factor = 1.5 if tf.executing_eagerly() else 1.0
    return [mean * factor for mean in means], states


BROKEN = [
  (
    'declarations are plain values',
    OtherDeclaration,
    'expected text, number, tuple or None for digits',
  ),
  (
    'payload has the declared number of words',
    OneWordMore,
    r'expected 5036 words in round 0, received \[5035\]\. Declare in messages',
  ),
  (
    'probe shows elements that are not finite',
    BlindProbe,
    'expected a probe that is not finite, for nan in variable 0',
  ),
  (
    'workers draw differently if and only if private',
    Private,
    "expected other words .* is 'private', received equal words. Declare",
  ),
  (
    'workers draw differently if and only if private',
    Drawing,
    "expected equal words .* is 'none', received other words",
  ),
  (
    'any words decode to the declared shapes',
    Indexing,
    'received InvalidArgumentError: .*line .* Correct the method',
  ),
  (
    'means have the shapes of the gradients',
    Infinite,
    'expected finite means of finite gradients',
  ),
  (
    'means have the shapes of the gradients',
    FlatMeans,
    r'expected float32 \(5, 7\), received float32 \(35,\)',
  ),
  ('zeros give zeros', Shifted, 'expected zeros, received up to 1'),
  (
    'huge and subnormal gradients stay finite and small',
    Squared,
    r'expected means up to 1e\+32 from gradients of 1e\+30, received up to inf',
  ),
  ('scale is preserved', Squared, r'expected 2\*\*-86 times the means'),
  (
    'lossless trait matches exact means',
    Halved,
    'expected the same bits, .* received other bits. Declare lossless=False',
  ),
  (
    'biased methods are contractive',
    Biased,
    'expected a squared error below',
  ),
  (
    'mean over draws is the gradient if unbiased',
    Halved,
    'expected a squared error of at most 0 after 128 draws',
  ),
  (
    'states stay finite and have one owner',
    Stateful,
    "expected send to leave the SHARED state 'average' unchanged",
  ),
  (
    'states stay finite and have one owner',
    SameNames,
    'expected another name for each state of a variable',
  ),
  (
    'mean of one worker is its estimate',
    OtherEstimate,
    'expected the mean of one worker, received other bits',
  ),
  (
    'devices do not change the order of workers',
    OrderOfDevices,
    'expected the bits of one device, .*method.stack_by_worker',
  ),
  (
    'parts of a model give the bits of the whole',
    FromTheStart,
    'expected the same means in parts, received other bits',
  ),
  (
    'kernels give the bits of the method',
    OtherKernels,
    'expected the bits of the method without kernels',
  ),
  (
    'compiled code gives the bits of eager code',
    EagerOnly,
    'expected the bits of eager code, received other bits in',
  ),
]


@pytest.mark.parametrize(
  ('claim', 'method', 'message'),
  BROKEN,
  ids=[method.__name__ for _, method, _ in BROKEN],
)
@pytest.mark.filterwarnings('ignore:divide by zero')
def test_a_method_that_breaks_a_claim_fails_it(claim, method, message):
  found = outcome(claim, method)
  assert found.state == claims.FAILED
  assert re.search(message, found.message), found.message


class Unfinished(Floats):
  """Adds a text, which neither Python nor TensorFlow does."""

  def send(self, number, gradients, states, received, context):
    words = gradients[0]
    return [tf.bitcast(self.sum_of(words, 'a'), tf.int32)], states

  def sum_of(self, first, second):
    return first + second  # The last line of the author.


@pytest.mark.parametrize(
  'claim',
  [
    'payload has the declared number of words',
    'compiled code gives the bits of eager code',
    'mean over draws is the gradient if unbiased',
  ],
)
def test_an_exception_is_shown_with_the_last_line_of_the_author(claim):
  message = outcome(claim, Unfinished).message
  assert re.match(
    r'expected a result, received (TypeError|InvalidArgumentError): \S.*'
    rf'\({re.escape(__file__)}, line \d+: return first \+ second  # The last '
    r'line of the author\.\)\. Correct the method\.$',
    message,
  ), message
  assert 'in user code' not in message


class UnfinishedFunction(Unfinished):
  """As above, in a function that TensorFlow rewrites for conditions."""

  @tracing.function
  def sum_of(self, first, second):
    return first + second  # The last line of the author.


def test_an_exception_of_a_function_of_the_author_has_its_line_too():
  claim = 'compiled code gives the bits of eager code'
  message = outcome(claim, UnfinishedFunction).message
  assert re.match(
    r'expected a result, received TypeError: (?!in user code)\S.*'
    rf'\({re.escape(__file__)}, line \d+: return first \+ second  # The last ',
    message,
  ), message


def test_every_claim_has_a_method_that_breaks_it():
  assert {claim for claim, _, _ in BROKEN} == {
    claims.name_of(claim) for claim in claims.CLAIMS
  }


def test_every_claim_says_what_it_claims():
  for claim in claims.CLAIMS:
    assert claim.__doc__.rstrip().endswith('.')
