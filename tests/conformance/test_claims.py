"""A claim fails for a method that breaks it, and says what to do."""

import re

import pytest
import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec import method as methods
from terngrad.codec.methods import registry
from terngrad.codec.stages import contract
from terngrad.codec.stages import packing
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
    'codes are within the declared levels': 'it declares no message to sum',
    'sums decode to the bits of all words': 'it declares no message to sum',
    'kernels give the bits of the method': (
      'on_kernels returns the method itself'
    ),
    'states stay finite and have one owner': 'it has no states',
    'states stay small if the gradient stays': 'it has no states',
  }


class OtherDeclaration(Floats):
  digits = [3, 20]


class OneWordMore(Floats):
  def messages(self, shapes):
    return ((methods.gathered(1 + sum(methods.sizes_of(shapes))),),)


class OneRoundMore(Floats):
  def messages(self, shapes):
    return super().messages(shapes) * 2


class FloatWords(Floats):
  def send(self, number, gradients, states, received, context):
    return [methods.flat(gradients)], states


class BlindProbe(Floats):
  def begin(self, gradients, states, context):
    return gradients, tf.ones([len(context.shapes)])


class LastElementProbe(Floats):
  def begin(self, gradients, states, context):
    each = methods.each(gradients, context)
    return gradients, tf.stack([tf.reduce_sum(g[-1:]) for g in each])


class OtherVariableProbe(Floats):
  def begin(self, gradients, states, context):
    gradients, probe = super().begin(gradients, states, context)
    return gradients, tf.reverse(probe, [0])


class Private(Floats):
  traits = Floats.traits._replace(randomness='private')


class Drawing(Floats):
  def send(self, number, gradients, states, received, context):
    size = sum(context.sizes)
    bits = random_bits.range_bits(context.worker_key, size)
    return [tf.bitcast(bits, tf.int32)], states


class SameInEachStep(Floats):
  """Adds random numbers that depend on the worker only."""

  traits = Floats.traits._replace(randomness='private')

  def send(self, number, gradients, states, received, context):
    key = tf.stack(
      [tf.cast(context.worker, tf.uint32), tf.constant(7, 'uint32')]
    )
    noise = tf.bitcast(
      random_bits.range_bits(key, sum(context.sizes)), tf.int32
    )
    words = tf.bitcast(methods.flat(gradients), tf.int32)
    return [tf.bitwise.bitwise_xor(words, noise & 1)], states


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


class FourPercentShort(chain.Chain):
  """Rounds at random; its decoded mean is 4 percent too short."""

  def __init__(self):
    super().__init__(registry.parse('ternary').stages)

  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean * 0.96 for mean in means], states


class SumOfWorkers(Floats):
  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean * float(context.num_workers) for mean in means], states


class FirstWorker(Floats):
  def decode(self, received, states, context):
    rows = methods.stack_by_worker(received[0][0].parts)
    return methods.shaped([tf.bitcast(rows[0], tf.float32)], context), states


class SumWithoutEstimates(SumOfWorkers):
  estimates = False


class Divided(Floats):
  """Divides by N, which graphs replace by a product."""

  def decode(self, received, states, context):
    rows = tf.unstack(methods.stack_by_worker(received[0][0].parts))
    total = tf.add_n([tf.bitcast(row, tf.float32) for row in rows])
    return methods.shaped([total / context.num_workers], context), states


class LocalScale(Floats):
  """Encodes with the worker's own norm and decodes with the agreed one."""

  agrees = True
  scope = contract.VARIABLE
  traits = Floats.traits._replace(lossless=False)

  def send(self, number, gradients, states, received, context):
    each = methods.each(gradients, context)
    norms = tf.unstack(context.local_probe)
    pairs = zip(each, norms, strict=True)
    scaled = [tf.math.divide_no_nan(*pair) for pair in pairs]
    return [tf.bitcast(methods.flat(scaled), tf.int32)], states

  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    norms = tf.unstack(context.shared_probe)
    pairs = zip(means, norms, strict=True)
    return [mean * norm for mean, norm in pairs], states


class ReadsParts(Floats):
  """Declares a sum and reads the words of all workers."""

  def messages(self, shapes):
    return ((methods.float_sum(sum(methods.sizes_of(shapes))),),)


class FewLevels(Floats):
  """Sums codes from -2 to 2 and declares 1 as the largest."""

  estimates = False
  traits = Floats.traits._replace(unbiased=False, lossless=False)

  def messages(self, shapes):
    count = sum(methods.sizes_of(shapes))
    return ((methods.code_sum(packing.sums(2), count, levels=1),),)

  def send(self, number, gradients, states, received, context):
    codes = 2 * tf.cast(tf.sign(methods.flat(gradients)), tf.int32)
    return [packing.sums(2).pack_flat(codes)], states

  def decode(self, received, states, context):
    ((message,),) = self.messages(context.shapes)
    total = received[0][0].sum(message)[: sum(context.sizes)]
    return methods.shaped([tf.cast(total, tf.float32)], context), states


class OtherSums(chain.Chain):
  """Decodes words to twice of what it decodes their sums to."""

  def __init__(self):
    super().__init__(registry.parse('ternary').stages)

  def decode_sum(self, parts, shared_probe, shapes, scale=1.0):
    return super().decode_sum(parts, shared_probe, shapes, 2.0 * scale)


class Smuggling(Floats):
  """Keeps in the object what `decode` needs."""

  def send(self, number, gradients, states, received, context):
    self.factor = 1.0
    return super().send(number, gradients, states, received, context)

  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean * self.factor for mean in means], states


class DrawingInDecode(Floats):
  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    drawn = random_bits.range_bits(context.common_key, 1)[0]
    factor = 1.0 + tf.cast(drawn, tf.float32) * 2.0**-32
    return [mean * factor for mean in means], states


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


class Doubling(Floats):
  """Error feedback that adds the gradient to twice the old residual."""

  def states(self, shapes):
    return tuple(
      methods.State('residual', methods.WORKER, i, tuple(s))
      for i, s in enumerate(shapes)
    )

  def send(self, number, gradients, states, received, context):
    words, _ = super().send(number, gradients, states, received, context)
    pairs = zip(gradients, states, strict=True)
    return words, [g + 2.0 * state for g, state in pairs]


class SameNames(Floats):
  def states(self, shapes):
    shape = tuple(shapes[0])
    return (methods.State('a', methods.WORKER, 0, shape),) * 2


class UnknownOwner(Floats):
  def states(self, shapes):
    return (methods.State('a', 'Worker', 0, tuple(shapes[0])),)


class UnknownMean(Floats):
  def states(self, shapes):
    state = methods.State('a', methods.WORKER, 0, tuple(shapes[0]))
    return (state._replace(mean_state='b'),)


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
    'payload has the declared number of words',
    OneRoundMore,
    'expected messages of 1 rounds, as num_rounds says, received 2',
  ),
  (
    'payload has the declared number of words',
    FloatWords,
    'expected words of int32, received float32',
  ),
  (
    'probe shows elements that are not finite',
    BlindProbe,
    r'finite in the numbers of variable 0 only, for nan in element 0, .* \[\]',
  ),
  (
    'probe shows elements that are not finite',
    LastElementProbe,
    r'of variable 0 only, for nan in element 0, received .* variables \[\]',
  ),
  (
    'probe shows elements that are not finite',
    OtherVariableProbe,
    r'of variable 0 only, .* received those of variables \[3\]',
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
    'workers draw differently if and only if private',
    SameInEachStep,
    'expected other words in the next step, .* received equal words',
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
    r'expected means up to 1e\+34 from gradients of 1e\+30, received up to inf',
  ),
  ('scale is preserved', Squared, r'expected 2\*\*-86 times the means'),
  (
    'lossless trait matches exact means',
    Halved,
    'expected the bits of the gradient, as traits.lossless is True, received '
    r'other bits in \d+ of 5035 .* Declare lossless=False',
  ),
  (
    'biased methods are contractive',
    Biased,
    'expected a squared error below',
  ),
  (
    'mean over draws is the gradient if unbiased',
    Halved,
    r'expected a squared error of at most \S+e-\d+ after 128 draws',
  ),
  (
    'mean over draws is the gradient if unbiased',
    LocalScale,
    'expected a squared error of at most',
  ),
  (
    'mean over draws is the gradient if unbiased',
    FourPercentShort,
    r'a length along the mean gradient of 1, up to 0.0\d+, .* received 0.9[56]',
  ),
  (
    'mean of workers is the mean of their estimates',
    SumOfWorkers,
    'expected the mean of the estimates of three workers, up to .* of the norm',
  ),
  (
    'mean of workers is the mean of their estimates',
    FirstWorker,
    'received an error of norm .* multiply by context.scale',
  ),
  (
    'mean of workers is the mean of their estimates',
    SumWithoutEstimates,
    'expected the mean of one worker, for three with equal gradients',
  ),
  (
    'codes are within the declared levels',
    FewLevels,
    'expected codes up to 1, the levels of the message, received 2. Declare',
  ),
  (
    'sums decode to the bits of all words',
    FewLevels,
    'expected the means that the words of all workers give, received other',
  ),
  (
    'sums decode to the bits of all words',
    OtherSums,
    'expected the means that the words of all workers give, received other',
  ),
  (
    'sums decode to the bits of all words',
    ReadsParts,
    "expected a result, received AttributeError: 'Sum' object has no",
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
    'states stay finite and have one owner',
    UnknownOwner,
    r"expected one of \['shared', 'worker'\] as owner .* received 'Worker'",
  ),
  (
    'states stay finite and have one owner',
    UnknownMean,
    r"expected one of \[''\] as mean_state of the state 'a', received 'b'",
  ),
  (
    'states stay small if the gradient stays',
    Doubling,
    "expected the state 'residual' to stay below 3.8e\\+06 in 32 steps",
  ),
  (
    'mean of one worker is its estimate',
    OtherEstimate,
    'expected the mean of one worker, received other bits',
  ),
  (
    'any device decodes the same means from words',
    OrderOfDevices,
    'expected the means of the step, .*method.stack_by_worker',
  ),
  (
    'any device decodes the same means from words',
    Smuggling,
    "'Smuggling' object has no attribute 'factor'",
  ),
  (
    'any device decodes the same means from words',
    DrawingInDecode,
    'expected the same means with another context.common_key, .* draws_in_dec',
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
  (
    'compiled code gives the bits of eager code',
    Divided,
    'expected the bits of eager code, received other bits in',
  ),
]


@pytest.mark.parametrize(
  ('claim', 'method', 'message'),
  BROKEN,
  ids=[f'{method.__name__}-{claim[:9]}' for claim, method, _ in BROKEN],
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


class FewOfMany(Floats):
  """Sends one element of the bucket, which scope BUCKET declares."""

  scope = contract.BUCKET
  traits = Floats.traits._replace(unbiased=False, lossless=False)

  def send(self, number, gradients, states, received, context):
    whole = methods.flat(gradients)
    largest = tf.argmax(tf.abs(whole)) == tf.range(
      sum(context.sizes), dtype='int64'
    )
    return [tf.bitcast(tf.where(largest, whole, 0.0), tf.int32)], states


class LossyByChance(Floats):
  """Happens to be exact, and promises nothing."""

  traits = Floats.traits._replace(lossless=False)


class OneOfMany(Floats):
  """Multiplies by the number of elements, as codes of one element do."""

  def decode(self, received, states, context):
    means, states = super().decode(received, states, context)
    return [mean * float(sum(context.sizes)) for mean in means], states


@pytest.mark.parametrize(
  ('claim', 'method'),
  [
    ('biased methods are contractive', FewOfMany),
    ('lossless trait matches exact means', LossyByChance),
    ('huge and subnormal gradients stay finite and small', OneOfMany),
  ],
)
def test_a_right_method_does_not_fail(claim, method):
  assert outcome(claim, method).state != claims.FAILED
