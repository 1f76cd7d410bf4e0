"""Joins the measurements of our codes and of others, pair by pair.

  python join.py measure_variance.csv others.csv beside.csv

Writes the third file, with a row for every pair and gradient of the two.
"""

import sys

import pandas as pd

# A method of GRACE or PyTorch, and our codec of the same kind.
PAIRS = (
  ('terngrad', 'ternary'),
  ('terngrad', 'ternary:packing=huffman243'),
  ('terngrad', 'ternary:dither=stratified'),
  ('terngrad', 'eden3'),
  ('qsgd 127', 'qsgd:levels=127,norm=l2,group_size=128'),
  ('qsgd 7', 'qsgd:levels=7,norm=l2,group_size=128'),
  ('qsgd 7', 'qsgd:levels=7,norm=max,group_size=128'),
  ('natural', 'natural'),
  ('topk 0.01', 'topk:ratio=0.01'),
  ('topk 0.01', 'stc:ratio=0.01'),
  ('dgc 0.01', 'topk:ratio=0.01'),
  ('randomk 0.01', 'randomk:ratio=0.01'),
  ('threshold 2.5', 'threshold:above=2.5,capacity=0.1'),
  ('signsgd', 'signsgd'),
  ('efsignsgd', 'sign'),
  ('onebit', 'one_bit:group_size=0'),
  ('fp16', 'fp16'),
  ('fp16_compress_hook', 'fp16'),
  ('powersgd 1', 'powersgd:rank=1,warm_start=0'),
  ('powersgd 4', 'powersgd:rank=4,warm_start=0'),
  ('powerSGD_hook 1', 'powersgd:rank=1,warm_start=0'),
  ('powerSGD_hook 4', 'powersgd:rank=4,warm_start=0'),
)


def join(ours: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
  """Returns a row for each pair and each gradient of the tables.

  Args:
    ours: the table of `terngrad measure variance`, with one worker.
    others: the table of measure_others.py.

  Raises:
    SystemExit: a table has a code of a gradient twice, or a pair lacks a row.
  """
  check_unique(ours, 'codec', 'measure_variance.csv')
  check_unique(others, 'name', 'others.csv')
  # With one worker the mean's error is the worker's. The column `one` is NaN
  # for codecs with two rounds.
  ours = ours.assign(error=ours['mean'], sem=ours['mean_sem'])
  others = others.rename(columns={'one': 'error', 'one_sem': 'sem'})
  pairs = pd.DataFrame(PAIRS, columns=['name', 'codec'])
  gradients = pd.concat([others['gradients'], ours['gradients']]).unique()
  pairs = pairs.merge(pd.DataFrame({'gradients': gradients}), how='cross')
  for name, table in (('name', others), ('codec', ours)):
    found = pairs.merge(
      table, on=[name, 'gradients'], how='left', indicator='found'
    )
    lacking = found.loc[found['found'] == 'left_only', [name, 'gradients']]
    if len(lacking):
      words = sorted({' of '.join(row) for row in lacking.to_numpy()})
      raise SystemExit(
        f'expected a row for each {name} of PAIRS and each gradient, received '
        f'none for {"; ".join(words)}. Measure it, or leave out the gradient.'
      )
  columns = ['gradients', 'codec', 'bits', 'error', 'sem']
  return pairs.merge(
    others, on=['name', 'gradients'], validate='many_to_one'
  ).merge(
    ours[columns],
    on=['gradients', 'codec'],
    suffixes=(' theirs', ' ours'),
    validate='many_to_one',
  )


def check_unique(table: pd.DataFrame, name: str, file: str) -> None:
  """Exits if a table has a code of a gradient twice."""
  key = ['gradients', name]
  twice = table.loc[table.duplicated(key), key].drop_duplicates()
  if len(twice):
    words = '; '.join(
      f'{code} of {gradient}' for gradient, code in twice.values
    )
    raise SystemExit(
      f'{file}: expected one row for each code and gradient, received several '
      f'for {words}. Remove all but one.'
    )


def main():
  """Joins, prints and writes the table."""
  table = join(*map(pd.read_csv, sys.argv[1:3]))
  print(table.to_string(index=False, float_format='{:.4g}'.format))
  table.to_csv(sys.argv[3], index=False, float_format='%.6g')


if __name__ == '__main__':
  main()
