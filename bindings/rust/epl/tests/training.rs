//! The crate against the library.
use epl::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A folder of one test, removed at its end; its name is not plain on purpose.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("epl ü😀 {} {name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct World {
    engine: Engine,
    plan: Plan,
    session: Session,
    inputs: [Tensor<'static>; 2],
}

impl World {
    /// Learns which of the first two of `width` numbers is larger.
    fn new(folder: &Folder, hidden: &str, width: usize, batch: usize, strategy: &str, ranks: u64) -> World {
        let call = Call::new();
        let engine = Engine::builder().threads(1).build().unwrap();
        let path = folder.join("模型.onnx");
        engine.write_template("mlp", &format!(r#"{{"sizes":[{width},{hidden},2],"seed":1}}"#), &path, &call).unwrap();
        let model = Model::load(&engine, &path, &call).unwrap();
        let mut trainer = Trainer::new(&engine).unwrap();
        trainer.set("optimizer", "adam").unwrap().set("optimizer.lr", 0.05).unwrap();
        trainer.bind("batch", batch as i64).unwrap();
        let mut strategy = Strategy::parse(&engine, strategy).unwrap();
        let options = PlanOptions { ranks, ..Default::default() };
        let plan = Plan::new(&model, Some(&mut trainer), Some(&mut strategy), &options, &call).unwrap();
        let session = Session::new(&plan, &SessionOptions::default(), &call).unwrap();
        let x: Vec<f32> = (0..batch * width).map(|i| ((i * 7 + i * i * 3) % 5) as f32 - 2.0).collect();
        let target: Vec<i64> = (0..batch).map(|i| (x[i * width] < x[i * width + 1]).into()).collect();
        let inputs = [
            Tensor::new(&engine, &x, &[batch as i64, width as i64]).unwrap(),
            Tensor::new(&engine, &target, &[batch as i64]).unwrap(),
        ];
        World { engine, plan, session, inputs }
    }
    fn small(folder: &Folder) -> World {
        World::new(folder, "16", 4, 8, "{}", 1)
    }
}

#[test]
fn learns_and_predicts() {
    let folder = Folder::new("learns");
    let mut w = World::small(&folder);
    let call = Call::new();
    let first = w.session.step(&w.inputs, &call).unwrap();
    let mut last = first;
    for _ in 1..60 {
        last = w.session.step(&w.inputs, &call).unwrap();
    }
    assert!(last.loss < first.loss / 4.0 && last.step == 60 && w.session.steps() == 60, "{first:?} {last:?}");
    assert!(last.duration > Duration::ZERO);
    assert!(w.session.memory_bytes_peak(0).unwrap() <= w.plan.memory_bytes_peak(0).unwrap());
    assert_eq!(w.plan.memory_bytes_peak(1), None);
    let outputs = w.session.predict(&w.plan, [&w.inputs[0]], &call).unwrap();
    let (scores, target) = (outputs[0].view::<f32>().unwrap(), w.inputs[1].view::<i64>().unwrap());
    for (pair, class) in scores.chunks(2).zip(target) {
        assert_eq!(pair[0] < pair[1], *class == 1);
    }
    let error = outputs[0].view::<f64>().unwrap_err();
    assert_eq!(error.code, Code::INVALID_ARGUMENT);
    assert_eq!(w.plan.input(Entry::TRAIN, "nothing"), None);
    assert_eq!(w.plan.inputs(Entry::TRAIN).unwrap().len(), 2);
}

/// An epoch of 10 samples in batches of 4 ends with one of 2.
#[test]
fn an_epoch_ends_with_a_batch_of_another_shape() -> Result<()> {
    let folder = Folder::new("shapes");
    let (engine, call) = (Engine::new()?, Call::new());
    let (table, path) = (folder.join("table.csv"), folder.join("model.onnx"));
    std::fs::write(&table, "a,b,target\n".to_string() + &"1,2,0\n3,1,1\n".repeat(5)).unwrap();
    engine.write_template("mlp", r#"{"sizes": [2, 16, 2]}"#, &path, &call)?;
    let model = Model::load(&engine, &path, &call)?;
    let mut trainer = Trainer::new(&engine)?;
    trainer.bind("batch", 4)?;
    trainer.add_shape(r#"{"symbols": {"batch": 2}}"#)?;
    let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call)?;
    for shape in 0..2 {
        println!("shape {shape} has {:?}", plan.inputs(Entry::TRAIN.shape(shape))?[0].dims);
    }
    let mut session = Session::new(&plan, &SessionOptions::default(), &call)?;
    let mut data = Dataset::open(&engine, &table, r#"{"batch": 4, "partial": true}"#, &call)?;
    data.bind(&plan, Entry::TRAIN)?; // names and types, which all shapes share
    for _ in 0..3 {
        let batch = data.next_batch(&call)?;
        let metrics = session.step(&batch, &call)?;
        println!("step {}  loss {:.4}", metrics.step, metrics.loss);
    }
    assert_eq!(session.steps(), 3);
    for entry in [Entry::TRAIN, Entry::EVALUATE, Entry::PREDICT] {
        assert_eq!(plan.inputs(entry)?[0].dims, [4, 2]);
        assert_eq!(plan.inputs(entry.shape(1))?[0].dims, [2, 2]);
        assert_eq!(plan.inputs(entry.shape(2))?.len(), 0);
    }
    assert_eq!(data.bind(&plan, Entry::TRAIN.shape(2)).unwrap_err().code, Code::NOT_FOUND);
    Ok(())
}

#[test]
fn layouts_have_the_same_bits() {
    let folder = Folder::new("layouts");
    let hashes: Vec<u64> = [("{}", 1), (r#"{"pipeline.num_micro_batch": 4}"#, 1), ("{}", 2)]
        .map(|(strategy, ranks)| {
            let mut w = World::new(&folder, "16", 4, 8, strategy, ranks);
            for _ in 0..5 {
                w.session.step(&w.inputs, &Call::new()).unwrap();
            }
            w.session.hash(&Call::new()).unwrap()
        })
        .into();
    assert!(hashes.iter().all(|one| *one == hashes[0]), "{hashes:?}");
}

#[test]
fn errors_say_what_and_where() {
    let folder = Folder::new("errors");
    let mut w = World::small(&folder);
    let error = Model::load(&w.engine, "/nowhere/😀.onnx", &Call::new()).unwrap_err();
    assert_eq!(error.code, Code::NOT_FOUND);
    assert!(error.to_string().contains('😀') && error.rank.is_none(), "{error}");
    let error = w.session.step([&w.inputs[0]], &Call::new()).unwrap_err();
    assert_eq!(error.code, Code::INVALID_ARGUMENT);
    assert_eq!(w.session.steps(), 0);
    let error = Trainer::new(&w.engine).unwrap().set("optimiser", "adam").unwrap_err();
    assert!(error.message.contains("optimizer"), "{error}");
    assert_eq!(Code(12345).name(), "unknown");
}

#[test]
fn trainers_go_through_json() {
    let engine = Engine::new().unwrap();
    let mut trainer = Trainer::new(&engine).unwrap();
    trainer.set("clip_norm", 1.5).unwrap().group(&["*.bias"], &[("weight_decay", "0")]).unwrap();
    trainer.bind("batch", 4).unwrap();
    let text = trainer.describe().unwrap();
    let mut again = Trainer::parse(&engine, &text).unwrap();
    assert_eq!(again.describe().unwrap(), text);
    assert!(!again.unset("clip_norm").unwrap().describe().unwrap().contains("1.5"));
}

#[test]
fn calls_are_stopped_and_change_nothing() {
    let folder = Folder::new("stopped");
    let mut w = World::new(&folder, "2048,2048", 512, 256, "{}", 1);
    let took = (0..3).map(|_| w.session.step(&w.inputs, &Call::new()).unwrap().duration).min().unwrap();
    let mut before = (w.session.hash(&Call::new()).unwrap(), w.session.steps());
    // On a busy machine the token may come when the step is done: another try.
    let cancelled = (0..50).any(|_| {
        let token = CancelToken::new(&w.engine).unwrap();
        let guard = token.clone();
        let thread = std::thread::spawn(move || {
            let _triggered_at_the_end = guard.drop_guard();
            std::thread::sleep(took / 4);
        });
        let result = w.session.step(&w.inputs, &Call::new().cancel(&token));
        thread.join().unwrap();
        assert!(token.is_triggered());
        match result {
            Ok(_) => before = (w.session.hash(&Call::new()).unwrap(), w.session.steps()),
            Err(ref error) => assert_eq!(error.code, Code::CANCELLED),
        }
        result.is_err()
    });
    assert!(cancelled, "a step of {took:?} was never met");
    let error = w.session.step(&w.inputs, &Call::new().timeout(took / 4)).unwrap_err();
    assert_eq!(error.code, Code::DEADLINE_EXCEEDED);
    assert!(error.retryable);
    assert_eq!((w.session.hash(&Call::new()).unwrap(), w.session.steps()), before);
    w.session.step(&w.inputs, &Call::new()).unwrap();
}

#[test]
fn sessions_go_to_other_threads() {
    let folder = Folder::new("threads");
    let w = World::small(&folder);
    let World { mut session, inputs, engine, .. } = w;
    let session = std::thread::spawn(move || {
        session.step(&inputs, &Call::new()).unwrap();
        session
    })
    .join()
    .unwrap();
    drop(engine); // the wrong order on purpose: the session keeps what it needs
    assert_eq!(session.steps(), 1);
}

#[test]
fn state_and_checkpoints() {
    let folder = Folder::new("state");
    let mut w = World::small(&folder);
    let call = Call::new();
    w.session.step(&w.inputs, &call).unwrap();
    let path = folder.join("checkpoint");
    w.session.save(&path, None, &call).unwrap();
    let saved = w.session.hash(&call).unwrap();
    let name = w.session.state(StateKind::Parameter).unwrap()[0].name.clone();
    let mut value = w.session.get(&name, &call).unwrap();
    value.view_mut::<f32>().unwrap()[0] += 1.0;
    w.session.set(&name, &value, &call).unwrap();
    assert_ne!(w.session.hash(&call).unwrap(), saved);
    w.session.load(&path, None, &call).unwrap();
    assert_eq!(w.session.hash(&call).unwrap(), saved);
    w.session.export_onnx(folder.join("trained.onnx"), &call).unwrap();
    w.session.export_safetensors(folder.join("weights.safetensors"), &call).unwrap();
    assert!(std::fs::metadata(folder.join("trained.onnx")).unwrap().len() > 0);
    w.engine.remove_checkpoint(&path).unwrap();
    assert!(!path.exists());
    let numbers = [1f32, 2.0];
    let mut borrowed = Tensor::borrow(&w.engine, &numbers, &[2]).unwrap();
    assert_eq!(borrowed.view::<f32>().unwrap(), numbers);
    assert_eq!(borrowed.view_mut::<f32>().unwrap_err().code, Code::INVALID_ARGUMENT);
}

#[test]
fn datasets_drive_training() {
    let folder = Folder::new("datasets");
    let mut w = World::new(&folder, "16", 2, 8, "{}", 1);
    let call = Call::new();
    let mut table = String::from("a,b,target\n");
    for i in 0..64 {
        let (a, b) = ((i * 37) % 11, (i * 53) % 13);
        table += &format!("{a},{b},{}\n", i32::from(a < b));
    }
    let path = folder.join("table.csv");
    std::fs::write(&path, table).unwrap();
    let options = r#"{"batch": 8, "order": "shuffled", "prefetch": 2}"#;
    let mut data = Dataset::open(&w.engine, &path, options, &call).unwrap();
    data.bind(&w.plan, Entry::TRAIN).unwrap();
    assert_eq!((data.samples(), data.batches()), (64, 8));
    for _ in 0..80 {
        let batch = data.next_batch(&call).unwrap();
        w.session.step(&batch, &call).unwrap();
    }
    assert_eq!(data.position(), 80);
    let mut evaluation = Evaluation::new(&w.plan, "accuracy").unwrap();
    evaluation.add_dataset(&mut w.session, &mut data, 0, &call).unwrap();
    assert_eq!(evaluation.samples(), 64);
    assert!(evaluation.result("accuracy").unwrap() > 0.8);
}

#[test]
fn predictors_run_beside_steps() {
    let folder = Folder::new("predictors");
    let mut w = World::small(&folder);
    let call = Call::new();
    w.session.step(&w.inputs, &call).unwrap();
    let mut predictor = Predictor::new(&w.session, &w.plan, &call).unwrap();
    assert_eq!(predictor.steps(), 1);
    assert!(predictor.memory_bytes() > 0);
    let x = [&w.inputs[0]];
    let values =
        |predictor: &mut Predictor| predictor.predict(x, &Call::new()).unwrap()[0].view::<f32>().unwrap().to_vec();
    let before = values(&mut predictor);
    let session = &mut w.session;
    std::thread::scope(|scope| {
        let steps = scope.spawn(|| (0..200).for_each(|_| assert!(session.step(&w.inputs, &call).is_ok())));
        while !steps.is_finished() {
            assert_eq!(values(&mut predictor), before, "the weights of a predictor change by themselves");
        }
    });
    assert_eq!(w.session.progress().step, 201);
    predictor.refresh(&call).unwrap();
    let after = values(&mut predictor);
    let outputs = w.session.predict(&w.plan, x, &call).unwrap();
    assert_eq!(outputs[0].view::<f32>().unwrap(), after);
    assert_ne!(after, before);
    drop(w.session);
    assert_eq!(values(&mut predictor), after);
    assert_eq!(predictor.refresh(&call).unwrap_err().code, Code::MISUSE);
}

#[test]
fn streams_go_out_and_come_in() {
    struct Full(bool);
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            assert!(!self.0, "a panic must not cross into C");
            Err(std::io::Error::other("the store is full"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let folder = Folder::new("streams");
    let mut w = World::small(&folder);
    let call = Call::new();
    w.session.step(&w.inputs, &call).unwrap();
    let (mut checkpoint, mut model) = (Vec::new(), Vec::new());
    w.session.save_to(&mut checkpoint, None, &call).unwrap();
    let saved = w.session.hash(&call).unwrap();
    w.session.step(&w.inputs, &call).unwrap();
    w.session.load_bytes(&checkpoint, None, &call).unwrap();
    assert_eq!((w.session.hash(&call).unwrap(), w.session.steps()), (saved, 1));
    w.session.export_to(&mut model, Format::Onnx, &call).unwrap();
    Model::from_bytes(&w.engine, &model, &call).unwrap();
    let error = w.session.save_to(Full(false), None, &call).unwrap_err();
    assert!(error.code == Code::IO && error.message.contains("the store is full"), "{error}");
    let error = w.session.export_to(Full(true), Format::Safetensors, &call).unwrap_err();
    assert!(error.code == Code::IO && error.message.contains("panicked"), "{error}");
    checkpoint.truncate(checkpoint.len() / 2);
    assert!(w.session.load_bytes(&checkpoint, None, &call).is_err());
    assert_eq!(w.session.hash(&call).unwrap(), saved);
}

#[test]
fn the_log_survives_a_panic() {
    let lines = Arc::new(Mutex::new(String::new()));
    let calls = Arc::new(AtomicUsize::new(0));
    let dropped = Arc::new(AtomicBool::new(false));
    struct Noted(Arc<AtomicBool>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (to, count, noted) = (lines.clone(), calls.clone(), Noted(dropped.clone()));
    let folder = Folder::new("log");
    {
        let engine = Engine::builder()
            .threads(1)
            .log(Level::Debug, move |_, line| {
                let _kept = &noted;
                to.lock().unwrap_or_else(|e| e.into_inner()).push_str(line);
                if count.fetch_add(1, Ordering::SeqCst) == 0 {
                    panic!("a panic in a log must not cross into C");
                }
            })
            .build()
            .unwrap();
        engine.write_template("mlp", "", folder.join("m.onnx"), &Call::new()).unwrap();
        Model::load(&engine, folder.join("m.onnx"), &Call::new()).unwrap();
    }
    assert!(dropped.load(Ordering::SeqCst));
    assert!(calls.load(Ordering::SeqCst) > 0 && !lines.lock().unwrap_or_else(|e| e.into_inner()).is_empty());
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_go_in_and_come_out() {
    let engine = Engine::new().unwrap();
    let array = ndarray::array![[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let tensor = Tensor::borrow_array(&engine, &array).unwrap();
    assert_eq!(tensor.array::<f32>().unwrap(), array.view().into_dyn());
    assert_eq!(Tensor::borrow_array(&engine, &array.t()).unwrap_err().code, Code::INVALID_ARGUMENT);
    let turned = Tensor::from_array(&engine, &array.t()).unwrap();
    assert_eq!(turned.array::<f32>().unwrap(), array.t().into_dyn());
}

#[cfg(feature = "safetensors")]
#[test]
fn safetensors_go_in_and_come_out() {
    let engine = Engine::new().unwrap();
    let tensor = Tensor::new(&engine, &[1f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let bytes = safetensors::serialize([("w", tensor.to_safetensors().unwrap())], None).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let again = Tensor::from_safetensors(&engine, &file.tensor("w").unwrap()).unwrap();
    assert_eq!(again.dims(), [2, 2]);
    assert_eq!(again.view::<f32>().unwrap(), tensor.view::<f32>().unwrap());
}
