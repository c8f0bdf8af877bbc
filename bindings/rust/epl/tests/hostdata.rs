//! Data that the host gives and pushes, and steps as futures.
use epl::*;
use std::future::Future;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const SAMPLE: [Field<'static>; 2] = [("x", DType::F32, &[2]), ("target", DType::I64, &[])];
const BATCH: [Field<'static>; 2] = [("x", DType::F32, &[4, 2]), ("target", DType::I64, &[4])];

fn session(engine: &Engine, name: &str, hidden: &str) -> Result<(Plan, Session)> {
    let call = Call::new();
    let path = std::env::temp_dir().join(format!("epl-host-{}-{name}.onnx", std::process::id()));
    engine.write_template("mlp", &format!(r#"{{"sizes": [2, {hidden}, 2], "seed": 1}}"#), &path, &call)?;
    let model = Model::load(engine, &path, &call)?;
    std::fs::remove_file(path).unwrap();
    let mut trainer = Trainer::new(engine)?;
    trainer.bind("batch", 4)?;
    let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call)?;
    let session = Session::new(&plan, &SessionOptions::default(), &call)?;
    Ok((plan, session))
}

#[test]
fn samples_of_the_host_are_trained_on() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let (plan, mut session) = session(&engine, "samples", "16")?;
    let rows = |field: usize, samples: &[i64], target: &mut [u8]| {
        for (i, sample) in samples.iter().enumerate() {
            match field {
                0 => elements_mut(target)[2 * i..2 * i + 2].copy_from_slice(&[(sample % 3) as f32, 1.0]),
                _ => elements_mut::<i64>(target)[i] = sample % 2,
            }
        }
        Ok(())
    };
    let options = r#"{"batch": 4, "order": "shuffled", "prefetch": 2}"#;
    let mut data = Dataset::of_reader(&engine, &SAMPLE, Some(12), rows, options)?;
    data.bind(&plan, Entry::TRAIN)?;
    for _ in 0..data.batches() {
        let metrics = session.step(&data.next_batch(&call)?, &call)?;
        println!("step {}  loss {:.4}", metrics.step, metrics.loss);
    }
    assert_eq!((session.steps(), data.samples(), data.position()), (3, 12, 3));
    let mut plain = Dataset::of_reader(&engine, &SAMPLE, Some(12), rows, r#"{"batch": 4}"#)?;
    let batch = plain.next_batch(&call)?;
    assert_eq!(batch.get(0).unwrap().view::<f32>()?, [0., 1., 1., 1., 2., 1., 0., 1.]);
    assert_eq!(batch.get(1).unwrap().view::<i64>()?, [0, 1, 0, 1]);
    let loss = session.step(&batch, &call)?.loss;
    assert!((session.output(Entry::TRAIN, "loss")?.view::<f32>()?[0] as f64 - loss).abs() < 1e-6);
    Ok(())
}

#[test]
fn errors_and_panics_of_a_reader_are_those_of_the_batch() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let mut calls = 0;
    let kept = Arc::new(());
    let given = kept.clone();
    let mut data = Dataset::of_reader(
        &engine,
        &SAMPLE,
        None,
        move |_: usize, samples: &[i64], _: &mut [u8]| {
            let _ = &given;
            calls += 1;
            match calls {
                1 => Err(Error::new(Code::DATA_LOSS, format!("row {} is damaged 😀", samples[0]))),
                2 => panic!("no row"),
                _ => Ok(()),
            }
        },
        r#"{"batch": 4}"#,
    )?;
    let error = data.next_batch(&call).map(|_| ()).unwrap_err();
    assert!(error.code == Code::DATA_LOSS && error.message.contains("row 0 is damaged 😀"), "{error:?}");
    let error = data.next_batch(&call).map(|_| ()).unwrap_err();
    assert!(error.code == Code::INTERNAL && error.message.contains("no row"), "{error:?}");
    data.next_batch(&call)?;
    drop(data);
    assert_eq!(Arc::strong_count(&kept), 1);
    let refused = Dataset::of_reader(&engine, &[], Some(1), |_: usize, _: &[i64], _: &mut [u8]| Ok(()), "");
    assert_eq!(refused.unwrap_err().code, Code::INVALID_ARGUMENT);
    Ok(())
}

#[test]
fn a_feed_holds_back_who_pushes() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let feed = Feed::new(&engine, &BATCH, 1)?;
    let mut data = feed.dataset()?;
    let x = Tensor::zeros(&engine, DType::F32, &[4, 2])?;
    let target = Tensor::zeros(&engine, DType::I64, &[4])?;
    feed.push([&x, &target], &call)?;
    let full = feed.push([&x, &target], &Call::new().timeout(Duration::from_millis(20))).unwrap_err();
    assert_eq!(full.code, Code::DEADLINE_EXCEEDED);
    thread::scope(|scope| {
        scope.spawn(|| (0..9).for_each(|_| feed.push([&x, &target], &Call::new()).unwrap()));
        (0..10).for_each(|_| drop(data.next_batch(&call).unwrap()));
    });
    feed.finish()?;
    assert_eq!(data.next_batch(&call).map(|_| ()).unwrap_err().code, Code::NOT_FOUND);
    Ok(())
}

#[test]
fn predictions_into_what_is_there_and_plans_from_bytes() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let (plan, mut session) = session(&engine, "into", "16")?;
    let x = &batch(&engine)?[0];
    let made = session.predict(&plan, [x.by_ref()], &call)?;
    let want = made[0].view::<f32>()?;
    let mut predictor = Predictor::new(&session, &plan, &call)?;
    let mut into = [Tensor::zeros(&engine, DType::F32, &[4, 2])?, Tensor::zeros(&engine, DType::F32, &[4, 2])?];
    session.predict_into([x.by_ref()], &mut into[..1], &call)?;
    predictor.predict_into([x.by_ref()], &mut into[1..], &call)?;
    assert!(into[0].view::<f32>()? == want && into[1].view::<f32>()? == want);
    let constant = [0f32; 8];
    let mut read_only = [Tensor::borrow(&engine, &constant, &[4, 2])?];
    assert!(session.predict_into([x.by_ref()], &mut read_only, &call).is_err());
    assert!(predictor.predict_into([x.by_ref()], &mut read_only, &call).is_err());
    let mut bytes = Vec::new();
    plan.save_to(&mut bytes, &call)?;
    assert!(bytes.len() > 100);
    let path = std::env::temp_dir().join(format!("epl-host-{}-again.onnx", std::process::id()));
    engine.write_template("mlp", r#"{"sizes": [2, 16, 2], "seed": 1}"#, &path, &call)?;
    let model = Model::load(&engine, &path, &call)?;
    std::fs::remove_file(path).unwrap();
    let mut trainer = Trainer::new(&engine)?;
    trainer.bind("batch", 4)?;
    let again = Plan::load_bytes(&model, Some(&mut trainer), None, &PlanOptions::default(), &bytes, &call)?;
    assert_eq!(again.memory_bytes_peak(0), plan.memory_bytes_peak(0));
    let damaged = Plan::load_bytes(&model, Some(&mut trainer), None, &PlanOptions::default(), &bytes[..40], &call);
    assert_eq!(damaged.unwrap_err().code, Code::DATA_LOSS);
    Ok(())
}

struct Unpark(Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor of one future.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

fn batch(engine: &Engine) -> Result<[Arc<Tensor<'static>>; 2]> {
    let x = Tensor::new(engine, &[1f32, 0., 0., 1., 1., 0., 0., 1.], &[4, 2])?;
    Ok([Arc::new(x), Arc::new(Tensor::new(engine, &[0i64, 1, 0, 1], &[4])?)])
}

#[test]
fn steps_are_futures_of_the_same_bits() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let ((_, mut one), (_, mut two)) = (session(&engine, "one", "16")?, session(&engine, "two", "16")?);
    let inputs = batch(&engine)?;
    block_on(async {
        for step in 1..=20 {
            let metrics = one.step_async(inputs.clone(), &call).await?;
            assert_eq!(metrics.step, step);
        }
        one.evaluate_async(inputs.clone(), &call).await.map(drop)
    })?;
    for _ in 0..20 {
        two.step(inputs.iter().map(|one| one.by_ref()), &call)?;
    }
    assert_eq!(one.hash(&call)?, two.hash(&call)?);
    let error = block_on(one.step_async(inputs[..1].to_vec(), &call)).unwrap_err();
    assert_eq!(error.code, Code::INVALID_ARGUMENT);
    drop(one.step_async(inputs.clone(), &call)); // never polled: nothing has begun
    assert_eq!(one.steps(), 20);
    let end = Instant::now() + Duration::from_secs(60); // a callback may still be on its way out
    while Arc::strong_count(&inputs[0]) > 1 {
        assert!(Instant::now() < end, "somebody keeps the inputs");
        thread::yield_now();
    }
    Ok(())
}

#[test]
fn a_prediction_as_a_future_gives_its_tensors_back() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let (plan, mut session) = session(&engine, "predicted", "16")?;
    let inputs = &batch(&engine)?[..1];
    let wanted = session.predict(&plan, inputs.iter().map(|one| one.by_ref()), &call)?;
    let zeros = || Tensor::zeros(&engine, wanted[0].dtype(), &wanted[0].dims());
    for _ in 0..2 {
        let outputs = block_on(session.predict_async(inputs.to_vec(), vec![zeros()?], &call))?;
        assert_eq!(outputs.len(), 1);
        assert_eq!(outputs[0].view::<f32>()?, wanted[0].view::<f32>()?);
    }
    let error = block_on(session.predict_async(inputs.to_vec(), Vec::new(), &call)).unwrap_err();
    assert_eq!(error.code, Code::INVALID_ARGUMENT);
    drop(session.predict_async(inputs.to_vec(), vec![zeros()?], &call)); // never polled: nothing has begun
    let again = session.predict(&plan, inputs.iter().map(|one| one.by_ref()), &call)?;
    assert_eq!(again[0].view::<f32>()?, wanted[0].view::<f32>()?);
    Ok(())
}

#[test]
fn a_dropped_future_stops_its_step_and_a_forgotten_one_keeps_its_inputs() -> Result<()> {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    static FORGOTTEN: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
    let engine = ENGINE.get_or_init(|| Engine::builder().threads(1).build().unwrap());
    let (_, mut session) = session(engine, "dropped", "3000, 3000")?;
    let inputs = batch(engine)?;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let token = CancelToken::new(engine)?;
    {
        let call = Call::new().cancel(&token);
        let mut future = pin!(session.step_async(inputs.clone(), &call));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert!(token.is_triggered());
    assert_eq!(session.steps(), 0);
    assert_eq!(block_on(session.step_async(inputs.clone(), &Call::new()))?.step, 1); // it is free
    let mut future = Box::pin(session.step_async(inputs.clone(), &Call::new()));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(Arc::strong_count(&inputs[0]) > 1);
    // As std::mem::forget, but where those who look for leaks find it.
    FORGOTTEN.store(Box::into_raw(unsafe { Pin::into_inner_unchecked(future) }).cast(), Ordering::Relaxed);
    assert!(Arc::strong_count(&inputs[0]) > 1); // nobody can write them
    Ok(())
}
