"""Page files: what is read and written again says the same, and a hostile file ends in a clear error."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolgrad.dialects.enuspace import xml
from poolgrad.enuspace import (
    BLOCKS,
    Block,
    FileError,
    Page,
    Project,
    Runner,
    corrected_page,
    documented_page,
    open_page,
    open_pages,
    read_json,
    read_project,
    read_svg,
    refusal,
    run_file,
    save_page,
    write_json,
    write_project,
    write_svg,
)
from poolgrad.errors import PoolGradError, PoolGradValueError

CASES = Path(__file__).parent / "cases" / "enuspace"
SVG, JSON = (CASES / "basic.svg").read_bytes(), (CASES / "basic.json").read_bytes()


def says(page: Page) -> Any:
    """What a page says, whichever form it was written in."""

    def pins(block: Block) -> Any:
        return {pin.name: (pin.type, pin.shape, pin.value, pin.data) for pin in block.pins}

    return {block.id: (block.symbol, pins(block)) for block in page.blocks}, {wire.ends for wire in page.wires}


def drawing(body: str) -> bytes:
    head = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    return f"{head}{body}</svg>".encode("utf-16")


def test_the_saved_sample_round_trips() -> None:
    page = read_svg(SVG, "basic")
    assert [block.symbol for block in page.blocks] == ["ClientSession", "Const", "Const", "Add"]
    assert (page.blocks[1].x, page.blocks[1].y) == (1042, 351)
    assert len(page.wires) == 3
    written, dat = write_svg(page)
    assert dat is None
    assert written[:2] == b"\xff\xfe"
    assert xml.parse_xml(written, "page") == xml.parse_xml(SVG, "page")
    assert write_svg(read_svg(written, "basic"))[0] == written


def test_the_exported_sample_round_trips() -> None:
    page = read_json(JSON, "basic")
    written, dat = write_json(page)
    assert dat is None
    assert json.loads(written.decode("utf-16")) == json.loads(JSON.decode("utf-16"))


def test_both_samples_are_one_page() -> None:
    saved, exported = read_svg(SVG), read_json(JSON)
    assert {wire.ends for wire in saved.wires} == {wire.ends for wire in exported.wires}
    assert {block.id: block.symbol for block in saved.blocks} == {block.id: block.symbol for block in exported.blocks}
    assert saved.block("ID_1hvfQV0").pin("val").value == "{1,2,3,4}"  # type: ignore[union-attr]
    again = read_json(write_json(saved)[0])
    assert {wire.ends for wire in again.wires} == {wire.ends for wire in saved.wires}
    assert [block.symbol for block in again.blocks][-1] == "ClientSession"


ODD = """<!-- a note --><?odd thing?>
    <g><use id="c" type="tensorflow" xlink:href="#Const" transform="rotate(3) translate(4.25,-7e1)" spare="&quot;&#10;x">
        <pg-set-pin variable="#val[2]" shape="[2]" var-type="float" value="1;2" odd="1"/><title>kept &amp; shown</title>
        <pg-set-pin variable="#val[2]" shape="[2]" var-type="float" value="8;9"/>
        <pg-set-pin variable="#strange" shape="" var-type="int" value="3"/></use></g>
    <use id="c" type="tensorflow" xlink:href="#Const"/><use id="h" type="hmi" xlink:href="#Gauge"/>
    <use id="s" type="tensorflow" xlink:href="#ClientSession"/>
    <polyline points="0,0 1,1"><pg-link from-id="c" param-from="output" to-id="s" param-to="fetch_outputs" x="y"/></polyline>
    <polyline id="w2" points="0,0 2,2"><pg-link from-id="c" param-from="output" to-id="s" param-to="fetch_outputs"/></polyline>
    <polyline points="3,3 4,4"/><text>caf\u00e9 \U0001f600 ]]&gt;</text>"""


def test_unknown_content_is_kept() -> None:
    page = read_svg(drawing(ODD))
    assert [block.id for block in page.blocks] == ["c", "s"]
    assert (page.blocks[0].x, page.blocks[0].y) == (4.25, -70)
    assert len(page.notes) == 2
    before, after = (xml.parse_xml(data, "page") for data in (drawing(ODD), write_svg(page)[0]))
    kept = xml.render_xml(after)
    for piece in ("<!-- a note -->", "<?odd thing?>", "kept &amp; shown", 'spare="&quot;&#10;x"', "caf\u00e9", '"8;9"'):
        assert piece in kept
    assert 'transform="rotate(3) translate(4.25,-7e1)"' in kept
    assert set(names(before)) <= set(names(after))
    again = read_svg(write_svg(page)[0])
    assert says(again) == says(page)
    assert write_svg(again)[0] == write_svg(page)[0]


def names(node: xml.Node) -> list[tuple[Any, ...]]:
    own = (node.tag, *sorted(node.attributes.items()))
    return [own, *(name for child in node.children if isinstance(child, xml.Node) for name in names(child))]


def test_unknown_json_is_kept() -> None:
    document = json.loads(JSON.decode("utf-16"))
    document["version"] = [1, {"a": None}]
    document["object"][0]["colour"] = {"r": 1}
    document["object"][0]["input"][0]["pin-odd"] = [True]
    document["object"][0]["input"][0]["pin-datatype"] = "DT_FLOAT"
    page = read_json(json.dumps(document).encode())
    assert json.loads(write_json(page)[0].decode("utf-16")) == document


def test_edits_reach_the_file() -> None:
    page = read_svg(SVG)
    page.remove("ID_1hvgdT0")
    page.move("ID_1hvfQV0", 7.5, 8)
    fresh = page.add("AvgPool", "new", at=(1, 2), padding="SAME")
    page.connect("ID_1hvfQV0", "output", fresh, "value")
    page.connect(fresh, "output", "ID_1hvfQR0", "fetch_outputs")
    again = read_svg(write_svg(page)[0])
    assert says(again) == says(page)
    assert (again.block("ID_1hvfQV0").x, again.block("ID_1hvfQV0").y) == (7.5, 8)
    assert (again.block("new").x, again.block("new").y) == (1, 2)
    text = write_svg(page)[0].decode("utf-16")
    assert "translate(7.5,8) rotate(0) scale(1, 1)" in text
    assert "#Add" not in text
    assert "// Matrix A = [3 2; -1 0]" in text


@pytest.mark.parametrize("make", [documented_page, corrected_page])
def test_our_pages_round_trip_in_every_form(make: Any, tmp_path: Path) -> None:
    page = make()
    for name in ("page.svg", "page.json"):
        save_page(page, tmp_path / name)
        assert says(open_page(tmp_path / name)) == says(page)
    (tmp_path / "own.json").write_text(json.dumps(page.to_dict()))
    assert open_page(tmp_path / "own.json") == page


@pytest.mark.parametrize("page", [read_svg(SVG), read_svg(drawing(ODD)), read_json(JSON), corrected_page()])
def test_plain_data_round_trips(page: Page) -> None:
    assert Page.from_dict(json.loads(json.dumps(page.to_dict()))) == page


NUMBERS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=12)


@st.composite
def pages(draw: st.DrawFn) -> Page:
    page = Page("drawn")
    for k in range(draw(st.integers(1, 7))):
        block = page.add(draw(st.sampled_from(list(BLOCKS))), f"b{k}{draw(TEXTS)}", at=(draw(NUMBERS) / 8, draw(NUMBERS) / 3))
        for pin in block.pins:
            if pin.kind == "const" and draw(st.booleans()):
                pin.value = draw(TEXTS)
        val = block.pin("val")
        if val is not None and draw(st.booleans()):
            shape = draw(st.lists(st.integers(0, 4), max_size=3))
            array = np.array(draw(st.lists(NUMBERS, min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))), np.int32)
            val.set(array.reshape(shape), binary_from=draw(st.sampled_from([0, 3, 10_000])))
    for _ in range(draw(st.integers(0, 8))):
        ends = [(block.id, pin.name) for block in page.blocks for pin in block.pins]
        (a, b), (c, d) = draw(st.sampled_from(ends)), draw(st.sampled_from(ends))
        if refusal(page, a, b, c, d) is None:
            page.connect(a, b, c, d)
    return page


@given(pages())
def test_any_page_round_trips(page: Page) -> None:
    saved = read_svg(*reorder(write_svg(page)))
    assert says(saved) == says(page)
    assert [(block.x, block.y) for block in saved.blocks] == [(block.x, block.y) for block in page.blocks]
    exported = read_json(*reorder(write_json(page)))
    assert says(exported) == says(page)
    assert says(read_svg(*reorder(write_svg(exported)))) == says(page)
    assert Page.from_dict(page.to_dict()) == page
    Runner(page).run()


def reorder(written: tuple[bytes, bytes | None]) -> tuple[bytes, str, bytes]:
    return written[0], "page", written[1] or b""


def test_a_pin_with_several_wires_survives_the_export() -> None:
    page = corrected_page()
    page.connect("shape", "output", "session", "fetch_outputs")
    page.connect("gradient", "output", "session", "run_outputs")
    assert says(read_json(write_json(page)[0])) == says(page)


@pytest.mark.parametrize("type", ["float", "double", "int", "bool"])
def test_binary_pins(type: str, tmp_path: Path) -> None:
    dtype = {"float": np.float32, "double": np.float64, "int": np.int32, "bool": np.bool_}[type]
    array = (np.arange(24) % 7 > 2 if type == "bool" else np.arange(24)).astype(dtype).reshape(2, 3, 4)
    page = Page()
    block, session = page.add("Const", "c"), page.add("ClientSession", "s")
    page.connect(block, "output", session, "fetch_outputs")
    small = page.add("Const", "small", val=np.float64([1.5]))
    page.connect(small, "output", session, "fetch_outputs")
    for each in (block, small):
        pin = each.pin("val")
        assert pin is not None
        pin.set(array if each is block else np.float64([1.5]), binary_from=1)
    for name in ("page.svg", "page.json"):
        save_page(page, tmp_path / name)
        assert (tmp_path / "page.dat").read_bytes() == array.tobytes() + np.float64([1.5]).tobytes()
        runner = Runner(open_page(tmp_path / name))
        assert runner.run().ok, runner.log
        assert runner.value("c", "output").dtype == dtype
        assert (runner.value("c", "output") == array).all()
        assert runner.value("small", "output").tolist() == [1.5]
    (tmp_path / "page.dat").write_bytes(b"\0" * 5)
    for name in ("page.svg", "page.json"):
        lost = open_page(tmp_path / name)
        assert any("put the .dat file beside the page" in note.message for note in lost.notes)
        assert not Runner(lost).run().ok
        save_page(lost, tmp_path / f"again-{name}")
        assert "binary" in (tmp_path / f"again-{name}").read_bytes().decode("utf-16")


def test_binary_bools_hold_bools() -> None:
    page = Page()
    pin = page.add("Const", "c", val=np.array([True])).pin("val")
    assert pin is not None
    pin.data, pin.value = b"\x07", ""
    page.connect("c", "output", page.add("ClientSession"), "fetch_outputs")
    assert any("neither 0 nor 1" in entry.message for entry in Runner(page).run().log)


PROJECT = """<?xml-stylesheet type="text/css" version="1.0" encoding="UTF-16"?>
<!--Generator : someone-->
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" pg-classname="project" pg-project="lesson">
    <pg-global xlink:href="global\\global.svg"/>
    <pg-logic xlink:href="library\\logic\\tf_nn.svg"/>
    <pg-picture xlink:href="picture\\one.svg" note="1"/>
    <pg-picture xlink:href="picture\\space.x3d"/>
    <activate-view xlink:href="picture\\one.svg"/>
</svg>"""


def test_projects(tmp_path: Path) -> None:
    project = read_project(PROJECT.encode("utf-16"))
    assert (project.name, project.global_picture, project.active) == ("lesson", "global/global.svg", "picture/one.svg")
    assert project.pictures == ["picture/one.svg", "picture/space.x3d"]
    assert xml.parse_xml(write_project(project), "p") == xml.parse_xml(PROJECT.encode("utf-16"), "p")
    project.pictures.append("picture/two.svg")
    text = write_project(project).decode("utf-16")
    assert 'note="1"' in text
    assert "tf_nn.svg" in text
    (tmp_path / "picture").mkdir()
    save_page(corrected_page(), tmp_path / "picture" / "one.svg")
    save_page(documented_page(), tmp_path / "picture" / "two.svg")
    (tmp_path / "lesson.enup").write_bytes(write_project(project))
    assert [page.name for page in open_pages(tmp_path / "lesson.enup")] == ["one", "two"]
    report = run_file(tmp_path / "lesson.enup")
    assert not report.ok
    assert {entry.block for entry in report.log if entry.severity == "error"} == {"two/pool", "two/session"}
    assert any(row.block == "one/pool" and row.value == "7" for row in report.watch)
    (tmp_path / "empty.enup").write_bytes(write_project(Project.new("empty", [])))
    with pytest.raises(PoolGradValueError, match="no page"):
        run_file(tmp_path / "empty.enup")


@pytest.mark.parametrize("path", ["../secret.svg", "/etc/page.svg", "C:\\page.svg", "a/../../b.svg", "..\\up.svg"])
def test_a_project_stays_in_its_folder(path: str, tmp_path: Path) -> None:
    (tmp_path / "p.enup").write_bytes(write_project(Project.new("p", [path])))
    with pytest.raises(FileError, match="outside the project's folder"):
        open_pages(tmp_path / "p.enup")


BOMB = '<!DOCTYPE svg [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;">]><svg>&b;</svg>'
HOSTILE = {
    "bomb": (BOMB, "DOCTYPE"),
    "external": ('<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg>&x;</svg>', "DOCTYPE"),
    "dtd": ('<!DOCTYPE svg SYSTEM "http://127.0.0.1/x.dtd"><svg/>', "DOCTYPE"),
    "entity": ("<svg>&unknown;</svg>", "not well-formed"),
    "deep": ("<svg>" + "<g>" * 100 + "</g>" * 100 + "</svg>", "deeper than"),
    "broken": ("<svg><use></svg>", "not well-formed"),
    "other": ("<html/>", "not an SVG"),
    "empty": ("", "not well-formed"),
    "nul": ("<svg>\0</svg>", "not well-formed"),
    "pins": ('<svg><use id="a" type="tensorflow">' + '<pg-set-pin variable="#a"/>' * 5000 + "</use></svg>", "1000 pins"),
    "blocks": ("<svg>" + "".join(f'<use id="{k}" type="tensorflow"/>' for k in range(10_001)) + "</svg>", "10000 blocks"),
}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_drawings(name: str, encoding: str) -> None:
    text, said = HOSTILE[name]
    with pytest.raises(PoolGradError, match=said):
        read_svg(text.encode(encoding))


def test_too_many_elements_and_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MOST_NODES", 10)
    with pytest.raises(FileError, match="more than 10 elements"):
        read_svg(drawing("<g/>" * 11))
    monkeypatch.setattr(xml, "MOST_BYTES", 100)
    with pytest.raises(FileError, match="at most 100"):
        read_svg(drawing("<g/>" * 11))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "a list 'object'"),
        ('{"object": {}}', "a list 'object'"),
        ('{"object": [1]}', "is not an object"),
        ('{"object": [{"id": ""}]}', "has no id"),
        ('{"object": [{"id": ["a"]}]}', "is not a text"),
        ('{"object": [{"id": "a"}, {"id": "a"}]}', "one id"),
        ('{"object": [{"id": "a", "input": 5}]}', "list of at most"),
        ('{"object": [{"id": "a", "input": [5]}]}', "is not an object"),
        ('{"object": [{"id": "a", "input": [{"pin-name": {}}]}]}', "is not a text"),
        ('{"object": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_hostile_exports(text: str, said: str) -> None:
    with pytest.raises(PoolGradError, match=said):
        read_json(text.encode())


def attempt(act: Any) -> None:
    """Anything may come of a hostile file except an exception that is not ours."""
    try:
        page = act()
    except PoolGradError:
        return
    with contextlib.suppress(FileError):
        write_svg(page)
    with contextlib.suppress(FileError):
        write_json(page)
    Runner(page).run()


EDITS = st.lists(st.tuples(st.integers(0, 13_000), st.binary(max_size=6)), min_size=1, max_size=6)


@given(EDITS, st.sampled_from(["svg", "json"]), st.sampled_from(["utf-16", "utf-8"]))
def test_damaged_files(edits: list[tuple[int, bytes]], form: str, encoding: str) -> None:
    data = bytearray((SVG if form == "svg" else JSON).decode("utf-16").encode(encoding))
    for place, patch in edits:
        data[place % len(data) : place % len(data) + len(patch)] = patch
    attempt(lambda: (read_svg if form == "svg" else read_json)(bytes(data)))


WORDS = ["use", "g", "polyline", "pg-link", "pg-set-pin", "text"]
KEYS = ["id", "type", "xlink:href", "transform", "variable", "shape", "value", "save", "binary-pos"]
KEYS += ["from-id", "to-id", "param-from", "param-to"]
VALUES = ["a", "b", "tensorflow", "#Const", "#AvgPool", "#ClientSession", "#val[2]", "[2]", "1;2", "binary", "-1", "output"]
VALUES += ["value", "fetch_outputs", "float", "translate(1e999,2)", "", "#block", "#wire", "#pin", "svg"]


def element(tag: str, attributes: dict[str, str], body: str) -> str:
    return f"<{tag}{''.join(f' {name}={value!r}' for name, value in attributes.items())}>{body}</{tag}>"


ELEMENTS = st.recursive(
    st.just(""),
    lambda inner: st.builds(
        element,
        st.sampled_from(WORDS),
        st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=6),
        st.lists(inner, max_size=4).map("".join),
    ),
    max_leaves=12,
)


@given(ELEMENTS, ELEMENTS, st.binary(max_size=9))
def test_any_drawing_is_read_or_refused(one: str, two: str, dat: bytes) -> None:
    attempt(lambda: read_svg(drawing(one + two), "page", dat))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(VALUES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["tag", "attributes", "children"]), inner),
    max_leaves=8,
)


@given(st.data())
def test_any_plain_data_is_a_page_or_refused(data: st.DataObject) -> None:
    plain = json.loads(json.dumps(data.draw(st.sampled_from([corrected_page(), read_svg(drawing(ODD))])).to_dict()))
    where: Any = plain
    while True:
        key = data.draw(st.sampled_from(sorted(where)) if isinstance(where, dict) else st.integers(0, len(where) - 1))
        if isinstance(where[key], (dict, list)) and where[key] and data.draw(st.booleans()):
            where = where[key]
            continue
        where[key] = data.draw(PLAIN)
        break
    attempt(lambda: Page.from_dict(plain))


def test_names_that_xml_cannot_carry_are_refused() -> None:
    page = corrected_page()
    page.block("pool").svg["a b"] = "1"
    with pytest.raises(FileError, match="not the name"):
        write_svg(page)
    page = corrected_page()
    page.block("pool").svg["note"] = "\x01"
    with pytest.raises(FileError, match="cannot carry"):
        write_svg(page)


def test_a_loop_cannot_be_exported() -> None:
    page = read_svg(drawing('<use id="a" type="tensorflow" xlink:href="#X"/><use id="b" type="tensorflow" xlink:href="#X"/>'
                            '<polyline><pg-link from-id="a" param-from="o" to-id="b" param-to="i"/></polyline>'
                            '<polyline><pg-link from-id="b" param-from="o" to-id="a" param-to="i"/></polyline>'))  # fmt: skip
    with pytest.raises(FileError, match="a loop of wires holds a, b"):
        write_json(page)
    assert not Runner(page).run().ok


@pytest.mark.parametrize("name", ["missing.svg", "page.txt", "page.enup", "."])
def test_files_that_are_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileError):
        run_file(tmp_path / name)


def test_unsaveable_endings(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"saved as \.svg or \.json"):
        save_page(corrected_page(), tmp_path / "page.png")
