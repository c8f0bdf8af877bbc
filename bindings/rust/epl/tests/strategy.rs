//! Strategies by calls, and tensors that are shared by DLPack.
use epl::{Engine, ScopeKind, Strategy, Tensor};

#[test]
fn a_strategy_is_made_by_calls() {
    let engine = Engine::builder().threads(1).build().unwrap();
    let mut made = Strategy::new(&engine).unwrap();
    let mut top = made.add_scope(ScopeKind::Replicate, 4, "all").unwrap();
    let mut inner = top.add_scope(ScopeKind::Split, 2, "").unwrap();
    inner.add_match("param:net.0.*").unwrap().add_match("op:MatMul").unwrap().pin_dim("net.0.weight", -1).unwrap();
    made.set_default(ScopeKind::Replicate, 2).unwrap();
    let told = made.describe().unwrap();
    assert_eq!(told, Strategy::parse(&engine, &told).unwrap().describe().unwrap());
    for want in ["\"all\"", "\"split\"", "\"param:net.0.*\"", "\"op:MatMul\"", "\"net.0.weight\"", "\"default\""] {
        assert!(told.contains(want), "{want} is not in {told}");
    }
}

#[test]
fn a_tensor_is_shared_by_dlpack() {
    let engine = Engine::builder().threads(1).build().unwrap();
    let x = Tensor::new(&engine, &[1f32, 2.0, 3.0], &[3]).unwrap();
    let shared = unsafe { Tensor::from_dlpack(&engine, x.to_dlpack().unwrap()) }.unwrap();
    drop(x);
    assert_eq!((shared.view::<f32>().unwrap(), epl::version() > 0), (&[1f32, 2.0, 3.0][..], true));
}

#[test]
fn a_tensor_of_a_gpu_is_for_sessions_there() {
    let engine = Engine::builder().threads(1).build().unwrap();
    let x = Tensor::new(&engine, &[1f32, 2.0, 3.0], &[3]).unwrap();
    let managed = x.to_dlpack().unwrap();
    unsafe { *managed.as_ptr().cast::<i32>().add(10) = 2 }; // its device, of CUDA's kind
    let there = unsafe { Tensor::from_dlpack(&engine, managed) }.unwrap();
    assert!(there.bytes().is_empty() && there.dims() == [3]);
    assert!(there.view::<f32>().unwrap_err().to_string().contains("on a GPU"));
}
