"""Schema descriptions from the docstrings after attributes."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import ConfigDict, Field

from remoteclaw.described import DescribedModel


class Base(DescribedModel):
    model_config = ConfigDict(alias_generator=str.upper)

    first: int = 1
    """The first one,
    on two lines."""
    plain: str = ""


class Model(Base):
    second: Annotated[int, Field(description="As the type says.")]
    """Not used."""
    third: list[Base] = Field(default=[], serialization_alias="out")
    """A list."""


def descriptions(schema: dict[str, object]) -> dict[str, object]:
    properties = schema["properties"]
    assert isinstance(properties, dict)
    return {name: part.get("description") for name, part in properties.items()}


def test_the_docstring_after_an_attribute_becomes_its_schema_description() -> None:
    first = "The first one,\non two lines."
    input_schema = Model.model_json_schema()
    output_schema = Model.model_json_schema(mode="serialization")

    assert descriptions(input_schema) == {
        "FIRST": first, "PLAIN": None, "SECOND": "As the type says.", "THIRD": "A list.",
    }  # fmt: skip
    assert descriptions(output_schema)["out"] == "A list."
    assert descriptions(input_schema["$defs"]["Base"]) == {"FIRST": first, "PLAIN": None}


@pytest.mark.parametrize("then", ["", "class Other:\n    pass\n", "(", None])
def test_a_model_has_a_schema_after_its_file_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str | None
) -> None:
    """As by `git pull` under a running gateway."""
    file = tmp_path / "replaced.py"
    file.write_text(
        "from remoteclaw.described import DescribedModel\n"
        "class Replaced(DescribedModel):\n    word: str\n    'A word.'\n"
    )
    spec = importlib.util.spec_from_file_location("replaced", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "replaced", module)
    spec.loader.exec_module(module)
    if then is None:
        file.unlink()
    else:
        file.write_text(then)
        os.utime(file, (1, 1))

    assert list(module.Replaced.model_json_schema()["properties"]) == ["word"]
