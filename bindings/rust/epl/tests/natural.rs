//! What the crate has beside the calls of the library: clones, iterators, streams, settings of serde, events of tracing.
use epl::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("epl-natural-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn model(folder: &Folder, engine: &Engine, sizes: &str) -> Model {
    let path = folder.0.join("model.onnx");
    engine.write_template("mlp", &format!(r#"{{"sizes":[{sizes}],"seed":1}}"#), &path, &Call::new()).unwrap();
    Model::load(engine, &path, &Call::new()).unwrap()
}

fn plan(engine: &Engine, model: &Model, batch: i64) -> Plan {
    let mut trainer = Trainer::new(engine).unwrap();
    trainer.bind("batch", batch).unwrap();
    Plan::new(model, Some(&mut trainer), None, &PlanOptions::default(), &Call::new()).unwrap()
}

fn batch(engine: &Engine, rows: i64, width: i64) -> Vec<Arc<Tensor<'static>>> {
    let x: Vec<f32> = (0..rows * width).map(|i| (i % 7) as f32 - 3.0).collect();
    let target: Vec<i64> = (0..rows).map(|i| i % 2).collect();
    vec![
        Arc::new(Tensor::new(engine, &x, &[rows, width]).unwrap()),
        Arc::new(Tensor::new(engine, &target, &[rows]).unwrap()),
    ]
}

#[test]
fn clones_are_the_same_object_and_outlive_the_first() {
    let folder = Folder::new("clones");
    let engine = Engine::builder().threads(1).build().unwrap();
    let first = model(&folder, &engine, "4,8,2");
    let made = plan(&engine, &first, 8);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (engine, plan) = (engine.clone(), made.clone());
            std::thread::spawn(move || {
                let mut session = Session::new(&plan, &SessionOptions::default(), &Call::new()).unwrap();
                session.step(batch(&engine, 8, 4).iter().map(|one| one.by_ref()), &Call::new()).unwrap();
                session.hash(&Call::new()).unwrap()
            })
        })
        .collect();
    let again = first.clone();
    drop((engine, first, made));
    let hashes: Vec<_> = threads.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]));
    assert_eq!(again.inputs().unwrap().len(), 1);
}

#[test]
fn steps_over_a_dataset_are_an_iterator() {
    let folder = Folder::new("steps");
    let engine = Engine::builder().threads(1).build().unwrap();
    let plan = plan(&engine, &model(&folder, &engine, "2,8,2"), 2);
    let table = folder.0.join("table.csv");
    std::fs::write(&table, "a,b,target\n1,2,0\n2,1,1\n3,1,1\n1,3,0\n").unwrap();
    let mut data = Dataset::open(&engine, &table, r#"{"batch":2}"#, &Call::new()).unwrap();
    data.bind(&plan, Entry::TRAIN).unwrap();
    let mut session = Session::new(&plan, &SessionOptions::default(), &Call::new()).unwrap();
    let steps: Vec<_> = session.steps_over(&mut data, &Call::new()).take(5).map(|done| done.unwrap().step).collect();
    assert_eq!((steps, data.position()), (vec![1, 2, 3, 4, 5], 5));
    let token = CancelToken::new(&engine).unwrap();
    token.trigger();
    let refused = session.steps_over(&mut data, &Call::new().cancel(&token)).next().unwrap().unwrap_err();
    assert_eq!((refused.code, data.position(), session.steps()), (Code::CANCELLED, 5, 5));
}

#[test]
fn a_step_that_is_dropped_ends_though_its_call_has_no_token() {
    let folder = Folder::new("dropped");
    let engine = Engine::builder().threads(1).build().unwrap();
    let plan = plan(&engine, &model(&folder, &engine, "512,2048,2048,2"), 512);
    let mut session = Session::new(&plan, &SessionOptions::default(), &Call::new()).unwrap();
    let inputs = batch(&engine, 512, 512);
    let begun = Instant::now();
    session.step(inputs.iter().map(|one| one.by_ref()), &Call::new()).unwrap();
    let (whole, before) = (begun.elapsed(), session.hash(&Call::new()).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let begun = Instant::now();
    let call = Call::new();
    let timed_out = runtime.block_on(async {
        tokio::time::timeout(whole / 20, session.step_async(inputs.iter().cloned(), &call)).await.is_err()
    });
    assert!(timed_out);
    assert!(begun.elapsed() < whole * 9 / 10 + Duration::from_millis(50), "{:?} of {whole:?}", begun.elapsed());
    assert_eq!((session.hash(&call).unwrap(), session.steps()), (before, 1));
}

#[test]
fn a_secret_is_not_printed() {
    let options =
        SessionOptions { secret: "swordfish".into(), rendezvous: "epl-id-swordfish".into(), ..Default::default() };
    assert!(!format!("{options:?}").contains("swordfish"));
}

#[cfg(feature = "serde")]
#[test]
fn settings_come_of_serde() {
    #[derive(serde::Serialize)]
    struct Settings {
        optimizer: &'static str,
        #[serde(rename = "optimizer.lr")]
        rate: f64,
        symbols: std::collections::BTreeMap<&'static str, i64>,
    }
    let folder = Folder::new("serde");
    let engine = Engine::builder().threads(1).build().unwrap();
    let settings = Settings { optimizer: "adamw", rate: 0.125, symbols: [("batch", 2)].into() };
    let mut trainer = Trainer::of(&engine, &settings).unwrap();
    let mut strategy = Strategy::of(&engine, &serde_json::json!({"pipeline.num_micro_batch": 2})).unwrap();
    let model = model(&folder, &engine, "4,8,2");
    let call = Call::new();
    let plan = Plan::new(&model, Some(&mut trainer), Some(&mut strategy), &PlanOptions::default(), &call).unwrap();
    let mut session = Session::new(&plan, &SessionOptions::default(), &call).unwrap();
    let metrics = session.step(batch(&engine, 2, 4).iter().map(|one| one.by_ref()), &call).unwrap();
    assert_eq!(serde_json::to_value(metrics).unwrap()["learning_rate"], 0.125);
}

#[cfg(feature = "tracing")]
#[test]
fn the_log_is_events_of_tracing() {
    use std::sync::Mutex;
    use tracing::{span, Event, Metadata, Subscriber};
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);
    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "epl"
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(format!("{}", event.metadata().level()));
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let folder = Folder::new("tracing");
        let engine = Engine::builder().threads(1).tracing().build().unwrap();
        let plan = plan(&engine, &model(&folder, &engine, "4,8,2"), 8);
        Session::new(&plan, &SessionOptions::default(), &Call::new()).unwrap();
    });
    assert!(!lines.0.lock().unwrap().is_empty());
}

#[cfg(feature = "futures")]
#[test]
fn steps_are_a_stream() {
    use futures_core::Stream;
    let folder = Folder::new("stream");
    let engine = Engine::builder().threads(1).build().unwrap();
    let plan = plan(&engine, &model(&folder, &engine, "4,8,2"), 8);
    let mut session = Session::new(&plan, &SessionOptions::default(), &Call::new()).unwrap();
    let call = Call::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let steps = runtime.block_on(async {
        let mut stream = std::pin::pin!(session.stream((0..4).map(|_| batch(&engine, 8, 4)), &call));
        let mut steps = Vec::new();
        while let Some(done) = std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await {
            steps.push(done.unwrap().step);
        }
        steps
    });
    assert_eq!(steps, [1, 2, 3, 4]);
}
