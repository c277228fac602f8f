"""The tables of Unicode's properties, compared with those of the library `regex`."""

import pytest
import regex

from remoteclaw.host import unicode_ranges


@pytest.mark.parametrize(
    ("name", "property_"),
    [
        ("DEFAULT_IGNORABLE", "Default_Ignorable_Code_Point"),
        ("PICTOGRAPHS", "Extended_Pictographic"),
        ("JOINING", "Joining_Type=Dual_Joining"),
    ],
)
def test_a_table_has_all_characters_of_its_unicode_property(name: str, property_: str) -> None:
    in_table = regex.compile(f"[{getattr(unicode_ranges, name)}]")
    in_standard = regex.compile(rf"\p{{{property_}}}")
    every = [chr(code) for code in range(0x110000)]

    expected = "".join(filter(in_standard.fullmatch, every))
    assert ascii("".join(filter(in_table.fullmatch, every))) == ascii(expected)
