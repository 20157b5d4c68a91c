"""A headless Chromium, driven by selenium, for pages that need nothing from the network."""

import base64
import shutil

from selenium import webdriver

FLAGS = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "no-first-run", "disable-sync", "hide-scrollbars",
         "disable-background-networking", "disable-component-update", "window-size=1280,900",
         # Whatever is not on this machine does not resolve, so that a page that needs it complains.
         "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")  # fmt: skip


def chromium():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))


def emulate(driver, dark, width, height):
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def shot(driver, file, whole=True):
    """The whole page, or what is on screen, as PNG."""
    size = driver.execute_script("const e = document.documentElement; return [e.clientWidth, e.scrollHeight];")
    clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
    found = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip} if whole else {})
    file.write_bytes(base64.b64decode(found["data"]))


def console(driver):
    """What the page said on its console since the last call."""
    return [entry["message"] for entry in driver.get_log("browser")]
