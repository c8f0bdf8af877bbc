"""A training service as a process, asked by HTTP, and what its tests share (service_client.py)."""
import contextlib
import http.client
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/python"))
import epl  # noqa: E402

OUT = pathlib.Path(sys.argv[1]).resolve()
COMMAND = sys.argv[sys.argv.index("--") + 1:]
LIMIT = 300  # seconds for what should take a few: it ends what hangs, and no slow machine


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

    def raw(self, method, text, may_end=False):
        """The answer to a text as it is; None where the connection ends without one and may."""
        host, port = self.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=LIMIT) as connection:
            try:
                connection.sendall(text.encode("latin-1"))
                if may_end:
                    connection.shutdown(socket.SHUT_WR)
                response = http.client.HTTPResponse(connection, method=method)
                response.begin()
                return Answer(response)
            except (OSError, http.client.HTTPException):
                if may_end:
                    return None
                raise

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
            shown = next((sent[:n] for n in range(len(sent), 8, -1) if sent[:n] + "..." in own), None)
            own = own.replace(shown + "...", "") if shown else own  # cut, because it is long
        wants(str(self.folder) not in own and str(OUT) not in own, "a path of the server is in", text)
        wants(all(c == "\n" or ord(c) >= 32 and ord(c) != 127 for c in text), "control characters are in", repr(text[:300]))
        return text

    def upload(self, name, data):
        return self.good("POST", "/v1/uploads/" + name, data).json["id"]

    def spec(self, steps, **more):
        return {"model": self.upload("model.onnx", MODEL), "data": self.upload("table.csv", TABLE), "steps": steps,
                "dataset": dict(DATASET), "trainer": dict(TRAINER), **more}

    def create(self, steps, **more):
        before = time.time()
        answer = self.good("POST", "/v1/jobs", self.spec(steps, **more), 201)
        after, status = time.time(), answer.json
        wants(answer.headers["Location"] == "/v1/jobs/" + status["id"], answer.headers)
        wants(set(status) - {"log", "error"} == STATUS, status)
        wants(status["phase"] == "waiting" and status["steps"] == steps and status["memory_bytes"] > 0, status)
        wants(status["step"] == 0 and status["loss"] is None, status)
        wants(before - 1 < status["created"] / 1000 < after + 1, before, status, after)
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


def npy(rows):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2), }" % rows
    head = head.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00\x76\x00" + head.encode() + b"\x00\x00\x80\x3f" * 2 * rows


def labels(rows):
    head = ("{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }" % rows).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00\x76\x00" + head.encode() + b"\x00" * 8 * rows


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


OUT.mkdir(parents=True, exist_ok=True)
(OUT / "service.log").write_bytes(b"")
MODEL, TABLE = make_files()
