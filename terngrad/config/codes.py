"""Options that choose how gradients are compressed."""

import dataclasses
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from absl import logging

from slim import spelling
from terngrad import aliases
from terngrad import errors
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.config import options

if TYPE_CHECKING:
  from terngrad.codec import method

__getattr__ = aliases.renamed_names(
  __name__, Named='RunMethods', Codes='CodeOptions'
)

# Flags of ternary codes.
_TERNARY_FLAGS = 'clip_factor', 'scaler_rule', 'packing'


class RunMethods(NamedTuple):
  """The compression methods of a run: by variable and by step.

  Attributes:
    code: method of the variables that no rule matches.
    rules: methods of the other variables; see `policy.policy`.
    warm_up: methods that replace `code`, as (until, method) with rising
      numbers. A step uses the first entry with step < until.
  """

  code: 'method.Method'
  rules: 'list[tuple[policy.Predicate, method.Method]]'
  warm_up: 'list[tuple[int, method.Method]]'

  @property
  def methods(self) -> 'list[method.Method]':
    """The methods of the rules, then those of the warm-up, then `code`."""
    return [*(found for _, found in (*self.rules, *self.warm_up)), self.code]

  @property
  def first(self) -> 'list[tuple[int, method.Method]]':
    """Deprecated: use warm_up."""
    aliases.warn('RunMethods', 'first', 'warm_up')
    return self.warm_up


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeOptions(options.ConfigPart):
  """Options of gradient compression.

  A resumed run compares the name of the method, so the flags that choose it may
  change.
  """

  size_to_binarize: int = options.option(
    1, 'Gradients with fewer elements than this stay float32.', least=0
  )
  codec: str = options.option(
    '',
    'Gradient code, NAME[:option=value,...]. {codecs} '
    'Empty: set by --grad_bits. For an all-reduce of '
    'integers: ternary:packing=radix,workers=N.',
    on_resume=options.IGNORED,
  )
  codec_rules: str = options.option(
    '',
    "Other codes for some variables, as 'WHERE -> CODE; ...'. WHERE is rank<2, "
    "size>=1000, a pattern of the name such as '*/bias', or several of these "
    'joined by &; CODE is as for --codec. The first rule that matches applies, '
    'before --size_to_binarize and --quantize_logits.',
  )
  codec_warm_up: str = options.option(
    '',
    "Codes for the first steps, as 'UNTIL -> CODE; ...' with increasing steps, "
    "such as '200 -> identity; 400 -> error_feedback+topk:ratio=0.1'. All "
    'later steps use --codec. Lossy codes must keep the same state as --codec.',
  )
  grad_bits: int = options.option(
    32,
    '1 for ternary gradients; 2, 4 or 8 for integers scaled to the minimum and '
    'the maximum of every 512 elements (minmax); 32 for float32.',
    on_resume=options.IGNORED,
  )
  clip_factor: float = options.option(
    0.0,
    'Clip gradients at this many standard deviations, 2.5 in the paper; 0 '
    'turns clipping off. --codec=ternary clips at 2.5 unless this flag or its '
    'option is set; --codec=ternary:clip_factor=0 does not clip.',
    on_resume=options.IGNORED,
    least=0,
  )
  scaler_rule: str = options.option(
    'max_clipped',
    'Scaler of ternary codes. max_clipped (the paper): the largest magnitude '
    'after clipping. stddev (the 2017 code): clip_factor standard deviations.',
    on_resume=options.IGNORED,
  )
  packing: str = options.option(
    'base3',
    'Packing of ternary codes, in bits per element: base3, 1.6; two_bit, 2; '
    'bitmap_sign and huffman243, about 1.3 and 1.2, depending on the '
    'gradients. For radix see --codec.',
    on_resume=options.IGNORED,
  )
  quantize_logits: bool = options.option(
    False, 'Compress the gradients of the logits layer too.'
  )
  floating_grad_epoch: int = options.option(
    0,
    'k > 0: send float32 gradients in the last epoch of every k; 1: in all '
    'epochs.',
    least=0,
  )
  use_encoding: bool = options.option(
    False,
    'Accepted without effect: codes are always packed and sent.',
    on_resume=options.IGNORED,
  )

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option.

    Logs flags without effect. `methods` validates the codes.
    """
    super().validate()
    ignored = self._ternary_flags()
    if self.codec or self.grad_bits != 32 or not ignored:
      return
    with errors.as_config_error():
      registry.method(self._ternary(), 1)
    # Not refused: scripts of 2017 set them beside --grad_bits=32.
    logging.warning(
      'No effect beside --grad_bits=32, which sends float32: %s. For ternary '
      'gradients use --grad_bits=1.',
      ', '.join(f'--{name}={value}' for name, value in ignored.items()),
    )

  def methods(self, num_workers: int) -> RunMethods:
    """Builds the methods that the options name, for a number of workers.

    Raises:
      errors.ConfigError: a text names no method, or options contradict each
        other.
    """
    with errors.as_config_error():
      parsed = policy.parse(self.codec_rules)
      # Variables of one method are coded together, so equal texts share one.
      methods = {code: _make_method(code, num_workers) for _, code in parsed}
      stages = policy.parse_stages(self.codec_warm_up)
      warm_up = [
        (until, _make_method(code, num_workers)) for until, code in stages
      ]
      code = _make_method(self.text(num_workers), num_workers)
    plain = registry.method('identity')
    rules = [(matches, methods[text]) for matches, text in parsed]
    rules.append((policy.smaller_than(self.size_to_binarize), plain))
    if not self.quantize_logits:
      rules.append((policy.is_logits, plain))
    return RunMethods(code, rules, warm_up)

  named = aliases.renamed_attribute('named', 'methods')

  def text(self, num_workers: int | None) -> str:
    """Returns the method in the syntax of `--codec`, from whichever flags.

    Args:
      num_workers: workers of the run; None if the number is not known.

    Raises:
      errors.ConfigError: flags contradict each other.
      ValueError: --codec names no method.
    """
    if not self.codec:
      return self._codec_text_of_grad_bits()
    wrappers, plus, text = self.codec.rpartition('+')
    name, items = spelling.split(text)
    options.refuse(
      self.grad_bits not in (32, 1)
      or (self.grad_bits == 1) > (name == 'ternary'),
      f'codec: expected --grad_bits to be left out beside --codec={name}, '
      f'received {self.grad_bits}. Set only one of the two.',
    )
    # --codec must be valid without the other flags.
    registry.method(self.codec, num_workers or 0)
    settings = dict(item.partition('=')[::2] for item in items)
    for flag, value in self._ternary_flags().items():
      options.refuse(
        name != 'ternary' or type(value)(settings.get(flag, value)) != value,
        f'{flag}: expected it to agree with --codec={self.codec}, received '
        f'{value}. Set it once, as '
        f'--codec={wrappers}{plus}ternary:{flag}={value}.',
      )
      settings[flag] = value
    return f'{wrappers}{plus}{spelling.join(name, settings)}'

  def _codec_text_of_grad_bits(self) -> str:
    texts = {
      32: 'identity',
      1: self._ternary(),
      **{bits: f'minmax:bits={bits}' for bits in (2, 4, 8)},
    }
    options.refuse(
      self.grad_bits not in texts,
      'grad_bits: expected 1 (ternary), 2, 4 or 8 (integers) or 32 (float32), '
      f'received {self.grad_bits}. Use one of them, or choose a code with '
      '--codec.',
    )
    for flag, value in self._ternary_flags().items():
      options.refuse(
        self.grad_bits not in (1, 32),
        f'{flag}: expected it to be left out beside --grad_bits='
        f'{self.grad_bits}, which sends integers, received {value}. Leave it '
        'out, or use --grad_bits=1 for ternary gradients.',
      )
    return texts[self.grad_bits]

  def _ternary_flags(self) -> dict[str, Any]:
    """Returns the flags of ternary codes that are not at their defaults."""
    given = (n for n in _TERNARY_FLAGS if not options.is_default(self, n))
    return {name: getattr(self, name) for name in given}

  def _ternary(self) -> str:
    """Returns the ternary code of the flags."""
    settings = {name: getattr(self, name) for name in _TERNARY_FLAGS}
    return spelling.join('ternary', settings)


def _make_method(text: str, num_workers: int) -> 'method.Method':
  code = registry.method(text, num_workers)
  limit = code.max_workers
  options.refuse(
    limit is not None and limit < num_workers,
    f'codec: expected a code for the {num_workers} nodes, received '
    f'--codec={text}, which can add at most {limit}. Set its option '
    f'workers={num_workers}.',
  )
  return code
