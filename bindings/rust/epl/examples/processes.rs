//! A training in several processes, started by `epl launch -n 2 -- ./processes`. Each gets the full batch, and works on
//! its part.
use epl::{Call, Engine, Launch, Model, Plan, Session, Tensor, Trainer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let launch = Launch::from_env()?; // what epl launch says; another launcher has other means
    let (engine, call) = (Engine::builder().threads(1).build()?, Call::new());
    let file = format!("model-{}.onnx", launch.rank);
    engine.write_template("mlp", r#"{"sizes": [4, 16, 2], "seed": 1}"#, &file, &call)?;
    let model = Model::load(&engine, &file, &call)?;
    let mut trainer = Trainer::new(&engine)?;
    trainer.set("optimizer", "adamw")?.set("optimizer.lr", 0.05)?.bind("batch", 8)?;

    let plan = Plan::new(&model, Some(&mut trainer), None, &launch.plan_options(), &call)?;
    let mut session = Session::new(&plan, &launch.session_options(), &call)?;

    let values: Vec<f32> = (0..32).map(|i| ((i / 4 * 7 + (i % 4) * (i % 4) * 3) % 5) as f32 - 2.0).collect();
    let classes: Vec<i64> = values.chunks(4).map(|row| (row[0] < row[3]) as i64).collect();
    let (x, target) = (Tensor::new(&engine, &values, &[8, 4])?, Tensor::new(&engine, &classes, &[8])?);
    let mut loss = 0.0;
    for _ in 0..50 {
        loss = session.step([&x, &target], &call)?.loss;
    }
    println!("loss {loss:.4}  weights {:016x}", session.hash(&call)?);
    Ok(())
}
