//! Operators of the host's own.
use epl::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// Messages of a model's file, by hand.
#[derive(Default)]
struct Onnx(Vec<u8>);

impl Onnx {
    fn varint(mut self, mut value: u64) -> Onnx {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }
    fn number(self, field: u64, value: u64) -> Onnx {
        self.varint(field << 3).varint(value)
    }
    fn field(self, field: u64, value: impl AsRef<[u8]>) -> Onnx {
        let mut one = self.varint(field << 3 | 2).varint(value.as_ref().len() as u64);
        one.0.extend_from_slice(value.as_ref());
        one
    }
    fn port(name: &str, dims: [u64; 2]) -> Vec<u8> {
        let shape = dims.iter().fold(Onnx::default(), |all, &dim| all.field(1, Onnx::default().number(1, dim).0));
        let kind = Onnx::default().number(1, 1).field(2, shape.0);
        Onnx::default().field(1, name).field(2, Onnx::default().field(1, kind.0).0).0
    }
    fn weights(name: &str, dims: &[u64], values: &[f32]) -> Vec<u8> {
        let tensor = dims.iter().fold(Onnx::default(), |all, &dim| all.number(1, dim)).number(2, 1).field(8, name);
        tensor.field(9, values.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>()).0
    }
}

/// x [4, 2] times w [2, 2], through "Gate" of "test.epl" with a weight for each column.
fn model() -> Vec<u8> {
    let product = Onnx::default().field(1, "x").field(1, "w").field(2, "y").field(4, "MatMul");
    let gate = Onnx::default().field(1, "y").field(1, "gate.weight").field(2, "scores").field(4, "Gate");
    let graph = Onnx::default()
        .field(1, product.0)
        .field(1, gate.field(7, "test.epl").0)
        .field(5, Onnx::weights("w", &[2, 2], &[0.1, -0.2, 0.3, 0.1]))
        .field(5, Onnx::weights("gate.weight", &[2], &[1.0, 1.5]))
        .field(11, Onnx::port("x", [4, 2]))
        .field(12, Onnx::port("scores", [4, 2]))
        .field(2, "graph");
    let own = Onnx::default().field(1, "test.epl").number(2, 1);
    let standard = Onnx::default().field(1, "").number(2, 17);
    Onnx::default().number(1, 8).field(7, graph.0).field(8, standard.0).field(8, own.0).0
}

/// y = x * w, w being a row: the gradient of w is a sum over samples. With `state` 1 it fails, with 2 it panics.
struct Gate<const TRAINED: bool>(Arc<AtomicU32>);

impl<const TRAINED: bool> Op for Gate<TRAINED> {
    const HAS_GRADIENT: bool = TRAINED;

    fn shape(&self, _: &str, inputs: &[OpInput<'_>]) -> Result<Vec<(DType, Vec<i64>)>> {
        match self.0.load(Ordering::SeqCst) {
            3 => Ok(vec![]),
            _ => Ok(vec![(inputs[0].dtype, inputs[0].dims.clone())]),
        }
    }
    fn run(&self, _: &str, inputs: &[OpInput<'_>], outputs: &mut [OpOutput<'_>]) -> Result<()> {
        match self.0.load(Ordering::SeqCst) {
            1 => return Err(Error::new(Code::NOT_FINITE, "the gate is stuck 😀")),
            2 => panic!("the gate is broken"),
            _ => {}
        }
        let (x, w) = (inputs[0].view::<f32>(), inputs[1].view::<f32>());
        for (i, y) in outputs[0].view_mut::<f32>().iter_mut().enumerate() {
            *y = x[i] * w[i % w.len()];
        }
        Ok(())
    }
    fn gradient(
        &self, _: &str, inputs: &[OpInput<'_>], _: &[OpInput<'_>], upstream: &[OpInput<'_>],
        gradients: &mut [OpOutput<'_>],
    ) -> Result<()> {
        let (x, w, d) = (inputs[0].view::<f32>(), inputs[1].view::<f32>(), upstream[0].view::<f32>());
        if !gradients[0].is_absent() {
            let dx = gradients[0].view_mut::<f32>();
            (0..x.len()).for_each(|i| dx[i] = d[i] * w[i % w.len()]);
        }
        if !gradients[1].is_absent() {
            let dw = gradients[1].view_mut::<f32>();
            (0..w.len()).for_each(|k| dw[k] = (k..x.len()).step_by(w.len()).map(|i| d[i] * x[i]).sum());
        }
        Ok(())
    }
}

const OPTIONS: OpOptions<'static> =
    OpOptions { domain: "test.epl", name: "Gate", outputs: 1, sharding: "n k, k -> n k" };

fn plan(engine: &Engine, ranks: u64) -> Result<Plan> {
    let model = Model::from_bytes(engine, &model(), &Call::new())?;
    let mut trainer = Trainer::new(engine)?;
    trainer.set("optimizer", "sgd")?.set("optimizer.lr", 0.5)?;
    Plan::new(&model, Some(&mut trainer), None, &PlanOptions { ranks, ..Default::default() }, &Call::new())
}

#[test]
fn an_operator_of_the_host_is_trained_through() -> Result<()> {
    let (engine, call) = (Engine::new()?, Call::new());
    let state = Arc::new(AtomicU32::new(0));
    engine.add_op(Gate::<true>(state.clone()), &OPTIONS)?;
    assert!(engine.add_op(Gate::<true>(state.clone()), &OPTIONS).is_err()); // there is one of that name
    assert_eq!(Arc::strong_count(&state), 2);
    let x = Tensor::new(&engine, &[1f32, 0., 0., 1., 1., 0., 0., 1.], &[4, 2])?;
    let target = Tensor::new(&engine, &[0i64, 1, 0, 1], &[4])?;
    let mut weights = Vec::new();
    for ranks in 1..=2 {
        let mut session = Session::new(&plan(&engine, ranks)?, &SessionOptions::default(), &call)?;
        let first = session.step([&x, &target], &call)?;
        for (number, code, told) in [(1, Code::NOT_FINITE, "stuck 😀"), (2, Code::INTERNAL, "the gate is broken")] {
            state.store(number, Ordering::SeqCst);
            let before = session.hash(&call)?;
            let error = session.step([&x, &target], &call).unwrap_err();
            assert!(error.code == code && error.message.contains(told), "{error:?}");
            assert_eq!(session.hash(&call)?, before);
        }
        state.store(0, Ordering::SeqCst);
        (0..60).try_for_each(|_| session.step([&x, &target], &call).map(drop))?;
        assert!(session.progress().loss < first.loss / 2.0 && session.steps() == 61);
        weights.push(session.get("gate.weight", &call)?.view::<f32>()?[0]);
    }
    assert!(weights[0] != 1.0 && (weights[0] - weights[1]).abs() < 1e-5, "{weights:?}");
    drop((x, target, engine)); // what was made from it keeps it
    assert_eq!(Arc::strong_count(&state), 1);
    Ok(())
}

#[test]
fn an_operator_may_have_no_gradient_and_wrong_shapes_are_told() -> Result<()> {
    for (state, told) in [(0, "gradient"), (3, "0 outputs")] {
        let engine = Engine::new()?;
        engine.add_op(Gate::<false>(Arc::new(AtomicU32::new(state))), &OPTIONS)?;
        let error = plan(&engine, 1).unwrap_err();
        assert!(error.message.contains(told), "{error:?}");
    }
    Ok(())
}
