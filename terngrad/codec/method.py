"""What a gradient method is: what workers send each other, and remember.

A `Method` is pure functions and declarations about a bucket, a list of
variables that are coded together. A step with it:

1. Each worker `begin`s: from its gradients and what it remembers come the
   gradients to code and a probe, a few numbers. The workers agree on the
   largest of each; the numbers travel with losses and statistics in one row.
2. Round after round each worker sends messages, and receives those of all,
   combined as each message declares.
3. Every device decodes what was received to the mean gradients.
4. Where a worker remembers what depends on the mean, it `finish`es.

Methods know nothing of devices, flags, optimizers or communication. One that
needs no rounds and remembers nothing is a `coded.Code`.
"""

import abc
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.context import Context as Context
from terngrad.codec.context import Shapes as Shapes
from terngrad.codec.context import Tensors as Tensors
from terngrad.codec.context import each as each
from terngrad.codec.context import each_of as each_of
from terngrad.codec.context import flat as flat
from terngrad.codec.context import shaped as shaped
from terngrad.codec.context import sizes_of as sizes_of
from terngrad.codec.context import starts_of as starts_of
from terngrad.codec.messages import GATHER as GATHER
from terngrad.codec.messages import SCATTER as SCATTER
from terngrad.codec.messages import SUM as SUM
from terngrad.codec.messages import AnyPacking as AnyPacking
from terngrad.codec.messages import Arrived as Arrived
from terngrad.codec.messages import Message as Message
from terngrad.codec.messages import Payloads as Payloads
from terngrad.codec.messages import Piece as Piece
from terngrad.codec.messages import Received as Received
from terngrad.codec.messages import Rounds as Rounds
from terngrad.codec.messages import Scattered as Scattered
from terngrad.codec.messages import Sum as Sum
from terngrad.codec.messages import code_sum as code_sum
from terngrad.codec.messages import float_sum as float_sum
from terngrad.codec.messages import gathered as gathered
from terngrad.codec.messages import payloads as payloads
from terngrad.codec.messages import received_by as received_by
from terngrad.codec.messages import rows_in_order as rows_in_order
from terngrad.codec.stages import contract
from terngrad.codec.stages import deprecated
from terngrad.codec.stages import statistics

# Who remembers a state.
WORKER, SHARED = 'worker', 'shared'
# What becomes of workers' states where their number changes.
MEAN, RANGES = 'mean', 'ranges'


class State(NamedTuple):
  """An array that is remembered from step to step, of one variable.

  Attributes:
    name: the same for all variables of a model; checkpoints know the array by
      it and by the variable.
    owner: WORKER: each worker has its own. SHARED: every device computes the
      same.
    variable: index of the variable in the bucket.
    shape: tuple of int.
    initial: takes the shape, returns float32: the first values. None: zeros.
    dealt: for WORKER, what `dealing` does where their number changes. MEAN: all
      get the mean of what there was, so that what is owed to the mean of the
      gradients stays owed. RANGES: those of all, one after the other, are one
      array with zeros past its end, which is cut anew.
  """

  name: str
  owner: str
  variable: int
  shape: tuple[int, ...]
  initial: Callable[[tuple[int, ...]], tf.Tensor] | None = None
  dealt: str = MEAN

  def first_value(self) -> tf.Tensor:
    """float32 of the shape."""
    return self.initial(self.shape) if self.initial else tf.zeros(self.shape)


class Method(deprecated.OfFunctions):
  """How the workers come to the mean of their gradients.

  A method subclasses this, declares what is not as here, and defines
  `messages`, `send`, `decode` and what else it has. Methods are compared by
  identity: the variables of one object are coded together.

  Gradients come as a list of float32, flat: one of each variable, or one of all
  together; see `each` and `flat`. States come, and are returned, as the list
  that `states` declares.

  Attributes:
    name: for labels, and for what a checkpoint was trained with.
    traits: see `contract.Traits`.
    scope: ELEMENT, VARIABLE or BUCKET: what an element's code depends on.
      Buckets of the last are not cut into parts.
    num_rounds: how often workers send.
    estimates: whether there is `estimate`; otherwise only the mean can say what
      a worker sent.
    finishes: whether there is `finish`: a worker keeps what depends on the
      mean.
    carries: whether there are `carry` and `carry_words`; otherwise workers keep
      gradients until the probe is agreed on.
    telling: the round whose words are of the worker's gradients alone.
    agrees: whether a function looks at the agreed probe. False: probes are
      norms of variables, which show what is not finite and nothing else.
    draws_in_decode: whether `decode` draws from `Context.common_key`, so that
      the step must be that in which the words were made.
    strata: workers whose draws are spread evenly, see `contract.Quantizer`.
    max_workers: the most whose messages it can add; None for any number.
    digits: (radix, places) where a kernel decodes words whose digits, summed
      over the workers and times the agreed number of their variable, are N
      times the mean; None where none does. Fused updates look at it.
    unit: SCALER where a kernel makes gradients of sums of codes times the
      agreed number of their variable, ONE where of sums of floats as they are;
      None where none does.
    compiled: True where the functions want to be compiled by XLA; False where
      they must not be or gain nothing.
  """

  name: str
  traits: contract.Traits
  scope: str = contract.ELEMENT
  num_rounds: int = 1
  estimates: bool = False
  finishes: bool = False
  carries: bool = False
  telling: int = -1
  agrees: bool = True
  draws_in_decode: bool = False
  strata: int = 0
  max_workers: int | None = None
  digits: tuple[int, int] | None = None
  unit: str | None = None
  compiled: bool = True

  @abc.abstractmethod
  def messages(self, shapes: Shapes) -> Rounds:
    """For each round its messages, for variables of such shapes."""

  def states(self, shapes: Shapes) -> tuple[State, ...]:
    """What is kept from step to step: nothing."""
    return ()

  def num_probes(self, num_elements: int) -> int:
    """How many numbers of the probe are of a variable of so many elements."""
    return 1

  def begin(
    self, gradients: Tensors, states: Tensors, context: Context
  ) -> tuple[Tensors, tf.Tensor]:
    """What is coded, and what is to be agreed on: here norms, on nothing.

    Args:
      gradients: of the worker.
      states: what it sees.
      context: without probes.

    Returns:
      (The gradients that are coded; float32 [p], the probe. An entry of it is
      not finite where an element that it is of is not.)
    """
    return gradients, statistics.norms(each(gradients, context))

  def carry(self, gradients: Tensors, context: Context) -> tf.Tensor:
    """int32 words that a worker keeps in place of `begin`'s gradients.

    Until the probe is agreed on: what is kept is what a further virtual node
    costs.
    """
    raise NotImplementedError

  def carry_words(self, shapes: Shapes) -> int:
    """The number of `carry`'s words."""
    raise NotImplementedError

  @abc.abstractmethod
  def send(
    self,
    number: int,
    gradients: Tensors,
    states: Tensors,
    received: Arrived,
    context: Context,
  ) -> tuple[list[tf.Tensor], Tensors]:
    """A worker's messages of a round.

    Args:
      number: of the round, from 0.
      gradients: those of `begin`, or what `carry` made of them.
      states: what the worker sees; only WORKER states may change.
      received: for each round before a list of `Payloads`, `Sum` or, of what
        was scattered, its own part.
      context: with all that there is.

    Returns:
      (list of int32 words, one a message; states).
    """

  @abc.abstractmethod
  def decode(
    self,
    received: Arrived,
    states: Tensors,
    context: Context,
  ) -> tuple[list[tf.Tensor], Tensors]:
    """The mean gradients.

    Args:
      received: see `send`, of all rounds; what was scattered may not be read.
      states: only SHARED ones may be read or change.
      context: without worker, key and own probe.

    Returns:
      (list of v float32 of the shapes; states).
    """

  def estimate(
    self, words: Sequence[tf.Tensor], context: Context
  ) -> list[tf.Tensor]:
    """What the words of round `telling` say of the worker's own gradients.

    Returns:
      List of float32, as gradients come.
    """
    raise NotImplementedError

  def finish(
    self,
    gradients: Tensors,
    states: Tensors,
    means: Sequence[tf.Tensor],
    context: Context,
  ) -> Tensors:
    """The states of a worker, when the mean gradients are known."""
    raise NotImplementedError

  def on_kernels(self) -> 'Method':
    """The method as CPUs compute it best, to the same bits."""
    return self

  def on_gpus(self) -> 'Method':
    """The method as GPUs compute it best."""
    return self

  def in_float(self, plain: 'Method') -> 'Method':
    """The method of float32 steps in between, which has the same states.

    Args:
      plain: the method of float32 gradients.
    """
    return plain


def begin_with_norms(
  gradients: Tensors, states: Tensors, context: Context
) -> tuple[Tensors, tf.Tensor]:
  """`Method.begin`, for methods of functions; goes in 0.4."""
  return Method.begin(None, gradients, states, context)  # type: ignore
