"""TernGrad for TensorFlow 2: gradients compressed to -1, 0 and +1.

The package exports the public names of the library. It imports each name at its
first use, so that importing the package is fast and prints nothing.
"""

import importlib
from typing import Any

from terngrad.version import __version__

_HOMES = {
  'CODECS': 'terngrad.codec.methods.registry',
  'Codec': ('terngrad.codec.coded', 'Code'),
  'Compressor': 'terngrad.compression.compressor',
  'EvalConfig': 'terngrad.config.training',
  'GradientCodec': 'terngrad.reduce.gradients',
  'LocalSteps': 'terngrad.local.local_steps',
  'Towers': 'terngrad.exchange.towers',
  'Trainer': 'terngrad.compression.trainer',
  'TrainConfig': 'terngrad.config.training',
  'VariableSpec': 'terngrad.codec.policy',
  'base3': 'terngrad.codec.stages.packing',
  'build_config': ('terngrad.config.options', 'build'),
  'chain': 'terngrad.codec.chain',
  'clip_by_stddev': 'terngrad.codec.stages.clipping',
  'compress': 'terngrad.compression.compression',
  'evaluate': 'terngrad.training.evaluation',
  'float16_words': 'terngrad.codec.stages.float_words',
  'float32_words': 'terngrad.codec.stages.float_words',
  'gradient_codec': 'terngrad.reduce.bucketing',
  'keep_compiled_code': 'terngrad.machine.xla_cache',
  'parallelize': 'terngrad.compression.parallel',
  'parse_codec': ('terngrad.codec.methods.registry', 'parse'),
  'policy': ('terngrad.codec.policy', 'policy'),
  'ternarize': 'terngrad.codec.stages.ternary',
  'train': 'terngrad.training.start',
  'two_bit': 'terngrad.codec.stages.packing',
  'worker_key': 'terngrad.codec.stages.random_bits',
}

# Subpackages that are public names.
_PACKAGES = ('keras',)

__all__ = ['__version__', *sorted(_HOMES), *_PACKAGES]


def __getattr__(name: str) -> Any:
  if name in _PACKAGES:
    return importlib.import_module(f'{__name__}.{name}')
  if name not in _HOMES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  home = _HOMES[name]
  module, attribute = home if isinstance(home, tuple) else (home, name)
  return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
  return __all__
