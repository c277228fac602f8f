"""Schema descriptions from the docstrings after attributes."""

from typing import Annotated

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
