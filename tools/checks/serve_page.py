"""The page of the server in a headless Chromium, as a person uses it.

    python serve_page.py BINARY SHOTS [AXE]       needs selenium, chromium and chromedriver; AXE is axe.min.js

Every message on the console fails a flow, and so does anything that is loaded from elsewhere. Screenshots go to SHOTS.
"""

import pathlib
import struct
import sys
import tempfile
import time
import zlib

import browser
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from server import serving

ANSWERED = "document.querySelector('.answer .says')?.textContent && document.getElementById('working').hidden"
COMPARED = "document.querySelectorAll('#compared .strip').length === 3"
SURFACES = "document.getElementById('slice-legend').textContent.startsWith('At the prompt')"
ALERT = "!document.getElementById('alert').hidden"
SET = """const e = document.getElementById(arguments[0]); e.scrollIntoView({ block: 'center' }); e.value = arguments[1];
    for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, { bubbles: true }));"""
FLOWS = []


def flow(name, phone=False):
    def register(run):
        FLOWS.append((name, run, phone))
        return run

    return register


def png(width, height, value):
    """A file whose pixels are `value(place)`."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(value(y * 3 * width + x) for x in range(3 * width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Page:
    def __init__(self, url, shots, folder, axe):
        self.url, self.shots, self.folder, self.axe = url, shots, folder, axe
        self.driver = browser.chromium()

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def value(self, expression):
        return self.run(f"return ({expression});")

    def until(self, what, expression):
        end = time.monotonic() + 60
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end, f"{what}: not so after 60 s ({expression})"
            time.sleep(0.04)

    def count(self, selector):
        return self.run("return document.querySelectorAll(arguments[0]).length;", selector)

    def text(self, selector):
        found = self.run("return document.querySelector(arguments[0])?.textContent ?? null;", selector)
        assert found is not None, f"no {selector}"
        return found

    def element(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector):
        self.element(selector).click()

    def keys(self, selector, *keys):
        self.element(selector).send_keys(*map(str, keys))

    def press(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def drag(self, selector, pointer, across, down):
        """Presses on the middle of an element and moves before letting go: `mouse` or `touch`."""
        x, y = self.run("""const e = document.querySelector(arguments[0]); e.scrollIntoView({ block: 'center' });
            const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2].map(Math.round);""", selector)  # fmt: skip
        actions = ActionBuilder(self.driver, mouse=PointerInput(pointer, pointer), duration=60)
        actions.pointer_action.move_to_location(x, y).pointer_down()
        for part in range(1, 5):
            actions.pointer_action.move_to_location(x + across * part // 4, y + down * part // 4)
        actions.pointer_action.pointer_up()
        actions.perform()

    def emulate(self, dark, width, height=900):
        browser.emulate(self.driver, dark, width, height)

    def shot(self, name, whole=True):
        browser.shot(self.driver, self.shots / f"{name}.png", whole)

    def console(self):
        return browser.console(self.driver)

    def open(self, url):
        self.driver.get("about:blank")
        self.driver.get(url)

    def start(self):
        self.open(self.url)
        self.until("the page starts", "document.querySelectorAll('#samples img').length === 16 && document.querySelector('#method-a select')")
        self.until("the first answer", ANSWERED)

    def take_sample(self, number):
        self.start()
        self.click(f"#samples li:nth-child({number}) button")
        self.until("an answer", ANSWERED)
        self.until("the row", COMPARED)

    def photo(self):
        """Noise of a size that no synthetic drawing has."""
        file = self.folder / "photo.png"
        if not file.exists():
            file.write_bytes(png(320, 240, lambda place: (place * 2654435761 & 0xFFFFFFFF) >> 24))
        return file

    def in_sight(self, selector):
        """Waits until an element is on screen as a whole."""
        self.until(f"{selector} is on screen", f"""(() => {{ const r = document.querySelector('{selector}')?.getBoundingClientRect();
            return r && r.height > 0 && r.top >= 0 && r.left >= 0 && r.bottom <= innerHeight && r.right <= innerWidth; }})()""")


@flow("the console is watched")
def console_is_watched(page):
    """A check that cannot see a fault is worth nothing."""
    page.start()
    page.console()
    page.run("const s = document.createElement('img'); s.src = 'http://flatclip.invalid/x.png'; document.body.append(s); console.error('seen');")
    time.sleep(0.3)
    said = "\n".join(page.console())
    assert "seen" in said and "flatclip.invalid" in said, f"the console is not seen: {said}"


@flow("opens without a word on the console")
def opens(page):
    page.start()
    page.until("samples are drawn", "[...document.querySelectorAll('#samples img')].slice(0, 5).every((i) => i.complete && i.naturalWidth > 0)")
    page.shot("empty")


@flow("a sample is answered and the selected views stand out")
def sample(page):
    page.take_sample(3)
    assert (page.count(".sheet li"), page.count(".sheet li.selected")) == (64, 6), "6 of 64 views are selected"
    opacity = lambda selector: page.value(f"Number(getComputedStyle(document.querySelector('{selector} canvas')).opacity)")  # noqa: E731
    assert opacity(".sheet li.selected") > 2 * opacity(".sheet li:not(.selected)"), "selected views do not stand out"
    assert (page.count(".scatter .dot.selected"), page.count(".scatter .threshold"), page.count(".bars li")) == (6, 1, 6)
    assert "stss: " in page.text("#status")
    page.shot("light")


@flow("a dropped photo is answered")
def dropped(page):
    page.start()
    page.run("""fetch('samples/sketch-5.png').then((r) => r.blob()).then((blob) => {
        const data = new DataTransfer();
        data.items.add(new File([blob], 'dropped.png', { type: 'image/png' }));
        document.getElementById('drop').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
    });""")
    page.until("it is taken", "document.getElementById('image-note').textContent.includes('dropped')")
    page.until("an answer", ANSWERED)
    assert page.text("#warning") == "", "a drawing gets a warning"
    assert "dropped.png, 112 × 112" in page.text("#image-note"), page.text("#image-note")


@flow("a chosen file is answered")
def chosen(page):
    page.start()
    file = page.folder / "<img src=x onerror=alert(1)>.png"
    file.write_bytes(png(300, 200, lambda place: place // 900 % 200 + place % 50))
    page.keys("#file", file)
    page.until("an answer", ANSWERED)
    assert f"{file.name}, 300 × 200" in page.text("#image-note"), page.text("#image-note")
    assert page.count("#image-note img") == 0, "a file name became markup"


@flow("another method answers, two side by side")
def methods(page):
    page.take_sample(2)
    page.click("#compare")
    page.until("two answers", "document.querySelectorAll('.answer').length === 2")
    page.run(SET, "name-b", "zero")
    page.until("the other method", "document.querySelectorAll('.answer h2')[1]?.textContent === 'zero'")
    assert "ms of work" in page.text(".answer .note"), "no time"
    page.shot("two-methods")


@flow("a slider changes the answer")
def slider(page):
    page.take_sample(2)
    page.run(SET, "a-fraction", "0.5")
    page.until("half of the views", "document.querySelectorAll('.sheet li.selected').length === 32")
    page.run(SET, "a-views", "16")
    page.until("fewer views", "document.querySelectorAll('.sheet li').length === 16")


@flow("a view shows where it lies and the loss around the prompt")
def slice_(page):
    page.take_sample(4)
    page.click(".sheet li:nth-child(2) button")
    page.until("the slice", SURFACES)
    assert "score" in page.text(".view-says"), "the view says nothing"
    painted = "(() => { const c = document.getElementById('slice'); return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size; })()"
    assert page.value(painted) > 20, "nothing is painted"
    page.shot("slice")
    # A new question hides the slice and stops its work.
    page.click(".sheet li:nth-child(3) button")
    page.keys("#add-class", "sailboat", Keys.ENTER)
    page.until("it is gone", "document.getElementById('slice-panel').hidden")


@flow("what the server refuses is shown")
def refused(page):
    page.take_sample(1)
    page.run(SET, "template", "no place for a name")
    page.until("an alert", ALERT)
    assert "{}" in page.text("#alert"), page.text("#alert")
    page.shot("refused")
    page.run(SET, "template", "")
    page.until("an answer again", ANSWERED)
    assert not page.value(ALERT), "the alert stays"


@flow("markup in names stays text")
def markup(page):
    page.take_sample(1)
    names = ["<img src=x onerror=window.bad=1>", "<script>window.bad=1</script>", '"><svg onload=window.bad=1>']
    for name in names:
        page.keys("#add-class", name, Keys.ENTER)
    # The small tower may refuse names that are so long; then the alert shows its words.
    page.until("nine classes", f"document.querySelectorAll('.chips li').length === 9 && (document.querySelectorAll('.bars li').length === 9 || {ALERT})")
    assert page.value("window.bad ?? null") is None, "markup of a name was run"
    assert page.count(".bars img, .chips img, .bars svg, .chips svg, .chips script, #alert *") == 0, "a name became markup"
    assert names[0] in page.text(".chips"), "the name is not shown"


@flow("the keyboard alone suffices")
def keyboard(page):
    page.start()

    def focus_on(what, most):
        for _ in range(most):
            page.press(Keys.TAB)
            if page.run("return document.activeElement?.matches(arguments[0]);", what):
                return
        raise AssertionError(f"{what} is not reached by {most} tabs")

    focus_on("#samples button", 30)
    page.press(Keys.ENTER)
    page.until("an answer", ANSWERED)
    focus_on("#add-class", 60)
    page.press(*"cup", Keys.ENTER)
    page.until("the class", "document.querySelector('.chips').textContent.includes('cup')")
    page.until("an answer with it", "document.querySelectorAll('.bars li').length === 7")
    focus_on(".sheet button", 60)
    page.press(Keys.RIGHT, Keys.RIGHT, Keys.ENTER)
    page.until("the slice", SURFACES)


@flow("a link brings the settings back and never the photo")
def link(page):
    page.take_sample(6)
    page.keys("#add-class", "teapot", Keys.ENTER)
    page.until("the class", "document.querySelectorAll('.bars li').length === 7")
    address, answer = page.value("location.href"), page.text(".answer .bars")
    assert "teapot" in address and "photo-5.png" in address and len(address) < 2000, address
    page.open(address)
    page.until("an answer", ANSWERED)
    assert page.text(".answer .bars") == answer, "the link gives another answer"
    for kind in ("curl", "python", "json", "link"):
        page.click(f"[data-copy={kind}]")
        page.until("the text", "!document.getElementById('copied').hidden && document.getElementById('copied').textContent.length > 20")


@flow("names and roles for screen readers")
def roles(page):
    page.take_sample(1)
    faults = page.run("""
        const faults = [];
        if (!document.documentElement.lang || !document.title) faults.push("no language or title");
        let level = 0;
        for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
            const next = Number(heading.tagName[1]);
            if (next > level + 1) faults.push(`${heading.textContent}: h${next} after h${level}`);
            level = next;
        }
        const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
        faults.push(...ids.filter((id, place) => ids.indexOf(id) !== place).map((id) => `the id ${id} twice`));
        for (const element of document.querySelectorAll("button, input, select, a[href], canvas[role], svg[role]")) {
            if (element.closest("[hidden]")) continue;
            const name = element.getAttribute("aria-label") || element.textContent.trim() || element.querySelector("img")?.alt
                || [...(element.labels ?? [])].map((label) => label.textContent.trim()).join("");
            if (!name) faults.push(`no name: ${element.outerHTML.slice(0, 120)}`);
        }
        for (const image of document.querySelectorAll("img")) if (!image.hasAttribute("alt")) faults.push("an image without alt");
        for (const role of ["main", "h1", "[role=alert]", "[role=status]"]) if (!document.querySelector(role)) faults.push(`no ${role}`);
        return faults;""")
    assert faults == [], faults


@flow("dark and phone")
def dark_and_phone(page):
    paper = lambda: page.value("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    page.emulate(True, 1280)
    page.take_sample(3)
    dark_paper = paper()
    page.shot("dark")
    for dark in (False, True):
        page.emulate(dark, 390, 844)
        page.take_sample(3)
        page.click(".sheet li:nth-child(1) button")
        page.until("the slice", SURFACES)
        wide = page.value("document.documentElement.scrollWidth")
        assert wide <= 390, f"the page is {wide} wide on a phone of 390"
        page.shot("phone-dark" if dark else "phone")
    page.emulate(False, 1280)
    assert dark_paper != paper(), "dark and light have the same paper"


@flow("opens with an image that zero-shot gets wrong and STSS right")
def first_answer(page):
    page.start()
    page.until("the row", COMPARED)
    for method, mark in (("zero-shot", "wrong"), ("stss", "right")):
        assert mark in page.text(f"#compared [data-method={method}]"), f"{method} is not marked {mark}"
    assert page.text("#compared-title").startswith("One view is wrong") and "6 that are confident" in page.text("#idea")
    assert "trained on synthetic drawings and knows 32 classes" in page.text("#known"), page.text("#known")
    asked = page.value("performance.getEntriesByType('resource').filter((e) => e.name.endsWith('v1/classify')).length")
    assert asked == 3, f"{asked} answers come from the server"
    page.until("the surfaces", SURFACES)
    page.shot("start")


@flow("a photo gets a warning before the answer")
def warning(page):
    page.start()
    page.until("the surfaces", SURFACES)
    assert page.text("#warning") == "", "a warning about a drawing"
    # Which comes first is seen by the page itself.
    page.run("""window.order = [];
        const warning = document.getElementById('warning');
        new MutationObserver(() => {
            if (!warning.hidden) order.push('warning');
            if (document.querySelector('.answer .says')) order.push('answer');
        }).observe(document.getElementById('results'), { subtree: true, childList: true, attributes: true });""")
    page.keys("#file", page.photo())
    page.until("an answer", ANSWERED)
    assert page.value("[...new Set(window.order)]") == ["warning", "answer"], page.value("window.order")
    for part in ("synthetic drawings", "not meaningful", "--model ViT-B-16"):
        assert part in page.text("#warning"), page.text("#warning")
    above = "document.getElementById('warning').getBoundingClientRect().bottom <= document.querySelector('#compared').getBoundingClientRect().top"
    assert page.value(above), "the warning is not above the answer"
    page.until("the row", COMPARED)
    page.shot("warning")
    page.click("#samples li:nth-child(1) button")
    page.until("an answer", ANSWERED)
    assert page.text("#warning") == "", "the warning stays for a drawing"
    page.keys("#add-class", "whale", Keys.ENTER)
    page.until("a class that it does not know", "document.getElementById('warning').textContent.includes('whale')")


@flow("three methods stand in one row with what they selected")
def row(page):
    page.take_sample(2)
    tops = page.value("new Set([...document.querySelectorAll('#compared li')].map((e) => e.getBoundingClientRect().top)).size")
    assert tops == 1, f"the methods stand in {tops} rows"
    for method, views in (("zero-shot", 1), ("zero", 19), ("stss", 6)):
        card = f"#compared [data-method={method}]"
        assert page.count(f"{card} .strip canvas") == views, f"{method} shows another number of views than {views}"
        assert page.text(f"{card} .answered"), f"{method} has no answer"


@flow("the selection line is moved by mouse, touch and keys, and the vote follows")
def selection_line(page):
    page.start()
    page.until("the row", COMPARED)
    count = lambda: page.value("Number(document.querySelector('.handle').getAttribute('aria-valuenow'))")  # noqa: E731
    assert count() == 6
    bars = page.text(".bars")
    for how in ("mouse", "touch", "keys"):
        before = count()
        if how == "keys":
            page.run("document.querySelector('.handle').focus();")
            page.press(Keys.RIGHT, Keys.RIGHT, Keys.END)
        else:
            page.drag(".handle .grip", how, 70, 0)
        now = count()
        assert now > before, f"{how}: {before} views are selected, then {now}"
        starts = f"{now} of 64" if now < 64 else "64 views"
        page.until("the answer follows", f"document.querySelector('.facts').textContent.startsWith('{starts}')")
        assert page.count(".scatter .dot.selected") == page.count(".sheet li.selected") == now, how
        assert page.text(".tally").startswith(f"{now} selected: "), f"{how}: {page.text('.tally')}"
        bars, earlier = page.text(".bars"), bars
        assert bars != earlier, f"{how}: the vote does not follow"
    assert "64 of 64 views" in page.text("#compared [data-method=stss]")
    assert page.text("[for=a-fraction] + output") == "1", "the slider stays"


@flow("two surfaces turn together by mouse, touch and keys")
def surfaces(page):
    page.start()
    page.until("the surfaces", SURFACES)
    assert page.text("#slice-caption").startswith("Selected, view ")
    assert page.text("#slice-other-caption").startswith("Rejected, view ")
    images = lambda: page.value("['slice', 'slice-other'].map((id) => document.getElementById(id).toDataURL())")  # noqa: E731
    before = images()
    assert before[0] != before[1], "both surfaces are the same"
    for how, canvas in (("mouse", "#slice"), ("touch", "#slice-other"), ("keys", "#slice")):
        if how == "keys":
            page.run("document.getElementById('slice').focus();")
            page.press(Keys.LEFT, Keys.UP)
        else:
            page.drag(canvas, how, 60, 4)
        after = images()
        assert before[0] != after[0] and before[1] != after[1], f"{how} on {canvas} does not turn both"
        before = after
    # Another rejected view takes the place of the rejected one.
    page.click(".sheet li:last-child button")
    page.until("the surfaces", SURFACES)
    last = page.value("document.querySelector('.sheet li:last-child button').dataset.view")
    assert page.text("#slice-other-caption").startswith(f"Rejected, view {last}:"), page.text("#slice-other-caption")
    page.run("document.getElementById('compared-panel').scrollIntoView();")
    page.shot("surfaces")


@flow("a link with broken settings starts the page")
def broken_links(page):
    for settings in ('{"a":{"method":"stss","views":16,"options":null}}', "{", "null", '{"classes":7}'):
        page.open(f"{page.url}#{settings}")
        page.until("the page starts", "document.querySelectorAll('#samples img').length === 16")
        page.click("#samples li:nth-child(2) button")
        page.until("an answer", ANSWERED)


@flow("on a phone progress and answer come on screen", phone=True)
def answer_in_sight(page):
    page.start()
    # A slow network, so that the progress can be seen.
    page.run("""const now = window.fetch; window.fetch = async (...a) => {
        if (String(a[0]).endsWith('classify')) await new Promise((r) => setTimeout(r, 1500));
        return now(...a); };""")
    page.keys("#file", page.photo())
    page.until("progress", "!document.getElementById('working').hidden")
    for part in ("#working", "#status", "#warning"):
        page.in_sight(part)
    page.until("an answer", ANSWERED)
    for part in ("#warning", "#status", "#compared [data-method=stss] .answered"):
        page.in_sight(part)
    page.until("the row", COMPARED)
    page.in_sight("#compared [data-method=zero-shot] .answered")
    wide = page.value("document.documentElement.scrollWidth")
    assert wide <= 390, f"the page is {wide} wide on a phone of 390"
    page.shot("phone-answer", whole=False)
    page.shot("phone-answer-whole")


@flow("on a phone errors stand beside what caused them", phone=True)
def errors_in_sight(page):
    bad = page.folder / "broken.png"
    bad.write_bytes(b"not an image")
    causes = {
        "#template": lambda: page.run(SET, "template", "no place for a name"),
        "#drop": lambda: page.keys("#file", bad),
        "#add-class": lambda: page.keys("#add-class", "very long " * 15, Keys.ENTER),
        "#chips": lambda: page.run("for (let b; (b = document.querySelector('#chips button'));) b.click();"),
    }
    for near, cause in causes.items():
        page.start()
        cause()
        page.until("an alert", ALERT)
        page.in_sight("#alert")
        edges = f"[document.getElementById('alert').getBoundingClientRect().top, document.querySelector('{near}').getBoundingClientRect().bottom]"
        top, bottom = page.value(edges)
        assert abs(top - bottom) < 60, f"the error is {abs(top - bottom)} pixels away from {near}"


@flow("on a phone terms are explained on tap", phone=True)
def terms(page):
    page.start()
    page.until("the row", COMPARED)
    count = page.count("button.term")
    assert count >= 9, f"{count} terms"
    for place in range(count):
        text = page.run("""const b = document.querySelectorAll('button.term')[arguments[0]]; if (!b.checkVisibility()) return null;
            b.scrollIntoView({ block: 'center' }); b.click(); return document.getElementById('term').textContent;""", place)  # fmt: skip
        if text is None:
            continue
        assert len(text) > 40, f"a term is explained by {text!r}"
        page.in_sight("#term")
        page.press(Keys.ESCAPE)
        page.until("it is gone", "!document.getElementById('term').checkVisibility()")


@flow("axe finds no violation, contrast included")
def axe(page):
    if page.axe is None:
        return "SKIPPED, axe-core is not here"
    source = page.axe.read_text()

    def violations():
        page.run(source)
        passes, found = page.run("""return axe.run(document, { resultTypes: ['violations'] }).then((found) =>
            [found.passes.length, found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 150)).slice(0, 5).join(' | ')}`)]);""")  # fmt: skip
        assert passes > 10, "axe checked nothing"
        return found

    page.start()
    # A check that cannot see a fault is worth nothing.
    page.run("""const p = document.createElement('p'); p.textContent = 'pale'; p.style.color = '#ddd'; p.style.background = '#fff';
        document.querySelector('main').append(p);""")
    assert any("color-contrast" in one for one in violations()), "axe does not see pale text"
    for dark, width in ((False, 1280), (True, 1280), (False, 390), (True, 390)):
        page.emulate(dark, width)
        page.start()
        page.until("the surfaces", SURFACES)
        assert violations() == [], f"start, dark {dark}, {width}: {violations()}"
        page.keys("#file", page.photo())
        page.until("an answer", ANSWERED)
        page.click("#compare")
        page.until("two answers", "document.querySelectorAll('.answer').length === 2")
        page.until("the row", COMPARED)
        page.click("[data-copy=curl]")
        page.click("#compared-panel button.term")
        assert violations() == [], f"a photo, two methods, a term, dark {dark}, {width}: {violations()}"
        page.keys("#template", "no place", Keys.ENTER)
        page.until("an alert", ALERT)
        assert violations() == [], f"refused, dark {dark}, {width}: {violations()}"
        page.driver.get(f"{page.url}docs")
        assert violations() == [], f"routes, dark {dark}, {width}: {violations()}"
    page.emulate(False, 1280)
    return None


def main(binary, shots, axe_file=None):
    shots = pathlib.Path(shots)
    shots.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder, serving(binary, folder) as address:
        page = Page(f"{address}/", shots, pathlib.Path(folder), axe_file and pathlib.Path(axe_file))
        try:
            for name, run, phone in FLOWS:
                page.emulate(False, *((390, 844) if phone else (1280, 900)))
                try:
                    result = run(page) or "ok"
                    # Every message is a fault, but the status that a refusal has.
                    status = "Failed to load resource: the server responded with a status of 4"
                    said = [line for line in page.console() if status not in line]
                    assert not said, f"the console says {said}"
                    loaded = page.value("performance.getEntriesByType('resource').map((entry) => entry.name)")
                    assert run is console_is_watched or all(one.startswith(page.url) for one in loaded), loaded
                except (AssertionError, WebDriverException) as error:
                    failed += 1
                    result = f"FAILED: {error}"
                print(f"   {result}  {name}", file=sys.stderr)
        finally:
            page.driver.quit()
    if failed:
        sys.exit(f"{failed} of {len(FLOWS)} flows of the page failed")
    print(f"== page of the server: {len(FLOWS)} flows ok, screenshots in {shots}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
