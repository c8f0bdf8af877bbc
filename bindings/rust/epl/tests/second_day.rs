//! What follows the first training, each a few lines. docs/rust.md explains them.
use epl::*;

#[test]
fn the_second_day() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("epl {} second day", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (engine, call) = (Engine::new()?, Call::new());

    // --- A table, and a model for it
    let (table, path, best) = (folder.join("table.csv"), folder.join("model.onnx"), folder.join("best"));
    std::fs::write(&table, "a,b,target\n".to_string() + &"1,2,0\n3,1,1\n".repeat(20)).unwrap();
    engine.write_template("mlp", r#"{"sizes": [2, 16, 2], "seed": 1}"#, &path, &call)?;
    let model = Model::load(&engine, &path, &call)?;
    let mut trainer = Trainer::parse(&engine, r#"{"optimizer": "adamw", "optimizer.lr": 0.05}"#)?;
    let options = r#"{"batch": 8, "order": "shuffled", "split": "train"}"#;
    let mut data = Dataset::open(&engine, &table, options, &call)?;
    trainer.bind_dataset(&model, &mut data)?;
    let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call)?;

    // --- Train, validate, keep the best
    let mut session = Session::new(&plan, &SessionOptions::default(), &call)?;
    let mut held_out = Dataset::open(&engine, &table, r#"{"batch": 8, "split": "held_out"}"#, &call)?;
    let mut evaluation = Evaluation::new(&plan, "accuracy")?;
    data.bind(&plan, Entry::TRAIN)?;
    held_out.bind(&plan, Entry::EVALUATE)?;
    let mut highest = -1.0;
    for _epoch in 0..10 {
        for _ in 0..data.batches() {
            session.step(&data.next_batch(&call)?, &call)?;
        }
        evaluation.reset()?;
        evaluation.add_dataset(&mut session, &mut held_out, 0, &call)?;
        let accuracy = evaluation.result("accuracy")?;
        if accuracy > highest {
            highest = accuracy;
            session.save(&best, Some(&mut data), &call)?; // with the position in the data
        }
    }
    println!("held out: {:.0} % right", highest * 100.0);
    assert_eq!(highest, 1.0);

    // --- Go on later, to the bit
    let mut later = Session::new(&plan, &SessionOptions::default(), &call)?;
    later.load(&best, Some(&mut data), &call)?;
    println!("goes on after step {}", later.steps());
    assert!(later.steps() > 0);

    // --- Predict, and read the numbers
    let x = Tensor::new(&engine, &[1.0f32, 2.0, 3.0, 1.0], &[2, 2])?; // a batch may have fewer samples than the plan's
    let outputs = session.predict(&plan, [&x], &call)?;
    for scores in outputs[0].view::<f32>()?.chunks(2) {
        println!("class {}", usize::from(scores[1] > scores[0]));
    }
    let weight = session.get("net.0.weight", &call)?;
    println!("{:?}, {} numbers", weight.dims(), weight.view::<f32>()?.len());
    assert_eq!((outputs[0].dims(), weight.dims()), (vec![2, 2], vec![16, 2]));

    // --- Predict while it trains
    let mut predictor = Predictor::new(&session, &plan, &call)?; // has the weights of one step until it is refreshed
    std::thread::scope(|scope| {
        let training = scope.spawn(|| session.step(&data.next_batch(&call)?, &call));
        predictor.predict([&x], &call)?; // with the weights before that step
        training.join().unwrap()
    })?;
    predictor.refresh(&call)?;
    assert_eq!(predictor.steps(), session.steps());

    // --- Into memory, a socket, an object store
    let mut kept = Vec::new();
    session.save_to(&mut kept, Some(&mut data), &call)?;
    later.load_bytes(&kept, Some(&mut data), &call)?;

    // --- Adapters beside frozen weights
    trainer.add_adapter("*", Adapter::default())?;
    let adapted = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call)?;
    let mut tuned = Session::new(&adapted, &SessionOptions::default(), &call)?;
    data.bind(&adapted, Entry::TRAIN)?;
    tuned.step(&data.next_batch(&call)?, &call)?;
    tuned.export_adapters(folder.join("adapters"), &call)?;
    tuned.export_onnx(folder.join("tuned.onnx"), &call)?; // the adapters are in its weights
    std::fs::remove_dir_all(&folder).unwrap();
    Ok(())
}
