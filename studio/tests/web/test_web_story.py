"""The whole story in a real Chromium: build the documented page by mouse and by keyboard, run it, mend it, read the values,
break a property, save, reload, and run the saved page without a browser."""

from __future__ import annotations

from chromium import CTRL, SHIFT
from web_support import NEEDS, Hands, ServerProcess, run_headless

pytestmark = NEEDS

GRAD = ";".join(str(k) for k in range(1, 33))
RIGHT = [["float", f"result_output[{n}][0][0][0][{c}]", str(1 + 4 * n + 2 * c)] for n in range(2) for c in range(2)]


def test_by_mouse(hands: Hands, server: ServerProcess) -> None:
    tab = hands.tab
    hands.shot("welcome")
    hands.begin()
    shape, grad = hands.drop("Const", 60, 40), hands.drop("Const", 60, 260)
    pool, session = hands.drop("AvgPool3DGrad", 330, 90), hands.drop("ClientSession", 610, 120)
    assert [shape, grad, pool, session] == ["ID_1", "ID_2", "ID_3", "ID_4"]
    hands.choose(shape)
    hands.tensor(shape, "int", "[5]", "2,1,1,1,2")
    hands.choose(grad)
    hands.tensor(grad, "float", "[2][2][2][2][2]", GRAD)
    hands.choose(pool)
    for pin, text in (("ksize", "1,4,3,2,1"), ("strides", "1,4,3,2,1"), ("padding", "SAME")):
        hands.set(pool, pin, text)
    assert tab.run(f'document.querySelector("{hands.field(pool, "attrs")}").value') == "data_format_ = NDHWC;"

    hands.wire(shape, "output", pool, "orig_input_shape")
    tab.drag(hands.handle(grad, "output"), hands.handle(pool, "ksize"), hold=True)
    assert tab.text(".refusal") == "ksize is a property: type its value instead"
    hands.shot("refused")
    tab.release(*hands.handle(pool, "ksize"))
    assert hands.wires() == 1
    hands.wire(grad, "output", pool, "grad")
    hands.wire(pool, "output", session, "fetch_outputs")

    assert hands.run() == "failed"
    hands.state(pool, "failed")
    hands.state(session, "blocked")
    lines = tab.wait("(t => t.includes('cycle 1') && t)(document.querySelector('.log-body').innerText)")
    assert pool in lines
    assert "give grad the shape [2][1][1][1][2]" in lines
    hands.shot("failed")

    hands.choose(grad)
    hands.set(grad, "val.shape", "[2][1][1][1][2]")
    assert "32 values for the shape [2][1][1][1][2]" in tab.text(".field.tensor .error")
    hands.set(grad, "val", "1;3;5;7")
    assert hands.run() == "done"
    hands.state(pool, "done")
    assert hands.watch(pool, "result_output") == RIGHT
    hands.shot("watch")

    hands.save("mouse.svg")
    report = run_headless(server.folder / "mouse.svg")
    rows = [[r["type"], r["name"], r["value"]] for r in report["watch"] if r["block"] == pool and "result_" in r["name"]]
    assert rows == [["float", "result_output[2][1][1][1][2]", "4 elements"], *RIGHT]
    tab.reload()
    tab.wait("document.querySelectorAll('.block').length === 4 && document.querySelectorAll('.wire').length === 3")
    assert "mouse.svg" in tab.text(".kept")
    hands.fitted()
    assert hands.watch(pool, "result_output") == RIGHT


def test_by_keyboard(hands: Hands, server: ServerProcess) -> None:
    tab = hands.tab
    shape = hands.place("Const")
    tab.key("e")
    tab.wait("document.activeElement?.dataset.field?.endsWith('val.type')")
    hands.tensor(shape, "int", "[5]", "2;1;1;1;2")
    tab.key("Escape")
    tab.wait(f"document.activeElement?.dataset.id === '{shape}'")
    grad = hands.place("Const")
    tab.key("e")
    hands.tensor(grad, "float", "[2][1][1][1][2]", "1;3;5;7")
    tab.key("Escape")
    pool = hands.place("AvgPool3DGrad")
    for pin, text in (("ksize", "1,4,3,2,1"), ("strides", "1,4,3,2,1"), ("padding", "SAME")):
        hands.set(pool, pin, text)
    tab.key("Escape")
    tab.wait(f"document.activeElement?.dataset.id === '{pool}'")
    hands.wire_by_keyboard(pool, "orig_input_shape", f"{shape}.output")
    hands.wire_by_keyboard(pool, "grad", f"{grad}.output")
    session = hands.place("ClientSession")
    hands.wire_by_keyboard(session, "fetch_outputs", f"{pool}.output")
    hands.shot("built")
    assert hands.run() == "done"
    tab.key("N", modifiers=SHIFT)
    tab.wait(f"document.activeElement?.dataset.id === '{pool}'", "Shift+N to go back to the pooling")
    tab.key("v")
    name = tab.wait("(r => r && r.innerText)(document.querySelector('.panel.watch .table-row button.link'))")
    assert name == "result_output[2][1][1][1][2]"
    hands.shot("watch")

    before = len(hands.blocks())
    tab.key("q")
    tab.click(f"[data-block='{pool}'] .block-title")
    tab.key("c", modifiers=CTRL)
    tab.key("v", modifiers=CTRL)
    tab.wait(f"document.querySelectorAll('.block').length === {before + 1}", "a pasted block")
    tab.key("Delete")
    tab.wait(f"document.querySelectorAll('.block').length === {before}", "the pasted block gone")
    tab.key("z", modifiers=CTRL)
    tab.wait(f"document.querySelectorAll('.block').length === {before + 1}", "undo")
    tab.key("Z", modifiers=CTRL | SHIFT)
    tab.wait(f"document.querySelectorAll('.block').length === {before}", "redo")
    hands.save("keys.json")
    report = run_headless(server.folder / "keys.json")
    values = [r["value"] for r in report["watch"] if r["block"] == pool and r["name"].startswith("result_output[")]
    assert values[-4:] == ["1", "3", "5", "7"]
