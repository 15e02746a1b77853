"""Messages that nobody should send: each gets one clear answer, and the server goes on serving."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

import poolgrad_studio.operations  # noqa: F401  # registers them
from poolgrad_studio.answers import OPERATIONS
from poolgrad_studio.limits import LIMITS, MOST_CONNECTIONS, MOST_PENDING
from studio_support import Server, Tab, fresh_block, served, set_const

KINDS = {"protocol", "value", "limit", "conflict", "exists", "file", "busy"}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from served(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def talk(one: Server) -> Iterator[Tab]:
    made = one.tab()
    yield made
    made.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "1",
        '"hello"',
        "{}",
        '{"id": 1}',
        '{"op": "hello"}',
        '{"id": "1", "op": "hello"}',
        '{"id": true, "op": "hello"}',
        '{"id": -1, "op": "hello"}',
        '{"id": 1.5, "op": "hello"}',
        '{"id": 1e400, "op": "hello"}',
        '{"id": NaN, "op": "hello"}',
        '{"id": 9999999999999999999999, "op": "hello"}',
        '{"id": 1, "op": ["hello"]}',
        '{"id": 1, "op": {"a": 1}}',
        '{"id": 1, "op": "__class__"}',
        '{"id": 1, "op": "open_", "path": ""}',
        '{"id": 1, "op": "hello", "more": 1}',
        '{"id": 1, "op": "open"}',
        '{"id": 1, "op": "open", "path": 7}',
        '{"id": 1, "op": "open", "path": null}',
        '{"id": 1, "op": "input", "kind": "random", "shape": [1e3], "seed": 1}',
        "[" * 100_000,
        '{"a":' * 50_000,
        '{"id": 1, "op": "new", "name": ' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"id": ' + "9" * 10_000 + "}",
        "\x00",
        "\ud7ff\ufffe",
    ],
)
def test_nonsense_gets_a_clear_answer(talk: Tab, text: str) -> None:
    answer = talk.raw(text)
    assert not answer["ok"]
    assert answer["error"]["kind"] == "protocol", answer
    assert answer["error"]["message"]
    assert talk.ask("documents")


def test_a_message_over_the_limit_is_answered(talk: Tab) -> None:
    answer = talk.raw(json.dumps({"id": 12, "op": "new", "name": "x" * LIMITS["message"]}))
    assert answer["id"] == 12
    assert answer["error"]["kind"] == "limit"
    assert str(LIMITS["message"]) in answer["error"]["message"]
    assert talk.raw("[" * (LIMITS["message"] + 1))["id"] == -1


def test_a_message_far_over_the_limit_ends_that_connection_alone(one: Server) -> None:
    tab = one.tab()
    with pytest.raises(ConnectionClosed):
        tab.raw("x" * (4 * LIMITS["message"] + 1))
    again = one.tab()
    assert again.ask("hello")
    again.close()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = sorted({name for operation in OPERATIONS.values() for name in operation.kind.__dataclass_fields__})
numbers = st.integers(-3, 9) | st.integers()
likely = {
    "block": st.sampled_from(["pool", "shape", "gradient", "session", "nobody", ""]),
    "pin": st.sampled_from(["output", "result_output", "val", "ksize", "grad", "scope", "none"]),
    "axes": st.lists(numbers, max_size=3),
    "index": st.lists(numbers, max_size=6),
    "cell": st.lists(numbers, max_size=4),
    "input": st.lists(numbers, max_size=4),
    "box": st.lists(numbers, max_size=5),
    "shape": st.lists(numbers, max_size=6) | st.text(max_size=5),
    "path": st.text(max_size=10) | st.sampled_from(["", "a.svg", "b.json", "../x.svg"]),
    "form": st.sampled_from(["svg", "export", "own"]),
    "kind": st.sampled_from(["random", "file", "python", "directml"]),
    "symbol": st.sampled_from(["Const", "Const_ex", "AvgPool", "AvgPool3DGrad", "X"]),
}


@given(op=st.sampled_from(sorted(OPERATIONS)), chosen=st.sets(st.sampled_from(FIELDS)), data=st.data())
def test_random_requests_never_break_it(talk: Tab, op: str, chosen: set[str], data: st.DataObject) -> None:
    kind = OPERATIONS[op].kind
    names = (set(kind.__dataclass_fields__) | (chosen if data.draw(st.booleans()) else set())) - {"doc", "page"}
    fields = {
        name: data.draw(likely.get(name, st.nothing()) | (numbers | st.text(max_size=6) | anything)) for name in sorted(names)
    }
    doc = talk.ask("example", which="corrected")["doc"]
    talk.ran(doc)
    if "doc" in kind.__dataclass_fields__:
        fields["doc"] = doc
    text = json.dumps({"id": 7, "op": op, **fields})
    talk.socket.send(text)
    while True:
        answer = talk.receive()
        if isinstance(answer, bytes) or "event" not in answer:
            break
    if isinstance(answer, dict):
        assert answer["ok"] or answer["error"]["kind"] in KINDS, (text, answer)
    assert talk.ask("hello")
    if op != "close":
        talk.ask("close", doc=doc)
    for opened in talk.ask("documents")["documents"]:
        talk.ask("close", doc=opened["doc"])
    talk.events.clear()


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*at, key))


@given(data=st.data())
def test_pages_with_anything_anywhere_never_break_it(talk: Tab, data: st.DataObject) -> None:
    opened = talk.ask("example", which="corrected")
    page = copy.deepcopy(opened["page"])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(list(places(page))))
        value = data.draw(anything | st.text(max_size=30))
        if not at:
            page = value
            break
        holder = page
        for key in at[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[at[-1]] = value
        elif isinstance(holder, dict):
            holder.pop(at[-1])
        else:
            holder.append(value)
    talk.socket.send(json.dumps({"id": 3, "op": "put", "doc": opened["doc"], "revision": 1, "page": page}))
    while "event" in (answer := talk.receive()):
        pass
    assert isinstance(answer, dict)
    assert answer["ok"] or answer["error"]["kind"] in KINDS, answer
    if answer["ok"]:
        talk.ran(opened["doc"])
        for kind in ("python", "directml"):
            said = talk.raw(json.dumps({"id": 4, "op": "code", "doc": opened["doc"], "kind": kind}))
            assert said["ok"] or said["error"]["kind"] in KINDS, said
        for form, ending in (("svg", "svg"), ("export", "json"), ("own", "json")):
            save = {"doc": opened["doc"], "path": f"fuzz.{ending}", "form": form, "overwrite": True}
            said = talk.raw(json.dumps({"id": 5, "op": "save", **save}))
            assert said["ok"] or said["error"]["kind"] in KINDS, said
    talk.ask("close", doc=opened["doc"])
    talk.events.clear()


@given(
    data=st.binary(max_size=300),
    kind=st.sampled_from(["npy", "image", "page", "x"]),
    name=st.sampled_from(["a.svg", "a.json", "a"]),
)
def test_uploads_of_anything_get_a_clear_answer(one: Server, data: bytes, kind: str, name: str) -> None:
    heads = {"npy": b"\x93NUMPY\x01\x00", "image": b"\x89PNG\r\n\x1a\n", "page": b"<svg", "x": b""}
    said = one.post(f"upload?kind={kind}&name={name}", heads[kind] + data)
    assert said.status_code in (400, 413), said.text
    assert said.json()["error"]["message"]


def test_addresses_of_anything_get_a_clear_answer(one: Server) -> None:
    for path in (
        "array.npy",
        "array.exe?doc=1",
        "array.png?doc=x&block=y&pin=z&axes=1,2",
        "page.json?doc=nope",
        "..%2f..%2fetc",
        "%00",
        "assets/../../x",
    ):
        said = one.get(path)
        assert said.status_code in (400, 403, 404, 503), path
        assert said.status_code == 503 or said.json()["error"]["message"]
    assert one.get("upload").status_code in (404, 405, 503)


def test_many_tabs_at_once(one: Server) -> None:
    failures: list[Exception] = []

    def visit(k: int) -> None:
        try:
            tab = one.tab()
            opened = tab.ask("example", which="corrected")
            assert tab.ran(opened["doc"])["state"] == "done"
            assert tab.ask("put", doc=opened["doc"], revision=1, page=opened["page"])["revision"] == 2
            tab.ask("close", doc=opened["doc"])
            tab.close()
        except Exception as error:
            failures.append(error)

    visitors = [threading.Thread(target=visit, args=(k,)) for k in range(12)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert not failures


def test_too_many_tabs_are_turned_away(tmp_path: Path) -> None:
    for server in served(tmp_path):
        tabs = [server.tab() for _ in range(MOST_CONNECTIONS)]
        for tab in tabs:
            tab.ask("documents")
        with pytest.raises(Exception, match=r"1013|403|rejected"):
            server.tab().receive()
        for tab in tabs:
            tab.close()


def test_a_tab_that_does_not_read_is_not_read_either(one: Server) -> None:
    lazy = one.tab()
    opened = lazy.ask("new")
    page = opened["page"]
    page["blocks"] = [fresh_block(lazy, "Const", "x")]
    set_const(page, "x", lazy.ask("input", kind="random", shape=[1000, 1000], seed=1))
    lazy.ask("put", doc=opened["doc"], revision=1, page=page)
    asked = {
        "op": "slice",
        "doc": opened["doc"],
        "block": "x",
        "pin": "val",
        "axes": [0, 1],
        "index": [0, 0],
        "height": 999,
        "width": 999,
    }
    for k in range(100):
        lazy.socket.send(json.dumps({"id": k, **asked}))
    [connection] = [s for s in one.studio.sessions if opened["doc"] in s.follows]
    other = one.tab()
    assert other.ask("attach", doc=opened["doc"])["page"] == page
    other.close()
    assert connection.send.__self__._out.qsize() <= MOST_PENDING  # type: ignore[attr-defined]
    lazy.socket.close_socket()


def test_a_tab_that_lets_events_pile_up_is_dropped(one: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolgrad_studio.socket.MOST_QUEUED", 0)
    tab = one.tab()
    doc = tab.ask("example", which="corrected")["doc"]
    tab.ask("run", doc=doc)
    with pytest.raises(ConnectionClosed, match="1013"):
        keep_asking(tab)


def keep_asking(tab: Tab) -> None:
    for _ in range(1000):
        tab.ask("documents")
        time.sleep(0.01)
