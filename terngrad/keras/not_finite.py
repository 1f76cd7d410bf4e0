"""Handling of steps with gradients that are not finite."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from terngrad.codec.stages import tracing
from terngrad.compression import float_gradients
from terngrad.step import loss_scaling

SKIP, RAISE, PASS = ACTIONS = 'skip', 'raise', 'pass'


class FiniteCheck(NamedTuple):
  """Which gradients of a step are finite; equal on all replicas.

  Attributes:
    finite: bool [variables], whether each gradient is finite on all workers.
    names: names of the variables.
    step: integer [], steps taken before this one.
  """

  finite: tf.Tensor
  names: list[str]
  step: tf.Tensor


class UpdateGuard:
  """Applies an update only if the gradients are finite.

  Attributes:
    action: for a step that is not finite: 'skip' it, 'raise' an error, or
      'pass' the NaN on.
  """

  def __init__(self, action: str = SKIP) -> None:
    """Creates a guard with one of `ACTIONS`.

    Raises:
      ValueError: the action is unknown.
    """
    if action not in ACTIONS:
      raise ValueError(
        f'on_not_finite: expected one of {", ".join(ACTIONS)}, received '
        f'{action!r}. Use {SKIP!r} to leave weights unchanged in such a step.'
      )
    self.action = action
    self._is_logged = False

  def apply(
    self,
    update: Callable[..., None],
    arguments: tuple[Any, ...],
    found: FiniteCheck,
  ) -> None:
    """Calls `update` in each replica if all workers' gradients are finite.

    The condition is evaluated in the cross-replica context. Inside one
    replica's conditional, operations that wait for other replicas are not
    allowed.

    Raises:
      tf.errors.InvalidArgumentError: a gradient is not finite, and `action` is
        'raise'; nothing has changed.
    """

    def decide(
      strategy: tf.distribute.Strategy,
      finite: tf.Tensor,
      step: tf.Tensor,
      *arguments: Any,
    ) -> None:
      def take() -> None:
        if tf.distribute.in_cross_replica_context():
          strategy.extended.call_for_each_replica(update, args=arguments)
        else:
          update(*arguments)

      first = strategy.experimental_local_results
      here = FiniteCheck(first(finite)[0], found.names, first(step)[0])
      tf.cond(
        float_gradients.all_flags(here.finite),
        take,
        lambda: self._refuse(here),
      )

    # A copy: a tensor of all replicas would reach the merge only once.
    with tracing.beside(found.finite):
      finite = tf.identity(found.finite)
    tf.__internal__.distribute.interim.maybe_merge_call(
      decide,
      tf.distribute.get_strategy(),
      finite,
      tf.identity(found.step),
      *arguments,
    )

  def report(self, found: FiniteCheck) -> None:
    """Logs once per process that a gradient is not finite."""
    tf.cond(
      float_gradients.all_flags(found.finite),
      lambda: None,
      lambda: self._log(found),
    )

  def _refuse(self, found: FiniteCheck) -> None:
    if self.action == SKIP:
      self._log(found)
      return
    if tracing.is_compiled_by_xla():
      raise ValueError(
        f'on_not_finite: expected {SKIP!r} or {PASS!r} in a step that XLA '
        f'compiles, which cannot raise, received {RAISE!r}. Compile the model '
        'with jit_compile=False.'
      )
    message = [
      _describe(found),
      'Lower the learning rate, or check the data.',
    ]
    tf.debugging.Assert(False, [tf.strings.join(message, ' ')])

  def _log(self, found: FiniteCheck) -> None:
    # XLA programs cannot call Python.
    if not self._is_logged and not tracing.is_compiled_by_xla():
      tf.py_function(self._log_once, [_describe(found)], [])

  def _log_once(self, message: tf.Tensor) -> None:
    if self._is_logged:
      return
    self._is_logged = True
    consequence = (
      'Their update is NaN, as without compression'
      if self.action == PASS
      else 'The step was skipped: weights, optimizer and codec are unchanged'
    )
    logging.warning(
      '%s %s. Further such steps are not logged.',
      *(message.numpy().decode(), consequence),
    )


def are_finite(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """Tests whether all elements of each tensor are finite; bool [tensors]."""
  return tf.stack([loss_scaling.all_finite([tensor]) for tensor in tensors])


def _describe(found: FiniteCheck) -> tf.Tensor:
  """Describes which variables are not finite at which step; string []."""
  names = tf.boolean_mask(tf.constant(found.names), ~found.finite)
  return tf.strings.join(
    [
      'Step ',
      tf.strings.as_string(found.step + 1),
      ': expected finite gradients, received NaN or infinity on at least one '
      'worker for ',
      tf.strings.reduce_join(names, separator=', '),
      '.',
    ]
  )
