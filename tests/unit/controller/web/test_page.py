# SPDX-License-Identifier: Apache-2.0
"""What a strict policy, a keyboard and a screen reader need of the page's files."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from usbdra.controller.web.files import FOLDER

HTML = (FOLDER / "index.html").read_text()
SCRIPTS = {path.name: path.read_text() for path in FOLDER.glob("*.js")}
STYLE = (FOLDER / "style.css").read_text()


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(HTML)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


TAGS = Tags().found
IDS = {attributes["id"] for _, attributes in TAGS if "id" in attributes}


def test_nothing_is_inline_and_nothing_from_elsewhere() -> None:
    for tag, attributes in TAGS:
        assert tag != "style"
        assert not {key for key in attributes if key.startswith("on") or key == "style"}
        for key in ("src", "href", "action"):
            value = attributes.get(key)
            assert value is None or (FOLDER / value).is_file(), (tag, value)
        assert tag != "script" or attributes.get("src")
    for text in (*SCRIPTS.values(), STYLE):
        assert set(re.findall(r"https?://[^\"')\s]+", text)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    "word",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
     "localStorage", "sessionStorage", "document.cookie"],
)  # fmt: skip
def test_texts_never_become_markup_and_the_token_is_not_stored(word: str) -> None:
    assert [name for name, text in SCRIPTS.items() if word in text] == []


def test_scripts_use_elements_that_are_there() -> None:
    used = {name for text in SCRIPTS.values() for name in re.findall(r'\$\("([^"]+)"\)', text)}
    assert used <= IDS
    assert {f"more-{name}" for name in ("nodes", "devices")} <= IDS


def test_fields_have_labels_and_regions_names() -> None:
    labels = {a["for"] for tag, a in TAGS if tag == "label"}
    inputs = {a["id"] for tag, a in TAGS if tag == "input"}
    assert inputs == labels
    for _, attributes in TAGS:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in IDS
    assert dict(TAGS)["html"]["lang"] == "en"


def light(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    text = colour.lstrip("#")
    text = "".join(c * 2 for c in text) if len(text) == 3 else text
    parts = [int(text[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_have_contrast(scheme: int) -> None:
    block = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", block))
    pairs = [(text, back) for back in ("page", "card")
             for text in ("text", "quiet", "act", "free", "given", "used", "bad")]  # fmt: skip
    for text, back in [*pairs, ("on-act", "act"), ("page", "text")]:
        bright, dark = sorted((light(colours[text]), light(colours[back])), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, (text, back)
