"""Every kind of HTML page that flatclip writes, made with the embedded model and opened in a headless Chromium without network,
in both colour schemes. A message on the console, a resource that cannot be loaded or a page that does not follow the scheme
is a failure.

    python report_pages.py BINARY FOLDER       needs selenium, Pillow, chromium and chromedriver; FOLDER is made anew
"""

import pathlib
import shutil
import subprocess
import sys
import time

import browser
from PIL import Image, ImageStat

CLASSES = "fish,lamp,snail,boat,clock,bicycle,butterfly,airplane"
# Commands that leave a page behind, quick rather than meaningful, in the order in which they need each other.
STEPS = [
    "pocket export photos --domain photo --count 8",
    "landscape --data pocket:photo --shots 2 --points 9 --out landscape",
    f"landscape --image photos/fish/000002.png --classes {CLASSES} --points 9 --out views",
    "analyze --limit 40 --shots 2 --out analysis",
    "eval --method zero-shot,stss --data pocket:sketch --limit 24 --no-cache --out runs",
    "sweep --preset fraction --data pocket:sketch --limit 24 --cache cache --out sweep",
    "report runs landscape views analysis --paired --html report.html",
]
PAGES = {
    "landscape": "landscape/landscape.html",
    "views": "views/landscape.html",
    "analysis": "analysis/analysis.html",
    "sweep": "sweep/report.html",
    "report": "report.html",
}
# The browser tells of a resource that a policy forbids, but not of every one that cannot be loaded: so the page is opened as a
# copy that forbids whatever is not inside it.
POLICY = """<head><meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline';
    script-src 'unsafe-inline'">"""
PLANTED = {
    "wrong": "<script>console.error('wrong')</script>",
    "odd": "<script>console.warn('odd')</script>",
    "missing": "<script>missing()</script>",
    "absent.png": '<img src="absent.png">',
    "flatclip.invalid": '<img src="http://flatclip.invalid/x.png">',
}


def opened(driver, page, dark, screenshot):
    """What the page says."""
    text = page.read_text()
    assert "<head>" in text, f"{page} has no <head>"
    copy = page.with_suffix(".guarded.html")
    copy.write_text(text.replace("<head>", POLICY, 1))
    browser.emulate(driver, dark, 1280, 1600)
    driver.get(copy.as_uri())
    time.sleep(0.3)
    browser.shot(driver, screenshot)
    return browser.console(driver)


def main(binary, folder):
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for step in STEPS:
        subprocess.run([binary, *step.split()], cwd=folder, check=True, capture_output=True)
    driver, faults = browser.chromium(), []
    try:
        # A check that cannot see a fault is worth nothing.
        faulty = folder / "faulty.html"
        faulty.write_text(f"<!doctype html><html><head></head><body>{''.join(PLANTED.values())}</body></html>")
        said = "\n".join(opened(driver, faulty, False, folder / "faulty.png"))
        unseen = [word for word in PLANTED if word not in said]
        assert not unseen, f"this browser does not tell of {unseen}; the check would be blind. It said:\n{said}"
        for name, file in PAGES.items():
            for dark in (False, True):
                scheme = "dark" if dark else "light"
                screenshot = folder / f"{name}-{scheme}.png"
                faults += [f"{file} ({scheme}): {line}" for line in opened(driver, folder / file, dark, screenshot)]
                brightness = ImageStat.Stat(Image.open(screenshot).convert("L")).mean[0] / 255
                if dark == (brightness > 0.5):
                    faults.append(f"{file}: does not follow the {scheme} scheme")
    finally:
        driver.quit()
    if faults:
        sys.exit("\n".join(faults))
    print(f"== pages: {len(PAGES)} ok, screenshots in {folder}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
