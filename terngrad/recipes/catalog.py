"""The recipes by name."""

from slim import spelling
from terngrad.recipes import diloco
from terngrad.recipes import muloco
from terngrad.recipes import recipe as recipe_lib
from terngrad.recipes import snoo
from terngrad.recipes import sparseloco

RECIPES = {
  found.name: found
  for found in (diloco.RECIPE, muloco.RECIPE, snoo.RECIPE, sparseloco.RECIPE)
}


def find(name: str) -> recipe_lib.Recipe:
  """Returns the recipe of a name.

  Raises:
    ValueError: the name is unknown; the message lists the known ones.
  """
  spelling.check_name('recipe', name, RECIPES)
  return RECIPES[name]
