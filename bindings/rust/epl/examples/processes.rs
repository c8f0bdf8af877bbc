//! A training in several processes, started by `epl launch -n 2 -- ./processes`. Each gets the whole batch, and works on
//! its part.
use epl::{Call, Engine, Model, Plan, PlanOptions, Session, SessionOptions, Tensor, Trainer};
use std::env::var;
use std::os::{fd::FromRawFd, unix::fs::FileExt};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // What a variable says, or the number for a program that was started alone.
    let number = |name, alone| var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(alone);
    let (rank, ranks) = (number("EPL_RANK", 0), number("EPL_WORLD_SIZE", 1));
    let (engine, call) = (Engine::builder().threads(1).build()?, Call::new());
    let file = format!("model-{rank}.onnx");
    engine.write_template("mlp", r#"{"sizes": [4, 16, 2], "seed": 1}"#, &file, &call)?;
    let model = Model::load(&engine, &file, &call)?;
    let mut trainer = Trainer::new(&engine)?;
    trainer.set("optimizer", "adamw")?.set("optimizer.lr", 0.05)?.bind("batch", 8)?;

    let options = PlanOptions { ranks, local_ranks: 1, ..Default::default() };
    let plan = Plan::new(&model, Some(&mut trainer), None, &options, &call)?;
    let mut place = SessionOptions { first_rank: rank, ranks: 1, ..Default::default() };
    if ranks > 1 {
        // As epl launch says it; another launcher has other means. The descriptor is this process's own.
        let secret = unsafe { std::fs::File::from_raw_fd(number("EPL_SECRET_FD", 0) as i32) };
        let mut bytes = [0; 256];
        let length = secret.read_at(&mut bytes, 0)?;
        place.secret = String::from_utf8(bytes[..length].to_vec())?;
        place.rendezvous = var("EPL_RENDEZVOUS")?;
    }
    let mut session = Session::new(&plan, &place, &call)?;

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
