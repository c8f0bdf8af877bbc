"""What the doors of every training service let in, and what they answer to the rest (service_client.py)."""
import concurrent.futures
import json
import re
import socket
import time

from service_harness import SAMPLE, TABLE, Service, labels, npy, wants

JSON = {"Content-Type": "application/json"}
# Words of a language in which a service is written; its clients do not know it.
FOREIGN = re.compile(r"\b(u?int\d*|float\d*|[iuf]\d\d|struct|serde|Option|Vec|Long|Double|java\.|main\.|nil)\b|json:|map\[|Go ")


def refused(service, path, body, says=""):
    text = service.bad(400, "POST", path, body, JSON, says=says)
    wants(not FOREIGN.search(text), "words of the service's language:", text)


def test_json_is_read_alike(folder):
    with Service(folder) as service:
        good = service.spec(10)
        text = json.dumps(good)

        def twice(field, more):  # names and values with their marks, because ids are drawn and have any digits
            return text.replace(f'"{field}": ', f'"{field}": {more}, "{field}": ', 1)
        for name in good:  # as it is written, and once
            refused(service, "/v1/jobs", json.dumps({(k.capitalize() if k == name else k): v for k, v in good.items()}),
                    name.capitalize())
            refused(service, "/v1/jobs", twice(name, json.dumps(good[name])), name)
        for body, says in [(twice("batch", "16"), "batch"), (twice("optimizer.lr", "0.5"), "optimizer.lr"),
                           (twice("symbols", '{"batch": 8}'), "symbols"),
                           (text.replace('{"batch": 16}', '{"batch": 16, "batch": 16}'), "batch"),
                           (text[:-1] + ', "strategy": {"a": [{"b": 1, "b": 2}]}}', "b"),
                           (text[:-1] + ', "st\\u0065ps": 20}', "steps")]:
            wants(body != text, "nothing is wrong in", body)
            refused(service, "/v1/jobs", body, says)
        wrong = [{"steps": one} for one in ["ten", 1.5, 1e300, [1], {}, True, 2 ** 70]]
        wrong += [{name: one} for name in ["dataset", "trainer", "strategy"] for one in ["x", 3, [1], False]]
        wrong += [{name: one} for name in ["model", "data"] for one in [3, [1], {}, True]]
        wrong += [{"ranks": "2"}, {"checkpoint": 0.5}, {"checkpoint_seconds": "1"}, {"checkpoint_seconds": [1]}, {"": 1}]
        for change in wrong:
            refused(service, "/v1/jobs", json.dumps({**good, **change}), next(iter(change)))
        for body in [json.dumps(list(good.values())), text.replace('"batch": 16', '"batch": 1e400', 1), text.replace("0.01", "1e400"),
                     text[:-1] + ', "checkpoint_seconds": 1e400}', text[:-1] + ', "checkpoint_seconds": -1e400}',
                     text[:-1] + ', "strategy": ' + '{"a":' * 200 + "1" + "}" * 201, text[:-1], text + "}", text.replace(":", "=", 1),
                     text.replace('"', "'"), text[:-1] + ",}", "\ufeff" + text, text.replace("steps", "st\x01eps")]:
            refused(service, "/v1/jobs", body.encode())
        refused(service, "/v1/jobs", text.encode().replace(b"adamw", b"\xff\xfe"))
        wants(service.good("GET", "/v1/jobs").json == [], "a job that was refused is there")
        # A null is nothing, and the order is free.
        nothing = {name: None for name in ["strategy", "ranks", "checkpoint", "checkpoint_seconds"]}
        job = service.good("POST", "/v1/jobs", {**nothing, **dict(reversed(good.items()))}, 201).json["id"]
        x, path = json.dumps(SAMPLE["inputs"]["x"]), f"/v1/jobs/{job}/predict"
        for body, says in [(f'{{"inputs": {{"x": {x}, "x": {x}}}}}', "x"), (f'{{"inputs": {{}}, "inputs": {{"x": {x}}}}}', "inputs"),
                           (f'{{"Inputs": {{"x": {x}}}}}', "Inputs"), (f'{{"inputs": {{"x": {x}}}, "more": 1}}', "more"),
                           (f'{{"inputs": {{"x": {x[:-1]}, "dims": [2, 2]}}}}}}', "dims"),
                           ('{"inputs": {"x": {"Dims": [1, 2], "values": [1, 2]}}}', "Dims"),
                           ('{"inputs": {"x": [[1, 2], [1, 2]]}}', "x"), ('{"inputs": [1]}', "inputs"),
                           ('{"inputs": {"x": {"dims": [1, 2], "values": [1e400, 2]}}}', ""),
                           ('{"inputs": {"x": {"dims": [1, 2], "values": ["1", 2]}}}', ""),
                           ('{"inputs": {"x": {"dims": [1.0, 2], "values": [1, 2]}}}', ""),
                           ('{"inputs": {"x": {"dims": 2, "values": [1, 2]}}}', "dims"),
                           ('{"inputs": {"x": {"dims": [1, 2], "values": {"0": 1}}}}', "values")]:
            refused(service, path, body, says)
        wants(service.post(job, "predict", SAMPLE)["step"] == 0, "a right one")


def test_targets_and_hosts(folder):
    """How a request names what it wants: as a path, with a host in it, or as nothing that there is."""
    with Service(folder) as service:
        job, here = service.create(100), service.address
        port = here.rsplit(":", 1)[1]

        def asked(target, *headers, method="GET"):
            return service.raw(method, f"{method} {target} HTTP/1.1\r\n" + "".join(f"{one}\r\n" for one in headers) + "\r\n")
        wants(asked("/v1/jobs", "Host: " + here).code == 200, "a plain request")
        wants(asked(f"http://{here}/v1/jobs", "Host: " + here).code == 200, "a request with the host in its target")
        foreign = [("http://other/v1/jobs", here), (f"http://other:{port}/v1/jobs", here), ("http://127.0.0.1.other/v1/jobs", here),
                   (f"http://user@{here}/v1/jobs", here)]
        foreign += [("/v1/jobs", host) for host in [
            "127.999.0.1", "127.0.0.256", "127.0.0.01", "127.0.0", "127.1", "2130706433", "0x7f.0.0.1", "128.0.0.1", "0.0.0.0",
            "127.0.0.1.other", "localhost.other", "otherlocalhost", "other", "[::1", "[::2]", "[::ffff:127.0.0.1]", "::1",
            "localhost:123456", ""]]
        for target, host in foreign:
            answer = asked(target, "Host: " + host)
            wants(answer.code == 403 and list(answer.json) == ["error"], target, host, answer.code, answer.body)
        for host in ["LOCALHOST", "127.0.0.1", "127.255.255.254:1", "[::1]", "localhost:", "localhost:65535"]:
            wants(asked("/v1/jobs", "Host: " + host).code == 200, host)
        for path in ["//other/v1/jobs", "///v1/jobs", "/v1//jobs", "/v1/jobs/", "/v1/jobs//plan", f"/v1/jobs/{job}%2Fplan",
                     f"/v1/jobs/{job}/plan/", "/v1/jobs/%FF", "/v1/jobs/%00", "/v1/./jobs", "/v1/x/../jobs", "/V1/jobs", "/v1/Jobs",
                     "/v1/jobs%2F", "/v1%2Fjobs", "/v1/job%73", "/%761/jobs", "/index.html"]:
            answer = asked(path, "Host: " + here)
            wants(answer.code == 404 and list(answer.json) == ["error"], path, answer.code, answer.body)
        for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "BREW"]:
            answer = asked("/v1/jobs", "Host: " + here, method=method)
            wants(answer.code == 404 and list(answer.json) == ["error"], method, answer.code, answer.body)
        for origin in [f"http://{here}/", f"http://{here}/x", f"http://x@{here}", f"//{here}", here, "null", "http://other", "x"]:
            answer = asked("/v1/jobs", "Host: " + here, "Origin: " + origin)
            wants(answer.code == 403 and list(answer.json) == ["error"], origin, answer.code, answer.body)
        for kind in ["application/json", "application/json; charset=utf-8", "Application/JSON ; x", "application/json;charset"]:
            service.bad(400, "POST", "/v1/jobs", "{}", {"Content-Type": kind}, says="steps")
        for kind in ["application/json charset", "application/jsonx", "application/json, text/plain", "text/plain; application/json"]:
            service.bad(415, "POST", "/v1/jobs", "{}", {"Content-Type": kind})
        # What the library of HTTP refuses by itself has the same code, in its own words.
        for code, target, headers in [(404, "//other", ["Host: " + here]), (400, "/v1/jobs", ["Host: " + here, "Host: " + here]),
                                      (400, "/v1/jobs", ["Host: " + here, "Host: other"]), (400, "/v1/jobs", [])]:
            wants(asked(target, *headers).code == code, target, headers)
        for text in ["NONSENSE\r\n\r\n", "GET\r\n\r\n", "GET /v1/jobs HTTP/7.1\r\n\r\n", "GET /v1/jobs HTTP/1.1\r\nno colon\r\n\r\n",
                     "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", f"GET /{'x' * 3000000} HTTP/1.1\r\n\r\n"]:
            service.raw("GET", text, may_end=True)
        wants(len(service.good("GET", "/v1/jobs").json) == 1, "it lives")


def test_heads(folder):
    """A HEAD has the head of what a GET has, at once."""
    with Service(folder) as service:
        job = service.create(100)
        for path in ["/", "/v1/jobs", f"/v1/jobs/{job}", f"/v1/jobs/{job}/plan", f"/v1/jobs/{job}/history", f"/v1/jobs/{job}/model",
                     "/v1/uploads", "/v1/events", f"/v1/jobs/{job}/events"]:
            answer = service.ask("HEAD", path)
            wants(answer.code == 200 and answer.body == b"", path, answer.code, answer.body[:100])
            if "events" in path:
                wants(answer.headers.get_content_type() == "text/event-stream", path, answer.headers)
                continue
            whole = service.ask("GET", path)
            for name in ["Content-Type", "Content-Disposition", "Content-Security-Policy"]:
                own, others = answer.headers[name], whole.headers[name]
                wants(own == others, path, name, own, others)
            wants(answer.headers["Content-Length"] in (None, str(len(whole.body))), path, answer.headers)
        for code, path, headers in [(404, "/v1/nothing", {}), (404, f"/v1/jobs/{job}/start", {}), (404, f"/v1/uploads/{job}", {}),
                                    (403, "/v1/jobs", {"Host": "other"})]:
            answer = service.ask("HEAD", path, headers=headers)
            wants(answer.code == code and answer.body == b"", path, answer.code, answer.body)
        wants(service.status(job)["phase"] == "waiting", "a HEAD has started a job")


def test_an_upload_in_use_stays(folder):
    """Whoever is asked first: a job has its uploads, or there is no such job."""
    with Service(folder) as service:
        x, y = service.upload("x.npy", npy(64)), service.upload("y.npy", labels(64))
        for target in [y, "./" + y, "../uploads/" + y]:
            answer = service.ask("POST", "/v1/jobs", {**service.spec(10 ** 9), "data": x, "dataset": {"batch": 16, "target": target}})
            if answer.code != 201:
                continue
            job = answer.json["id"]
            for phase in ["waiting", "running", "paused"]:
                wants(service.status(job)["phase"] == phase, "it is not", phase)
                for one in [x, y]:
                    service.bad(409, "DELETE", "/v1/uploads/" + one, says=job)
                service.post(job, "start" if phase == "waiting" else "pause")
            service.good("DELETE", "/v1/jobs/" + job)
        service.good("DELETE", "/v1/uploads/" + y)
        head, rows = TABLE.split(b"\n", 1)
        large, outcomes = head + b"\n" + 60 * rows, set()
        # On a slow machine the job may come later than any of the short waits, so longer ones follow.
        for wait in [0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05] * 3 + [0.2, 1, 5, 20]:
            if wait > 0.05 and (201, 409) in outcomes:
                break
            spec = {**service.spec(5), "data": service.upload("large.csv", large)}
            with concurrent.futures.ThreadPoolExecutor() as both:
                made = both.submit(service.ask, "POST", "/v1/jobs", spec)
                time.sleep(wait)
                gone = service.ask("DELETE", "/v1/uploads/" + spec["data"])
                made = made.result()
            outcomes.add((made.code, gone.code))
            if made.code == 201:
                service.post(made.json["id"], "start")
                service.done(made.json["id"])
                service.good("DELETE", "/v1/jobs/" + made.json["id"])
        wants(outcomes <= {(201, 409), (404, 200)} and (201, 409) in outcomes, "a job and its upload:", outcomes)


def hanging(address, text):
    """A client that takes little and gives no more."""
    host, port = address.rsplit(":", 1)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    client.connect((host, int(port)))
    client.sendall(text.replace("ADDRESS", address).encode())
    return client


def test_sigterm_with_slow_clients(folder):
    """Clients that hang hold up nothing: every job is saved, and the service ends soon, without a failure."""
    service = Service(folder)
    jobs = [service.start(10 ** 9, checkpoint_seconds=1000) for _ in range(2)]
    end = " HTTP/1.1\r\nHost: ADDRESS\r\n"
    clients = [hanging(service.address, text) for text in [
        f"GET /v1/events{end}\r\n", f"GET /v1/jobs/{jobs[0]}/events{end}\r\n", f"GET /v1/jobs/{jobs[1]}/events{end}\r\n",
        f"POST /v1/uploads/a.csv{end}Content-Length: 1000000\r\n\r\na,b", f"GET /v1/jobs/{jobs[0]}/model{end}\r\n",
        f"POST /v1/uploads/a.csv{end}Transfer-Encoding: chunked\r\n\r\n5\r\na",
        f"POST /v1/jobs{end}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        f"POST /v1/jobs/{jobs[0]}/predict{end}Content-Type: text/plain\r\nContent-Length: 100\r\n\r\n{{",
        f"GET /v1/jobs{end}", "", "GET", f"DELETE /v1/nothing{end}Content-Length: 100\r\n\r\n"]]
    time.sleep(6)  # the streams that nobody reads are full
    for job in jobs:
        service.until(job, lambda s: s["step"] > 0)
    before = [service.status(job)["step"] for job in jobs]
    began = time.monotonic()
    service.terminate()
    took = time.monotonic() - began
    wants(took < 60, "it ended after", took, "s")  # ten seconds, and what a slow disk takes to save
    for client in clients:
        client.close()
    with Service(folder) as service:
        for job, step in zip(jobs, before):
            after = service.until(job, lambda s: s["step"] > 0)
            wants(after["checkpoint_step"] >= step > 0, "step", step, "was done, and it goes on from", after)
        wants(len(service.good("GET", "/v1/uploads").json) == 4, "halves of uploads stay")
