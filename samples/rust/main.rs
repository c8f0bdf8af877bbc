// Trains the MLP and cancels a step, from Rust through an extern block.
use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};

#[repr(C)]
struct Handle(c_void); // every handle is opaque
#[repr(C)]
#[derive(Default)]
struct Metrics {
    struct_size: u64,
    step: i64,
    loss: f64,
    gradient_norm: f64,
    learning_rate: f64,
    seconds: f64,
}
#[repr(C)]
struct CallOptions {
    struct_size: u64,
    timeout_nanoseconds: i64,
    cancel: *mut Handle,
    samples: i64,
}
type RawError = *mut Handle;

extern "C" {
    fn epl_error_code(error: RawError) -> i32;
    fn epl_error_message(error: RawError, length: *mut usize) -> *const c_char;
    fn epl_error_destroy(error: RawError);
    fn epl_engine_create(options: *const c_void, engine: *mut *mut Handle) -> RawError;
    fn epl_engine_destroy(engine: *mut Handle);
    fn epl_x_template_write(
        engine: *const Handle, family: *const u8, n: usize, options: *const u8, m: usize, path: *const u8, k: usize,
        call: *const CallOptions,
    ) -> RawError;
    fn epl_model_load(
        engine: *const Handle, path: *const u8, n: usize, options: *const c_void, call: *const CallOptions,
        model: *mut *mut Handle,
    ) -> RawError;
    fn epl_model_destroy(model: *mut Handle);
    fn epl_trainer_create(engine: *const Handle, trainer: *mut *mut Handle) -> RawError;
    fn epl_trainer_destroy(trainer: *mut Handle);
    fn epl_trainer_set(trainer: *mut Handle, key: *const u8, n: usize, value: *const u8, m: usize) -> RawError;
    fn epl_trainer_bind_symbol(trainer: *mut Handle, symbol: *const u8, n: usize, size: i64) -> RawError;
    fn epl_plan_create(
        model: *const Handle, trainer: *const Handle, strategy: *const Handle, options: *const c_void,
        call: *const CallOptions, plan: *mut *mut Handle,
    ) -> RawError;
    fn epl_plan_destroy(plan: *mut Handle);
    fn epl_session_create(
        plan: *const Handle, options: *const c_void, call: *const CallOptions, session: *mut *mut Handle,
    ) -> RawError;
    fn epl_session_step(
        session: *mut Handle, inputs: *const *const Handle, count: usize, options: *const CallOptions,
        metrics: *mut Metrics,
    ) -> RawError;
    fn epl_session_destroy(session: *mut Handle);
    fn epl_tensor_create_copy(
        engine: *const Handle, dtype: i32, dims: *const i64, ndim: i32, data: *const c_void, bytes: usize,
        tensor: *mut *mut Handle,
    ) -> RawError;
    fn epl_tensor_destroy(tensor: *mut Handle);
    fn epl_cancel_create(engine: *const Handle, cancel: *mut *mut Handle) -> RawError;
    fn epl_cancel_trigger(cancel: *mut Handle);
    fn epl_cancel_destroy(cancel: *mut Handle);
    fn epl_live_handles() -> i64;
}

/// An error of the library as a value: callers decide what it means to them.
#[derive(Debug)]
struct Failure {
    code: i32,
    message: String,
}
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}
impl std::error::Error for Failure {}

/// Takes the library's error over and gives it back.
unsafe fn check(error: RawError) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    let mut length = 0;
    let text = epl_error_message(error, &mut length);
    let message = String::from_utf8_lossy(std::slice::from_raw_parts(text.cast::<u8>(), length)).into_owned();
    let failure = Failure { code: epl_error_code(error), message };
    epl_error_destroy(error);
    Err(failure)
}

/// A handle that is destroyed when it goes out of scope, on every way out.
struct Owned {
    handle: *mut Handle,
    destroy: unsafe extern "C" fn(*mut Handle),
}
impl Drop for Owned {
    fn drop(&mut self) {
        unsafe { (self.destroy)(self.handle) }
    }
}

unsafe fn make(
    destroy: unsafe extern "C" fn(*mut Handle), f: impl FnOnce(*mut *mut Handle) -> RawError,
) -> Result<Owned, Failure> {
    let mut handle = null_mut();
    check(f(&mut handle))?;
    Ok(Owned { handle, destroy })
}

unsafe fn train(folder: &str) -> Result<(), Box<dyn std::error::Error>> {
    let path = format!("{folder}/rust.onnx");
    let engine = make(epl_engine_destroy, |h| epl_engine_create(null(), h))?;
    let options = r#"{"sizes":[4,16,2],"seed":1}"#;
    check(epl_x_template_write(
        engine.handle,
        "mlp".as_ptr(),
        3,
        options.as_ptr(),
        options.len(),
        path.as_ptr(),
        path.len(),
        null(),
    ))?;
    let model =
        make(epl_model_destroy, |h| epl_model_load(engine.handle, path.as_ptr(), path.len(), null(), null(), h))?;
    let trainer = make(epl_trainer_destroy, |h| epl_trainer_create(engine.handle, h))?;
    for (key, value) in [("optimizer", "adam"), ("optimizer.lr", "0.05")] {
        check(epl_trainer_set(trainer.handle, key.as_ptr(), key.len(), value.as_ptr(), value.len()))?;
    }
    check(epl_trainer_bind_symbol(trainer.handle, "batch".as_ptr(), 5, 4))?;
    let plan = make(epl_plan_destroy, |h| epl_plan_create(model.handle, trainer.handle, null(), null(), null(), h))?;
    let session = make(epl_session_destroy, |h| epl_session_create(plan.handle, null(), null(), h))?;
    let (x, target): ([f32; 16], [i64; 4]) =
        ([1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1.], [0, 1, 0, 1]);
    let x = make(epl_tensor_destroy, |h| {
        epl_tensor_create_copy(engine.handle, 1, [4, 4].as_ptr(), 2, x.as_ptr().cast(), 64, h)
    })?;
    let target = make(epl_tensor_destroy, |h| {
        epl_tensor_create_copy(engine.handle, 8, [4].as_ptr(), 1, target.as_ptr().cast(), 32, h)
    })?;
    let inputs = [x.handle as *const Handle, target.handle as *const Handle];
    let mut metrics = Metrics { struct_size: std::mem::size_of::<Metrics>() as u64, ..Default::default() };
    for _ in 0..40 {
        check(epl_session_step(session.handle, inputs.as_ptr(), 2, null(), &mut metrics))?;
    }
    println!("rust: loss {:.4} after {} steps", metrics.loss, metrics.step);
    if metrics.loss > 0.1 {
        return Err(format!("did not learn: loss {}", metrics.loss).into());
    }

    let cancel = make(epl_cancel_destroy, |h| epl_cancel_create(engine.handle, h))?;
    epl_cancel_trigger(cancel.handle);
    let call = CallOptions {
        struct_size: std::mem::size_of::<CallOptions>() as u64,
        timeout_nanoseconds: 0,
        cancel: cancel.handle,
        samples: 0,
    };
    match check(epl_session_step(session.handle, inputs.as_ptr(), 2, &call, null_mut())) {
        Err(failure) if failure.code == 7 => Ok(()),
        other => Err(format!("was not cancelled: {other:?}").into()),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: train_mlp FOLDER")?;
    unsafe {
        train(&folder)?;
        match epl_live_handles() {
            0 => Ok(()),
            alive => Err(format!("{alive} handles are still alive").into()),
        }
    }
}
