"""Extensions of mkdocstrings: Sphinx roles in docstrings, and signatures with the keywords of a TypedDict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

_KIND = griffe.ParameterKind.keyword_only
_ROLE = re.compile(r":(?:func|class|mod|meth|data|attr):`~?\.?([^`]+)`")


class RoleTexts(griffe.Extension):
    """Write roles of docstrings as code, by the last part of their names."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(_as_code, obj.docstring.value)


def _as_code(role: re.Match[str]) -> str:
    return f"`{role[1].rpartition('.')[2]}`"


class KeywordSignatures(griffe.Extension):
    """Put keywords into the signatures of functions that take them as one, and whose docstrings name each."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Change the functions of the package."""
        for function in functions(pkg):
            for parameter in [*function.parameters]:
                kind = getattr(parameter.annotation, "slice", None)
                if parameter.kind is griffe.ParameterKind.var_keyword and isinstance(kind, griffe.ExprName):
                    if function.docstring is None or f"**{parameter.name}" in function.docstring.value:
                        continue
                    del function.parameters[parameter.name]
                    for name, annotation in keywords(kind.canonical_path, loader).items():
                        function.parameters.add(
                            griffe.Parameter(name, annotation=annotation, kind=_KIND, default="...")
                        )


def functions(place: griffe.Module | griffe.Class) -> Iterator[griffe.Function]:
    """Yield the functions that a module or class defines, and those inside of it."""
    for member in place.members.values():
        if isinstance(member, griffe.Function):
            yield member
        elif isinstance(member, griffe.Module | griffe.Class):
            yield from functions(member)


def keywords(path: str, loader: griffe.GriffeLoader) -> dict[str, str | griffe.Expr | None]:
    """Return the types of the keywords of a TypedDict and of its base classes."""
    kind = loader.modules_collection[path]
    bases = [base.canonical_path for base in kind.bases if isinstance(base, griffe.ExprName)]
    extended = [keywords(base, loader) for base in bases if base.startswith("bucketflow.")]
    own = {name: each.annotation for name, each in kind.attributes.items()}
    return {name: annotation for kinds in [*extended, own] for name, annotation in kinds.items()}
