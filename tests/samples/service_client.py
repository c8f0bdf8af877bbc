#!/usr/bin/env python3
"""service_client.py OUT [--only WORD] -- COMMAND...: what every training service of samples/ must do, by HTTP alone.

COMMAND starts a service; options follow it, the same for all of them: --folder, --listen, --threads, --budget, --quota,
--largest-upload, --token-file. EPL_LIBRARY names libepl.so: the script trains the same job in this process, by the
Python binding, and wants the service's bytes to be the same. Screenshots of the page go to OUT."""
import concurrent.futures
import json
import os
import re
import pathlib
import shutil
import subprocess
import sys
import time

from service_harness import (COMMAND, LIMIT, MODEL, OUT, SAMPLE, TABLE, TRAINER, Service, labels, npy, tail,
                             trained_here, wants)
from service_doors import *  # noqa: F401,F403  tests
from service_page import test_the_page  # noqa: F401  one of the tests

ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv[:sys.argv.index("--")] else ""


def watches_steps(service):
    """A watcher sees steps on the way. The job has no end that a slow watcher could come too late for."""
    job = service.start(10 ** 9)
    with service.events(f"/v1/jobs/{job}/events") as events:
        steps = [next(events)["step"] for _ in range(20)]
    wants(steps == sorted(steps) and len(set(steps)) > 2, "steps as they were seen:", steps)
    service.good("DELETE", "/v1/jobs/" + job)


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
        wants(steps == sorted(steps), "steps as they were seen:", steps[:50])
        watches_steps(service)
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


# curl says what the server has refused; that a stream was read for its time (28) is meant. A slow machine has not
# begun to answer in the time of the page: there the stream is read once more, for longer.
CURL = """curl() {
  command curl --fail-with-body "$@" >answer && code=0 || code=$?
  if [ $code = 28 ] && [ ! -s answer ]; then
    command curl --fail-with-body "$@" --max-time 20 >answer && code=0 || code=$?
  fi
  cat answer
  [ $code = 0 ] || [ $code = 28 ] || echo "FAILED with $code: curl $*" >&2
}
"""


def test_the_session_of_the_page(folder):
    """The lines of the page on the services, as they are but for the address."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "samples/service/README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    wants(len(blocks) == 1 and blocks[0].count("localhost:8080/v1") == 1, "the page has another session")
    tools = pathlib.Path(os.environ["EPL_LIBRARY"]).parent.parent / "bin"
    shell = folder / "shell"
    shell.mkdir()
    with Service(folder / "jobs") as service:
        lines = CURL + blocks[0].replace("localhost:8080/v1", service.address + "/v1")
        ran = subprocess.run(["sh", "-eu", "-c", lines], cwd=shell, capture_output=True, text=True, timeout=LIMIT,
                             env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, check=False)
        wants(ran.returncode == 0 and not ran.stderr, ran.returncode, ran.stderr, ran.stdout[-2000:])
        for part in ('"phase": *"running"', '^data: .*"phase": *"running"', '"outputs"', '"phase": *"paused"', '"stride"',
                     '"phase": *"deleted"'):
            wants(re.search(part, ran.stdout, re.MULTILINE), part, "is not in", ran.stdout[-2000:])
        wants((shell / "trained.onnx").stat().st_size > 1000, "no model came")
        wants(not service.good("GET", "/v1/jobs").json, "the job is still there")
        wants(len(service.good("GET", "/v1/uploads").json) == 1, "the model's upload alone is left")


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


def is_calm(service, job, step):
    """The job is paused after this step, with the weights that as many steps give here, where nobody disturbs them."""
    wants(service.good("GET", f"/v1/jobs/{job}/model").body == trained_here(step), "the model is not that of a calm run")


def test_pause_is_saved(folder):
    service = Service(folder)
    job = service.start(10 ** 9, checkpoint_seconds=1000)  # without an end that a slow client would find
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
        service.until(job, lambda s: s["step"] > paused["step"] + 2000)
        end = service.post(job, "pause")["step"]
        is_calm(service, job, end)
        history = service.good("GET", f"/v1/jobs/{job}/history").json
        points = [p["step"] for p in history["points"]]
        wants(points == sorted(set(points)) and points[-1] > end - 3 * history["stride"], "the history:", points[-3:], end)
        short = service.start(20)
        service.done(short)
        for action in ["start", "pause", "resume"]:
            service.bad(400, "POST", f"/v1/jobs/{short}/{action}", says="done")
        service.post(short, "checkpoint")


def test_sigterm_loses_no_step(folder):
    service = Service(folder)
    job, waits = service.start(10 ** 9, checkpoint_seconds=1000), service.create(10)
    before = service.until(job, lambda s: s["step"] > 300)["step"]
    service.terminate()
    service = Service(folder)
    after = service.until(job, lambda s: s["step"] > 0)
    wants(after["checkpoint_step"] >= before, "step", before, "was done, and it goes on from", after)
    wants(after["phase"] == "running" and service.status(waits)["phase"] == "waiting", after)
    service.terminate()
    with Service(folder) as service:
        service.until(job, lambda s: s["step"] > after["step"] + 5000)
        is_calm(service, job, service.post(job, "pause")["step"])


def test_kill_loses_an_interval(folder):
    """Jobs are saved by themselves, each interval and no more often. How long a save takes is the disk's affair."""
    service = Service(folder)
    began = time.monotonic()
    job = service.start(10 ** 9, checkpoint_seconds=0.5)
    saved, done = 0, 0
    for _ in range(5):
        # What was done when a save was seen is in the next one.
        status = service.until(job, lambda s: s["checkpoint_step"] > saved)
        saved = status["checkpoint_step"]
        wants(saved >= done, "step", done, "was done before the save, and it is of", saved)
        done = status["step"]
    took = time.monotonic() - began
    wants(2.4 < took < LIMIT, "five saves within", took, "s")
    service.kill()
    with Service(folder) as service:
        after = service.until(job, lambda s: s["step"] > 0)
        wants(after["checkpoint_step"] >= saved, "step", saved, "was saved, and it goes on from", after)
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
                texts.add(re.sub(r'names "[^"]*"', "names", text))  # what was asked for, cut where it is long
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
            (400, {"checkpoint_seconds": -1}, ""), (400, {"checkpoint_seconds": 1e9}, "checkpoint_seconds"),
            (400, {"checkpoint": 2 ** 41}, "checkpoint"), (400, {"speed": 1}, "speed"),
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


def run(name, test):
    """Whether it failed; the others are run as well."""
    folder = OUT / "folders" / name
    folder.mkdir(parents=True)
    began = time.monotonic()
    try:
        test(folder)
    except Exception as error:
        print(f"FAILED {name}: {type(error).__name__}: {error}")
        return True
    print(f"ok {name} ({time.monotonic() - began:.1f} s)")
    return False


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_") and ONLY in name}
    with concurrent.futures.ThreadPoolExecutor() as beside:
        # What sleeps for most of its time does so beside the others.
        sleep = [beside.submit(run, name, tests.pop(name)) for name in ["test_sigterm_with_slow_clients"] if name in tests]
        failed = sum([run(name, test) for name, test in tests.items()] + [one.result() for one in sleep])
    if failed:
        print(tail())
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    shutil.rmtree(OUT / "folders", ignore_errors=True)
    main()
