"""The report in a real browser: browser.py EPL OUT trains a little, opens report.html in headless Chromium at three
widths, in the light and in the dark, and asks the page itself whether it is whole. The screenshots stay in OUT, for
people to look at.

Prints SKIP and why where there is no browser. Ends with 0 only if everything holds.
"""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys

# Run by the page after it has drawn: what a person would see wrong.
PROBE = """<script>addEventListener('load', () => {
  const svg = [...document.querySelectorAll('.chart svg')], visible = e => e.getBoundingClientRect().width > 0;
  const hover = document.querySelector('#loss svg'), box = hover.getBoundingClientRect();
  hover.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true}));
  const tip = document.querySelector('#loss .tip').textContent;
  const charts = svg.filter(visible).length;
  const smallest = Math.min(...svg.flatMap(s => [...s.querySelectorAll('text')].map(t => t.getBoundingClientRect().height)));
  const cut = svg.filter(visible).flatMap(s => [...s.querySelectorAll('text')].filter(t => t.getBoundingClientRect().right > s.getBoundingClientRect().right + 0.5)).map(t => t.textContent);
  document.getElementById('log').click();   // draws anew
  const seen = {
    drawn: document.documentElement.dataset.drawn, errors: window.errors, width: innerWidth,
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    charts, smallest, cut, curves: document.querySelectorAll('.curve').length,
    points: document.querySelectorAll('#loss circle').length,
    rectangles: document.querySelectorAll('#arena rect').length, tip, text: document.body.innerText,
    background: getComputedStyle(document.body).backgroundColor};
  const out = document.createElement('pre');
  out.id = 'seen';
  out.textContent = JSON.stringify(seen);
  parent.document.body.appendChild(out);
});</script>"""
# Before anything else of the page.
WATCH = "<script>window.errors = []; addEventListener('error', e => errors.push(String(e.message)));</script>"


def main(epl, out):
    browser = next((found for name in ("chromium", "chromium-browser", "google-chrome")
                    if (found := shutil.which(name))), None)
    if browser is None:
        print("SKIP: chromium is not installed")
        return 0
    out = pathlib.Path(out).resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    failed = []

    def expect(what, holds):
        if not holds:
            failed.append(what)
            print(f"FAILED: {what}")

    (out / "text.txt").write_text("".join(f"{i}: the quick brown fox jumps over the lazy dog <b>\n"
                                          for i in range(300)))
    run = lambda *words: subprocess.run([epl, *words], cwd=out, check=True, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
    run("template", "gpt2", "--layers", "1", "--width", "16", "--heads", "2", "--context", "8", "--vocab", "256",
        "--out", "m.onnx")
    run("train", "m.onnx", "--text", "text.txt", "--batch", "4", "--steps", "1000", "--clip", "1", "--evaluate-every",
        "400", "--out", "run")
    page = (out / "run" / "report.html").read_text()
    probed = html.escape(page.replace("<head>", "<head>" + WATCH).replace("</body>", PROBE + "</body>"))
    backgrounds = set()
    for width in (390, 820, 1440):
        for scheme, setting in (("light", 1), ("dark", 0)):
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                       f"--window-size={width},2400", f"--blink-settings=preferredColorScheme={setting}",
                       f"--user-data-dir={out / 'profile'}"]
            shot = out / f"report-{width}-{scheme}.png"
            subprocess.run([*command, f"--screenshot={shot}", f"file://{out}/run/report.html"],
                           stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)
            expect(f"{shot.name} is a picture", shot.exists() and shot.stat().st_size > 20000)
            # In a frame: a window has a least width, a frame has not.
            (out / "probed.html").write_text(f'<body><iframe width="{width}" height="2400" style="border:0" '
                                             f'srcdoc="{probed}"></iframe></body>')
            dom = subprocess.run([*command, "--dump-dom", f"file://{out}/probed.html"], capture_output=True, text=True,
                                 timeout=120).stdout
            found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S)
            where = f"{width} pixels, {scheme}"
            expect(f"{where}: the page answers", found)
            if not found:
                continue
            seen = json.loads(html.unescape(found[1]))
            backgrounds.add((scheme, seen["background"]))
            expect(f"{where}: no script failed: {seen['errors']}", seen["drawn"] == "yes" and not seen["errors"])
            expect(f"{where}: {seen['wider']} pixels wider than its window of {seen['width']}", seen["width"] == width
                   and seen["wider"] <= 0)
            expect(f"{where}: loss, accuracy, learning rate, gradient norm and arena are drawn", seen["charts"] == 5
                   and seen["curves"] >= 5)
            expect(f"{where}: a mark for each of 3 evaluations, {seen['points']} seen", seen["points"] == 3)
            expect(f"{where}: the arena has rectangles", seen["rectangles"] > 20)
            expect(f"{where}: values under the pointer: {seen['tip']}", "step" in seen["tip"]
                   and "training" in seen["tip"])
            expect(f"{where}: text of {seen['smallest']} pixels is too small to read", seen["smallest"] >= 10)
            expect(f"{where}: cut off at the edge: {seen['cut']}", not seen["cut"])
            for word in ("epl train", "sum", "hash of the trained weights", "processor", "version"):
                expect(f"{where}: says \"{word}\"", word in seen["text"])
            for word in ("-0 ", "NaN", "undefined", "[object"):
                expect(f"{where}: shows \"{word}\"", word not in seen["text"])
    expect(f"light and dark differ: {backgrounds}", len({colour for _, colour in backgrounds}) == 2)
    shutil.rmtree(out / "profile", ignore_errors=True)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
