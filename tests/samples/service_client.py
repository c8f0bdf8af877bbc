#!/usr/bin/env python3
"""service_client.py OUT [--only WORD] -- COMMAND...: what every training service of samples/ must do, by HTTP alone.

COMMAND starts a service; options follow it, the same for all of them: --folder, --listen, --threads, --budget, --quota,
--largest-upload, --token-file. EPL_LIBRARY names libepl.so: the script trains the same job in this process, by the Python
binding, and wants the service's bytes to be the same. Screenshots of the page go to OUT."""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/python"))
import epl  # noqa: E402

OUT = pathlib.Path(sys.argv[1]).resolve()
COMMAND = sys.argv[sys.argv.index("--") + 1:]
ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv[:sys.argv.index("--")] else ""
LIMIT = 120  # seconds for what should take a few


def wants(holds, *what):
    if not holds:
        raise AssertionError(" ".join(str(one) for one in what))


def strict(text):
    """JSON as the standard has it: without NaN."""
    def no(word):
        raise AssertionError(f"{word} is no JSON: {text[:200]}")
    return json.loads(text, parse_constant=no)


class Answer:
    def __init__(self, response):
        self.code, self.body = response.status, response.read()
        self.headers = response.headers

    @property
    def json(self):
        wants(self.headers.get_content_type() == "application/json", self.code, self.headers, self.body[:300])
        return strict(self.body.decode())


class Service:
    """A process of its own, in a folder."""

    def __init__(self, folder, *options, token=None):
        self.folder, self.token = pathlib.Path(folder), token
        self.log = open(OUT / "service.log", "ab")
        self.process = subprocess.Popen([*COMMAND, "--folder", str(folder), "--listen", "127.0.0.1:0", "--threads", "1",
                                         *map(str, options)], stdout=subprocess.PIPE, stderr=self.log)
        for line in self.process.stdout:
            found = re.match(rb"listening on http://(\S+)", line)
            if found:
                self.address = found[1].decode()
                break
        else:
            raise AssertionError(f"the service ended with {self.process.wait()}: {tail()}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)
        wants(self.process.wait(LIMIT) == 0, "SIGTERM ends it with", self.process.returncode, tail())
        self.log.close()

    def ask(self, method, path, body=None, headers=(), timeout=LIMIT):
        """A dictionary is sent as JSON."""
        given = dict(headers)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            given.setdefault("Content-Type", "application/json")
        if self.token and "Authorization" not in given:
            given["Authorization"] = "Bearer " + self.token
        connection = http.client.HTTPConnection(self.address, timeout=timeout)
        try:
            connection.request(method, path, body, given)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def good(self, method, path, body=None, code=200):
        answer = self.ask(method, path, body)
        wants(answer.code == code, method, path, "answers", answer.code, answer.body[:600])
        return answer

    def bad(self, code, method, path, body=None, headers=(), says=""):
        """A refusal, in the form that all refusals have. It gives its text."""
        answer = self.ask(method, path, body, headers)
        wants(answer.code == code, method, path, str(body)[:200], "answers", answer.code, "not", code, answer.body[:600])
        wants(list(answer.json) == ["error"], answer.body[:300])
        text = answer.json["error"]
        wants(says in text, text, "does not say", says)
        wants(0 < len(text) < 2000, len(text), "characters:", text[:300])
        own = text  # what the client itself has not sent
        for sent in re.findall(r'[^"]{9,}', json.dumps(body) if isinstance(body, dict) else ""):
            own = own.replace(sent, "")
        wants(str(self.folder) not in own and str(OUT) not in own, "a path of the server is in", text)
        wants(all(c == "\n" or ord(c) >= 32 and ord(c) != 127 for c in text), "control characters are in", repr(text[:300]))
        return text

    def upload(self, name, data):
        return self.good("POST", "/v1/uploads/" + name, data).json["id"]

    def spec(self, steps, **more):
        return {"model": self.upload("model.onnx", MODEL), "data": self.upload("table.csv", TABLE), "steps": steps,
                "dataset": dict(DATASET), "trainer": dict(TRAINER), **more}

    def create(self, steps, **more):
        answer = self.good("POST", "/v1/jobs", self.spec(steps, **more), 201)
        status = answer.json
        wants(answer.headers["Location"] == "/v1/jobs/" + status["id"], answer.headers)
        wants(set(status) - {"log", "error"} == STATUS, status)
        wants(status["phase"] == "waiting" and status["steps"] == steps and status["memory_bytes"] > 0, status)
        wants(status["step"] == 0 and status["loss"] is None and abs(status["created"] / 1000 - time.time()) < 100, status)
        return status["id"]

    def start(self, steps, **more):
        job = self.create(steps, **more)
        self.post(job, "start")
        return job

    def post(self, job, action, body=None):
        return self.good("POST", f"/v1/jobs/{job}/{action}", body).json

    def status(self, job):
        return self.good("GET", "/v1/jobs/" + job).json

    def until(self, job, holds):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            status = self.status(job)
            if holds(status):
                return status
            wants(status["phase"] != "failed", status)
            time.sleep(0.01)
        raise AssertionError(f"the job stays {self.status(job)}")

    def done(self, job):
        status = self.until(job, lambda s: s["phase"] == "done")
        wants(status["step"] == status["steps"] == status["checkpoint_step"], status)
        return self.good("GET", f"/v1/jobs/{job}/model").body

    @contextlib.contextmanager
    def events(self, path):
        """Statuses as they come."""
        connection = http.client.HTTPConnection(self.address, timeout=LIMIT)
        headers = {"Authorization": "Bearer " + self.token} if self.token else {}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        wants(response.status == 200 and response.headers.get_content_type() == "text/event-stream", response.headers)

        def statuses():
            end = time.monotonic() + LIMIT
            for line in response:
                wants(time.monotonic() < end, "what is waited for does not come in", path)
                if line.startswith(b"data: "):
                    yield strict(line[6:].decode())
        try:
            yield statuses()
        finally:
            connection.close()


STATUS = {"id", "phase", "step", "steps", "loss", "learning_rate", "seconds_per_step", "memory_bytes", "checkpoint_step",
          "created"}
DATASET = {"batch": 16, "order": "shuffled", "seed": 3}
TRAINER = {"optimizer": "adamw", "optimizer.lr": 0.01, "symbols": {"batch": 16}}
SAMPLE = {"inputs": {"x": {"dims": [2, 2], "values": [1, -1, -1, 1]}}}


def tail():
    return (OUT / "service.log").read_bytes()[-3000:].decode(errors="replace")


def make_files():
    """A model and a table: is the first number above the second?"""
    drawn = random.Random(5)
    rows = [(drawn.uniform(-1, 1), drawn.uniform(-1, 1)) for _ in range(256)]
    table = "a,b,target\n" + "".join(f"{a:.6f},{b:.6f},{int(a > b)}\n" for a, b in rows)
    path = OUT / "model.onnx"
    with epl.Engine(threads=1) as engine:
        engine.write_template("mlp", {"sizes": [2, 64, 2], "seed": 1}, str(path))
    # The last column is a class because the trainer's loss wants one.
    return path.read_bytes(), table.encode()


def trained_here(steps):
    """The bytes of the model after so many steps, by the library alone."""
    table = OUT / "table.csv"
    table.write_bytes(TABLE)
    with epl.Engine(threads=1) as engine:
        model = epl.Model(engine, str(OUT / "model.onnx"))
        trainer = epl.Trainer(engine, TRAINER)
        plan = epl.Plan(model, trainer)
        session = epl.Session(plan)
        data = epl.Dataset(engine, str(table), DATASET)
        data.bind(plan, epl.ENTRY_TRAIN)
        for _ in range(steps):
            session.step(data.next())
        session.export_onnx(str(OUT / "trained.onnx"))
    return (OUT / "trained.onnx").read_bytes()


def test_a_session(folder):
    """Upload, create, start, watch, predict beside the steps, take the model and the history, delete."""
    with Service(folder) as service:
        wants(service.good("GET", "/v1/jobs").json == [], "an empty folder has jobs")
        job = service.create(4000)
        wants("step" in service.good("GET", f"/v1/jobs/{job}/plan").body.decode(), "no plan")
        with service.events(f"/v1/jobs/{job}/events") as events:
            wants(next(events)["phase"] == "waiting", "the first event is the status now")
            wants(service.post(job, "start")["phase"] == "running", "start")
            seen = list(events)
        wants(seen[-1]["phase"] == "done" and seen[-1]["step"] == 4000, seen[-1])
        steps = [s["step"] for s in seen]
        wants(steps == sorted(steps) and len(set(steps)) > 2, "steps as they were seen:", steps[:50])
        trained = service.done(job)
        wants(trained == trained_here(4000), "the model is not what the library trains")
        answer = service.post(job, "predict", SAMPLE)
        wants(answer["step"] == 4000 and set(answer) == {"step", "outputs"}, answer)
        (value,) = answer["outputs"].values()
        first, second = value["values"][:2], value["values"][2:]
        wants(value["dims"] == [2, 2] and first[1] > first[0] and second[0] > second[1], value)
        history = service.good("GET", f"/v1/jobs/{job}/history").json
        points = history["points"]
        wants(300 < len(points) <= 1024 and history["stride"] == 4, history["stride"], len(points))
        wants(all(set(p) == {"step", "loss", "learning_rate"} for p in points), points[0])
        wants([p["step"] for p in points] == list(range(4, 4001, 4)), "the points' steps", points[:3], points[-3:])
        wants(points[0]["loss"] > 3 * points[-1]["loss"] and points[-1]["learning_rate"] == 0.01, points[-1])
        status = service.good("DELETE", f"/v1/jobs/{job}").json
        wants(status["id"] == job, status)
        for method, path in [("GET", ""), ("GET", "/plan"), ("GET", "/model"), ("GET", "/events"), ("GET", "/history"),
                             ("POST", "/start"), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/checkpoint"),
                             ("DELETE", "")]:
            service.bad(404, method, f"/v1/jobs/{job}{path}")
        service.bad(404, "POST", f"/v1/jobs/{job}/predict", SAMPLE)
        wants(service.good("GET", "/v1/jobs").json == [], "a deleted job is listed")


def test_predicts_beside_steps(folder):
    with Service(folder) as service:
        job = service.start(10 ** 9)
        seen, end = set(), time.monotonic() + LIMIT
        while len(seen) <= 10 and time.monotonic() < end:
            before = service.status(job)["step"]
            answer = service.post(job, "predict", SAMPLE)
            wants(answer["step"] >= before, "step", before, "was done, and the weights are of", answer["step"])
            seen.add(answer["step"])
        wants(len(seen) > 10, "predictions of", len(seen), "steps")
        for inputs, says in [({}, "x"), ({"y": SAMPLE["inputs"]["x"], "x": SAMPLE["inputs"]["x"]}, "y"),
                             ({"x": {"dims": [2], "values": [1]}}, "2"), ({"x": {"dims": [1, 3], "values": [1, 2, 3]}}, ""),
                             ({"x": {"dims": [-1, 2], "values": []}}, ""), ({"x": {"dims": [2 ** 62, 4], "values": []}}, ""),
                             ({"x": {"dims": [1, 2], "values": ["a", 2]}}, ""), ({"x": 3}, ""), (3, "")]:
            service.bad(400, "POST", f"/v1/jobs/{job}/predict", {"inputs": inputs}, says=says)
        wants(service.status(job)["phase"] == "running", "a wrong request disturbs the job")
        # Numbers that JSON has no words for are null, both ways.
        answer = service.post(job, "predict", {"inputs": {"x": {"dims": [1, 2], "values": [None, 1]}}})
        (value,) = answer["outputs"].values()
        wants(value["values"] == [None, None], value)


def test_pause_is_saved(folder):
    service = Service(folder)
    job = service.start(3000, checkpoint_seconds=1000)
    service.until(job, lambda s: s["step"] > 200)
    paused = service.post(job, "pause")
    wants(paused["phase"] == "paused" and paused["checkpoint_step"] == paused["step"] > 0, paused)
    time.sleep(0.2)
    wants(service.status(job)["step"] == paused["step"], "a paused job goes on")
    service.kill()
    with Service(folder) as service:
        status = service.until(job, lambda s: s["step"] > 0)
        wants(status["phase"] == "paused" and status["step"] == status["checkpoint_step"] == paused["step"], status)
        points = service.good("GET", f"/v1/jobs/{job}/history").json["points"]
        wants(points and points[-1]["step"] <= paused["step"], "the history", points[-1:])
        wants(service.post(job, "resume")["phase"] == "running", "resume")
        wants(service.done(job) == trained_here(3000), "the model is not that of a calm run")
        points = [p["step"] for p in service.good("GET", f"/v1/jobs/{job}/history").json["points"]]
        wants(points == sorted(set(points)) and points[-1] > 2990, "the history after the kill:", points[-3:])
        for action in ["start", "pause", "resume"]:
            service.bad(400, "POST", f"/v1/jobs/{job}/{action}", says="done")
        service.post(job, "checkpoint")


def test_sigterm_loses_no_step(folder):
    service = Service(folder)
    job, waits = service.start(20000, checkpoint_seconds=1000), service.create(10)
    before = service.until(job, lambda s: s["step"] > 300)["step"]
    service.terminate()
    service = Service(folder)
    after = service.until(job, lambda s: s["step"] > 0)
    wants(after["checkpoint_step"] >= before, "step", before, "was done, and it goes on from", after)
    wants(after["phase"] == "running" and service.status(waits)["phase"] == "waiting", after)
    service.terminate()
    with Service(folder) as service:
        wants(service.done(job) == trained_here(20000), "the model is not that of a calm run")


def test_kill_loses_an_interval(folder):
    service = Service(folder)
    job = service.start(10 ** 9, checkpoint_seconds=0.5)
    seen = []  # (time, step)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        seen.append((time.monotonic(), service.status(job)["step"]))
        time.sleep(0.01)
    service.kill()
    killed = time.monotonic()
    with Service(folder) as service:
        after = service.until(job, lambda s: s["step"] > 0)
        # What was done an interval before, and as much again for a save under way on a slow disk.
        done = max(step for when, step in seen if when < killed - 2.5)
        wants(after["checkpoint_step"] >= done > 0, "step", done, "was done 2.5 s before, and it goes on from", after)
        service.post(job, "checkpoint")


def test_delete_with_quota_and_budget(folder):
    with Service(folder / "first") as service:
        memory = service.status(service.create(10))["memory_bytes"]
    room, largest = 2 * (len(MODEL) + len(TABLE)), max(len(MODEL), len(TABLE))
    with Service(folder / "second", "--quota", room, "--budget", 2 * memory - 1, "--largest-upload", largest) as service:
        spec = service.spec(10)
        job = service.good("POST", "/v1/jobs", spec, 201).json["id"]
        service.bad(507, "POST", "/v1/jobs", spec, says="too few")
        wants(len(service.good("GET", "/v1/jobs").json) == 1, "a job that was refused is there")
        uploads = service.good("GET", "/v1/uploads").json
        wants({u["id"]: u["bytes"] for u in uploads} == {spec["model"]: len(MODEL), spec["data"]: len(TABLE)}, uploads)
        wants(all(u["jobs"] == [job] for u in uploads), uploads)
        service.bad(413, "POST", "/v1/uploads/large.bin", b"x" * (largest + 1))
        another, more = service.upload("model.onnx", MODEL), service.upload("table.csv", TABLE)
        service.bad(507, "POST", "/v1/uploads/table.csv", b"x")
        service.good("DELETE", "/v1/uploads/" + more)
        service.bad(409, "DELETE", "/v1/uploads/" + spec["model"], says=job)
        wants(service.good("DELETE", "/v1/uploads/" + another).json["id"] == another, "delete of an upload")
        service.bad(404, "DELETE", "/v1/uploads/" + another)
        service.bad(404, "DELETE", "/v1/uploads/..%2Fjobs")
        service.upload("model.onnx", MODEL)
        with service.events(f"/v1/jobs/{job}/events") as events:
            next(events)
            service.good("DELETE", "/v1/jobs/" + job)
            wants(list(events)[-1]["phase"] == "deleted", "the last event of a deleted job")
        service.good("DELETE", "/v1/uploads/" + spec["model"])
        service.create(10)
        wants(not [one for one in (folder / "second").rglob("*.part")], "halves of uploads stay")
    with Service(folder / "second", "--quota", room) as service:
        service.bad(507, "POST", "/v1/uploads/table.csv", b"x" * room)
    service = Service(folder / "third")
    job = service.start(10 ** 9)
    service.until(job, lambda s: s["step"] > 0)
    service.good("DELETE", "/v1/jobs/" + job)
    service.kill()
    with Service(folder / "third") as service:
        wants(service.good("GET", "/v1/jobs").json == [], "a deleted job is back")


def test_token(folder):
    file = folder / "token"
    file.write_text("open sesame\n")
    with Service(folder / "jobs", "--token-file", file, token="open sesame") as service:
        for given in ["", "Bearer", "Bearer open", "Basic open sesame"]:
            answer = service.ask("GET", "/v1/jobs", headers={"Authorization": given})
            wants(answer.code == 401 and answer.headers["WWW-Authenticate"] == "Bearer", given, answer.code)
            wants("token" in answer.json["error"], answer.body)
        for given in ["Bearer open sesame", "bearer open sesame", "BEARER open sesame"]:
            wants(service.ask("GET", "/v1/jobs", headers={"Authorization": given}).code == 200, given)
        wants(service.ask("GET", "/v1/jobs?token=open%20sesame", headers={"Authorization": ""}).code == 200, "in the query")
        job = service.start(100)
        service.done(job)
        for method, path in [("GET", f"/v1/jobs/{job}"), ("DELETE", f"/v1/jobs/{job}"), ("POST", "/v1/uploads/a.csv"),
                             ("GET", "/v1/events"), ("GET", f"/v1/jobs/{job}/model"), ("GET", "/v1/uploads"),
                             ("GET", f"/v1/jobs/{job}/history")]:
            service.bad(401, method, path, headers={"Authorization": "Bearer no"})
        # A proxy in front of it has another name.
        wants(service.ask("GET", "/v1/jobs", headers={"Host": "training.example"}).code == 200, "Host with a token")
    # Off loopback a token is a must, and nothing has been touched before it is missed.
    empty = folder / "empty"
    ended = subprocess.run([*COMMAND, "--folder", str(empty), "--listen", "0.0.0.0:0"], capture_output=True, timeout=LIMIT)
    text = (ended.stdout + ended.stderr).decode()
    wants(ended.returncode != 0 and "token-file" in text, ended.returncode, text)
    (folder / "nothing").write_text("\n")
    ended = subprocess.run([*COMMAND, "--folder", str(empty), "--listen", "127.0.0.1:0", "--token-file",
                            str(folder / "nothing")], capture_output=True, timeout=LIMIT)
    wants(ended.returncode != 0, "an empty token is a token")


def test_other_pages(folder):
    """What a browser sends for a page of somebody else, or for a name that was bent to this address, is refused."""
    with Service(folder) as service:
        job = service.create(100)
        port = service.address.rsplit(":", 1)[1]
        everything = [("GET", "/v1/jobs", None), ("GET", f"/v1/jobs/{job}", None), ("POST", f"/v1/jobs/{job}/start", None),
                      ("DELETE", f"/v1/jobs/{job}", None), ("POST", "/v1/uploads/a.csv", TABLE), ("GET", "/", None),
                      ("POST", f"/v1/jobs/{job}/predict", SAMPLE), ("GET", "/v1/events", None)]
        for method, path, body in everything:
            for headers in [{"Host": "evil.example"}, {"Host": "evil.example:" + port},
                            {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"}]:
                if path == "/" and "Origin" in headers:
                    continue
                service.bad(403, method, path, body, headers)
        for host in ["localhost", "127.0.0.1", "localhost:" + port, "[::1]:" + port]:
            wants(service.ask("GET", "/v1/jobs", headers={"Host": host}).code == 200, host)
        same = {"Origin": "http://" + service.address}
        wants(service.ask("POST", f"/v1/jobs/{job}/pause", headers=same).code == 200, "the page's own origin")
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", ""]:
            headers = {"Content-Type": kind}
            service.bad(415, "POST", "/v1/jobs", json.dumps(service.spec(5)), headers, says="application/json")
            service.bad(415, "POST", f"/v1/jobs/{job}/predict", json.dumps(SAMPLE), headers)
        answer = service.ask("POST", f"/v1/jobs/{job}/predict", json.dumps(SAMPLE),
                             {"Content-Type": "Application/JSON; charset=utf-8"})
        wants(answer.code == 200, answer.body)
        # What is read changes nothing.
        before = service.status(job)
        for path in ["start", "pause", "resume", "checkpoint", "predict"]:
            service.bad(404, "GET", f"/v1/jobs/{job}/{path}")
        for method, path in [("GET", "/v1/uploads/model.onnx"), ("PUT", "/v1/jobs"), ("POST", "/v1/nothing"), ("GET", "/etc"),
                             ("POST", f"/v1/jobs/{job}"), ("GET", "/v1/jobs/../../etc/passwd"), ("DELETE", "/v1/jobs")]:
            service.bad(404, method, path)
        wants(service.status(job) == before and len(service.good("GET", "/v1/jobs").json) == 1, "a GET has changed a job")


def npy(rows):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2), }" % rows
    head = head.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00\x76\x00" + head.encode() + b"\x00\x00\x80\x3f" * 2 * rows


def labels(rows):
    head = ("{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }" % rows).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00\x76\x00" + head.encode() + b"\x00" * 8 * rows


def test_no_file_of_the_server(folder):
    """No option of a dataset reads what was not uploaded, and a refusal does not tell what there is."""
    secret = folder / "secret.npy"
    secret.write_bytes(labels(64))
    with Service(folder / "jobs") as service:
        x = service.upload("x.npy", npy(64))
        y = service.upload("y.npy", labels(64))
        (folder / "jobs/uploads/link.npy").symlink_to("../../secret.npy")

        def spec(target):
            return {**service.spec(20), "data": x, "dataset": {"batch": 16, "target": target}}
        texts = set()
        for target in [str(secret), "../../secret.npy", "../uploads/../../secret.npy", "./../../secret.npy", "link.npy",
                       "/nowhere", "../../nothing.npy", "/etc/shadow", "//etc/passwd", str(secret)[1:]]:
            text = service.bad(400, "POST", "/v1/jobs", spec(target))
            if target != str(secret)[1:]:
                texts.add(text.replace(json.dumps(target), ""))
        wants(len(texts) == 1, "the refusals differ:", texts)
        for name in ["folder", "root", "path", "packs", "targets", "files"]:
            service.bad(400, "POST", "/v1/jobs", {**service.spec(20), "dataset": {"batch": 16, name: str(secret)}}, says=name)
        for model in [str(secret), "../uploads/" + x, "*", "x.np?", "." + x, "", "a/b"]:
            service.bad(404, "POST", "/v1/jobs", {**service.spec(20), "model": model})
            service.bad(404, "POST", "/v1/jobs", {**service.spec(20), "data": model})
        for name in ["..", ".hidden", "a%2Fb", "%2e%2e%2fx", "x.part", "a%20b", "x" * 200, "-rf"]:
            answer = service.ask("POST", "/v1/uploads/" + name, b"1")
            wants(answer.code in (400, 404), name, answer.code, answer.body[:200])
        # Another upload may be the target, and is then in use.
        job = service.good("POST", "/v1/jobs", spec(y), 201).json["id"]
        service.bad(409, "DELETE", "/v1/uploads/" + y)
        service.post(job, "start")
        service.done(job)


def test_what_cannot_run_is_refused(folder):
    with Service(folder) as service:
        good = service.spec(10)
        binary = pathlib.Path("/bin/ls").read_bytes()
        wrong = [
            (400, {"steps": 0}, "steps"), (400, {"steps": -1}, ""), (400, {"steps": 2 ** 62}, ""), (400, {"steps": 1e300}, ""),
            (400, {"steps": "ten"}, ""), (400, {"ranks": 10 ** 6}, ""), (400, {"ranks": -1}, ""),
            (400, {"checkpoint_seconds": -1}, ""), (400, {"speed": 1}, "speed"),
            (400, {"dataset": {"batch": 15}}, ""), (400, {"dataset": {"batch": 16, "prefetch": 10 ** 9}}, "prefetch"),
            (400, {"dataset": {"batch": "16"}}, "batch"), (400, {"dataset": {"batch": 10 ** 15}}, ""),
            (400, {"dataset": {"batch": 16, "target": "nothing"}}, "nothing"), (400, {"dataset": [1]}, ""),
            (400, {"trainer": {**TRAINER, "optimizer": "adamv"}}, "adamw"),
            (400, {"trainer": {"symbols": {"batch": 16}, "losss": 1}}, ""),
            (400, {"strategy": {"pipeline.num_micro_batchs": 2}}, "num_micro_batch"),
            (400, {"model": good["data"]}, ""), (404, {"model": "nothing"}, ""), (404, {"data": "nothing"}, ""),
            (400, {"data": good["model"]}, ""),
            (400, {"data": service.upload("t.csv", binary)}, ""),
            (400, {"data": service.upload("e.csv", b"")}, ""),
            (400, {"data": service.upload("l.csv", b"a,b,target\n" + b"1,2,0\n" * 20 + b"1,2,7\n"),
                   "dataset": {"batch": 16, "classes": True}}, "7"),
            (400, {"data": service.upload("w.csv", b"a,b,c,target\n" + b"1,2,3,0\n" * 20)}, ""),
        ]
        for code, change, says in wrong:
            service.bad(code, "POST", "/v1/jobs", {**good, **change}, says=says)
        for body in ["", "{", "[]", "null", "3", '{"steps": 1} {}', '{"steps": NaN}', "[" * 100000, '"' + "x" * 1000]:
            service.bad(400, "POST", "/v1/jobs", body, {"Content-Type": "application/json"})
        service.bad(413, "POST", "/v1/jobs", " " * (17 << 20), {"Content-Type": "application/json"})
        wants(service.good("GET", "/v1/jobs").json == [], "a job that was refused is there")
        wants(list((folder / "jobs").glob("*/job.json")) == [], "a job that was refused is on the disk")
        service.done(service.start(10))


def test_numbers_that_are_none(folder):
    with Service(folder) as service:
        job = service.start(50, trainer={**TRAINER, "optimizer": "sgd", "optimizer.lr": 1e30})
        service.until(job, lambda s: s["phase"] in ("done", "failed"))
        status = service.status(job)
        wants(status["phase"] == "done" and status["loss"] is None or status["phase"] == "failed", status)
        service.good("GET", f"/v1/jobs/{job}/history").json
        service.good("GET", "/v1/jobs").json


def test_one_process_has_a_folder(folder):
    with Service(folder) as service:
        job = service.start(10 ** 9)
        other = subprocess.run([*COMMAND, "--folder", str(folder), "--listen", "127.0.0.1:0"], capture_output=True,
                               timeout=LIMIT)
        text = (other.stdout + other.stderr).decode()
        wants(other.returncode != 0 and "in use by process" in text, other.returncode, text)
        wants("listening" not in text, text)
        wants(service.status(job)["phase"] == "running", "the first one was disturbed")
    with Service(folder) as service:
        service.until(job, lambda s: s["phase"] == "running")


def test_one_stream_for_all(folder):
    with Service(folder) as service:
        spec = service.spec(40)
        ids = [service.good("POST", "/v1/jobs", spec, 201).json["id"] for _ in range(30)]
        wants([s["id"] for s in service.good("GET", "/v1/jobs").json] == ids, "jobs are not in the order of their creation")
        with service.events("/v1/events") as events:
            wants({next(events)["id"] for _ in ids} == set(ids), "the stream begins with all jobs")
            for one in ids:
                service.post(one, "start")
            late = service.good("POST", "/v1/jobs", spec, 201).json["id"]
            ended, created = set(), False
            for status in events:
                if status["phase"] == "done":
                    ended.add(status["id"])
                created = created or status["id"] == late
                if ended == set(ids) and created:
                    break
            service.good("DELETE", "/v1/jobs/" + late)
            wants(any(s["id"] == late and s["phase"] == "deleted" for s in events), "a deleted job is told of")


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
    late = service.create(10)
    browser.until(f"document.getElementById('job-{late}') !== null")
    service.good("DELETE", "/v1/jobs/" + late)
    browser.until(f"document.getElementById('job-{late}') === null")
    service.post(runs, "pause")
    browser.until(f"document.querySelector('#job-{runs} .phase').textContent === 'paused'")
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


def main():
    failed = 0
    tests = {name: test for name, test in globals().items() if name.startswith("test_") and ONLY in name}
    for name, test in tests.items():
        folder = OUT / "folders" / name
        folder.mkdir(parents=True)
        began = time.monotonic()
        try:
            test(folder)
        except Exception as error:  # the others are run as well
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}")
        else:
            print(f"ok {name} ({time.monotonic() - began:.1f} s)")
    if failed:
        print(tail())
    sys.exit(1 if failed else 0)


shutil.rmtree(OUT / "folders", ignore_errors=True)
OUT.mkdir(parents=True, exist_ok=True)
(OUT / "service.log").write_bytes(b"")
MODEL, TABLE = make_files()
if __name__ == "__main__":
    main()
