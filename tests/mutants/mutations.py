"""What a mutant changes: one operator, constant, condition or statement.

Nothing of what no test can see: docstrings, annotations, decorators, the text
of errors and of the log, and `strict=` of zip.
"""

import ast
import re
from typing import NamedTuple

_OPERATORS = {
  ast.Add: ('+', '-'),
  ast.Sub: ('-', '+'),
  ast.Mult: ('*', '//'),
  ast.Div: ('/', '*'),
  ast.FloorDiv: ('//', '*'),
  ast.Mod: ('%', '*'),
  ast.Pow: ('**', '*'),
  ast.LShift: ('<<', '>>'),
  ast.RShift: ('>>', '<<'),
  ast.BitAnd: ('&', '|'),
  ast.BitOr: ('|', '&'),
  ast.BitXor: ('^', '&'),
  ast.MatMult: ('@', '*'),
  ast.Lt: ('<', '<='),
  ast.LtE: ('<=', '<'),
  ast.Gt: ('>', '>='),
  ast.GtE: ('>=', '>'),
  ast.Eq: ('==', '!='),
  ast.NotEq: ('!=', '=='),
  ast.Is: ('is', 'is not'),
  ast.IsNot: (r'is\s+not', 'is'),
  ast.In: ('in', 'not in'),
  ast.NotIn: (r'not\s+in', 'in'),
  ast.And: ('and', 'or'),
  ast.Or: ('or', 'and'),
}
# Their other form is the condition turned round.
_TURNED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_LOGS = {'logging', 'log', 'warnings'}
_DROPPED = (ast.AugAssign, ast.Break, ast.Continue, ast.Raise)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Mutation(NamedTuple):
  """One change of one source.

  Attributes:
    kind: 'operator', 'constant', 'condition' or 'dropped'.
    start, stop: the bytes that are replaced.
    text: bytes that replace them.
    lines: (first, last) line of the statement, of a compound one the head.
    function: (first, last) line of the innermost function, or None.
  """

  kind: str
  start: int
  stop: int
  text: bytes
  lines: tuple
  function: tuple | None

  def of(self, source):
    """The mutated source, from bytes."""
    return source[: self.start] + self.text + source[self.stop :]


def find(source):
  """All mutations of a source (bytes), in its order.

  Returns:
    List of `Mutation`; of a few `differs` is false.
  """
  finder = _Finder(source)
  finder.visit(ast.parse(source))
  return sorted(set(finder.found), key=lambda m: (m.start, m.stop, m.text))


def differs(source, mutation):
  """Whether a mutant is Python, and another program."""
  try:
    after = ast.dump(ast.parse(mutation.of(source)))
  except SyntaxError:
    return False
  return after != ast.dump(ast.parse(source))


class _Finder(ast.NodeVisitor):
  """Visits what may be mutated and collects `found`."""

  def __init__(self, source):
    self.found = []
    self._source = source
    self._starts = [0]
    for line in source.splitlines(keepends=True):
      self._starts.append(self._starts[-1] + len(line))
    self._lines = self._function = None

  def visit(self, node):
    if _is_silent(node):
      return
    if isinstance(node, ast.stmt):
      first = getattr(node, 'body', None)
      last = first[0].lineno - 1 if first else node.end_lineno
      self._lines = node.lineno, max(node.lineno, last)
    super().visit(node)

  def visit_FunctionDef(self, node):
    outer = self._function
    self._function = node.lineno, node.end_lineno
    defaults = node.args
    for default in (*defaults.defaults, *defaults.kw_defaults):
      if default is not None:
        self.visit(default)
    for statement in node.body:
      self.visit(statement)
    self._function = outer

  visit_AsyncFunctionDef = visit_FunctionDef

  def visit_AnnAssign(self, node):
    if node.value is not None:
      self.visit(node.value)

  def visit_BinOp(self, node):
    self._operator(node.op, node.left, node.right)
    self.generic_visit(node)

  def visit_BoolOp(self, node):
    for left, right in zip(node.values, node.values[1:], strict=False):
      self._operator(node.op, left, right)
    self.generic_visit(node)

  def visit_Compare(self, node):
    terms = [node.left, *node.comparators]
    for i, operator in enumerate(node.ops):
      self._operator(operator, terms[i], terms[i + 1])
    self.generic_visit(node)

  def visit_UnaryOp(self, node):
    start, stop = self._start(node), self._start(node.operand)
    if isinstance(node.op, ast.Not):
      self._add('condition', start, stop, b'')
    if isinstance(node.op, ast.USub):
      self._add('operator', start, start + 1, b'+')
    self.generic_visit(node)

  def visit_Constant(self, node):
    value = node.value
    if isinstance(value, bool):
      text = repr(not value)
    elif isinstance(value, int):
      text = str(value + 1)
    elif isinstance(value, float):
      text = repr(2 * value if value else 1.0)
    elif isinstance(value, str) and not re.search(r'\s', value):
      text = repr(f'x{value}x')
    else:
      return
    self._replace('constant', node, text.encode())

  def visit_If(self, node):
    self._condition(node.test)
    self.generic_visit(node)

  visit_While = visit_IfExp = visit_If

  def visit_comprehension(self, node):
    for test in node.ifs:
      self._condition(test)
    self.generic_visit(node)

  def visit_Return(self, node):
    nothing = node.value is None or ast.unparse(node.value) == 'None'
    if not nothing:
      self._replace('dropped', node, b'return')
    self.generic_visit(node)

  def visit_Expr(self, node):
    if isinstance(node.value, ast.Call):
      self._replace('dropped', node, b'pass')
    self.generic_visit(node)

  def visit_Assign(self, node):
    if not any(isinstance(t, ast.Name | ast.Tuple) for t in node.targets):
      self._replace('dropped', node, b'pass')
    self.generic_visit(node)

  def visit_Raise(self, node):
    self._replace('dropped', node, b'pass')

  def visit_AugAssign(self, node):
    self._replace('dropped', node, b'pass')
    self._operator(node.op, node.target, node.value)
    self.generic_visit(node)

  def visit_Break(self, node):
    self._replace('dropped', node, b'pass')

  visit_Continue = visit_Break

  def _condition(self, test):
    simple = isinstance(test, ast.Compare) and isinstance(test.ops[0], _TURNED)
    turned = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    if not simple and not turned:
      start, stop = self._start(test), self._stop(test)
      text = b'(not (' + self._source[start:stop] + b'))'
      self._add('condition', start, stop, text)

  def _operator(self, operator, left, right):
    start, stop = self._stop(left), self._start(right)
    pattern, text = _OPERATORS[type(operator)]
    if '\\' not in pattern:
      pattern = re.escape(pattern)
    match = re.search(pattern.encode(), self._source[start:stop])
    if match:
      self._add(
        'operator', start + match.start(), start + match.end(), text.encode()
      )

  def _replace(self, kind, node, text):
    self._add(kind, self._start(node), self._stop(node), text)

  def _add(self, kind, start, stop, text):
    self.found.append(
      Mutation(kind, start, stop, text, self._lines, self._function)
    )

  def _start(self, node):
    return self._starts[node.lineno - 1] + node.col_offset

  def _stop(self, node):
    return self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_silent(node):
  """Whether no test is expected to see what is in a node."""
  if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Delete):
    return True
  if isinstance(node, ast.JoinedStr):
    return True
  if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
    return True
  if isinstance(node, ast.keyword) and node.arg == 'strict':
    return True
  if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
    return _is_silent(node.value)
  if isinstance(node, ast.If) and '__name__' in ast.dump(node.test):
    return True
  if isinstance(node, ast.Call):
    words = ast.unparse(node.func).split('.')
    return words[0] in _LOGS or words[-1].endswith('Error')
  return False
