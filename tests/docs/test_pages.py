"""Links lead somewhere, the picture is the drawn one, and the first screen says what it must."""

import importlib.util
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, commands, linked_pages, links


@pytest.mark.parametrize("page", linked_pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in links(page):
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: {target}"


def test_every_page_is_reached_from_the_readme() -> None:
    wanted = {path.resolve() for path in (ROOT / "docs").glob("*.md")}
    named = {(ROOT / target.partition("#")[0]).resolve() for target in links(ROOT / "README.md")}
    assert wanted <= named


def test_the_picture_is_what_its_script_draws() -> None:
    path = ROOT / "docs" / "img" / "draw_loop.py"
    spec = importlib.util.spec_from_file_location("draw_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert path.with_name("loop.svg").read_text("utf-8") == module.draw()


def test_the_first_screen_has_the_picture_and_the_two_commands() -> None:
    first = (ROOT / "README.md").read_text("utf-8").splitlines()[:16]
    assert any("docs/img/loop.svg" in line for line in first)
    early = [str(c) for c in commands(ROOT / "README.md") if c.line <= len(first)]
    assert early == ["make demo", "make test"]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("see [a](b.md#c), `[not](this.md)` and [web](https://example.org)\n\n## C d!\n")
    assert links(page) == ["b.md#c"]
    assert anchors(page) == {"c-d"}
