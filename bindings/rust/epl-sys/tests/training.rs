//! A training through the declarations alone.
use epl_sys::*;
use std::ffi::{c_char, c_void};
use std::ptr;

fn check(error: *mut epl_error) {
    if !error.is_null() {
        let message = unsafe { std::ffi::CStr::from_ptr(epl_error_message(error, ptr::null_mut())) };
        panic!("{}", message.to_string_lossy());
    }
}

fn text(value: &str) -> (*const c_char, usize) {
    (value.as_ptr().cast(), value.len())
}

#[test]
fn trains_and_leaves_nothing() {
    unsafe {
        let options = epl_engine_options { threads: 1, ..Default::default() };
        let mut engine = ptr::null_mut();
        check(epl_engine_create(&options, &mut engine));
        let path = std::env::temp_dir().join(format!("epl-sys-{}.onnx", std::process::id()));
        let (path_data, path_length) = text(path.to_str().unwrap());
        let (family, options) = (text("mlp"), text(r#"{"sizes":[4,8,2],"seed":1}"#));
        check(epl_x_template_write(
            engine, family.0, family.1, options.0, options.1, path_data, path_length, ptr::null(),
        ));
        let mut model = ptr::null_mut();
        check(epl_model_load(engine, path_data, path_length, ptr::null(), ptr::null(), &mut model));
        let mut trainer = ptr::null_mut();
        check(epl_trainer_create(engine, &mut trainer));
        let (rate, batch) = (text("optimizer.lr"), text("batch"));
        check(epl_trainer_set_number(trainer, rate.0, rate.1, 0.5));
        check(epl_trainer_bind_symbol(trainer, batch.0, batch.1, 2));
        let mut plan = ptr::null_mut();
        check(epl_plan_create(model, trainer, ptr::null(), ptr::null(), ptr::null(), &mut plan));
        let mut session = ptr::null_mut();
        check(epl_session_create(plan, ptr::null(), ptr::null(), &mut session));
        let (x, target) = ([1f32, 2., 3., 4., 4., 3., 2., 1.], [0i64, 1]);
        let mut inputs = [ptr::null_mut(); 2];
        let copy = |data: *const c_void, bytes, dtype, dims: &[i64], out: &mut *mut epl_tensor| {
            check(epl_tensor_create_copy(engine, dtype, dims.as_ptr(), dims.len() as i32, data, bytes, out))
        };
        copy(x.as_ptr().cast(), 32, EPL_DTYPE_F32, &[2, 4], &mut inputs[0]);
        copy(target.as_ptr().cast(), 16, EPL_DTYPE_I64, &[2], &mut inputs[1]);
        let mut metrics = epl_metrics::default();
        for step in 1..=10 {
            check(epl_session_step(session, inputs.as_ptr() as *const *const epl_tensor, 2, ptr::null(), &mut metrics));
            assert_eq!(metrics.step, step);
        }
        assert!(metrics.loss < 0.5, "the loss is {}", metrics.loss);
        let missing = text("/no/such/model.onnx");
        let mut other = ptr::null_mut();
        let error = epl_model_load(engine, missing.0, missing.1, ptr::null(), ptr::null(), &mut other);
        assert!(other.is_null());
        assert_eq!(epl_error_code(error), EPL_ERROR_NOT_FOUND);
        epl_error_destroy(error);
        inputs.iter().for_each(|&tensor| epl_tensor_destroy(tensor));
        epl_session_destroy(session);
        epl_plan_destroy(plan);
        epl_trainer_destroy(trainer);
        epl_model_destroy(model);
        epl_engine_destroy(engine);
        assert_eq!(epl_live_handles(), 0);
        std::fs::remove_file(path).unwrap();
    }
}
