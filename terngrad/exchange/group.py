"""The collectives of TensorFlow's runtime, between the processes of a cluster.

Every process must call the same functions in the same order. Identical programs
do so. The key of a collective is its index in that order. Tensors are sent from
host memory: words and probes are small, and the CPU collectives add int32,
which the GPU collectives do not. With NCCL, tensors stay on GPUs. Words are
float32, see `transport`, except in sums of words.
"""

import functools
import itertools
import uuid
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Protocol

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from terngrad import signals
from terngrad.codec.stages import wire

NCCL = 'nccl'
COMMUNICATIONS = ('auto', 'ring', NCCL)
HOST, _GPU = '/CPU:0', '/GPU:0'
# MultiWorkerMirroredStrategy numbers its groups from 1.
_GROUP_KEY = 7001
_GPU_GROUP_KEY = 7002
# Elements of a piece of a large tensor, and the largest number of pieces.
_PIECE = 2**18
_MOST_PIECES = 16


class Tasks(Protocol):
  """The tasks of a run: `cluster.spec.Cluster`."""

  @property
  def jobs(self) -> Mapping[str, Sequence[str]]:
    """The addresses of each job's tasks, 'host:port'."""

  @property
  def index(self) -> int:
    """The index of this process in its job."""


class Group:
  """The group of worker processes, as one process sees it.

  Attributes:
    size: the number of processes P.
    rank: index of this process.
    piece: elements of a piece of a large tensor, which is sent in pieces.
    on_gpus: True if tensors stay on GPUs: NCCL gathers and shards them. It
      cannot add int32.
  """

  def __init__(
    self,
    cluster: Tasks,
    timeout: float,
    communication: str = 'auto',
    piece: int = _PIECE,
  ) -> None:
    """Joins the group; blocks until all processes have joined.

    TensorFlow's context must not be initialized before.

    Args:
      cluster: a cluster with workers only.
      timeout: seconds without a heartbeat after which a task counts as lost.
      communication: of `COMMUNICATIONS`; `NCCL` needs a GPU in each process.
      piece: elements of a piece of a large tensor.
    """
    size = len(cluster.jobs['worker'])
    self._set_up(size, cluster.index, communication, piece)
    self._strategy = _join(cluster, timeout) if size > 1 else None

  @classmethod
  def from_strategy(cls, size: int, rank: int) -> 'Group':
    """Returns the group of processes that a TensorFlow strategy has joined.

    A process must have at most one such group, because the keys of collectives
    are counted per group.

    Args:
      size: the number of processes P.
      rank: index of this process.
    """
    group = cls.__new__(cls)
    group._set_up(size, rank, 'auto', _PIECE)
    return group

  def _set_up(
    self, size: int, rank: int, communication: str, piece: int
  ) -> None:
    self.size, self.rank, self.piece = size, rank, piece
    self._keys = itertools.count(1)
    self._hint, self.on_gpus = communication, communication == NCCL

  def all_gather(self, tensor: tf.Tensor) -> tf.Tensor:
    """Concatenates the tensors of all processes along the first axis.

    Args:
      tensor: int32 or float32 [k, ...], the same shape in every process.

    Returns:
      [size * k, ...], in the order of the processes.
    """
    return wire.concat(self.all_gather_pieces(tensor), axis=1)

  def all_gather_pieces(
    self, tensor: tf.Tensor, max_pieces: int = _MOST_PIECES
  ) -> list[tf.Tensor]:
    """Gathers a matrix in pieces of some columns each.

    The runtime copies a tensor several times. With pieces, it copies one piece
    while it sends another.

    Args:
      tensor: int32 or float32 [k, ...], the same shape in every process.
      max_pieces: largest number of pieces, >= 1.

    Returns:
      List of [size * k, columns of a piece]. A tensor that is no matrix, or is
      small, is one piece.
    """
    if self.size == 1:
      return [tensor]
    count = min(max_pieces, tensor.shape.num_elements() // self.piece)
    if tensor.shape.rank != 2 or count < 2:
      return [self._gather(tensor)]
    size = -(-tensor.shape[1] // count)
    sizes = [size] * (count - 1) + [tensor.shape[1] - size * (count - 1)]
    return [self._gather(piece) for piece in columns(tensor, sizes)]

  def all_gather_first(
    self,
    matrix: tf.Tensor,
    length: tf.Tensor,
    lengths: Sequence[int],
    max_pieces: int = _MOST_PIECES,
  ) -> list[tf.Tensor]:
    """Gathers the first columns of a matrix, in pieces.

    The runtime requires one shape per key. Each possible length therefore has
    its key.

    Args:
      matrix: float32 or int32 [k, n], the same shape in every process.
      length: int32 [], index in `lengths`; the same in every process.
      lengths: the possible numbers of columns, each <= n.
      max_pieces: largest number of pieces, >= 1.

    Returns:
      List of [size * k, columns of a piece], in order. The number of columns is
      known only at run time.
    """
    columns_sent = tf.gather(lengths, length)
    if self.size == 1:
      return [matrix[:, :columns_sent]]
    count = max(1, min(max_pieces, matrix.shape.num_elements() // self.piece))
    pieces = []
    for number in range(count):
      first, stop = (
        _part_of(columns_sent, end, count) for end in (number, number + 1)
      )
      first_key, *_ = (next(self._keys) for _ in lengths)
      pieces.append(self._gather(matrix[:, first:stop], first_key + length))
    return pieces

  def _gather(
    self, tensor: tf.Tensor, key: tf.Tensor | None = None
  ) -> tf.Tensor:
    shape = [self.size * tensor.shape[0], *tensor.shape[1:]]
    with tf.device(_GPU if self.on_gpus else HOST):
      result = tf.raw_ops.CollectiveGatherV2(
        input=tf.identity(tensor), **self._options(self.on_gpus, key)
      )
    return tf.ensure_shape(result, shape)

  def all_reduce(self, tensor: tf.Tensor) -> tf.Tensor:
    """Adds tensors over the processes; integer sums wrap around.

    Args:
      tensor: int32 or int64, the same shape in every process.

    Returns:
      The sum, of the same shape and dtype.
    """
    if self.size == 1:
      return tensor
    with tf.device(HOST):
      result = tf.raw_ops.CollectiveReduceV2(
        input=tf.identity(tensor),
        merge_op='Add',
        final_op='Id',
        **self._options(),
      )
    return tf.ensure_shape(result, tensor.shape)

  def all_to_all(self, tensor: tf.Tensor) -> tf.Tensor:
    """Sends row p to process p.

    Args:
      tensor: float32 or int32 [size, ...].

    Returns:
      The same shape. Row p is what process p sent to this process.
    """
    if self.size == 1:
      return tensor
    with tf.device(_GPU if self.on_gpus else HOST):
      result = tf.raw_ops.CollectiveAllToAllV2(
        input=tf.identity(tensor),
        is_stateless=False,
        **self._options(self.on_gpus),
      )
    return tf.ensure_shape(result, tensor.shape)

  def all_gather_now(self, array: np.ndarray | tf.Tensor) -> np.ndarray:
    """Runs `all_gather` outside of traced code."""
    return self.all_gather(tf.convert_to_tensor(array)).numpy()

  def broadcast(self, value: tf.Tensor) -> tf.Tensor:
    """Returns the chief's value, bit for bit, outside of traced code.

    Args:
      value: float32 or int32, the same shape in every process.

    Returns:
      The value of process 0.
    """
    bits = tf.bitcast(value, tf.int32)
    # Adds bits and zeros as integers, which rounds and normalizes no float.
    bits = bits if self.rank == 0 else tf.zeros_like(bits)
    return tf.bitcast(self.all_reduce(bits), value.dtype)

  @functools.cached_property
  def _gpu_token(self) -> tf.Tensor:
    """One token for all GPU collectives.

    NCCL hangs if two processes start collectives in different orders.
    """
    return _token(_GPU)

  def _options(
    self, on_gpus: bool = False, key: tf.Tensor | None = None
  ) -> dict[str, Any]:
    """Returns the arguments of a collective other than its tensor.

    They include no timeout: the runtime would start a sleeping thread for each
    collective, hundreds per second.
    """
    return {
      'ordering_token': [self._gpu_token if on_gpus else _token(HOST)],
      'group_size': self.size,
      'group_key': _GPU_GROUP_KEY if on_gpus else _GROUP_KEY,
      'instance_key': next(self._keys) if key is None else key,
      'communication_hint': self._hint if on_gpus == self.on_gpus else 'auto',
    }


def _token(device: str) -> tf.Tensor:
  """Returns a token; collectives with the same token run in program order.

  Collectives without tokens run in order too, so that one could wait for
  another whose tensor is computed later. Only the name of the token's resource
  is used.
  """
  with tf.init_scope(), tf.device(device):
    return tf.raw_ops.VarHandleOp(
      dtype=tf.float32, shape=[], shared_name=f'token_{uuid.uuid4().hex}'
    )


def _join(
  cluster: Tasks, timeout: float
) -> tf.distribute.MultiWorkerMirroredStrategy:
  """Starts the server of this process and waits for the other servers."""
  resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec({'worker': list(cluster.jobs['worker'])}),
    task_type='worker',
    task_id=cluster.index,
    rpc_layer='grpc',
  )
  _wait_for_heartbeats(timeout)
  # The strategy is TensorFlow's public interface that starts the runtime of
  # collectives. Nothing else of the strategy is used.
  with signals.block_while_joining():
    return tf.distribute.MultiWorkerMirroredStrategy(resolver)


def _wait_for_heartbeats(seconds: float) -> None:
  """Sets how long a task may send no heartbeat before it counts as lost.

  The default is 10 seconds. On a slow link a heartbeat waits behind the data of
  collectives: 152 MB take 12 seconds at 100 Mbit/s. A task that exits is
  detected at once, because its sockets close. TensorFlow has no public option
  for this. The function therefore wraps the call with which the strategy
  configures the coordination service.
  """
  eager_context = context.context()
  eager_context.configure_coordination_service = functools.partial(
    eager_context.configure_coordination_service,
    heartbeat_timeout_in_ms=int(1000 * seconds),
  )


def _part_of(size: tf.Tensor, number: int, count: int) -> tf.Tensor:
  """Returns size * number // count, int32 [], whose product would overflow."""
  return size // count * number + size % count * number // count


def columns(tensor: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
  """Splits a matrix by columns; does not copy a matrix of one row."""
  if len(sizes) == 1:
    return [tensor]
  if tensor.shape[0] > 1:
    return tf.split(tensor, sizes, axis=1)
  return [part[tf.newaxis] for part in tf.split(tf.squeeze(tensor, 0), sizes)]
