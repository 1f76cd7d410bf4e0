import json
import pathlib

import pytest

from slim import errors


def test_lookup_returns_the_entry():
  assert errors.lookup({'lenet': 3}, 'lenet', 'net') == 3


def test_unknown_name_lists_the_known_and_suggests_the_nearest():
  with pytest.raises(
    errors.UnknownNameError,
    match="Unknown net: expected one of alexnet, lenet; received 'lenett'; "
    "did you mean 'lenet'",
  ):
    errors.lookup({'lenet': 1, 'alexnet': 2}, 'lenett', 'net')


def test_unknown_name_without_a_near_one_gets_no_suggestion():
  with pytest.raises(errors.UnknownNameError) as caught:
    errors.lookup({'lenet': 1}, 'xyz', 'net')
  assert 'did you mean' not in str(caught.value)


def test_unknown_names_are_data_errors_and_value_errors():
  assert issubclass(errors.UnknownNameError, errors.DataError)
  assert issubclass(errors.DataError, ValueError)


@pytest.mark.parametrize(
  ('origin', 'command'),
  [
    (None, "pip install 'terngrad[data]'"),
    ({}, "pip install 'terngrad[data]'"),
    (
      {'url': 'file://FOLDER', 'dir_info': {'editable': True}},
      "pip install -e 'FOLDER[data]'",
    ),
    ({'url': 'file://FOLDER', 'dir_info': {}}, "pip install 'FOLDER[data]'"),
    # The clone is gone.
    ({'url': 'file:///no/o', 'dir_info': {}}, "pip install 'terngrad[data]'"),
    (
      {
        'url': 'https://example.org/t.git',
        'vcs_info': {'vcs': 'git', 'commit_id': 'abc'},
      },
      "pip install 'terngrad[data] @ git+https://example.org/t.git@abc'",
    ),
    (
      {
        'url': 'https://example.org/t.git',
        'vcs_info': {
          'vcs': 'git',
          'commit_id': 'abc',
          'requested_revision': 'main',
        },
      },
      "pip install 'terngrad[data] @ git+https://example.org/t.git@main'",
    ),
    (
      {'url': 'https://example.org/t.whl', 'archive_info': {}},
      "pip install 'terngrad[data] @ https://example.org/t.whl'",
    ),
  ],
)
def test_an_extra_is_added_from_where_terngrad_was_installed(
  tmp_path, monkeypatch, origin, command
):
  text = json.dumps(origin).replace('FOLDER', str(tmp_path))
  (tmp_path / 'METADATA').write_text('Name: terngrad\n')
  if origin is not None:
    (tmp_path / 'direct_url.json').write_text(text)
  found = errors.metadata.PathDistribution(pathlib.Path(tmp_path))
  monkeypatch.setattr(errors.metadata, 'distribution', lambda name: found)
  expected = command.replace('FOLDER', str(tmp_path))
  assert errors.install_command('data') == expected


def test_the_folder_of_an_installation_may_have_spaces(tmp_path, monkeypatch):
  folder = tmp_path / 'my clone'
  folder.mkdir()
  origin = {'url': folder.as_uri(), 'dir_info': {}}
  (tmp_path / 'METADATA').write_text('Name: terngrad\n')
  (tmp_path / 'direct_url.json').write_text(json.dumps(origin))
  found = errors.metadata.PathDistribution(tmp_path)
  monkeypatch.setattr(errors.metadata, 'distribution', lambda name: found)
  assert errors.install_command('data') == f"pip install '{folder}[data]'"
