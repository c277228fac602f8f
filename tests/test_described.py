"""Docstrings behind attributes are their descriptions in the schema."""

from typing import Annotated

from pydantic import ConfigDict, Field

from remoteclaw.described import DescribedModel


class Base(DescribedModel):
    model_config = ConfigDict(alias_generator=str.upper)

    first: int = 1
    """What comes first,
    on two lines."""
    plain: str = ""


class Model(Base):
    second: Annotated[int, Field(description="As the type says.")]
    """Not told."""
    third: list[Base] = Field(default=[], serialization_alias="out")
    """A list."""


def descriptions(schema: dict[str, object]) -> dict[str, object]:
    properties = schema["properties"]
    assert isinstance(properties, dict)
    return {name: part.get("description") for name, part in properties.items()}


def test_an_attribute_is_described_by_the_docstring_behind_it() -> None:
    first = "What comes first,\non two lines."
    taken = Model.model_json_schema()
    told = Model.model_json_schema(mode="serialization")

    assert descriptions(taken) == {
        "FIRST": first, "PLAIN": None, "SECOND": "As the type says.", "THIRD": "A list.",
    }  # fmt: skip
    assert descriptions(told)["out"] == "A list."
    assert descriptions(taken["$defs"]["Base"]) == {"FIRST": first, "PLAIN": None}
