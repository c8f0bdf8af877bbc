//! Everything is given back. A program of its own: other tests' handles would count as well.
use epl::{live_handles, Call, CancelToken, Engine, Model, Tensor, Trainer};

#[test]
fn nothing_is_left() {
    let path = std::env::temp_dir().join(format!("epl-left-{}.onnx", std::process::id()));
    for _ in 0..20 {
        let engine = Engine::new().unwrap();
        engine.write_template("mlp", "", &path, &Call::new()).unwrap();
        let model = Model::load(&engine, &path, &Call::new()).unwrap();
        let token = CancelToken::new(&engine).unwrap();
        let twice = token.clone();
        let _ = Trainer::new(&engine).unwrap().set("nothing", 1).unwrap_err();
        let _ = Tensor::new(&engine, &[1i64], &[2]).unwrap_err();
        assert!(live_handles() > 0);
        drop((engine, model, token, twice));
    }
    std::fs::remove_file(path).unwrap();
    assert_eq!(live_handles(), 0);
}
