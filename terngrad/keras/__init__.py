"""Compressed gradients in programs of Keras: one line beside `model.fit`."""

from terngrad.keras.metrics import CompressionMetrics
from terngrad.keras.optimizer import CompressedOptimizer

__all__ = ['CompressedOptimizer', 'CompressionMetrics']
