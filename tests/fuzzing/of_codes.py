"""Texts that name codes."""

from terngrad.codec import policy
from terngrad.codec.methods import registry
from tests.fuzzing.target import Target


def codec():
  """A code, by its text, and the messages of a small model."""

  def parse(content, folder):
    del folder
    made = registry.method(content.decode('utf-8', 'replace'), 4)
    made.messages(((3, 4), (5,)))

  return Target(
    parse,
    [
      *(text.encode() for text in registry.KINDS),
      *(text.encode() for text in registry.ALIASES),
      b'error_feedback+powersgd:rank=2',
      b'bidirectional+thc',
      b'momentum:momentum=0.9+randomk:ratio=0.1',
    ],
    (ValueError,),
    ['terngrad.codec.methods.registry', 'slim.spelling'],
    (
      *(name.encode() for name in (*registry.CODECS, *registry.METHODS)),
      *(name.encode() + b'+' for name in registry.WRAPPERS),
      *(b':', b'=', b',', b'ratio=', b'bits=', b'group_size=', b'levels='),
      *(b'clip_factor=', b'rank=', b'packing=', b'dither=', b'norm=l2', b'nan'),
    ),
  )


def rules():
  """Rules, and which codes they give variables."""
  specs = [
    policy.VariableSpec('conv1/kernel', (3, 3, 1, 8)),
    policy.VariableSpec('fc/bias', (10,), True),
  ]

  def parse(content, folder):
    del folder
    found = policy.parse(content.decode('utf-8', 'replace'))
    policy.policy([*found, (policy.always, 'identity')], specs)

  return Target(
    parse,
    [b'rank<2 -> identity; fc*/kernel & size>=1000 -> fp16', b'* -> ternary'],
    (ValueError,),
    ['terngrad.codec.policy'],
    (b'rank', b'size', b'<=', b'>=', b'=', b'->', b';', b'&', b'[!a-', b'?'),
  )


def stages():
  """Codes of the first steps of a run."""

  def parse(content, folder):
    del folder
    found = policy.parse_stages(content.decode('utf-8', 'replace'))
    if sorted({until for until, _ in found}) != [until for until, _ in found]:
      raise AssertionError('numbers of steps that do not rise')

  return rules()._replace(
    parse=parse,
    seeds=[b'100 -> identity; 300 -> topk:ratio=0.1'],
  )
