//! The service as its users have it: a process of its own, of which only the address is known.
use epl::{Call, DType, Engine, Model, Plan, PlanOptions, Predictor, Session, SessionOptions, Tensor, Trainer};
use serde_json::{json, Value};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// A folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    /// With a base model in it: four numbers in, three classes out.
    fn new() -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("epl-adapters-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        let engine = Engine::new().unwrap();
        let sizes = r#"{"sizes": [4, 64, 64, 3], "seed": 1}"#;
        engine.write_template("mlp", sizes, folder.path("base.onnx"), &Call::new()).unwrap();
        // The rate goes down: at a constant one, AdamW forgets for some steps what it had learnt, now and then, and a test
        // that looks after however many steps a busy machine made would find that.
        let trainer = json!({"optimizer": "adamw", "optimizer.lr": 0.02, "symbols": {"batch": 16},
            "schedule": "exponential", "schedule.gamma": 0.995,
            "adapters": [{"match": "*", "rank": 4, "dropout": 0.1}]});
        fs::write(folder.path("trainer.json"), trainer.to_string()).unwrap();
        folder
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a user teaches: which of the first three numbers is the largest, called by other names for each `turn`.
fn table(turn: usize) -> String {
    let mut text = String::from("a,b,c,d,target\n");
    for i in 0..240 {
        let x = [3, 5, 7, 11].map(|k| ((i * k * 37 + i * i * k) % 101) as f32 / 50.0 - 1.0);
        let class = (0..3).max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap();
        text += &format!("{},{},{},{},{}\n", x[0], x[1], x[2], x[3], (class + turn) % 3);
    }
    text
}

struct Service {
    process: Child,
    out: BufReader<ChildStdout>,
    address: String,
    agent: ureq::Agent,
    token: String,
}

fn command(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adapters"));
    for name in ["model", "trainer", "folder"] {
        let file = match name {
            "model" => "base.onnx",
            "trainer" => "trainer.json",
            _ => "users",
        };
        command.arg(format!("--{name}")).arg(folder.join(file));
    }
    command.args(["--threads", "1", "--turn", "20"]);
    if !options.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.args(options);
    command
}

impl Service {
    fn start(folder: &Folder, options: &[&str]) -> Service {
        Service::run(command(&folder.0, options))
    }
    fn run(mut command: Command) -> Service {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("the service starts").to_string();
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        Service { process, out, address, agent, token: String::new() }
    }
    /// Makes a request; gives the status and the body.
    fn raw(&self, method: &str, path: &str, body: &[u8], kind: &str) -> (u16, Vec<u8>) {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}/v1/{path}", self.address))
            .header("Content-Type", kind)
            .header("Authorization", format!("Bearer {}", self.token));
        let request = request.body(body).unwrap();
        let request = self.agent.configure_request(request).allow_non_standard_methods(true).build();
        let mut response = self.agent.run(request).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_vec().unwrap())
    }
    fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let (status, text) = self.raw(method, path, body.as_bytes(), "application/json");
        (status, serde_json::from_slice(&text).unwrap_or_else(|_| json!(String::from_utf8_lossy(&text))))
    }
    fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }
    fn user(&self, name: &str, turn: usize) {
        let (status, answer) = self.raw("PUT", &format!("users/{name}/data/t.csv"), table(turn).as_bytes(), "text/csv");
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&answer));
    }
    fn start_training(&self, name: &str, steps: i64) {
        let wish = json!({"steps": steps, "dataset": {"order": "shuffled", "seed": 3}});
        self.ask("POST", &format!("users/{name}/start"), wish);
    }
    /// Reads events until one is as it should be.
    fn watch(&self, name: &str, f: impl Fn(&Value) -> bool) -> Value {
        let events = self.agent.get(format!("{}/v1/users/{name}/events", self.address));
        let events = events.header("Authorization", format!("Bearer {}", self.token)).call().unwrap();
        assert_eq!(events.status(), 200);
        let mut last = json!(null);
        for line in BufReader::new(events.into_body().into_reader()).lines() {
            if let Some(text) = line.unwrap().strip_prefix("data:") {
                last = serde_json::from_str(text).unwrap();
                if f(&last) {
                    return last;
                }
            }
        }
        panic!("the events end with {last}");
    }
    fn done(&self, name: &str) -> Value {
        self.watch(name, |s| s["phase"] == "done")
    }
    /// The scores of three classes for one sample, and the step that they are of.
    fn predict(&self, name: &str) -> (i64, Vec<f64>) {
        let x = json!({"dims": [1, 4], "values": [0.9, -0.5, -0.8, 0.1]});
        let answer = self.ask("POST", &format!("users/{name}/predict"), json!({"inputs": {"x": x}}));
        assert_eq!(answer["outputs"]["logits"]["dims"], json!([1, 3]));
        let values = answer["outputs"]["logits"]["values"].as_array().unwrap();
        (answer["step"].as_i64().unwrap(), values.iter().map(|one| one.as_f64().unwrap()).collect())
    }
    fn adapters(&self, name: &str) -> Vec<u8> {
        let path = format!("users/{name}/adapters/adapter_model.safetensors");
        let (status, bytes) = self.raw("GET", &path, b"", "application/json");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&bytes));
        bytes
    }
    /// SIGTERM: the process ends well, and nothing of the library's is left in it.
    fn terminate(mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").arg(&id).status().unwrap().success());
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ended with 0 handles of the library's alive");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// More steps than are made while a test waits, however long a busy machine keeps it waiting.
const ENDLESS: i64 = 1_000_000_000;

fn largest(scores: &[f64]) -> usize {
    (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap()
}

/// What the adapters of a user alone on a service become, where nothing is saved before the end.
fn alone(turn: usize, steps: i64) -> Vec<u8> {
    let folder = Folder::new();
    let service = Service::start(&folder, &["--turn", "1000000000"]);
    service.user("anna", turn);
    service.start_training("anna", steps);
    service.done("anna");
    let adapters = service.adapters("anna");
    service.terminate();
    adapters
}

/// Users take turns in one seat, learn what each of them teaches, and get the bytes that each would have got alone.
#[test]
fn users_differ_and_do_not_disturb_each_other() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    for (turn, name) in ["anna", "ben", "cleo"].into_iter().enumerate() {
        service.user(name, turn);
        service.start_training(name, 300);
    }
    for (turn, name) in ["anna", "ben", "cleo"].into_iter().enumerate() {
        let end = service.done(name);
        assert_eq!((&end["step"], &end["saved_step"]), (&json!(300), &json!(300)));
        let (step, scores) = service.predict(name);
        assert_eq!((step, largest(&scores)), (300, turn), "{name}: {scores:?}");
    }
    let (anna, ben) = (service.adapters("anna"), service.adapters("ben"));
    assert_ne!(anna, ben);
    service.terminate();
    assert_eq!(anna, alone(0, 300));
    assert_eq!(ben, alone(1, 300));
}

/// Predictions are answered while steps are made: of a user who is seated with the newest weights, of others with those
/// that were saved; of one who has learnt nothing with the base.
#[test]
fn predicts_while_it_trains() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    service.user("anna", 0);
    service.user("new", 0);
    service.start_training("anna", ENDLESS);
    service.watch("anna", |s| s["step"].as_i64() > Some(200));
    let (base_step, base) = service.predict("new");
    assert_eq!(base_step, 0);
    let mut last = 0;
    for _ in 0..20 {
        let (step, scores) = service.predict("anna");
        assert!(step > last && largest(&scores) == 0, "step {step} after {last}: {scores:?}");
        service.watch("anna", |s| s["step"].as_i64() > Some(step));
        last = step;
        assert_eq!(service.predict("new"), (0, base.clone()));
    }
    service.terminate();

    // Two take turns now, step by step: whoever asks, and whoever is seated, each has its own weights.
    let service = Service::start(&folder, &["--turn", "1"]);
    service.user("ben", 1);
    service.start_training("ben", ENDLESS);
    service.watch("ben", |s| s["step"].as_i64() > Some(100));
    std::thread::scope(|scope| {
        for i in 0..6 {
            let (service, turn) = (&service, i % 2);
            scope.spawn(move || {
                for _ in 0..100 {
                    let (step, scores) = service.predict(["anna", "ben"][turn]);
                    assert_eq!(largest(&scores), turn, "after step {step}: {scores:?}");
                }
            });
        }
    });
    let paused = service.ask("POST", "users/anna/pause", json!({}));
    std::thread::sleep(Duration::from_millis(30));
    let again = service.ask("GET", "users/anna", json!({}));
    assert_eq!((&paused["phase"], &paused["step"]), (&json!("paused"), &again["step"]));
    assert_eq!(paused["step"], service.predict("anna").0);
    service.terminate();
}

/// After SIGKILL and after SIGTERM users go on, to the bytes of a run that nobody disturbed. SIGTERM loses no step.
#[test]
fn goes_on_after_its_end() {
    let folder = Folder::new();
    let mut service = Service::start(&folder, &["--seats", "2"]);
    for (turn, name) in ["anna", "ben"].into_iter().enumerate() {
        service.user(name, turn);
        service.start_training(name, ENDLESS);
    }
    service.watch("anna", |s| s["step"].as_i64() > Some(150));
    service.process.kill().unwrap();
    service.process.wait().unwrap();

    // Now nothing is saved before the end.
    let service = Service::start(&folder, &["--seats", "2", "--turn", "1000000"]);
    let now = service.watch("anna", |s| s["phase"] == "training");
    assert!(now["step"].as_i64() >= Some(140), "saved each 20 steps, and it goes on from {now}");
    service.watch("ben", |s| s["step"].as_i64() > Some(400));
    let seen = service.ask("GET", "users/ben", json!({}))["step"].as_i64().unwrap();
    service.terminate();

    let service = Service::start(&folder, &[]);
    let now = service.ask("GET", "users/ben", json!({}))["saved_step"].as_i64().unwrap();
    assert!(now >= seen, "step {seen} was made, and it goes on from {now}");
    for name in ["anna", "ben"] {
        service.watch(name, |s| s["step"].as_i64() > Some(now + 1000));
    }
    let pause = |name| service.ask("POST", &format!("users/{name}/pause"), json!({}))["step"].as_i64().unwrap();
    let ends = [pause("anna"), pause("ben")];
    let (anna, ben) = (service.adapters("anna"), service.adapters("ben"));
    service.terminate();
    assert!(anna == alone(0, ends[0]), "anna's weights after {} steps", ends[0]);
    assert!(ben == alone(1, ends[1]), "ben's weights after {} steps", ends[1]);
}

#[test]
fn says_what_is_wrong() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    assert_eq!(service.call("GET", "users/nobody", json!({})).0, 404);
    assert_eq!(service.raw("PUT", "users/..%2Fx/data/t.csv", b"", "text/csv").0, 400);
    assert_eq!(service.raw("PUT", "users/anna/data/..%2Fx", b"", "text/csv").0, 400);
    service.user("anna", 0);
    assert_eq!(service.call("POST", "users/anna/start", json!({"steps": 0})).0, 400);
    assert_eq!(service.call("POST", "users/anna/pause", json!({})).0, 409);
    assert_eq!(service.call("POST", "users/anna/predict", json!({"inputs": {}})).0, 400);
    assert_eq!(service.raw("GET", "users/anna/adapters/..%2Fwish.json", b"", "application/json").0, 404);
    service.start_training("anna", 100);
    service.done("anna");
    assert_eq!(service.raw("PUT", "users/anna/data/t.csv", b"", "text/csv").0, 409);
    let learnt = service.predict("anna");
    // A user who is deleted is forgotten: the next one of the name begins with the base.
    service.ask("DELETE", "users/anna", json!({}));
    service.user("anna", 0);
    let (step, scores) = service.predict("anna");
    assert!(step == 0 && scores != learnt.1, "{scores:?}");
    // Who sees an end may delete the user at once.
    for _ in 0..10 {
        service.ask("DELETE", "users/anna", json!({}));
        service.user("anna", 0);
        service.start_training("anna", 1);
        service.done("anna");
    }
    // What a reader cannot read ends one user's training, and says where.
    let broken = b"a,b,c,d,target\n1,2,x,4,0\n";
    assert_eq!(service.raw("PUT", "users/ben/data/t.csv", broken, "text/csv").0, 201);
    service.start_training("ben", 10);
    let failed = service.watch("ben", |s| s["phase"] == "failed");
    assert!(failed["error"].as_str().unwrap().contains("t.csv"), "{failed}");
    service.ask("DELETE", "users/ben", json!({}));
    service.terminate();
}

/// What is set apart is what sessions and predictors themselves say that they have, and what the engine gives them.
/// Whatever is wrong with a body, the answer is JSON; and no option reads a file that is not the user's.
#[test]
fn refuses_in_one_way() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    service.user("anna", 0);
    for (body, kind, wanted) in [
        ("{", "application/json", 400),
        ("{}", "text/plain", 415),
        (r#"{"steps": 1, "speed": 2}"#, "application/json", 422),
        (r#"{"steps": "one"}"#, "application/json", 422),
    ] {
        let (status, answer) = service.raw("POST", "users/anna/start", body.as_bytes(), kind);
        let answer: Value = serde_json::from_slice(&answer).expect("a refusal is JSON");
        assert_eq!(status, wanted, "{body}: {answer}");
        assert!(answer["error"].is_string(), "{answer}");
    }
    // A second process is told who has the folder.
    let second = command(&folder.0, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && text.contains("in use by process"), "{text}");
}

#[test]
fn sets_apart_what_it_takes() {
    let folder = Folder::new();
    let (engine, call) = (Engine::builder().threads(1).build().unwrap(), Call::new());
    let model = Model::load(&engine, folder.path("base.onnx"), &call).unwrap();
    let trainer = fs::read_to_string(folder.path("trainer.json")).unwrap();
    let mut trainer = Trainer::parse(&engine, &trainer).unwrap();
    let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call).unwrap();
    let mut session = Session::new(&plan, &SessionOptions::default(), &call).unwrap();
    let x = Tensor::zeros(&engine, DType::F32, &[16, 4]).unwrap();
    let target = Tensor::zeros(&engine, DType::I64, &[16]).unwrap();
    session.step([&x, &target], &call).unwrap();
    let predictor = Predictor::new(&session, &plan, &call).unwrap();
    let of_session = session.memory_bytes_peak(0).unwrap();
    let of_predictor = predictor.memory_bytes() as u64;

    for seats in [1, 3] {
        let service = Service::start(&folder, &["--seats", &seats.to_string()]);
        let memory = service.ask("GET", "memory", json!({}));
        let number = |name: &str| memory[name].as_u64().unwrap();
        assert_eq!(number("bytes_of_the_reader"), of_session);
        assert_eq!(number("bytes_per_seat"), of_session + of_predictor);
        assert_eq!(number("seats"), seats);
        let set_apart = of_session + seats * (of_session + of_predictor);
        assert_eq!(number("bytes_in_use"), set_apart);
        service.terminate();
    }
}

/// To the byte: there are as many seats as the budget has room for, and what is missing for one more is said.
#[test]
fn keeps_to_its_budget() {
    let folder = Folder::new();
    let service = Service::start(&folder, &["--seats", "3"]);
    let memory = service.ask("GET", "memory", json!({}));
    let (seat, reader) = (memory["bytes_per_seat"].as_u64().unwrap(), memory["bytes_of_the_reader"].as_u64().unwrap());
    assert_eq!(memory["seats"], 3);
    service.terminate();
    let said = |budget: u64| {
        let (file, budget) = (folder.path("said"), budget.to_string());
        let mut command = command(&folder.0, &["--seats", "3", "--budget", &budget]);
        command.stderr(fs::File::create(&file).unwrap());
        let service = Service::run(command);
        let seats = service.ask("GET", "memory", json!({}))["seats"].as_u64().unwrap();
        service.terminate();
        (seats, fs::read_to_string(file).unwrap())
    };
    let (one, two, three) = (reader + seat, reader + 2 * seat, reader + 3 * seat);
    assert_eq!(said(three), (3, String::new()));
    for (budget, seats, more) in [(three - 1, 2, three), (two, 2, three), (two - 1, 1, two), (one, 1, two)] {
        let few = more - budget;
        let text = format!("{} would need {more} bytes and the budget is {budget}, {few} too few", seats + 1);
        let (have, said) = said(budget);
        assert!(have == seats && said.contains(&text), "{have} seats: {said}, not {text}");
    }
    let refused = command(&folder.0, &["--budget", &(one - 1).to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    let text = format!("need {one}, and the budget is {}: 1 too few", one - 1);
    assert!(!refused.status.success() && said.contains(&text), "{said}, not {text}");
}

/// One thread has all tasks of the service. While files of one user cannot be read, and predictions wait for them, it
/// has time for others.
#[test]
fn its_tasks_wait_for_nobody() {
    let folder = Folder::new();
    let mut command = command(&folder.0, &[]);
    command.env("TOKIO_WORKER_THREADS", "1");
    let service = Service::run(command);
    service.user("anna", 0);
    service.user("ben", 0);
    // Who reads a pipe waits until somebody has written into it and left.
    fs::create_dir(folder.path("users/slow")).unwrap();
    let pipes = ["users/anna/adapters", "users/slow/wish.json"].map(|name| folder.path(name));
    assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
    let (opened, writers) = mpsc::channel();
    for pipe in pipes.clone() {
        let opened = opened.clone();
        std::thread::spawn(move || opened.send(fs::File::options().write(true).open(pipe).unwrap()));
    }
    let long = Duration::from_secs(120); // what hangs does so for ever
    let quick: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(long)).build().into();
    std::thread::scope(|scope| {
        let x = json!({"inputs": {"x": {"dims": [1, 4], "values": [0.9, -0.5, -0.8, 0.1]}}});
        let anna = scope.spawn(|| service.call("POST", "users/anna/predict", x).0);
        let slow = scope.spawn(|| service.raw("PUT", "users/slow/data/t.csv", b"", "text/csv").0);
        let both = [(); 2].map(|_| writers.recv_timeout(long).expect("the service reads it"));
        let ben = scope.spawn(|| service.predict("ben").0); // waits for the session that reads anna's
        for path in ["memory", "users", "users/anna", "users/ben"].repeat(5) {
            let answer = quick.get(format!("{}/v1/{path}", service.address)).call();
            assert_eq!(answer.expect("the service has time").status(), 200, "{path}");
        }
        assert!(![&anna, &slow].iter().any(|one| one.is_finished()) && !ben.is_finished());
        drop(both);
        assert_eq!((anna.join().unwrap(), slow.join().unwrap(), ben.join().unwrap()), (500, 400, 0));
    });
    pipes.iter().for_each(|one| fs::remove_file(one).unwrap());
    assert_eq!(service.predict("anna").0, 0);
    service.user("slow", 0);
    service.terminate();
}

#[test]
fn wants_its_token() {
    let folder = Folder::new();
    fs::write(folder.path("token"), "open sesame\n").unwrap();
    let mut service = Service::start(&folder, &["--token-file", folder.path("token").to_str().unwrap()]);
    for wrong in ["", "open", "open sesame!"] {
        service.token = wrong.into();
        assert_eq!(service.call("GET", "users", json!({})).0, 401);
    }
    service.token = "open sesame".into();
    assert_eq!(service.ask("GET", "users", json!({})), json!([]));
    service.terminate();
    // Off loopback a token is a must, and nothing is begun before it is missed.
    let folder = Folder::new();
    let refused = command(&folder.0, &["--listen", "0.0.0.0:0"]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("--token-file"), "{text}");
    assert!(!folder.path("users").exists());
}
