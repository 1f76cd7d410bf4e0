"""The report of a sweep: its numbers against those by hand, and its page."""

import itertools
import math
import os
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree

import matplotlib.text
import pandas as pd
import pytest

from terngrad import errors
from terngrad.report import sweep
from terngrad.report import sweep_markdown
from terngrad.report import sweep_page
from terngrad.report import sweep_plot
from terngrad.report.statistics import intervals
from terngrad.report.statistics import rankings
from terngrad.report.statistics import sweep_rules
from tests.report import markup

ACCURACY = {
  'float32': {1: 0.990, 2: 0.992, 3: 0.991},
  'ternary': {1: 0.980, 2: 0.983, 3: 0.981},
  'once <b>': {2: 0.5},
}
MACHINE = {'machine': '2 cores', 'processor': 'one', 'switches': 'none'}
NO_CURVES = NO_FAILURES = pd.DataFrame()
FAILURES = """\
variant,seed,code,error,flags
ternary,4,1,"Step 3: expected finite numbers, <b>",--codec=ternary
never,1,-9,,--codec=terngrad
ternary,5,1,Step 9,--codec=ternary
"""


@pytest.fixture
def runs(tmp_path):
  rows = [
    {
      'variant': variant,
      'seed': seed,
      'steps': 100,
      'accuracy': accuracy,
      'bits_per_element': 32.0 if variant == 'float32' else 1.6,
      'seconds': 10.0 * seed,
      **MACHINE,
    }
    for variant, seeds in ACCURACY.items()
    for seed, accuracy in seeds.items()
  ]
  path = tmp_path / 'results.csv'
  pd.DataFrame(rows).to_csv(path, index=False)
  return sweep.read(path)


def against(runs, baseline):
  return dict.fromkeys(runs['variant'], baseline)


def test_means_spreads_and_paired_differences_match_those_by_hand(runs):
  table = sweep.summary(runs, against(runs, 'float32')).set_index('variant')
  assert list(table.index) == ['float32', 'ternary', 'once <b>']
  ternary = [98.0, 98.3, 98.1]
  row = table.loc['ternary']
  assert row['seeds'] == 3
  assert row['accuracy %'] == pytest.approx(statistics.mean(ternary))
  assert row['sd'] == pytest.approx(statistics.stdev(ternary))
  # Student's t of two degrees of freedom.
  half = 4.303 * statistics.stdev(ternary) / math.sqrt(3)
  assert row['95 %'] == pytest.approx(half)
  pairs = [-1.0, -0.9, -1.0]
  assert row['to float32'] == pytest.approx(statistics.mean(pairs))
  half = 4.303 * statistics.stdev(pairs) / math.sqrt(3)
  assert row['its 95 %'] == pytest.approx(half)
  assert row['seconds'] == 20.0
  assert table.loc['float32', 'to float32'] == 0


def test_one_seed_has_no_spread_and_is_compared_by_seed(runs):
  row = (
    sweep.summary(runs, against(runs, 'float32'))
    .set_index('variant')
    .loc['once <b>']
  )
  assert math.isnan(row['sd']) and math.isnan(row['95 %'])
  assert row['to float32'] == pytest.approx(50.0 - 99.2)


def test_variants_are_compared_with_their_baselines(runs):
  baselines = {'ternary': 'float32', 'once <b>': 'ternary', 'none': 'ternary'}
  table = sweep.summary(runs, baselines).set_index('variant')
  found = table['to its baseline']
  assert found['ternary'] == pytest.approx(-2.9 / 3)
  assert found['once <b>'] == pytest.approx(50 - 98.3)
  assert math.isnan(found['float32'])
  assert list(table['baseline'])[1:] == ['float32', 'ternary']
  first = sweep_markdown.text(table.reset_index()).splitlines()[2]
  assert 'nan' not in first


def test_intervals_of_many_seeds_use_students_t():
  # Student's t as tabulated: 11, 20 and 100 degrees of freedom.
  for freedom, quantile in ((11, 2.201), (20, 2.086), (100, 1.984)):
    values = pd.Series(range(freedom + 1)) * 1.0
    _, deviation, half = intervals.interval(values)
    received = half * math.sqrt(freedom + 1) / deviation
    assert received == pytest.approx(quantile, abs=0.001)


def test_commits_and_variants_that_look_like_numbers_stay_text(
  tmp_path,
):
  path = tmp_path / 'results.csv'
  path.write_text(
    'variant,seed,steps,accuracy,bits_per_element,seconds,commit\n'
    '08,1,100,0.5,32.0,1.0,076e364\n'
    '1e3,1,100,0.25,1.6,1.0,0012345\n'
    'nan,1,100,0.25,1.6,1.0,\n'
  )
  runs = sweep.read(path)
  assert list(runs['variant']) == ['08', '1e3', 'nan']
  assert list(runs['commit']) == ['076e364', '0012345', '']
  assert list(sweep.summary(runs, against(runs, '08'))['to 08']) == [
    0,
    -25,
    -25,
  ]


def test_further_scores_are_means_of_the_runs_that_have_them(runs):
  assert not [name for name in sweep.summary(runs) if name.startswith('raw')]
  runs['accuracy_raw'] = [0.5, 0.7, math.nan] + [math.nan] * 4
  table = sweep.summary(runs).set_index('variant')
  assert table.loc['float32', 'raw %'] == pytest.approx(60)
  assert math.isnan(table.loc['ternary', 'raw %'])


def test_steps_are_shown_if_runs_differ_in_them(runs):
  assert 'steps' not in sweep.summary(runs)
  runs.loc[runs['variant'] == 'ternary', 'steps'] = 133
  table = sweep.summary(runs).set_index('variant')
  assert dict(table['steps']) == {
    'float32': 100,
    'ternary': 133,
    'once <b>': 100,
  }
  labels = [
    a.get_xlabel()
    for a in sweep_plot.chart(table.reset_index(), NO_CURVES).axes
  ]
  assert labels[1:] == ['bits/element', 'steps', 'seconds']


def test_curves_are_means_over_the_seeds_at_each_variants_steps(tmp_path, runs):
  (tmp_path / 'curves.csv').write_text(
    'variant,seed,step,accuracy\n'
    'float32,1,50,0.5\nfloat32,1,100,0.75\n'
    'float32,2,50,0.25\nfloat32,2,100,0.5\n'
    'ternary,1,75,0.125\n'
  )
  by_step = sweep.read_curves(tmp_path, runs)
  assert list(by_step.index) == [50, 75, 100]
  assert dict(by_step['float32'].dropna()) == {50: 37.5, 100: 62.5}
  assert dict(by_step['ternary'].dropna()) == {75: 12.5}
  axes = sweep_plot.chart(sweep.summary(runs), by_step).axes[-1]
  assert axes.get_xlabel() == 'steps'
  drawn = [[*zip(*line.get_data(), strict=True)] for line in axes.lines]
  assert drawn == [[(50, 37.5), (100, 62.5)], [(75, 12.5)]]
  assert [name.get_text() for name in axes.texts] == ['ternary', 'float32']
  assert [line.get_color() for line in axes.lines] == ['C0', 'C1']


def test_local_steps_count_as_steps_in_curves(tmp_path, runs):
  (tmp_path / 'curves.csv').write_text(
    'variant,seed,step,accuracy\n'
    'float32,1,80,0.5\nternary,1,8,0.25\nfailed,1,8,0.125\n'
  )
  local = runs['variant'] == 'ternary'
  flags = '--local_steps=20 --fragments=2'
  runs['flags'] = [flags if is_local else '' for is_local in local]
  by_step = sweep.read_curves(tmp_path, runs)
  assert dict(by_step['float32'].dropna()) == {80: 50}
  assert dict(by_step['ternary'].dropna()) == {80: 25}
  assert dict(by_step['failed'].dropna()) == {8: 12.5}


def test_without_scored_epochs_there_are_no_curves(tmp_path, runs):
  assert not len(sweep.read_curves(tmp_path, runs))
  axes = sweep_plot.chart(sweep.summary(runs), NO_CURVES).axes
  assert [a.get_xlabel() for a in axes[1:]] == ['bits/element', 'seconds']


def test_page_is_self_contained_and_complete(runs):
  table = sweep.summary(runs, against(runs, 'float32'))
  page = sweep_page.page('lenet & more', table, runs, NO_CURVES, NO_FAILURES)
  assert 'lenet &amp; more' in page and 'once &lt;b&gt;' in page
  markup.check_self_contained(page)
  body = re.search(r'<table class=.*?</table>', page, re.DOTALL)[0]
  rows = xml.etree.ElementTree.fromstring(body).findall('.//tr')
  assert len(rows) == 1 + len(ACCURACY)
  heads = 2 + len(MACHINE)
  assert page.count('<tr>') == heads + len(ACCURACY) + len(runs)
  assert page.count('<svg') == 3


def test_failures_are_counted_and_shown_and_change_no_mean(runs, tmp_path):
  (tmp_path / sweep.FAILURES).write_text(FAILURES, encoding='utf-8')
  failures = sweep.read_failures(tmp_path)
  without = sweep.summary(runs, against(runs, 'float32'))
  table = sweep.summary(runs, against(runs, 'float32'), failures)
  # One that never finished is last, and in no plot.
  assert list(table['variant']) == [*without['variant'], 'never']
  assert list(table['seeds']) == [*without['seeds'], 0]
  assert list(table['failed']) == [0, 2, 0, 1]
  means = ['variant', 'seeds', 'accuracy %', 'sd', '95 %', 'bits/element']
  pd.testing.assert_frame_equal(table[means].iloc[:-1], without[means])
  # A variant that lost runs is not compared, the other as before.
  compared = ['to float32', 'its 95 %']
  found = table.set_index('variant')[compared]
  assert found.loc['ternary'].isna().all()
  kept = without.set_index('variant')[compared].drop('ternary')
  pd.testing.assert_frame_equal(found.loc[kept.index], kept)
  sweep.write(tmp_path, 'all', runs, against(runs, 'float32'))
  assert '| never | 0 | 1 |  |' in (tmp_path / 'sweep.md').read_text()
  page = (tmp_path / 'sweep.html').read_text()
  assert 'Failed runs' in page and 'numbers, &lt;b&gt;' in page


def test_variants_that_never_finished_are_last_of_several_rankings(
  runs, tmp_path
):
  (tmp_path / sweep.FAILURES).write_text(FAILURES, encoding='utf-8')
  failures = sweep.read_failures(tmp_path)
  failures = pd.concat([failures, failures.assign(variant='nor this one')])
  rates = [f'--initial_learning_rate={name}' for name in runs['variant']]
  # Not in the order of their accuracy.
  runs = runs.assign(flags=rates).iloc[::-1]
  table = sweep.summary(runs, failures=failures)
  assert set(table['variant'].iloc[-2:]) == {'never', 'nor this one'}
  assert table[rankings.COLUMN].nunique() == 1 + runs['variant'].nunique()


def test_variants_with_failed_runs_have_open_marks_and_their_number(
  runs, tmp_path
):
  (tmp_path / sweep.FAILURES).write_text(FAILURES, encoding='utf-8')
  failures = sweep.read_failures(tmp_path)
  table = sweep.summary(runs, failures=failures)
  first = table.dropna(subset='accuracy %').set_index('variant', drop=False)
  assert sweep_plot.is_open(first.loc[['float32', 'ternary']]) == [False, True]
  axes = sweep_plot.chart(first, NO_CURVES).axes
  shown = [label.get_text() for label in axes[0].get_yticklabels()]
  assert shown == ['float32', 'ternary (2 failed)', 'once <b>']
  page = sweep_page.page('', table, runs, NO_CURVES, failures)
  # In three plots.
  assert page.count('>ternary (2 failed)</text>') == 3


def test_failures_are_omitted_if_no_run_failed(runs, tmp_path):
  assert not len(sweep.read_failures(tmp_path))
  table = sweep.summary(runs, failures=sweep.read_failures(tmp_path))
  assert 'failed' not in table
  assert 'failed' not in sweep_page.page(
    '', table, runs, NO_CURVES, NO_FAILURES
  )


def test_failures_are_read_from_the_source_folder(runs, tmp_path):
  (tmp_path / sweep.FAILURES).write_text(FAILURES, encoding='utf-8')
  output = tmp_path / 'output'
  sweep.write(output, 'all', runs, source=tmp_path)
  assert 'failed' in pd.read_csv(output / 'sweep.csv')


@pytest.mark.parametrize('name', [sweep.CURVES, sweep.FAILURES])
@pytest.mark.parametrize(
  'damaged', [b'', b'seed\n1\n', b'a\n"', b'\xff\xfe\xff']
)
def test_a_damaged_table_beside_the_results_is_one_error(
  runs, tmp_path, name, damaged
):
  (tmp_path / name).write_bytes(damaged)
  with pytest.raises(
    errors.ConfigError, match=f'{name}: expected a table with'
  ):
    sweep.write(tmp_path, 'all', runs)
  assert [path.name for path in tmp_path.glob('sweep*')] == []


def test_an_incomplete_row_is_refused_with_its_line(runs, tmp_path):
  path = tmp_path / 'results.csv'
  text = path.read_text(encoding='utf-8')
  path.write_text(f'{text}topk,1,100\n', encoding='utf-8')
  line = len(runs) + 2
  with pytest.raises(
    errors.ConfigError, match=f'received "3 instead of .* in line {line}"'
  ):
    sweep.read(path)


def test_markdown_is_a_table(runs):
  lines = sweep_markdown.text(sweep.summary(runs)).splitlines()
  assert lines[0].startswith('| variant | seeds | accuracy % |')
  assert set(lines[1]) == set('| -')
  assert lines[2].startswith('| float32 | 3 | 99.1 |')


def test_missing_tables_columns_and_baselines_are_refused(tmp_path, runs):
  with pytest.raises(errors.ConfigError, match='expected a readable'):
    sweep.read(tmp_path / 'none.csv')
  (tmp_path / 'other.csv').write_text('a,b\n1,2\n')
  with pytest.raises(errors.ConfigError, match='1 rows; missing columns: acc'):
    sweep.read(tmp_path / 'other.csv')
  with pytest.raises(errors.ConfigError, match="one of float32, .*'flaot'"):
    sweep.summary(runs, against(runs, 'flaot'))


def drawn_of(rows):
  columns = ['variant', 'seed', 'steps', 'accuracy']
  runs = pd.DataFrame(rows, columns=[*columns, 'bits_per_element', 'seconds'])
  drawn = sweep_plot.chart(sweep.summary(runs), NO_CURVES)
  drawn.draw_without_rendering()
  return drawn


def test_labels_of_close_points_do_not_overlap():
  rows = [(f'variant_{i}', 1, 10, 0.98 + 1e-5 * i, 1.6, 5.0) for i in range(12)]
  drawn = drawn_of(rows)
  for axes in drawn.axes[1:]:
    lows = sorted(name.get_window_extent().y0 for name in axes.texts)
    assert len(lows) == 12
    # Letters are seven points high.
    gaps = [b - a for a, b in itertools.pairwise(lows)]
    assert min(gaps) > 7 * drawn.dpi / 72


def test_labels_of_points_are_inside_the_axes():
  rows = [
    ('a_long_name_of_a_variant', 1, 10, 0.98, 1.6, 5.0),
    ('a_longer_name_of_another_variant', 1, 10, 0.99, 32.0, 9.0),
  ]
  drawn = drawn_of(rows)
  for axes in drawn.axes[1:]:
    for name in axes.texts:
      box = matplotlib.text.Text.get_window_extent(name)
      assert axes.bbox.x0 < box.x0 < box.x1 < axes.bbox.x1


def test_positions_of_axes_are_rounded(runs):
  for axes in sweep_plot.chart(sweep.summary(runs), NO_CURVES).axes:
    for side in axes.get_position().bounds:
      assert side == pytest.approx(round(side, 6), abs=1e-12)


def test_first_plot_has_a_line_for_each_variant_the_best_on_top(runs):
  table = sweep.summary(runs)
  axes = sweep_plot.chart(table, NO_CURVES).axes[0]
  names = [label.get_text() for label in axes.get_yticklabels()]
  assert names == sorted(ACCURACY, key=lambda name: -max(ACCURACY[name]))
  low, high = axes.get_ylim()
  assert low > len(names) - 1 > 0 > high
  means = [drawn.lines[0] for drawn in axes.containers]
  assert [line.get_xdata()[0] for line in means] == list(table['accuracy %'])
  # One seed is no mean.
  assert [line.get_fillstyle() for line in means] == ['full', 'full', 'none']


def seconds_of(runs, flags):
  runs['flags'] = [flags.get(name, '--seed=1') for name in runs['variant']]
  return sweep.summary(runs).set_index('variant')


def test_virtual_nodes_have_no_seconds(runs):
  table = seconds_of(runs, {'ternary': '--num_gpus=2 --num_nodes=4'})
  assert table.loc['float32', 'seconds'] == 20.0
  assert math.isnan(table.loc['ternary', 'seconds'])
  labels = [
    a.get_xlabel()
    for a in sweep_plot.chart(table.reset_index(), NO_CURVES).axes
  ]
  assert labels[1:] == ['bits/element', 'seconds']
  table = seconds_of(runs, dict.fromkeys(ACCURACY, '--num_nodes=4'))
  assert 'seconds' not in table
  page = sweep_page.page('', table.reset_index(), runs, NO_CURVES, NO_FAILURES)
  assert '<th>seconds</th>' not in page and 'Virtual nodes have no' in page


def test_equal_differences_are_marked_and_explained(runs):
  runs.loc[runs['variant'] == 'ternary', 'accuracy'] = [0.985, 0.987, 0.986]
  table = sweep.summary(runs, against(runs, 'float32'))
  marks = sweep_page.marked(table).set_index(table['variant'])
  assert marks.loc['ternary', 'its 95 %'] and not marks.loc['ternary', '95 %']
  # The difference of the baseline to itself is 0 whatever the seeds.
  assert not marks.loc['float32', 'its 95 %']
  text = sweep_markdown.text(table)
  (line,) = [line for line in text.splitlines() if '| ternary |' in line]
  assert '| -0.5 | 0 * |' in line
  assert text.splitlines()[-1].startswith('\\* All values are equal')
  page = sweep_page.page('', table, runs, NO_CURVES, NO_FAILURES)
  assert '<td>0 *</td>' in page and 'no sign of' in page
  # In each of three plots the variant with one seed, in two panels of one.
  assert page.count('class="hollow"') == 4 + 1


def test_without_equal_differences_nothing_is_marked(runs):
  table = sweep.summary(runs, against(runs, 'float32'))
  assert '*' not in sweep_markdown.text(table)
  page = sweep_page.page('', table, runs, NO_CURVES, NO_FAILURES)
  assert '<b>*</b>' not in page and page.count('class="hollow"') == 4


def test_several_baselines_are_not_marked_against_themselves(runs):
  baselines = {'float32': 'float32', 'ternary': 'ternary'}
  assert not sweep_page.marked(sweep.summary(runs, baselines)).any(axis=None)


def test_the_test_set_s_error_is_beside_the_intervals(runs):
  table = sweep.summary(runs)
  page = sweep_page.page('', table, runs, NO_CURVES, NO_FAILURES)
  assert '<th>95 %</th><th>test set 95 %</th>' in page
  # 1.96 sqrt(0.991 * 0.009 / 1000) = 0.585 %.
  assert '<td>99.1</td><td>0.1</td><td>0.2484</td><td>0.5853</td>' in page
  assert 'sqrt(a (1 - a) / 1000)' in page
  # Two values do not reveal a size.
  some = runs[runs['variant'] == 'once <b>']
  shown = sweep_page.page('', sweep.summary(some), some, NO_CURVES, NO_FAILURES)
  assert 'test set' not in shown


def test_sd_and_intervals_are_explained(runs):
  page = sweep_page.page('', sweep.summary(runs), runs, NO_CURVES, NO_FAILURES)
  assert '<b>sd</b>: standard deviation' in page
  assert 'half width of the 95 % confidence interval' in page
  assert 'its 95 %' not in page


def test_flags_of_all_runs_are_written_once_and_folded(runs):
  runs['flags'] = [f'--a=1 --b={seed}' for seed in runs['seed']]
  page = sweep_page.page('', sweep.summary(runs), runs, NO_CURVES, NO_FAILURES)
  folded = re.search('<details>.*?</details>', page, re.DOTALL)[0]
  assert page.count('--a=1') == folded.count('--a=1') == 1
  assert folded.count('<td>--b=2</td>') == 3


def test_curves_over_steps_are_first_and_interactive(runs):
  by_step = pd.DataFrame({'ternary': [50.0, 75.0]}, index=[1, 2])
  page = sweep_page.page('', sweep.summary(runs), runs, by_step, NO_FAILURES)
  figures = re.findall('<figcaption>([^<\n]+)', page)
  assert figures[0] == 'accuracy after an epoch, mean over seeds, %'
  assert 'data-x="1 2" data-y="50 75"' in page


@pytest.mark.parametrize('value', [math.inf, -math.inf, 1e305, math.nan])
def test_numbers_that_no_axis_can_show_are_not_drawn(runs, value):
  runs.loc[1, ['accuracy', 'bits_per_element', 'seconds']] = value
  by_step = pd.DataFrame({'ternary': [50.0, value]}, index=[1, 2])
  table = sweep.summary(runs, against(runs, 'float32'))
  page = sweep_page.page('', table, runs, by_step, NO_FAILURES)
  for drawn in re.findall('<svg.*?</svg>', page, re.DOTALL):
    assert not re.search('"[^"]*(nan|inf)\\b[^"]*"', drawn)


def test_pages_do_not_depend_on_the_process(runs, tmp_path):
  table, folders = tmp_path / 'results.csv', (tmp_path / '1', tmp_path / '2')
  runs.to_csv(table, index=False)
  program = (
    'import sys; from terngrad.report import sweep;'
    'sweep.write(sys.argv[2], "t", sweep.read(sys.argv[1]))'
  )
  # Other than that of this process, where most often it is random.
  seed = '1' if os.environ.get('PYTHONHASHSEED') != '1' else '2'
  subprocess.run(
    [sys.executable, '-c', program, table, folders[0]],
    env=os.environ | {'PYTHONHASHSEED': seed},
    check=True,
  )
  sweep.write(folders[1], 't', sweep.read(table))
  made = [{p.name: p.read_bytes() for p in f.iterdir()} for f in folders]
  assert made[0] == made[1]
  assert {*made[0]} == {'sweep.csv', 'sweep.md', 'sweep.html', 'sweep.png'}


def test_a_page_of_hostile_names_has_our_script_only(runs):
  bad = '"><script>alert(1)</script></svg>'
  runs['variant'] = runs['variant'].replace('ternary', bad)
  runs['flags'] = runs['machine'] = bad
  table = sweep.summary(runs, against(runs, bad))
  failures = pd.DataFrame({'variant': [bad], 'error': [bad]})
  by_step = pd.DataFrame({bad: [50.0, 75.0]}, index=[1, 2])
  page = sweep_page.page(bad, table, runs, by_step, failures)
  markup.check_self_contained(page)
  assert page == sweep_page.page(bad, table, runs, by_step, failures)


def test_unequal_steps_and_rates_are_not_in_one_ranking(runs):
  flags = {
    'float32': '--codec=identity --learning_rate=1 --learning_rate=2',
    'ternary': '--learning_rate=2',
    'once <b>': '--learning_rate=0.5',
  }
  runs['flags'] = [flags[name] for name in runs['variant']]
  table = sweep.summary(runs)
  assert list(table['ranking']) == ['--learning_rate=2'] * 2 + [
    '--learning_rate=0.5'
  ]
  text = sweep_markdown.text(table)
  assert text.startswith('--learning_rate=2:\n\n| variant | seeds |')
  assert '\n\n--learning_rate=0.5:\n\n| variant |' in text
  runs.loc[runs['variant'] == 'ternary', 'steps'] = 200
  names = list(sweep.summary(runs)['ranking'])
  assert names[:2] == [
    '100 steps, --learning_rate=2',
    '200 steps, --learning_rate=2',
  ]
  page = sweep_page.page('', sweep.summary(runs), runs, NO_CURVES, NO_FAILURES)
  assert 'are in separate' in page
  title = '95 % intervals, 200 steps, --learning_rate=2<'
  assert title in page


def test_searched_rates_are_in_one_ranking_with_a_note(runs, tmp_path):
  runs['flags'] = [f'--learning_rate={name}' for name in runs['variant']]
  baselines = against(runs, 'float32')
  assert 'ranking' in sweep.summary(runs, baselines)
  rules = sweep_rules.SweepRules(has_searched_rates=True)
  assert 'ranking' not in sweep.summary(runs, baselines, rules=rules)
  runs.loc[runs['variant'] == 'ternary', 'steps'] = 200
  names = list(sweep.summary(runs, baselines, rules=rules)['ranking'])
  assert names == ['100 steps', '100 steps', '200 steps']
  said = sweep.write(tmp_path, 'all', runs, baselines, rules=rules)
  for text in (
    said,
    (tmp_path / 'sweep.md').read_text(),
    (tmp_path / 'sweep.html').read_text(),
  ):
    assert 'learning rates were searched for each variant' in text
  assert 'or other learning' not in (tmp_path / 'sweep.html').read_text()


def test_seeds_of_two_processors_are_not_pooled_without_a_note(runs, tmp_path):
  sweep.write(tmp_path, 'all', runs)
  assert 'Not all runs' not in (tmp_path / 'sweep.md').read_text()
  runs.loc[0, 'processor'] = 'another'
  said = sweep.write(tmp_path, 'all', runs)
  note = 'Not all runs are known to have the same processor ('
  assert note in said.splitlines()[-2]
  assert (tmp_path / 'sweep.md').read_text().splitlines()[-1].startswith(note)
  assert f'<li>{note}' in (tmp_path / 'sweep.html').read_text()


def test_intervals_have_the_level_of_the_report(runs, tmp_path):
  rules = sweep_rules.SweepRules(99)
  sweep.write(tmp_path, 'all', runs, against(runs, 'float32'), rules=rules)
  row = pd.read_csv(tmp_path / 'sweep.csv').set_index('variant').loc['ternary']
  # Student's t of two degrees of freedom.
  for heading, values in (
    ('99 %', [98.0, 98.3, 98.1]),
    ('its 99 %', [-1.0, -0.9, -1.0]),
  ):
    half = 9.925 * statistics.stdev(values) / math.sqrt(3)
    assert row[heading] == pytest.approx(half)
  for name in ('sweep.csv', 'sweep.md', 'sweep.html'):
    text = (tmp_path / name).read_text()
    assert 'pooled 99 %' in text and '95 %' not in text
  # The normal distribution's, for the test set.
  assert '2.58 sqrt(a (1 - a) / 1000)' in text
  assert 'means over seeds with 99 % intervals' in text


def test_local_steps_count_as_steps_and_divide_the_bits(runs):
  local = runs['variant'] == 'ternary'
  runs['flags'] = ['--local_steps=20' if is_local else '' for is_local in local]
  runs.loc[local, 'steps'] = 5
  table = sweep.summary(runs).set_index('variant')
  assert 'steps' not in table and 'ranking' not in table
  assert table.loc['ternary', 'bits/element'] == pytest.approx(1.6 / 20)
  # Two fragments take turns, so a row's step has ten local steps.
  runs.loc[local, 'flags'] = '--local_steps=20 --fragments=2'
  runs.loc[local, 'steps'] = 10
  assert 'steps' not in sweep.summary(runs)


@pytest.mark.parametrize('column', [*MACHINE])
@pytest.mark.parametrize('value', ['another', math.nan])
def test_there_are_no_seconds_unless_machines_are_equal(runs, column, value):
  assert 'seconds' in sweep.summary(runs)
  runs.loc[0, column] = value
  table = sweep.summary(runs)
  assert 'seconds' not in table
  page = sweep_page.page('', table, runs, NO_CURVES, NO_FAILURES)
  assert 'runs are of several machines' in page
  assert ', over seconds' not in page


@pytest.mark.parametrize('known', [['float32'], ['ternary'], []])
def test_variants_without_any_accuracy_are_last_of_the_report(
  runs, tmp_path, known
):
  runs['accuracy'] = runs['accuracy'].where(runs['variant'].isin(known))
  table = sweep.summary(runs, against(runs, 'float32'))
  assert list(table['variant'][: len(known)]) == known
  left = table.iloc[len(known) :]
  assert len(table) == 3 and left['accuracy %'].isna().all()
  assert set(left['seeds']) == {0}
  sweep.write(tmp_path, 'all', runs, against(runs, 'float32'))
  assert (tmp_path / 'sweep.html').stat().st_size


@pytest.mark.parametrize(
  ('name', 'text'),
  [
    ('results.csv', 'a,,10,0.9,32,5'),
    ('results.csv', 'a,1,many,0.9,32,5'),
    ('results.csv', 'a,1,,0.9,32,5'),
    (sweep.CURVES, 'a,1,one,0.9'),
    (sweep.CURVES, 'a,,1,0.9'),
    (sweep.FAILURES, 'a,,gone'),
  ],
)
def test_seeds_and_steps_that_are_no_numbers_are_refused(
  runs, tmp_path, name, text
):
  columns = {
    'results.csv': 'variant,seed,steps,accuracy,bits_per_element,seconds',
    sweep.CURVES: 'variant,seed,step,accuracy',
    sweep.FAILURES: 'variant,seed,error',
  }
  (tmp_path / name).write_text(f'{columns[name]}\n{text}\n')
  with pytest.raises(errors.ConfigError, match='instead of a seed or a number'):
    sweep.write(tmp_path, 'all', sweep.read(tmp_path / 'results.csv'))


@pytest.mark.parametrize('name', [sweep.CURVES, sweep.FAILURES])
def test_tables_of_runs_without_seeds_are_refused(runs, tmp_path, name):
  (tmp_path / name).write_text('variant,step,accuracy,error\na,1,0.5,x\n')
  with pytest.raises(errors.ConfigError, match='no column seed'):
    sweep.write(tmp_path, 'all', runs)


def test_names_with_dollars_are_no_formulas(runs):
  name = 'é$x^$'
  runs['variant'] = runs['variant'].replace('ternary', name)
  runs['flags'] = [f'--learning_rate={seed}' for seed in runs['variant']]
  by_step = pd.DataFrame({name: [50.0, 75.0]}, index=[1, 2])
  table = sweep.summary(runs, {'float32': name, name: name})
  for drawn in (
    sweep_plot.chart(table, by_step),
    sweep_plot.chart(sweep.summary(runs.drop(columns='flags')), by_step),
  ):
    drawn.draw_without_rendering()
    labels = drawn.axes[0].get_yticklabels()
    assert name in [label.get_text() for label in labels]


def test_a_report_that_cannot_be_written_is_one_error(runs, tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(errors.TrainingError, match='file: expected to write'):
    sweep.write(tmp_path / 'file', 'all', runs)
