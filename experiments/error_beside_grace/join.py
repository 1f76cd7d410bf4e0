"""Joins the measurements of our codes and of others, pair by pair.

  python join.py measure_variance.csv others.csv beside.csv

Writes the third file.
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


def main():
  """Joins, prints and writes the table."""
  ours, others = map(pd.read_csv, sys.argv[1:3])
  # With one worker the mean's error is the worker's. The column `one` is NaN
  # for codecs with two rounds.
  ours = ours.assign(error=ours['mean'], sem=ours['mean_sem'])
  others = others.rename(columns={'one': 'error', 'one_sem': 'sem'})
  pairs = pd.DataFrame(PAIRS, columns=['name', 'codec'])
  columns = ['gradients', 'codec', 'bits', 'error', 'sem']
  table = pairs.merge(others, on='name').merge(
    ours[columns], on=['gradients', 'codec'], suffixes=(' theirs', ' ours')
  )
  print(table.to_string(index=False, float_format='{:.4g}'.format))
  table.to_csv(sys.argv[3], index=False, float_format='%.6g')


if __name__ == '__main__':
  main()
