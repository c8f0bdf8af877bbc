// Trains the MLP and cancels a step, from Rust through an extern block.
use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};

#[repr(C)]
struct Handle(c_void); // every handle is opaque
#[repr(C)]
#[derive(Default)]
struct Metrics { struct_size: u64, step: i64, loss: f64, gradient_norm: f64, learning_rate: f64, seconds: f64 }
#[repr(C)]
struct CallOptions { struct_size: u64, timeout_nanoseconds: i64, cancel: *mut Handle }
type Error = *mut Handle;

extern "C" {
    fn epl_error_code(error: Error) -> i32;
    fn epl_error_message(error: Error, length: *mut usize) -> *const c_char;
    fn epl_error_destroy(error: Error);
    fn epl_engine_create(options: *const c_void, engine: *mut *mut Handle) -> Error;
    fn epl_engine_destroy(engine: *mut Handle);
    fn epl_template_write(engine: *const Handle, family: *const u8, n: usize, options: *const u8, m: usize, path: *const u8, k: usize) -> Error;
    fn epl_model_load(engine: *const Handle, path: *const u8, n: usize, options: *const c_void, model: *mut *mut Handle) -> Error;
    fn epl_model_destroy(model: *mut Handle);
    fn epl_trainer_create(engine: *const Handle, trainer: *mut *mut Handle) -> Error;
    fn epl_trainer_destroy(trainer: *mut Handle);
    fn epl_trainer_set(trainer: *mut Handle, key: *const u8, n: usize, value: *const u8, m: usize) -> Error;
    fn epl_trainer_bind_symbol(trainer: *mut Handle, symbol: *const u8, n: usize, size: i64) -> Error;
    fn epl_plan_create(model: *const Handle, trainer: *const Handle, strategy: *const Handle, options: *const c_void, plan: *mut *mut Handle) -> Error;
    fn epl_plan_destroy(plan: *mut Handle);
    fn epl_session_create(plan: *const Handle, options: *const c_void, session: *mut *mut Handle) -> Error;
    fn epl_session_step(session: *mut Handle, inputs: *const *const Handle, count: usize, options: *const CallOptions, metrics: *mut Metrics) -> Error;
    fn epl_session_destroy(session: *mut Handle);
    fn epl_tensor_create_copy(engine: *const Handle, dtype: i32, dims: *const i64, ndim: i32, data: *const c_void, bytes: usize, tensor: *mut *mut Handle) -> Error;
    fn epl_tensor_destroy(tensor: *mut Handle);
    fn epl_cancel_create(engine: *const Handle, cancel: *mut *mut Handle) -> Error;
    fn epl_cancel_trigger(cancel: *mut Handle);
    fn epl_cancel_destroy(cancel: *mut Handle);
    fn epl_live_handles() -> i64;
}

unsafe fn check(error: Error) {
    if error.is_null() { return; }
    let message = std::ffi::CStr::from_ptr(epl_error_message(error, null_mut())).to_string_lossy().into_owned();
    epl_error_destroy(error);
    panic!("{message}");
}

unsafe fn make(f: impl FnOnce(*mut *mut Handle) -> Error) -> *mut Handle {
    let mut handle = null_mut();
    check(f(&mut handle));
    handle
}

fn main() {
    let path = std::env::args().nth(1).expect("a folder") + "/rust.onnx";
    unsafe {
        let engine = make(|h| epl_engine_create(null(), h));
        let options = r#"{"sizes":[4,16,2],"seed":1}"#;
        check(epl_template_write(engine, "mlp".as_ptr(), 3, options.as_ptr(), options.len(), path.as_ptr(), path.len()));
        let model = make(|h| epl_model_load(engine, path.as_ptr(), path.len(), null(), h));
        let trainer = make(|h| epl_trainer_create(engine, h));
        for (key, value) in [("optimizer", "adam"), ("optimizer.lr", "0.05")] {
            check(epl_trainer_set(trainer, key.as_ptr(), key.len(), value.as_ptr(), value.len()));
        }
        check(epl_trainer_bind_symbol(trainer, "batch".as_ptr(), 5, 4));
        let plan = make(|h| epl_plan_create(model, trainer, null(), null(), h));
        let session = make(|h| epl_session_create(plan, null(), h));
        let (x, target): ([f32; 16], [i64; 4]) = ([1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1.], [0, 1, 0, 1]);
        let x = make(|h| epl_tensor_create_copy(engine, 1, [4, 4].as_ptr(), 2, x.as_ptr().cast(), 64, h));
        let target = make(|h| epl_tensor_create_copy(engine, 8, [4].as_ptr(), 1, target.as_ptr().cast(), 32, h));
        let inputs = [x as *const Handle, target as *const Handle];
        let mut metrics = Metrics { struct_size: std::mem::size_of::<Metrics>() as u64, ..Default::default() };
        for _ in 0..40 { check(epl_session_step(session, inputs.as_ptr(), 2, null(), &mut metrics)); }
        println!("rust: loss {:.4} after {} steps", metrics.loss, metrics.step);

        let cancel = make(|h| epl_cancel_create(engine, h));
        epl_cancel_trigger(cancel);
        let call = CallOptions { struct_size: std::mem::size_of::<CallOptions>() as u64, timeout_nanoseconds: 0, cancel };
        let error = epl_session_step(session, inputs.as_ptr(), 2, &call, null_mut());
        let cancelled = epl_error_code(error) == 7;
        epl_error_destroy(error);
        epl_engine_destroy(engine); // children keep it alive
        epl_cancel_destroy(cancel);
        epl_tensor_destroy(x);
        epl_tensor_destroy(target);
        epl_model_destroy(model);
        epl_trainer_destroy(trainer);
        epl_plan_destroy(plan);
        epl_session_destroy(session);
        assert!(metrics.loss < 0.1 && cancelled && epl_live_handles() == 0, "loss {}, cancelled {cancelled}", metrics.loss);
    }
}
