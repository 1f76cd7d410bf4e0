import pytest

from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import listing
from terngrad.checkpoint import sources
from tests import power_cut
from tests.checkpoint import test_checkpoints


def flipped(content):
  """The list with another step in the names of its newest."""
  return content.replace(b'model.ckpt-2"', b'model.ckpt-6"')


DAMAGES = {
  'empty': lambda content: b'',
  'odd byte': lambda content: content[:30] + b'\xff' + content[31:],
  'other syntax': lambda content: content.replace(b':', b'#'),
  'cut': lambda content: content[:40],
  'other step': flipped,
  'lost': None,
}


@pytest.fixture(params=DAMAGES, ids=lambda name: name.replace(' ', '_'))
def damaged(request, tmp_path):
  """A folder with checkpoints of steps 1 and 2 whose list is damaged."""
  *_, writer = test_checkpoints.opened(tmp_path)
  writer.save(1)
  writer.save(2)
  path = tmp_path / 'checkpoint'
  if request.param == 'lost':
    path.unlink()
  else:
    path.write_bytes(DAMAGES[request.param](path.read_bytes()))
  return tmp_path


def test_checkpoints_are_found_without_their_list(damaged):
  path = str(damaged / 'model.ckpt-2')
  assert checkpoints.newest(str(damaged)) == path
  assert checkpoints.find(str(damaged)) == path
  assert sources.open_checkpoint(str(damaged), 'lenet').step == 2


def test_a_run_continues_with_a_damaged_list(damaged):
  *_, writer = test_checkpoints.opened(damaged)
  writer.save(3)
  assert checkpoints.newest(str(damaged)) == str(damaged / 'model.ckpt-3')


@pytest.mark.parametrize('content', [b'', b'\xff\xfe', b'model_'])
def test_a_repaired_list_holds_all_and_old_checkpoints_are_deleted(
  tmp_path, content
):
  *_, writer = test_checkpoints.opened(tmp_path)
  for step in (1, 2, 3):
    writer.save(step)
  (tmp_path / 'checkpoint').write_bytes(content)
  *_, writer = test_checkpoints.opened(tmp_path)
  names = [f'{tmp_path}/model.ckpt-{step}' for step in (1, 2, 3)]
  assert list(listing.read(tmp_path).all_model_checkpoint_paths) == names
  for step in range(4, 8):
    writer.save(step)
  kept = {path.name for path in tmp_path.glob('*.index')}
  assert kept == {f'model.ckpt-{step}.index' for step in range(3, 8)}


def test_a_readable_list_is_followed(tmp_path):
  """Who goes back to an earlier checkpoint names that one alone."""
  *_, writer = test_checkpoints.opened(tmp_path)
  writer.save(1)
  writer.save(2)
  (tmp_path / 'checkpoint').write_text(
    'model_checkpoint_path: "model.ckpt-1"\n'
    'all_model_checkpoint_paths: "model.ckpt-1"\n'
  )
  assert listing.prefixes(tmp_path) == [f'{tmp_path}/model.ckpt-1']


def test_an_empty_list_alone_does_not_prevent_a_new_run(tmp_path):
  """A power cut leaves it, in the first checkpoint."""
  (tmp_path / 'checkpoint').touch()
  assert checkpoints.newest(str(tmp_path)) is None
  checkpoints.check_empty(str(tmp_path))
  *_, writer = test_checkpoints.opened(tmp_path)
  writer.save(1)
  assert checkpoints.newest(str(tmp_path)) == str(tmp_path / 'model.ckpt-1')


def test_saved_checkpoints_survive_a_power_cut(tmp_path, monkeypatch):
  disk = power_cut.Disk(monkeypatch)
  work = tmp_path / 'work'
  work.mkdir()
  *_, writer = test_checkpoints.opened(work)
  for step in range(1, 8):
    writer.save(step)
    left = disk.after_power_cut(work, tmp_path / f'left-{step}')
    assert checkpoints.newest(str(left)) == str(left / f'model.ckpt-{step}')
    listed = listing.read(left).all_model_checkpoint_paths
    assert list(listed)[-1] == str(left / f'model.ckpt-{step}')
