"""Render the conda recipe as rattler-build does, without conda: python recipe/render.py."""

from __future__ import annotations

import sys
from pathlib import Path

from rattler_build import Stage0Recipe


def main() -> int:
    """Render the one variant of the recipe; an error says where the recipe is wrong."""
    (variant,) = Stage0Recipe.from_file(Path(__file__).parent / "recipe.yaml").render()
    recipe = variant.recipe.to_dict()
    package, build = recipe["package"], recipe["build"]
    print(f"conda: {package['name']} {package['version']}, noarch: {build['noarch']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
