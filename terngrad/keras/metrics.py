"""Compression ratio and compression error in the logs of `fit`."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import keras
import tensorflow as tf

from terngrad import arguments
from terngrad.compression import codec_states
from terngrad.compression import passed_rows
from terngrad.compression import reduced
from terngrad.keras import optimizer as optimizers

BITS, RATIO, ZEROS = 'bits_per_element', 'compression_ratio', 'zeros'
ERROR, RESIDUAL = 'compression_error', 'residual_norm'
_FLOAT_BITS = 32
_Logs: TypeAlias = dict[str, Any] | None


class CompressionMetrics(keras.callbacks.Callback):
  """Adds compression figures to the logs of `fit`.

  All figures are means over the steps of the epoch. The first two cover all
  gradients of all steps. The others cover only encoded gradients: sparse
  gradients (`tf.IndexedSlices`) are sent uncompressed. The others also leave
  out steps in which a gradient is not finite on at least one worker.

  - `bits_per_element`: bits that a worker sends per gradient element. It counts
    all payload words, the values that workers exchange before they encode, and
    the values and indices of sparse rows. The elements of a sparse gradient are
    those of the rows that are sent.
  - `compression_ratio`: 32 / `bits_per_element`.
  - `zeros`: fraction of zeros in the mean gradient, in [0, 1].
  - `compression_error`: norm of the difference between the exact and the
    decoded mean gradient, divided by the norm of the exact one. Only available
    where all workers are replicas of this process. It is no loss of accuracy:
    1.0 is normal for ternary codes, 0.96 for the largest hundredth of the
    elements (docs/keras.md has more). With error feedback it can exceed 1,
    because residuals of earlier steps are sent too; watch `residual_norm`
    there.
  - `residual_norm`: norm of a worker's error feedback residuals over all
    variables, as the root mean square over the workers of this process.

  Put it before the callbacks that read logs. Steps compute these figures only
  while the callback is present. Adding or removing it retraces the step. After
  a `fit` that was interrupted they are computed until another `fit` with the
  callback ends.
  """

  def __init__(self, every: int = 10) -> None:
    """Creates the callback.

    Args:
      every: steps between updates of the progress bar and of other callbacks
        within an epoch. Each update waits for the step to finish, or with
        `steps_per_execution` for the end of an execution.

    Raises:
      ValueError: `every` is less than 1.
    """
    super().__init__()
    self.every = arguments.whole_number('every', every, 1)
    # The batch of the last update in this epoch.
    self._last_batch = -1
    self._means = codec_states.run_in_thread(_Means)

  def set_model(self, model: keras.Model) -> None:
    """Checks the model's optimizer.

    Args:
      model: a model compiled with `CompressedOptimizer`.

    Raises:
      ValueError: the model has another optimizer.
    """
    super().set_model(model)
    optimizers.find_compressed(model.optimizer)

  def on_train_begin(self, logs: _Logs = None) -> None:
    """Registers an observer with the model's optimizer."""
    del logs
    self._set_observer(self._observe)
    # `fit` has created its function before.
    self.model.make_train_function()

  def on_train_end(self, logs: _Logs = None) -> None:
    """Removes the observer, so that a later fit computes no figures."""
    del logs
    self._set_observer(None)

  def on_epoch_begin(self, epoch: int, logs: _Logs = None) -> None:
    """Resets the means."""
    del epoch, logs
    self._last_batch = -1
    self._means.reset()

  def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
    """Adds the means so far to the logs, once in `every` steps."""
    if logs is not None and batch - self._last_batch >= self.every:
      self._last_batch = batch
      logs.update(self._means.results())

  def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
    """Adds the epoch's means to the logs."""
    del epoch
    if logs is not None:
      logs.update(self._means.results())

  def _set_observer(self, observer: reduced.Observer | None) -> None:
    compressor = optimizers.find_compressed(self.model.optimizer).compressor
    compressor.observer = observer
    # Keras creates the function again when `fit` begins.
    self.model.train_function = None

  def _observe(
    self, observed: reduced.Observed | passed_rows.PassedRows
  ) -> None:
    with tf.device(observed.exchange.devices[0]):
      if isinstance(observed, passed_rows.PassedRows):
        self._means.add_bits(observed.bits, observed.num_elements)
      else:
        self._means.add_bits(*sent_bits(observed))
        finite = tf.reduce_all(observed.reduced.finite[0])
        self._means.add(figures(observed), finite)


class _Means:
  """Means of figures over steps, updated inside the traced step."""

  def __init__(self) -> None:
    # float64: an epoch has more bits than float32 can count.
    self._bits = keras.metrics.Mean(dtype='float64')
    self._figures = {
      name: keras.metrics.Mean(dtype='float32')
      for name in (ZEROS, ERROR, RESIDUAL)
    }

  def reset(self) -> None:
    """Resets all means."""
    for mean in (self._bits, *self._figures.values()):
      mean.reset_state()

  def add_bits(self, bits: tf.Tensor, elements: tf.Tensor) -> None:
    """Adds the bits and the elements that a step sent; float64 []."""
    # A sparse gradient may have no rows.
    self._bits.update_state(tf.math.divide_no_nan(bits, elements), elements)

  def add(self, found: Mapping[str, tf.Tensor], counts: tf.Tensor) -> None:
    """Adds a step's figures, inside the traced step.

    Args:
      found: figures by name, float32 [].
      counts: bool [], False leaves the step out.
    """
    weight = tf.cast(counts, tf.float32)
    for name, value in found.items():
      # NaN times a weight of 0 is still NaN.
      self._figures[name].update_state(tf.where(counts, value, 0.0), weight)

  def results(self) -> dict[str, float]:
    """Returns figures by name; {} before the first step."""
    bits = float(self._bits.result())
    if not bits:
      return {}
    return {BITS: bits, RATIO: _FLOAT_BITS / bits} | {
      name: float(mean.result())
      for name, mean in self._figures.items()
      if float(mean.count)
    }


def sent_bits(
  observed: reduced.Observed,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns (bits, gradient elements) that a worker sends; float64 []."""
  codec = observed.codec
  sent = tf.reduce_mean(tf.cast(observed.reduced.sent, tf.float64))
  words = sent + codec.num_probes
  return _FLOAT_BITS * words, tf.constant(codec.num_elements, tf.float64)


def figures(observed: reduced.Observed) -> dict[str, tf.Tensor]:
  """Computes the figures of a step's encoded gradients.

  Returns:
    float32 [] by name, without figures that are not available.
  """
  means = observed.reduced.means[0]
  zeros = tf.add_n([tf.reduce_sum(tf.cast(m == 0, tf.float32)) for m in means])
  found = {ZEROS: zeros / observed.codec.num_elements}
  gradients = observed.gradients
  if gradients and len(gradients) == observed.exchange.num_workers:
    exact = [
      tf.add_n(values) / len(gradients)
      for values in zip(*gradients, strict=True)
    ]
    errors = [e - m for e, m in zip(exact, means, strict=True)]
    found[ERROR] = tf.math.divide_no_nan(_norm(errors), _norm(exact))
  if observed.residuals:
    norms = [_norm(residuals) for residuals in observed.residuals]
    found[RESIDUAL] = _norm(norms) / len(norms) ** 0.5
  return found


def _norm(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(t)) for t in tensors]))
