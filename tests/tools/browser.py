"""The pages in a real browser: browser.py EPL OUT trains a little and draws the plan of a pipeline, opens report.html
and plan.html in headless Chromium at several widths, in the light and in the dark, and asks the pages themselves
whether they are whole. The screenshots stay in OUT, for people to look at.

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
  const chart = document.querySelector('#loss') ? '#loss' : '#step';
  const hover = document.querySelector(chart + ' svg [data-span]') || document.querySelector(chart + ' svg'), box = hover.getBoundingClientRect();
  hover.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true}));
  const tip = document.querySelector(chart + ' .tip').textContent;
  const charts = svg.filter(visible).length;
  const smallest = Math.min(...svg.flatMap(s => [...s.querySelectorAll('text')].map(t => t.getBoundingClientRect().height)));
  const cut = svg.filter(visible).flatMap(s => [...s.querySelectorAll('text')].filter(t => t.getBoundingClientRect().right > s.getBoundingClientRect().right + 0.5)).map(t => t.textContent);
  const scroll = [...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth + 1).map(s => s.querySelector('table').id);
  const inside = e => e.closest('.scroll') && getComputedStyle(e.closest('.scroll')).overflowX === 'auto';
  const over = [...document.body.querySelectorAll('*')].filter(e => visible(e) && !inside(e) && e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + ' ' + e.textContent.slice(0, 40));
  const cards = Object.fromEntries([...document.querySelectorAll('.card')].map(c => [c.querySelector('span').textContent, c.querySelector('b').textContent]));
  const reasons = [...document.querySelectorAll('#tensors td:last-child')].map(c => c.textContent);
  // What names the cells that are seen: a head, or on a narrow screen the cell itself.
  const heads = [...document.querySelectorAll('.scroll th, .scroll td')].filter(visible).map(c => c.tagName === 'TH' ? c.textContent
    : getComputedStyle(c, '::before').content.replaceAll('"', ''));
  const times = [...document.querySelectorAll('td[data-head=moving], #moved td[data-head=waiting], td[data-head=forward], td[data-head=backward]')].map(c => c.textContent).filter(t => !t.endsWith('%'));
  const control = document.getElementById('log') || document.getElementById('more');
  control.click();   // draws anew
  const seen = {
    drawn: document.documentElement.dataset.drawn, errors: window.errors, width: innerWidth,
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    charts, smallest, cut, scroll, over, cards, reasons, heads, times, curves: document.querySelectorAll('.curve').length,
    points: document.querySelectorAll('#loss circle').length,
    parts: document.querySelectorAll('#roofline [data-part]').length, roofs: document.querySelectorAll('#roofline .roof').length,
    blocks: document.querySelectorAll('#links [data-block]').length, ends: document.querySelectorAll('#links [data-end]').length,
    above: [...document.querySelectorAll('#roofline [data-part]')].filter(d => Number(d.getAttribute('cy')) < Math.min(...[...document.querySelectorAll('#roofline .roof')].map(r => Number(r.getAttribute('d').split(' ').pop()))) - 0.5).length,
    areas: document.querySelectorAll('#held .area').length, marks: document.querySelectorAll('#held [data-mark]').length,
    largest: document.querySelectorAll('#largest tr').length, tried: document.querySelectorAll('#tried tr').length,
    rectangles: document.querySelectorAll('#arena rect').length, ranks: document.querySelectorAll('[data-rank]').length,
    kinds: new Set([...document.querySelectorAll('#step [data-span]')].map(r => r.getAttribute('fill'))).size,
    tensors: document.querySelectorAll('#tensors tr').length, tip, text: document.body.innerText,
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
    stages = [{"name": "first", "split": 2, "match": ["embedded", "hidden", "transformer.h.0", "transformer.h.0.*"]},
              {"name": "second", "split": 2, "match": "*"}]
    (out / "strategy.json").write_text(json.dumps({"pipeline.num_micro_batch": 4, "scopes": stages}))
    run("template", "gpt2", "--layers", "2", "--width", "16", "--heads", "2", "--context", "8", "--vocab", "256",
        "--out", "m2.onnx")
    run("plan", "m2.onnx", "--batch", "8", "--ranks", "8", "--strategy", "strategy.json", "--html", "plan.html")
    said = subprocess.run([epl, "plan", "m2.onnx", "--batch", "8", "--json"], cwd=out, check=True, capture_output=True)
    budget = json.loads(said.stdout)["peak_bytes"] * 9 // 10
    run("plan", "m2.onnx", "--batch", "8", "--strategy", json.dumps({"memory.budget": str(budget)}), "--html",
        "budget.html")
    run("plan", "m2.onnx", "--batch", "8", "--ranks", "2", "--strategy",
        json.dumps({"zero.level": "v2", "gradient_checkpoint.type": "auto"}), "--html", "again.html")
    run("plan", "m2.onnx", "--batch", "8", "--ranks", "4", "--strategy", json.dumps({"auto.auto_parallel": True}),
        "--html", "found.html")
    hosts = {"measured": {"device": "two hosts", "version": "0", "error": 0.1, "error_90th": 0.2}, "bandwidth": 1e9,
             "host_bandwidth": 1e9, "products": {"f32": 2e9}, "elementwise": {"f32": 1e9},
             "links": [{"devices": 4, "bandwidth": 1e11, "seconds": 1e-7}, {"bandwidth": 1e8, "seconds": 1e-6}],
             "launch_seconds": 1e-7}
    (out / "hosts.json").write_text(json.dumps(hosts))
    run("plan", "m2.onnx", "--batch", "8", "--ranks", "8", "--device", "cpu@hosts.json", "--strategy",
        json.dumps({"communication.hierarchical": True}), "--html", "hosts.html")
    backgrounds = set()

    everywhere = [(width, scheme) for width in (390, 820, 1440) for scheme in ("light", "dark")]

    def look_at(page, views, holds):
        probed = html.escape(page.read_text().replace("<head>", "<head>" + WATCH).replace("</body>", PROBE + "</body>"))
        for width, scheme in views:
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                       f"--window-size={width},2400", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
                       f"--user-data-dir={out / 'profile'}"]
            shot = out / f"{page.stem}-{width}-{scheme}.png"
            subprocess.run([*command, f"--screenshot={shot}", f"file://{page}"],
                           stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)
            expect(f"{shot.name} is a picture", shot.exists() and shot.stat().st_size > 20000)
            # In a frame: a window has a least width, a frame has not.
            (out / "probed.html").write_text(f'<body><iframe width="{width}" height="2400" style="border:0" '
                                             f'srcdoc="{probed}"></iframe></body>')
            dom = subprocess.run([*command, "--dump-dom", f"file://{out}/probed.html"], capture_output=True,
                                 text=True, timeout=120).stdout
            found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S)
            where = f"{page.name}, {width} pixels, {scheme}"
            expect(f"{where}: the page answers", found)
            if not found:
                continue
            seen = json.loads(html.unescape(found[1]))
            backgrounds.add((scheme, seen["background"]))
            expect(f"{where}: no script failed: {seen['errors']}", seen["drawn"] == "yes" and not seen["errors"])
            expect(f"{where}: {seen['wider']} pixels wider than its window of {seen['width']}",
                   seen["width"] == width and seen["wider"] <= 0)
            expect(f"{where}: text of {seen['smallest']} pixels is too small to read", seen["smallest"] >= 10)
            expect(f"{where}: cut off at the edge: {seen['cut']}", not seen["cut"])
            expect(f"{where}: reaches over the edge: {seen['over']}", not seen["over"])
            for word in ("-0 ", "NaN", "undefined", "[object"):
                expect(f"{where}: shows \"{word}\"", word not in seen["text"])
            holds(where, seen)

    def report(where, seen):
        expect(f"{where}: loss, accuracy, learning rate, gradient norm and arena are drawn", seen["charts"] == 5
               and seen["curves"] >= 5)
        expect(f"{where}: a mark for each of 3 evaluations, {seen['points']} seen", seen["points"] == 3)
        expect(f"{where}: the arena has rectangles", seen["rectangles"] > 20)
        expect(f"{where}: values under the pointer: {seen['tip']}", "step" in seen["tip"] and "training" in seen["tip"])
        for word in ("epl train", "sum", "hash of the trained weights", "processor", "version"):
            expect(f"{where}: says \"{word}\"", word in seen["text"])

    def plan(where, seen):
        expect(f"{where}: ranks, step, rooflines, memory, what holds it and links are drawn, {seen['charts']} charts",
               seen["charts"] == 6 and seen["curves"] == 2)
        expect(f"{where}: kernels of both stages under a roof, {seen['parts']} dots", seen["parts"] >= 4
               and seen["roofs"] >= 1 and seen["above"] == 0)
        expect(f"{where}: a box for the links of all ranks, {seen['blocks']}, and 8 ranks, {seen['ends']}",
               seen["blocks"] == 1 and seen["ends"] == 8)
        expect(f"{where}: memory has several kinds, {seen['areas']} seen", seen["areas"] >= 4)
        expect(f"{where}: the largest values are listed, {seen['largest']} lines", seen["largest"] == 1 + 12)
        expect(f"{where}: no budget, no table of what was tried", seen["tried"] == 0)
        expect(f"{where}: a square for each of 8 ranks, {seen['ranks']} seen", seen["ranks"] == 8)
        expect(f"{where}: forward, backward, update and moving, {seen['kinds']} kinds seen", seen["kinds"] == 4)
        expect(f"{where}: what a rank does under the pointer: {seen['tip']}", "first" in seen["tip"]
               and "micro-batch" in seen["tip"])
        expect(f"{where}: every tensor after a click, {seen['tensors']} seen", seen["tensors"] > 60)
        # Every column is seen without a scroll bar, also on the screen of a telephone, and every time has a unit.
        expect(f"{where}: tables are wider than the page: {seen['scroll']}", not seen["scroll"])
        for name in ("forward", "backward", "memory of a rank", "waiting", "calls", "because", "operations a byte",
                     "bound by", "links need"):
            expect(f"{where}: no column \"{name}\"", name in seen["heads"])
        for time in seen["times"]:
            expect(f"{where}: a time without a unit: {time}", re.fullmatch(r"0|\d+\.\d+ (us|ms|s)", time))
        takes = seen["cards"].get("a step, predicted", "")
        expect(f"{where}: a step takes \"{takes}\"", re.fullmatch(r"\d+\.\d+ (us|ms|s)", takes)
               and float(takes.split()[0]) > 0)
        for reason in seen["reasons"]:
            expect(f"{where}: no sentence for people: {reason}", not re.search(r"^$|needs it|split: |batch: ", reason))
        for word in ("epl plan", "simulated cpu_core", "all_reduce", "kept for the backward pass", "optimizer state", " more than a share of the work", "cut by columns", "times as long"):
            expect(f"{where}: says \"{word}\"", word in seen["text"])

    def over_hosts(where, seen):
        expect(f"{where}: a box for all ranks and for each of 2 hosts, {seen['blocks']} seen", seen["blocks"] == 1 + 2)
        expect(f"{where}: two roofs, {seen['roofs']} seen", seen["roofs"] == 2 and seen["above"] == 0)
        expect(f"{where}: tables are wider than the page: {seen['scroll']}", not seen["scroll"])
        for word in ("blocks of 4 ranks", "in two levels", "products of f32", "memory", "times as long"):
            expect(f"{where}: says \"{word}\"", word in seen["text"])

    def within_budget(where, seen):
        expect(f"{where}: combinations that were tried, {seen['tried']} lines", seen["tried"] > 3)
        for word in ("What the budget chose from", "taken", "those of the strategy"):
            expect(f"{where}: says \"{word}\"", word in seen["text"])

    def searched(where, seen):
        expect(f"{where}: time over memory is drawn, {seen['charts']} charts", seen["charts"] == 7)
        for word in ("What the search found", "the strategy as it is", "simulated", "by the cost model"):
            expect(f"{where}: says \"{word}\"", word in seen["text"])

    def again(where, seen):
        expect(f"{where}: marks of what is recomputed and gathered, {seen['marks']} seen", seen["marks"] > 2)
        for word in ("recomputed", "gathered weight"):
            expect(f"{where}: says \"{word}\"", word in seen["text"])

    look_at(out / "run" / "report.html", everywhere, report)
    look_at(out / "budget.html", [(390, "light"), (1280, "dark")], within_budget)
    look_at(out / "found.html", [(390, "light"), (1280, "dark")], searched)
    look_at(out / "hosts.html", [(390, "light"), (1280, "dark")], over_hosts)
    look_at(out / "again.html", [(390, "dark"), (1280, "light")], again)
    look_at(out / "plan.html", [(390, "light"), (800, "dark"), (1280, "light"), (1600, "light"), (1920, "dark")], plan)
    expect(f"light and dark differ: {backgrounds}", len({colour for _, colour in backgrounds}) == 2)
    shutil.rmtree(out / "profile", ignore_errors=True)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
