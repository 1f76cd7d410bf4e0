"""Compressed gradients in programs of Keras: one line beside `model.fit`."""

from terngrad.keras.metrics import CompressionMetrics
from terngrad.keras.multi_worker import repair_multi_worker
from terngrad.keras.optimizer import CompressedOptimizer
from terngrad.keras.reduce import CompressedReduce
from terngrad.keras.virtual import virtual_workers

__all__ = [
  'CompressedOptimizer',
  'CompressedReduce',
  'CompressionMetrics',
  'repair_multi_worker',
  'virtual_workers',
]
