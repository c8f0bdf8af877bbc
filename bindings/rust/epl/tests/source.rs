//! Models and checkpoints of the host's own bytes.
use epl::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

// A model by hand: x [8, 4] times w [4, 2], whose values lie beside it.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}
#[derive(Default)]
struct Onnx(Vec<u8>);
impl Onnx {
    fn number(mut self, field: u64, value: u64) -> Onnx {
        varint(&mut self.0, field << 3);
        varint(&mut self.0, value);
        self
    }
    fn bytes(mut self, field: u64, bytes: impl AsRef<[u8]>) -> Onnx {
        varint(&mut self.0, field << 3 | 2);
        varint(&mut self.0, bytes.as_ref().len() as u64);
        self.0.extend_from_slice(bytes.as_ref());
        self
    }
}
fn port(name: &str, dims: [u64; 2]) -> Vec<u8> {
    let mut shape = Onnx::default();
    for dim in dims {
        shape = shape.bytes(1, Onnx::default().number(1, dim).0);
    }
    let tensor = Onnx::default().number(1, 1).bytes(2, shape.0);
    Onnx::default().bytes(1, name).bytes(2, Onnx::default().bytes(1, tensor.0).0).0
}
fn model_with_weights_beside() -> Vec<u8> {
    let product = Onnx::default().bytes(1, "x").bytes(1, "w").bytes(2, "scores").bytes(4, "MatMul");
    let at = Onnx::default().bytes(1, "location").bytes(2, "weights.bin");
    let w = Onnx::default().number(1, 4).number(1, 2).number(2, 1).bytes(8, "w").bytes(13, at.0).number(14, 1);
    let graph = Onnx::default()
        .bytes(1, product.0)
        .bytes(2, "graph")
        .bytes(5, w.0)
        .bytes(11, port("x", [8, 4]))
        .bytes(12, port("scores", [8, 2]));
    Onnx::default().number(1, 8).bytes(7, graph.0).bytes(8, Onnx::default().bytes(1, "").number(2, 17).0).0
}

/// A folder of one model, which counts how many of its sources are alive.
struct Folder {
    model: Vec<u8>,
    weights: Option<Vec<u8>>,
    alive: Arc<AtomicUsize>,
}
struct Counted(Vec<u8>, Arc<AtomicUsize>);
impl Source for Counted {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        self.0.read(offset, target)
    }
}
impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}
impl Source for Folder {
    fn bytes(&self) -> u64 {
        self.model.bytes()
    }
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        self.model.read(offset, target)
    }
    fn open(&self, location: &str) -> Result<Box<dyn Source>> {
        let weights = self.weights.clone().filter(|_| location == "weights.bin");
        let weights = weights.ok_or_else(|| Error::new(Code::NOT_FOUND, format!("no {location} in the archive")))?;
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Counted(weights, self.alive.clone())))
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_model_is_read_from_a_source_with_what_lies_beside_it() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let alive = Arc::new(AtomicUsize::new(0));
    let folder = |weights: Option<Vec<u8>>| {
        alive.fetch_add(1, Ordering::SeqCst);
        Folder { model: model_with_weights_beside(), weights, alive: alive.clone() }
    };
    let values: Vec<u8> = (0..8).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let model = Model::load_from(&engine, folder(Some(values)), &call)?;
    let plan = Plan::new(&model, None, None, &PlanOptions::default(), &call)?;
    let mut session = Session::new(&plan, &SessionOptions::default(), &call)?;
    assert_eq!(session.get("w", &call)?.view::<f32>()?, [0., 1., 2., 3., 4., 5., 6., 7.]);
    drop((session, plan, model));
    assert_eq!(alive.load(Ordering::SeqCst), 0, "the library has kept a source");

    let error = Model::load_from(&engine, folder(None), &call).unwrap_err();
    assert!(error.code == Code::NOT_FOUND && error.message.contains("no weights.bin in the archive"), "{error}");
    assert_eq!(alive.load(Ordering::SeqCst), 0, "a call that failed has kept a source");
    let error = Model::load_from(&engine, model_with_weights_beside(), &call).unwrap_err();
    assert!(error.message.contains("weights.bin"), "{error}");
    Ok(())
}

struct Panics;
impl Source for Panics {
    fn bytes(&self) -> u64 {
        100
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
        panic!("the disk is gone")
    }
}

#[test]
fn a_panic_of_a_source_is_an_error() -> Result<()> {
    let error = Model::load_from(&Engine::new()?, Panics, &Call::new()).unwrap_err();
    assert!(error.code == Code::INTERNAL && error.message.contains("the disk is gone"), "{error}");
    Ok(())
}

#[test]
fn checkpoints_and_plans_without_files() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let folder = std::env::temp_dir().join(format!("epl-source-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    engine.write_template("mlp", r#"{"sizes": [4, 8, 2], "seed": 1}"#, folder.join("m.onnx"), &call)?;
    let bytes = std::fs::read(folder.join("m.onnx")).unwrap();
    let model = Model::load_from(&engine, bytes, &call)?;
    let mut trainer = Trainer::new(&engine)?;
    trainer.bind("batch", 4)?;
    let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call)?;
    let mut session = Session::new(&plan, &SessionOptions::default(), &call)?;
    let (x, target) = (Tensor::new(&engine, &[0.5f32; 16], &[4, 4])?, Tensor::new(&engine, &[0i64, 1, 0, 1], &[4])?);
    session.step([&x, &target], &call)?;
    let (mut saved, hash) = (Vec::new(), session.hash(&call)?);
    session.save_to(&mut saved, None, &call)?;
    session.give_up("nobody is there to hear it", &call)?;
    session.step([&x, &target], &call)?;
    session.load_from(saved, None, &call)?;
    assert_eq!((session.hash(&call)?, session.steps()), (hash, 1));

    let other = Plan::new(&model, Some(&mut trainer), None, &PlanOptions { ranks: 2, ..Default::default() }, &call)?;
    plan.save(folder.join("one.plan"), &call)?;
    other.save(folder.join("two.plan"), &call)?;
    assert_eq!(engine.compare_plans(folder.join("one.plan"), folder.join("one.plan"), &call)?, "");
    assert!(engine.compare_plans(folder.join("one.plan"), folder.join("two.plan"), &call)?.contains("ranks"));
    std::fs::remove_dir_all(folder).unwrap();
    Ok(())
}
