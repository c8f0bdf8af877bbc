"""The live page of a training service, looked at by Chromium (service_client.py)."""
import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

from service_harness import LIMIT, OUT, TRAINER, Service, wants


def test_the_page(folder):
    """The live page with a hundred jobs, at three widths. Screenshots are kept."""
    with Service(folder) as service:
        page = service.ask("GET", "/")
        wants(page.code == 200 and page.headers.get_content_type() == "text/html", page.code)
        source = pathlib.Path(__file__).resolve().parents[2] / "samples/service/page.html"
        wants(page.body == source.read_bytes(), "the page is not that of samples/service")
        command = shutil.which("chromium")
        if command is None:
            return print("    no browser: the page was not looked at")
        spec = service.spec(60)
        ids = [service.good("POST", "/v1/jobs", spec, 201).json["id"] for _ in range(98)]
        for one in ids[:90]:
            service.post(one, "start")
        for one in ids[:90]:
            service.until(one, lambda s: s["phase"] == "done")
        # The newest come first: one that is done and was never watched, and one that runs.
        past = service.start(3000, trainer={**TRAINER, "schedule": "cosine", "schedule.total_steps": 3000})
        service.done(past)
        runs = service.start(10 ** 9)
        service.until(runs, lambda s: s["step"] > 500)
        with Browser(command, folder / "browser") as browser:
            for width in [390, 800, 1600]:
                browser.show(f"http://{service.address}/", width)
                for one in [past, runs]:  # with what was before the page was opened
                    browser.until(f"(document.querySelector('#job-{one} .smooth')?.getAttribute('points') || '').length > 3000")
                browser.picture(OUT / f"page-{width}.png")
                wide = browser.ask("document.documentElement.scrollWidth")
                wants(wide <= width, "the page is", wide, "pixels wide, the window", width)
            look_at(browser, service, ids, past, runs)


def look_at(browser, service, ids, past, runs):
    order = browser.ask("[...document.querySelectorAll('section')].map((one) => one.id.slice(4))")
    wants(order == [runs, past] + ids[::-1], "the newest job is not the first", order[:3])
    box = browser.ask(f"document.getElementById('job-{past}').innerText")
    for word in ["3,000 of 3,000", "done", "KiB", "learning rate", "loss"]:
        wants(word in box, word, "is not in", box)
    points = browser.ask(f"document.querySelector('#job-{past} .smooth').getAttribute('points').split(' ').length")
    wants(points > 300, "the past has", points, "points")
    for line in ["raw", "rate"]:
        wants(browser.ask(f"document.querySelector('#job-{past} .{line}') !== null"), "no line", line)
    numbers = browser.ask(f"[...document.querySelectorAll('#job-{past} svg text')].map((one) => one.textContent)")
    wants({"1,000", "2,000", "3,000", "0.01"} <= set(numbers), "the axes say", numbers)
    wants(browser.ask("document.getElementById('all').textContent").startswith("1 running, 8 waiting, 91 done"), "the sum")
    # It lives: steps come, a job that is made appears, one that is deleted goes.
    step = f"document.querySelector('#job-{runs} dd').textContent"
    before = browser.ask(step)
    browser.until(f"{step} !== {json.dumps(before)}")
    service.post(runs, "pause")
    browser.until(f"document.querySelector('#job-{runs} .phase').textContent === 'paused'")
    # The curve is that of all steps, not of those alone that the stream had. It is a new job's: one that runs since
    # long takes as long again to be three times as far.
    lives = service.start(10 ** 9)
    points = f"jobs.get('{lives}')?.points"
    browser.until(f"{points}?.length > 0")
    begin = browser.ask(f"{points}.at(-1)[0]")
    browser.until(f"{points}.at(-1)[0] > {3 * begin}")
    gaps = f"{points}.slice(1, -60).map((one, i) => one[0] - {points}[i][0])"
    browser.until(f"{points}.length > 200 && Math.max(...{gaps}) <= 2 * Math.min(...{gaps})")
    late = service.create(10)
    browser.until(f"document.getElementById('job-{late}') !== null")
    service.good("DELETE", "/v1/jobs/" + late)
    browser.until(f"document.getElementById('job-{late}') === null")
    service.good("DELETE", "/v1/jobs/" + lives)
    # Those below are drawn when somebody looks at them.
    last = ids[0]
    browser.ask(f"document.getElementById('job-{last}').scrollIntoView()")
    browser.until(f"document.querySelector('#job-{last} .smooth') !== null")
    # A job may be called by no script: names are text.
    wants(browser.ask("document.querySelectorAll('script').length") == 1, "scripts on the page")


class Browser:
    """Chromium without a window, asked over its pipe (the DevTools protocol)."""

    def __init__(self, command, folder):
        asked, self.out = os.pipe()
        self.into, answers = os.pipe()

        def pipes():
            kept = os.dup(asked), os.dup(answers)
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)
        self.process = subprocess.Popen(
            [command, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
             f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(asked)
        os.close(answers)
        self.number, self.rest, self.session = 0, b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                piece = os.read(self.into, 1 << 20)
                wants(piece, "the browser has ended")
                self.rest += piece
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.number:
                wants("error" not in answer, method, answer)
                return answer["result"]

    def show(self, address, width):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=address)

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        wants("exceptionDetails" not in answer, expression, answer)
        return answer["result"].get("value")

    def until(self, condition):
        end = time.monotonic() + LIMIT
        while not self.ask(condition):
            wants(time.monotonic() < end, "never:", condition)
            time.sleep(0.05)

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
