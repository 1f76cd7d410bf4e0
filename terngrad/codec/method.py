"""The interface of gradient methods: what workers send and what they store.

A `Method` consists of declarations and pure functions. They apply to a bucket:
a list of variables that are coded together as one vector. One step has these
phases:

1. Each worker calls `begin` with its gradients and its states. `begin` returns
   the gradients to code and the probe, a few numbers per variable. The workers
   agree on the largest value of each number. The probe shares one metadata row
   with losses and statistics, and the workers gather all rows.
2. In each round, every worker calls `send`. The exchange combines the messages
   of all workers as each `Message` declares and returns the result.
3. Every device calls `decode`, which returns the mean gradients.
4. If a worker state depends on the mean, each worker calls `finish`.

Methods do not access devices, flags, optimizers or communication. A method with
one message and no state is a `coded.Code`.
"""

import abc
from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import NamedTuple

import tensorflow as tf

from terngrad import aliases
from terngrad.codec.context import Context as Context
from terngrad.codec.context import Shapes as Shapes
from terngrad.codec.context import Tensors as Tensors
from terngrad.codec.context import each as each
from terngrad.codec.context import flat as flat
from terngrad.codec.context import shaped as shaped
from terngrad.codec.context import sizes_of as sizes_of
from terngrad.codec.context import starts_of as starts_of
from terngrad.codec.messages import GATHER as GATHER
from terngrad.codec.messages import SCATTER as SCATTER
from terngrad.codec.messages import SUM as SUM
from terngrad.codec.messages import AnyPacking as AnyPacking
from terngrad.codec.messages import Message as Message
from terngrad.codec.messages import Rounds as Rounds
from terngrad.codec.messages import code_sum as code_sum
from terngrad.codec.messages import float_sum as float_sum
from terngrad.codec.messages import gathered as gathered
from terngrad.codec.received import Payloads as Payloads
from terngrad.codec.received import Piece as Piece
from terngrad.codec.received import Received as Received
from terngrad.codec.received import ReceivedRounds as ReceivedRounds
from terngrad.codec.received import Scattered as Scattered
from terngrad.codec.received import Sum as Sum
from terngrad.codec.received import payloads as payloads
from terngrad.codec.received import received_by as received_by
from terngrad.codec.received import stack_by_worker as stack_by_worker
from terngrad.codec.stages import contract
from terngrad.codec.stages import deprecated
from terngrad.codec.stages import statistics

if not TYPE_CHECKING:
  # Names of 0.2.
  __getattr__ = deprecated.moved(
    __name__, rows_in_order='terngrad.codec.received:stack_by_worker'
  )

# Values of `State.owner`.
WORKER, SHARED = 'worker', 'shared'
# Values of `State.resharding`.
MEAN, RANGES = 'mean', 'ranges'


@aliases.renamed_attributes(dealt='resharding')
class State(NamedTuple):
  """An array that a method keeps from step to step for one variable.

  Attributes:
    name: the same for all variables of a model. Checkpoints identify the array
      by this name and the variable.
    owner: WORKER: each worker has a different value. SHARED: every device
      computes the same value.
    variable: index of the variable in the bucket.
    shape: the static shape; the dtype is float32.
    initial: takes the shape and returns the float32 initial value. None: zeros.
    resharding: how `resharding` converts WORKER states when the number of
      workers changes. MEAN: every worker gets the mean of the old states, which
      preserves the mean of the error-feedback residuals. RANGES: the old states
      are concatenated, padded with zeros and split again.
    mean_state: for a WORKER state the name of the SHARED state that is the mean
      of all workers' values; '' if there is none. If the values of some workers
      are lost, every worker gets the mean.
  """

  name: str
  owner: str
  variable: int
  shape: tuple[int, ...]
  initial: Callable[[tuple[int, ...]], tf.Tensor] | None = None
  resharding: str = MEAN
  mean_state: str = ''

  def first_value(self) -> tf.Tensor:
    """Returns the initial value, float32 of `shape`."""
    return self.initial(self.shape) if self.initial else tf.zeros(self.shape)


class Method(deprecated.AcceptsFunctions):
  """Computes the mean of the workers' gradients from coded messages.

  Subclasses override the declarations that differ from the defaults, implement
  `messages`, `send` and `decode`, and implement the optional functions that
  they need. Methods are compared by identity: all variables with the same
  method object are coded together.

  Gradients are flat float32 tensors: either one per variable or one for the
  whole bucket. `each` and `flat` convert between the two. States are passed and
  returned as a list in the order of `states`.

  Attributes:
    name: used in labels. Checkpoints store it.
    traits: properties that an exchange may rely on.
    scope: what the code of an element depends on: ELEMENT, VARIABLE or BUCKET.
      A bucket of scope BUCKET is not split into parts.
    num_rounds: communication rounds in a step.
    estimates: True if `estimate` is implemented. If False, the decoded values
      of one worker are known only through the mean.
    finishes: True if `finish` is implemented, because a worker state depends on
      the mean.
    carries: True if `carry` and `carry_words` are implemented. If False,
      workers store their gradients until the probe is agreed on.
    estimated_round: index of the round that `estimate` decodes; its words
      depend only on the gradients of the sending worker.
    keeps_the_rest: True if each worker keeps what it does not send, as with
      error feedback, which is then refused.
    makes_updates: True if the means are updates for the optimizer `gd`.
      Variables that are sent as float32 then use `in_float` of the method.
    float_steps: first steps of a run that must use `in_float`.
    agrees: True if a function reads the agreed probe. If False, the probe is
      one norm per variable and only detects elements that are not finite.
    draws_in_decode: True if `decode` draws from `Context.common_key`. It must
      then run with the step number with which the words were encoded.
    strata: number of workers in the stratified dither, 0 for independent draws;
      see `contract.Quantizer`.
    max_workers: largest number of workers whose messages can be added; None for
      no limit.
    digits: (radix, digits per word) for the fused update. The sum of the
      workers' digits times the agreed probe of the variable is N times the
      mean. None if no kernel decodes the words.
    unit: how a kernel converts a sum to gradients. SCALER: it multiplies sums
      of codes by the agreed probe of the variable. ONE: it takes sums of floats
      as they are. None if no kernel does.
    compiled: True if XLA should compile the functions. False if XLA must not
      compile them or brings no speedup.
    any_origin: True if the functions accept tensors, int64 [], as `start` and
      `stream` of the context. Buckets of equal shapes then share programs.
  """

  name: str
  traits: contract.Traits
  scope: str = contract.ELEMENT
  num_rounds: int = 1
  estimates: bool = False
  finishes: bool = False
  carries: bool = False
  estimated_round: int = -1
  keeps_the_rest: bool = False
  makes_updates: bool = False
  float_steps: int = 0
  agrees: bool = True
  draws_in_decode: bool = False
  strata: int = 0
  max_workers: int | None = None
  digits: tuple[int, int] | None = None
  unit: str | None = None
  compiled: bool = True
  any_origin: bool = False

  @property
  def is_plain(self) -> bool:
    """True if the only message is the gradients' bits, as in `identity`.

    Workers on one device then add their gradients without words.
    """
    return False

  def omega(self, num_elements: int) -> float | None:
    """Returns w with E |decoded - g|^2 <= w |g|^2, for variables of this size.

    None if the method is biased or has no bound. `diana` needs one.
    """
    return 0.0 if self.traits.lossless else None

  @abc.abstractmethod
  def messages(self, shapes: Shapes) -> Rounds:
    """Returns the messages of each round for variables of these shapes."""

  def states(self, shapes: Shapes) -> tuple[State, ...]:
    """Returns the states that are kept between steps; none by default."""
    return ()

  def num_probes(self, num_elements: int) -> int:
    """Returns how many probe numbers a variable of this size has."""
    return 1

  def begin(
    self, gradients: Tensors, states: Tensors, context: Context
  ) -> tuple[Tensors, tf.Tensor]:
    """Returns the gradients to code and the local probe, float32 [p].

    The default returns the gradients and one norm per variable. `context` has
    no probes. A probe number is not finite if an element it covers is not.
    """
    return gradients, statistics.norms(each(gradients, context))

  def carry(self, gradients: Tensors, context: Context) -> tf.Tensor:
    """Encodes what a worker stores until the probe is agreed on.

    Each additional virtual node of a device stores these words in place of the
    gradients from `begin`.

    Returns:
      int32 [`carry_words`].
    """
    raise NotImplementedError

  def carry_words(self, shapes: Shapes) -> int:
    """Returns the number of words that `carry` returns."""
    raise NotImplementedError

  @abc.abstractmethod
  def send(
    self,
    number: int,
    gradients: Tensors,
    states: Tensors,
    received: ReceivedRounds,
    context: Context,
  ) -> tuple[list[tf.Tensor], Tensors]:
    """Encodes the messages of this worker for one round.

    Args:
      number: index of the round, from 0.
      gradients: from `begin`, or the words from `carry`.
      states: the states visible to this worker; only WORKER states may change.
      received: one list per earlier round with one `Payloads` or `Sum` per
        message. A SCATTER message contains only the part for this worker.
      context: with all fields set.

    Returns:
      (One int32 tensor of words per message; states.)
    """

  @abc.abstractmethod
  def decode(
    self,
    received: ReceivedRounds,
    states: Tensors,
    context: Context,
  ) -> tuple[list[tf.Tensor], Tensors]:
    """Decodes the mean gradients.

    Args:
      received: the messages of all rounds, as in `send`. SCATTER messages must
        not be read.
      states: only SHARED states may be read or changed.
      context: with `worker`, `key` and `local_probe` unset.

    Returns:
      (v float32 tensors of `context.shapes`; states.)
    """

  def estimate(
    self, words: Sequence[tf.Tensor], context: Context
  ) -> list[tf.Tensor]:
    """Decodes this worker's words of round `estimated_round`.

    Returns:
      The gradients as the other workers decode them, flat float32 tensors.
    """
    raise NotImplementedError

  def finish(
    self,
    gradients: Tensors,
    states: Tensors,
    means: Sequence[tf.Tensor],
    context: Context,
  ) -> Tensors:
    """Returns the states of a worker once the mean gradients are known."""
    raise NotImplementedError

  def on_kernels(self) -> 'Method':
    """Returns the fastest variant for CPUs; its results are bit-identical."""
    return self

  def on_gpus(self) -> 'Method':
    """Returns the fastest variant for GPUs."""
    return self

  def in_float(self, plain: 'Method') -> 'Method':
    """Returns the method for float32 steps of a run, with the same states.

    Args:
      plain: the method that sends float32 gradients.
    """
    return plain


def begin_with_norms(
  gradients: Tensors, states: Tensors, context: Context
) -> tuple[Tensors, tf.Tensor]:
  """Calls `Method.begin`, for methods of functions; removed in 0.4."""
  return Method.begin(None, gradients, states, context)  # type: ignore
