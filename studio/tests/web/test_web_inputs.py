"""Arrays from files, images and chance; two tabs on one page; work that was left behind."""

from __future__ import annotations

import json

import numpy as np
from chromium import Chromium
from PIL import Image
from web_support import NEEDS, Hands, ServerProcess

pytestmark = NEEDS


def test_random_input(hands: Hands) -> None:
    tab = hands.tab
    hands.begin()
    tab.click(".palette-item[data-symbol='input random']")
    tab.fill("dialog input[data-first]", "[1][2")
    tab.key("Enter")
    assert "shape '[1][2' is not a list of sizes" in tab.text("dialog .error")
    tab.fill("dialog input[data-first]", "[2][3][4][1]")
    tab.key("Enter")
    tab.wait("!document.querySelector('dialog') && document.querySelector('[data-block=ID_1]')", "a block of random values")
    rows = hands.watch("ID_1", "val")
    assert len(rows) > 5
    tab.click(".watch-tabs [role=tab]:nth-child(4)")
    assert "[2][3][4][1]" in tab.text(".stats dl")
    tab.click(".watch-tabs [role=tab]:nth-child(2)")
    tab.wait("document.querySelector('.picture canvas')?.width === 4")
    sliders = tab.run("document.querySelectorAll('.heat .slider').length")
    assert sliders == 1
    tab.run("document.querySelector('.heat .slider input').focus()")
    tab.key("ArrowRight")
    tab.wait("document.querySelector('.heat .slider output').innerText === '1/1'")
    hands.shot("heat")


def test_an_image(hands: Hands, server: ServerProcess) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (6, 5, 3), np.uint8)
    Image.fromarray(pixels).save(server.folder / "photo.png")
    tab = hands.tab
    hands.begin()
    tab.click(".palette-item[data-symbol='input image']")
    tab.wait("[...document.querySelectorAll('dialog li button')].some(b => b.innerText.includes('photo.png'))")
    tab.click("dialog li button")
    tab.wait("!document.querySelector('dialog') && document.querySelector('[data-block=ID_1]')", "a block with the image")
    name = tab.wait("(r => r && r.innerText)(document.querySelector('[data-block=ID_1] [data-pin=val] .pin-value'))")
    assert name.startswith("float[1][6][5][3]")
    first = hands.watch("ID_1", "val")[0]
    assert first[1] == "val[0][0][0][0]"
    assert abs(float(first[2]) - pixels[0, 0, 0] / 255) < 1e-6


def test_two_tabs(hands: Hands, browser: Chromium, server: ServerProcess) -> None:
    hands.begin()
    hands.drop("Const", 60, 60)
    hands.kept()
    other = Hands(browser, hands.tab.run("location.href"))
    other.tab.wait("document.querySelectorAll('.block').length === 1", "the page in the other tab")
    other.fitted()
    other.choose("ID_1")
    other.set("ID_1", "val", "42")
    other.kept()
    wanted = "document.querySelector('[data-block=ID_1] [data-pin=val] .pin-value').innerText === 'double 42'"
    hands.tab.wait(wanted, "the edit of the other tab")
    other.tab.call("Page.close")
    hands.tab.call("Page.bringToFront")
    hands.place("AvgPool")
    hands.kept()
    assert len(hands.blocks()) == 2
    assert hands.tab.run(wanted), "an edit in this tab must not undo the other's"


def test_work_left_behind(hands: Hands, browser: Chromium, server: ServerProcess) -> None:
    hands.begin()
    hands.drop("AvgPool3D", 60, 60)
    hands.tab.fill("input[aria-label='name of the page']", "unfinished")
    hands.tab.key("Enter")
    hands.kept()
    server.kill()
    server.start()
    fresh = Hands(browser, server.address, hands.name)
    listed = "[...document.querySelectorAll('.welcome li button')].find(b => b.innerText.includes('unfinished'))"
    fresh.tab.wait(listed, "the page among the recovered ones")
    fresh.shot("recovered")
    fresh.tab.run(f"({listed}).click()")
    fresh.tab.wait("document.querySelector('.block')?.dataset.block === 'ID_1'")
    assert json.loads(fresh.tab.run("JSON.stringify(document.querySelector('.page-name input').value)")) == "unfinished"
    fresh.tab.call("Page.close")
    hands.tab.call("Page.bringToFront")
    hands.kept()
    hands.tab.events.clear()
