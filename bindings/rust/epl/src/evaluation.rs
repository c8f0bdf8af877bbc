use crate::call::Call;
use crate::dataset::Dataset;
use crate::error::{check, Result};
use crate::handle::{given, given_text, handle, raw};
use crate::plan::Plan;
use crate::session::{handles, Session};
use crate::tensor::TensorRef;
use epl_sys as sys;

handle!(
    /// Loss and metrics over any number of batches, exactly: the numbers are those of all samples together.
    Evaluation, epl_evaluation, epl_evaluation_destroy
);
// The header: one caller at a time, from any thread. `&mut self` is one caller.
unsafe impl Send for Evaluation {}

impl Evaluation {
    /// `metrics` names them, "accuracy, top_k(k=5)"; empty: those of the loss; "none": the loss alone.
    pub fn new(plan: &Plan, metrics: &str) -> Result<Evaluation> {
        let (metrics, length) = raw(metrics);
        given(|place| unsafe { sys::epl_evaluation_create(plan.0.as_ptr(), metrics, length, place) }).map(Evaluation)
    }
    /// One forward pass over a batch, or over fewer samples.
    pub fn add<'t, T: Into<TensorRef<'t>>>(
        &mut self, session: &mut Session, inputs: impl IntoIterator<Item = T>, call: &Call,
    ) -> Result<()> {
        let inputs = handles(inputs);
        check(unsafe {
            sys::epl_evaluation_add(self.0.as_ptr(), session.0.as_ptr(), inputs.as_ptr(), inputs.len(), &call.raw())
        })
    }
    /// The next batches of a dataset that is bound to evaluate or train; 0: an epoch from its start.
    pub fn add_dataset(
        &mut self, session: &mut Session, dataset: &mut Dataset, batches: i64, call: &Call,
    ) -> Result<()> {
        check(unsafe {
            sys::epl_evaluation_add_dataset(
                self.0.as_ptr(),
                session.0.as_ptr(),
                dataset.0.as_ptr(),
                batches,
                &call.raw(),
            )
        })
    }
    /// What `other`, of an equal plan with the same metrics, has seen is added.
    pub fn merge(&mut self, other: &mut Evaluation) -> Result<()> {
        check(unsafe { sys::epl_evaluation_merge(self.0.as_ptr(), other.0.as_ptr()) })
    }
    /// Forgets all samples.
    pub fn reset(&mut self) -> Result<()> {
        check(unsafe { sys::epl_evaluation_reset(self.0.as_ptr()) })
    }
    /// Samples seen.
    pub fn samples(&self) -> i64 {
        unsafe { sys::epl_evaluation_samples(self.0.as_ptr()) }
    }
    /// "loss", or a metric by its name; NaN where nothing counted.
    pub fn result(&mut self, name: &str) -> Result<f64> {
        let (name, length) = raw(name);
        let mut value = 0.0;
        check(unsafe { sys::epl_evaluation_result(self.0.as_ptr(), name, length, &mut value) })?;
        Ok(value)
    }
    /// All results as JSON.
    pub fn describe(&mut self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_evaluation_describe(self.0.as_ptr(), place) })
    }
}
