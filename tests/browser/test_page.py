"""The page of `--format html` in a browser: Playwright drives the Chromium of the distribution (.ci/browser).

`KDUMP_AXE` is the path of the script of axe-core.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import build, directories
from support.command_runs import run_inside

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
HOSTILE = ("<img src=x onerror=alert(1)>-0", '"><script>alert(1)<_script>-1', "a\u202eb\u2066\x1b[31m\n\x7f-2")
NAME = "00000000000000000000.log"
MOST_NODES = 5_000
MOST_SCRIPT_MS = 500


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def log(batches: int, *flipped: int, **fields: Any) -> dict[str, bytes]:
    """A partition of two segments; a bit of each of the batches `flipped` is another one."""
    several = [
        build.batch([build.record(b"k%d" % at, b"v" * 40)], base_offset=at, **fields) for at in range(2 * batches)
    ]
    files = directories.partition({0: b"".join(several[:batches]), batches: b"".join(several[batches:])})
    data = bytearray(files[NAME])
    for batch in flipped:
        data[sum(map(len, several[:batch])) + len(several[batch]) - 3] ^= 1
    return {**files, NAME: bytes(data)}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with 300 partitions, many of them damaged, some with hostile names."""
    sound, bad, worse = log(8), log(8, 3), log(40, 3, 30)
    names = {f"orders-{number}": bad if number % 3 else sound for number in range(300)}
    marks = {"replication-offset-checkpoint": b"0\n1\npayments 7 70\n"}
    partitions = {**names, "payments-7": worse, **dict.fromkeys(HOSTILE, bad)}
    directory = tmp_path_factory.mktemp("browser") / "logs"
    return directories.write(directory, directories.log_directory(partitions, **marks))


class Opened:
    """A page in the browser, with what it said and asked for."""

    def __init__(self, browser: Any, file: Path, **how: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **how)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached", timeout=30_000)

    def findings(self) -> int:
        """How many findings are shown."""
        words = self.page.locator("#findings .shown").inner_text().split()
        return int(words[0].replace(",", ""))

    def wait_for_findings(self, number: int) -> None:
        """Wait until so many of them are shown."""
        playwright.expect(self.page.locator("#findings .shown")).to_have_text(re.compile(rf"^{number} of "))


def written(directory: Path, name: str, *arguments: str) -> Path:
    ran = run_inside(directory.parent, *arguments, "--format", "html")
    file = directory.parent / f"{name}.html"
    file.write_bytes(ran.out)
    assert ran.out.endswith(b"</html>"), ran.problems
    return file


@pytest.fixture
def verified(browser: Any, many: Path) -> Iterator[Opened]:
    opened = Opened(browser, written(many, "verify", "verify", str(many)), permissions=["clipboard-read"])
    yield opened
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith("file:")] == []
    assert len(opened.asked) == 1
    opened.context.close()


def test_findings_are_filtered_searched_and_sorted(verified: Opened) -> None:
    page, whole = verified.page, verified.findings()
    assert whole > 200
    page.fill("#findings [name=topic]", "payments-7")
    verified.wait_for_findings(2)
    page.fill("#findings [name=topic]", "")
    page.fill("#findings [name=text]", "no such words")
    verified.wait_for_findings(0)
    page.click("#findings .clear")
    assert verified.findings() == whole
    page.select_option("#findings [name=code]", label="batch/crc")
    assert verified.findings() <= whole
    page.click("#findings .chips .bad")
    assert verified.findings() == 0
    page.click("#findings .clear")

    page.click("#findings [role=columnheader] >> text=Position")
    first = int(page.locator("#findings .line .number").first.inner_text().replace(",", ""))
    page.click("#findings [role=columnheader] >> text=Position")
    last = int(page.locator("#findings .line .number").first.inner_text().replace(",", ""))
    assert first > last
    assert page.locator("#findings [aria-sort=ascending]").count() == 1


def test_a_finding_is_explained_by_click_and_by_keyboard(verified: Opened) -> None:
    page = verified.page
    page.locator("#findings .line").nth(2).click()
    assert "Consumers refuse" in page.locator("#findings .detail").inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    index = int(page.locator("#findings .line[aria-selected=true]").get_attribute("aria-rowindex") or 0)
    assert index == verified.findings() + 1


def test_a_map_shows_what_is_under_the_pointer_and_the_findings_on_a_click(verified: Opened) -> None:
    page = verified.page
    maps = page.locator("#maps .map")
    assert maps.count() == page.locator("#maps .map canvas").count() > 1
    page.click("#maps .more")
    canvas = page.locator("#maps .map canvas").first
    canvas.scroll_into_view_if_needed()
    assert "payments-7" in (canvas.get_attribute("aria-label") or "")
    canvas.hover(position={"x": 4, "y": 30})
    said = page.locator(".tip").inner_text()
    assert "positions 0 to" in said
    assert "offsets 0..0" in said
    page.click("#maps .by button >> text=offset")
    pixels = "c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return d.some(v => v) }"
    assert canvas.evaluate(pixels)
    canvas.click(position={"x": 40, "y": 30})
    assert verified.findings() == 2
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert "positions 0 to" in page.locator("#live").inner_text()


def test_the_command_is_copied(verified: Opened) -> None:
    command = verified.page.locator("#next").inner_text()
    assert command.startswith("kdump recover ")
    verified.page.click("[data-copy=next]")
    verified.page.wait_for_selector("text=Copied")
    assert verified.page.evaluate("navigator.clipboard.readText()") == command


def test_the_switches_change_what_is_shown(verified: Opened) -> None:
    page = verified.page
    sizes = page.locator("#partitions .line").first
    assert "KiB" in sizes.inner_text()
    page.check("[name=units][value=si]", force=True)
    assert "kB" in sizes.inner_text()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.check("[name=theme][value=dark]", force=True)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.check("[name=zone][value=local]", force=True)
    assert "Z" not in page.locator("#head data").inner_text()


def test_hostile_names_are_text(verified: Opened) -> None:
    page = verified.page
    page.fill("#findings [name=topic]", "<img")
    verified.wait_for_findings(1)
    assert page.locator("#findings .line .name").first.inner_text() == HOSTILE[0]
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [320, 1024, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_is_accessible(verified: Opened, width: int, scheme: str) -> None:
    page = verified.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("#findings .line").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    numbers = "[...document.querySelectorAll('#partitions .cell.number')]"
    cut = f"{numbers}.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"
    assert page.evaluate(cut) == []
    assert page.evaluate("document.getElementsByTagName('*').length") <= MOST_NODES
    assert serious(page) == []


def serious(page: Any) -> list[str]:
    """What axe-core finds that is serious or critical."""
    axe = os.environ.get("KDUMP_AXE")
    if axe is None:
        pytest.skip("KDUMP_AXE does not name axe.min.js")
    # The policy of the page lets no script in; a debugger may evaluate one.
    page.evaluate(Path(axe).read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {each['nodes'][0]['html']} {each['nodes'][0]['failureSummary']}" for each in bad]


def test_every_row_is_printed_up_to_a_bound(verified: Opened) -> None:
    verified.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert verified.page.locator("#findings .line").count() == min(400, verified.findings())
    assert verified.page.evaluate("document.getElementsByTagName('*').length") <= 2 * MOST_NODES


def test_the_first_script_task_is_short(browser: Any, many: Path) -> None:
    file = written(many, "traced", "verify", str(many))
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    session.on("Tracing.dataCollected", lambda found: events.extend(found["value"]))
    session.send("Tracing.start", {"traceConfig": {"includedCategories": ["devtools.timeline", "v8"]}})
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached", timeout=30_000)
    session.send("Tracing.end")
    page.wait_for_timeout(1500)
    took = [event.get("tdur", 0) / 1000 for event in events if event["name"] in ("EvaluateScript", "FunctionCall")]
    context.close()
    assert took, "nothing was traced"
    assert max(took) <= MOST_SCRIPT_MS, json.dumps(sorted(took)[-5:])


@pytest.mark.parametrize(
    "arguments",
    [("recover",), ("stat",), ("stat", "--deep"), ("stat", "--by", "producer", "--retention")],
    ids=" ".join,
)
def test_other_pages_are_quiet_and_accessible(browser: Any, many: Path, arguments: tuple[str, ...]) -> None:
    file = written(many, "-".join(arguments).replace("--", ""), *arguments, str(many))
    opened = Opened(browser, file)
    for width in (320, 1200):
        opened.page.set_viewport_size({"width": width, "height": 800})
        opened.page.wait_for_timeout(300)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.page.evaluate("document.getElementsByTagName('*').length") <= MOST_NODES
        assert serious(opened.page) == []
    assert opened.said == []
    assert len(opened.asked) == 1
    opened.context.close()


def test_copies_are_strips_and_many_of_them_a_table(browser: Any, tmp_path: Path) -> None:
    sound, other = log(8), log(8, 3)
    for name, files in (("a", sound), ("b", other)):
        partitions = {f"t-{number}": files for number in range(9)}
        directories.write(tmp_path / "copies" / name, directories.log_directory(partitions))
    copies = tmp_path / "copies"
    file = written(copies, "copies", "verify", "--compare", str(copies / "a"), str(copies / "b"))
    opened = Opened(browser, file)
    page = opened.page
    assert page.locator("#copies .line").count() == 9
    assert page.locator("#copies figure canvas").count() == 1
    page.locator("#copies .line").nth(4).click()
    assert "t-4" in page.locator("#copies .chosen h3").inner_text()
    page.locator("#copies figure canvas").hover(position={"x": 200, "y": 20})
    assert "a/t-4: there" in page.locator(".tip").inner_text()
    assert serious(page) == []
    assert opened.said == []
    opened.context.close()
