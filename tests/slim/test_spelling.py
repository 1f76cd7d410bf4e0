"""Texts NAME[:option=value,...]."""

import pytest

from slim import spelling

MAKERS = {
  'mirrored': lambda yes=True: yes,
  'plain': lambda: (),
  'scaled': lambda factor=1.0, count=2, rule='max': (factor, count, rule),
}


@pytest.mark.parametrize(
  ('text', 'otherwise', 'expected'),
  [
    ('plain', {'count': 5}, ()),
    ('scaled', {}, (1.0, 2, 'max')),
    ('scaled:', {}, (1.0, 2, 'max')),
    ('scaled:count=3,factor=0.5', {}, (0.5, 3, 'max')),
    ('scaled:rule=', {}, (1.0, 2, '')),
    ('scaled', {'count': 5}, (1.0, 5, 'max')),
    ('scaled:count=3', {'count': 5}, (1.0, 3, 'max')),
    ('mirrored', {}, True),
    ('mirrored:yes=False', {}, False),
    ('mirrored:yes=0', {}, False),
    ('mirrored:yes=true', {}, True),
  ],
)
def test_options_get_the_types_of_their_defaults(text, otherwise, expected):
  assert spelling.make('kind', text, MAKERS, **otherwise) == expected


@pytest.mark.parametrize(
  ('text', 'numbers', 'message'),
  [
    (
      'scale',
      False,
      "kind: expected one of mirrored, plain, scaled, received 'scale'. D",
    ),
    ('scaled:fctor=1', False, "'fctor=1'. Did you mean 'factor'?"),
    ('scaled:factor', False, 'kind scaled: expected option=value with an opt'),
    ('scaled:factor=x', False, "expected a number for factor, received 'x'. W"),
    ('scaled:factor=x', True, 'expected option=number with an option of fac'),
    ('scaled:count=1,count=1', False, 'every option once, received count tw'),
    (
      'mirrored:yes=no',
      False,
      "expected true or false for yes, received 'no'.",
    ),
    ('plain:count=1', False, 'of none (it has no options), received'),
  ],
)
def test_invalid_texts_are_refused_with_the_known_options(
  text, numbers, message
):
  with pytest.raises(ValueError) as caught:
    spelling.make('kind', text, MAKERS, numbers=numbers)
  assert message in str(caught.value)


def test_join_reverses_split():
  name, items = spelling.split('scaled:count=3,rule=min')
  options = dict(item.split('=') for item in items)
  assert spelling.join(name, options) == 'scaled:count=3,rule=min'


def test_a_maker_of_any_arguments_has_no_options():
  def mine(*values, **named):
    return values, named

  assert spelling.make('codec', 'mine', {'mine': mine}) == ((), {})
  for item in ('decay=1', 'values=1', 'named=1'):
    with pytest.raises(ValueError, match='none .it has no options.'):
      spelling.make('codec', f'mine:{item}', {'mine': mine})


def annotated(ratio: float, count: 'int | None' = None, sizes=(1, 2)):
  return ratio, count, sizes


def untyped(ratio):
  return ratio


def test_options_without_a_usable_default_get_their_annotated_types():
  made = spelling.make('codec', 'mine:ratio=0.5,count=3', {'mine': annotated})
  assert made == (0.5, 3, (1, 2))
  assert spelling.make('codec', 'mine', {'mine': annotated}, ratio=2.0) == (
    2.0,
    None,
    (1, 2),
  )


@pytest.mark.parametrize(
  ('maker', 'text', 'message'),
  [
    (
      untyped,
      'mine:ratio=0.1',
      'expected ratio to have a default or an annotation of type bool, float, '
      'int, str, received "ratio". Give `ratio` a default number, such as '
      '`ratio=0.1`',
    ),
    (annotated, 'mine:ratio=1,sizes=3', 'received "sizes=(1, 2)". Give `si'),
    (annotated, 'mine:ratio=x', "a number for ratio, received 'x'. Write rat"),
    (annotated, 'mine:ratio=1%', 'Write ratio=0.01.'),
    (annotated, 'mine:ratio=1,count=x', 'Write count=1, for example.'),
    (
      untyped,
      'mine',
      'codec mine: expected a value for ratio, which has no default, received '
      'none. Write mine:ratio=VALUE.',
    ),
    (annotated, 'mine:count=1', 'expected a value for ratio'),
  ],
)
def test_options_of_unknown_type_or_without_a_value_are_refused_by_name(
  maker, text, message
):
  with pytest.raises(ValueError) as caught:
    spelling.make('codec', text, {'mine': maker})
  assert message in str(caught.value)
