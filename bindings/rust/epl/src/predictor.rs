use crate::call::Call;
use crate::error::{check, Result};
use crate::handle::{given, handle};
use crate::plan::{Entry, Plan};
use crate::session::{handles, writable, Session};
use crate::tensor::{Tensor, TensorRef};
use epl_sys as sys;
use std::ptr::NonNull;

handle!(
    #[doc(hidden)]
    RawPredictor,
    epl_predictor,
    epl_predictor_destroy
);

/// Predicts beside the steps of a session, on another thread, with a copy of the weights of one step. It outlives its
/// session; a session may have several.
///
/// Its calls block their thread. An async program gives them to one that may wait, with all that they read:
///
/// ```
/// # use epl::*;
/// # use std::sync::{Arc, Mutex};
/// async fn predict(
///     predictor: Arc<Mutex<Predictor>>, x: Tensor<'static>, token: CancelToken,
/// ) -> Result<(i64, Vec<Tensor<'static>>)> {
///     let _stops_when_the_task_goes = token.drop_guard();
///     let call = Call::new().cancel(&token);
///     let work = tokio::task::spawn_blocking(move || {
///         let mut predictor = predictor.lock().unwrap();
///         predictor.refresh(&call)?;
///         let outputs = predictor.predict([&x], &call)?;
///         Ok((predictor.steps(), outputs))
///     });
///     work.await.expect("a prediction does not panic")
/// }
/// # fn main() -> Result<()> {
/// # let (engine, call) = (Engine::new()?, Call::new());
/// # let path = std::env::temp_dir().join(format!("epl-predict-{}.onnx", std::process::id()));
/// # engine.write_template("mlp", r#"{"sizes": [2, 16, 2], "seed": 1}"#, &path, &call)?;
/// # let model = Model::load(&engine, &path, &call)?;
/// # std::fs::remove_file(path).unwrap();
/// # let mut trainer = Trainer::new(&engine)?;
/// # trainer.bind("batch", 4)?;
/// # let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call)?;
/// # let mut session = Session::new(&plan, &SessionOptions::default(), &call)?;
/// # let numbers = [1f32, 0., 0., 1., 1., 0., 0., 1.];
/// # let x = || Tensor::new(&engine, &numbers, &[4, 2]);
/// # let predictor = Arc::new(Mutex::new(Predictor::new(&session, &plan, &call)?));
/// # session.step([&x()?, &Tensor::new(&engine, &[0i64, 1, 0, 1], &[4])?], &call)?;
/// # let (token, gone) = (CancelToken::new(&engine)?, CancelToken::new(&engine)?);
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # let (step, outputs) = runtime.block_on(async {
/// #     // The only thread of all tasks goes on while somebody else has the predictor, to let go of it for example.
/// #     let had = predictor.lock().unwrap();
/// #     let answer = tokio::spawn(predict(predictor.clone(), x().unwrap(), token));
/// #     tokio::task::yield_now().await;
/// #     assert!(!answer.is_finished());
/// #     // A task that ends before its work stops that, and does not wait for it.
/// #     let dropped = tokio::spawn(predict(predictor.clone(), x().unwrap(), gone.clone()));
/// #     tokio::task::yield_now().await;
/// #     dropped.abort();
/// #     assert!(dropped.await.unwrap_err().is_cancelled() && gone.is_triggered());
/// #     drop(had);
/// #     answer.await.unwrap()
/// # })?;
/// # assert_eq!(step, 1);
/// # let expected = session.predict(&plan, [&x()?], &call)?;
/// # assert_eq!(outputs[0].view::<f32>()?, expected[0].view::<f32>()?);
/// # Ok(())
/// # }
/// ```
///
/// The work owns its inputs and makes its outputs, so nothing that it uses goes with a future that is dropped or
/// forgotten.
#[derive(Debug)]
pub struct Predictor {
    raw: RawPredictor,
    outputs: usize,
}
// The header: one caller at a time, from any thread. `&mut self` is one caller.
unsafe impl Send for Predictor {}

impl Predictor {
    /// One with the weights of the session's last step, for batches of `plan`: the session's own, or another one of the
    /// same model and trainer with other sizes.
    pub fn new(session: &Session, plan: &Plan, call: &Call) -> Result<Predictor> {
        let raw = given(|place| unsafe {
            sys::epl_predictor_create(session.0.as_ptr(), plan.0.as_ptr(), &call.raw(), place)
        })?;
        let outputs = unsafe { sys::epl_plan_port_count(plan.0.as_ptr(), Entry::PREDICT.raw(), sys::EPL_PORT_OUTPUT) };
        Ok(Predictor { raw: RawPredictor(raw), outputs: outputs as usize })
    }
    /// Takes the weights of the session's last step, all at once; also while the session makes its next one.
    pub fn refresh(&mut self, call: &Call) -> Result<()> {
        check(unsafe { sys::epl_predictor_refresh(self.raw.0.as_ptr(), &call.raw()) })
    }
    /// Steps that the session had done when these were its weights.
    pub fn steps(&self) -> i64 {
        unsafe { sys::epl_predictor_steps(self.raw.0.as_ptr()) }
    }
    /// What it has allocated for weights and work.
    pub fn memory_bytes(&self) -> i64 {
        unsafe { sys::epl_predictor_memory_bytes(self.raw.0.as_ptr()) }
    }
    /// The outputs of the model, in the order of [`Plan::outputs`] of `Entry::PREDICT`.
    pub fn predict<'t, T: Into<TensorRef<'t>>>(
        &mut self, inputs: impl IntoIterator<Item = T>, call: &Call,
    ) -> Result<Vec<Tensor<'static>>> {
        let inputs = handles(inputs);
        let mut outputs = vec![std::ptr::null_mut(); self.outputs];
        check(unsafe {
            sys::epl_predictor_predict(
                self.raw.0.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                &call.raw(),
                outputs.as_mut_ptr(),
                outputs.len(),
            )
        })?;
        Ok(outputs.into_iter().filter_map(NonNull::new).map(Tensor::own).collect())
    }
    /// [`Session::predict_into`] with the predictor's weights.
    pub fn predict_into<'t, T: Into<TensorRef<'t>>>(
        &mut self, inputs: impl IntoIterator<Item = T>, outputs: &mut [Tensor<'_>], call: &Call,
    ) -> Result<()> {
        let (inputs, outputs) = (handles(inputs), writable(outputs));
        check(unsafe {
            sys::epl_predictor_predict_into(
                self.raw.0.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                &call.raw(),
                outputs.as_ptr(),
                outputs.len(),
            )
        })
    }
}
