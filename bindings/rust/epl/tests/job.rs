//! Jobs: an iterator of events, one call for all of it, and that a run goes on to the bit.
use epl::{losses, optimizers, schedules, Entry, JobSettings, SessionOptions, Tensor, Trainer, TrainerSettings};
use epl::{Call, CancelToken, Code, Dataset, Engine, Job, JobEnd, JobEventKind, Model, Plan, PlanOptions, Session};
use std::path::{Path, PathBuf};

struct World {
    engine: Engine,
    plan: Plan,
    folder: PathBuf,
}

impl World {
    fn new(name: &str) -> World {
        let folder = std::env::temp_dir().join(format!("epl-job-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut rows = String::from("a,b,c,d,y\n");
        for i in 0..48 {
            let kind = i % 2;
            rows += &format!("{},{},{},1,{kind}\n", 1 - 2 * kind, i % 3, i % 5);
        }
        std::fs::write(folder.join("rows.csv"), rows).unwrap();
        let engine = Engine::builder().threads(1).build().unwrap();
        let file = folder.join("model.onnx");
        engine.write_template("mlp", r#"{"sizes": [4, 8, 2], "seed": 1}"#, &file, &Call::new()).unwrap();
        let model = Model::load(&engine, &file, &Call::new()).unwrap();
        let mut trainer = Trainer::new(&engine).unwrap();
        let mut data = open(&engine, &folder, r#"{"batch": 4, "classes": true}"#);
        trainer.set("optimizer", "adam").unwrap().bind_dataset(&model, &mut data).unwrap();
        let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &Call::new()).unwrap();
        World { engine, plan, folder }
    }
    fn session(&self) -> Session {
        Session::new(&self.plan, &SessionOptions::default(), &Call::new()).unwrap()
    }
    fn data(&self) -> (Dataset, Dataset) {
        let open = |more| {
            let options = format!(r#"{{"batch": 4, "classes": true, "held_out": 0.25, {more}}}"#);
            open(&self.engine, &self.folder, &options)
        };
        (open(r#""split": "train", "order": "shuffled""#), open(r#""split": "held_out", "partial": true"#))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn open(engine: &Engine, folder: &Path, options: &str) -> Dataset {
    Dataset::open(engine, folder.join("rows.csv"), options, &Call::new()).unwrap()
}

#[test]
fn fits() {
    let world = World::new("fits");
    let (mut session, (mut data, mut held_out)) = (world.session(), world.data());
    let settings = r#"{"epochs": 2, "metrics": "accuracy"}"#;
    let (mut steps, mut measured) = (0, 0);
    let last = epl::fit(&world.engine, &mut session, &mut data, Some(&mut held_out), settings, &Call::new(), |event| {
        steps += i64::from(event.kind == JobEventKind::Step);
        measured += i64::from(event.kind == JobEventKind::Measured && event.text.contains("\"accuracy\":"));
        true
    })
    .unwrap();
    assert_eq!((last.ended, last.step, steps, measured), (JobEnd::Steps, last.steps, last.steps, 2));
    assert!(last.held_out_loss.is_finite() && last.best_step.is_some());
}

#[test]
fn goes_on_to_the_bit() {
    let world = World::new("goes_on");
    let (mut whole, (mut data, _)) = (world.session(), world.data());
    let plain = r#"{"steps": 20}"#;
    epl::fit(&world.engine, &mut whole, &mut data, None, plain, &Call::new(), |_| true).unwrap();
    let run = world.folder.join("run");
    let settings = format!(r#"{{"steps": 20, "resume": "auto", "folder": "{}"}}"#, run.display());
    // Dropped, cancelled, and stopped: each leaves a checkpoint.
    {
        let (mut session, (mut data, _)) = (world.session(), world.data());
        let mut job = Job::new(&world.engine, &settings).unwrap();
        let mut running = job.start(&mut session, &mut data, None, &Call::new()).unwrap();
        assert_eq!(running.next().unwrap().unwrap().step, 1);
        assert_eq!(running.session().steps(), 1);
    }
    {
        let (mut session, (mut data, _)) = (world.session(), world.data());
        let token = CancelToken::new(&world.engine).unwrap();
        let mut job = Job::new(&world.engine, &settings).unwrap();
        let mut running = job.start(&mut session, &mut data, None, &Call::new().cancel(&token)).unwrap();
        assert_eq!(running.next().unwrap().unwrap().step, 2);
        token.trigger();
        assert_eq!(running.next().unwrap().unwrap_err().code, Code::CANCELLED);
        assert!(running.next().is_none());
    }
    let (mut session, (mut data, _)) = (world.session(), world.data());
    let last = epl::fit(&world.engine, &mut session, &mut data, None, &settings, &Call::new(), |e| e.step < 9).unwrap();
    assert_eq!((last.ended, last.step), (JobEnd::Stopped, 9));
    let (mut session, (mut data, _)) = (world.session(), world.data());
    epl::fit(&world.engine, &mut session, &mut data, None, &settings, &Call::new(), |_| true).unwrap();
    assert_eq!(session.hash(&Call::new()).unwrap(), whole.hash(&Call::new()).unwrap());
    let newest = epl::find_checkpoint(&world.engine, &run).unwrap();
    assert_eq!(Path::new(&newest), run.join("checkpoint"));
}

#[test]
fn a_last_save_that_fails_loses_nothing() {
    let world = World::new("full");
    let (mut whole, (mut data, _)) = (world.session(), world.data());
    epl::fit(&world.engine, &mut whole, &mut data, None, r#"{"steps": 4}"#, &Call::new(), |_| true).unwrap();
    let run = world.folder.join("run");
    let settings = format!(r#"{{"steps": 4, "folder": "{}"}}"#, run.display());
    let (mut session, (mut data, _)) = (world.session(), world.data());
    let end = epl::fit(&world.engine, &mut session, &mut data, None, &settings, &Call::new(), |event| {
        if event.step == 4 {
            let _ = std::fs::remove_dir_all(run.join("checkpoints"));
            std::fs::write(run.join("checkpoints"), "no folder").unwrap();
        }
        true
    });
    assert!(end.is_err());
    assert_eq!((session.steps(), session.hash(&Call::new()).unwrap()), (4, whole.hash(&Call::new()).unwrap()));
    session.save(world.folder.join("elsewhere"), None, &Call::new()).unwrap();
}

#[test]
fn is_refused() {
    let world = World::new("refused");
    assert!(Job::new(&world.engine, r#"{"stps": 3}"#).unwrap_err().message.contains("did you mean steps"));
    let run = world.folder.join("run");
    let mut one = Job::new(&world.engine, "").unwrap();
    let mut other = Job::new(&world.engine, "").unwrap();
    one.set("folder", run.display()).unwrap().set("steps", 3).unwrap().take_folder().unwrap();
    assert_eq!(other.set("folder", run.display()).unwrap().take_folder().unwrap_err().code, Code::BUSY);
}

#[test]
fn takes_inputs_by_name() {
    let world = World::new("named");
    let model = Model::load(&world.engine, world.folder.join("model.onnx"), &Call::new()).unwrap();
    assert_eq!((model.symbol(0, 0).as_deref(), model.symbol(0, 1), model.symbol(9, 0)), (Some("batch"), None, None));
    let x = Tensor::new(&world.engine, &[0.5f32; 16], &[4, 4]).unwrap();
    let target = Tensor::new(&world.engine, &[0i64, 1, 0, 1], &[4]).unwrap();
    let (mut one, mut other) = (world.session(), world.session());
    let named = world.plan.named(Entry::TRAIN, [("target", &target), ("x", &x)]).unwrap();
    let loss = other.step(named, &Call::new()).unwrap().loss;
    assert_eq!(loss, one.step([&x, &target], &Call::new()).unwrap().loss);
    let outputs = other.predict_named(&world.plan, [("x", &x)], &Call::new()).unwrap();
    assert_eq!(outputs.len(), 1);
    let wrong = |inputs: Vec<(&str, &Tensor<'_>)>| world.plan.named(Entry::TRAIN, inputs).err().unwrap().message;
    assert!(wrong(vec![("x", &x)]).contains("nothing is given for target"));
    assert!(wrong(vec![("y", &x)]).contains("there are x, target"));
}

#[test]
fn takes_settings_with_types() {
    let world = World::new("settings");
    let settings = TrainerSettings::new()
        .optimizer(optimizers::Momentum::new().lr(0.5))
        .optimizer(optimizers::AdamW::new().lr(0.05).betas(&[0.8, 0.99]).weight_decay(0.0))
        .loss(losses::SoftmaxCrossEntropy::new().ignore_index(-1))
        .schedule(schedules::Step::new().step_size(5))
        .clip_norm(1.0);
    let described = Trainer::parse(&world.engine, settings).unwrap().describe().unwrap();
    for want in
        ["\"optimizer\": \"adamw\"", "\"optimizer.lr\": 0.05", "\"loss.ignore_index\": -1", "\"schedule.step_size\": 5"]
    {
        assert!(described.contains(want), "{want} is not in {described}");
    }
    let job = JobSettings::new().epochs(2.0).folder("a \"b\" \\ c").keep(3).measured_on("{\"a\": 1}");
    let described = Job::new(&world.engine, job).unwrap().describe().unwrap();
    for want in ["\"epochs\": 2.0", "\"keep\": 3", "a \\\"b\\\" \\\\ c"] {
        assert!(described.contains(want), "{want} is not in {described}");
    }
}

#[test]
fn the_time_of_a_call_is_that_of_the_whole_job() {
    let world = World::new("timed");
    let (mut session, (mut data, _)) = (world.session(), world.data());
    let call = Call::new().timeout(std::time::Duration::from_millis(100));
    let settings = r#"{"steps": 1000000000}"#;
    let end = epl::fit(&world.engine, &mut session, &mut data, None, settings, &call, |_| true);
    assert_eq!(end.unwrap_err().code, Code::DEADLINE_EXCEEDED);
    assert!(session.steps() > 0);
}
