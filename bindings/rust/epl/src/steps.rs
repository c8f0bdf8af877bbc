//! Trainings as iterators: over the batches of a dataset, or as a stream.
use crate::call::Call;
use crate::dataset::Dataset;
use crate::error::Result;
use crate::session::{Metrics, Session};
#[cfg(feature = "futures")]
use {
    crate::tensor::Tensor,
    std::pin::Pin,
    std::sync::Arc,
    std::task::{Context, Poll},
};

/// Steps over the batches of a dataset: [`Session::steps_over`].
#[must_use = "iterators do nothing unless they are asked"]
#[derive(Debug)]
pub struct Steps<'s> {
    session: &'s mut Session,
    data: &'s mut Dataset,
    call: Call,
}

impl Iterator for Steps<'_> {
    type Item = Result<Metrics>;

    /// Never none: a dataset begins its next epoch. After an error of a step the dataset stands at that step's batch
    /// again, so that asking once more makes the same step.
    fn next(&mut self) -> Option<Self::Item> {
        let position = self.data.position();
        let done = self.data.next_batch(&self.call).and_then(|batch| self.session.step(&batch, &self.call));
        if done.is_err() {
            let _ = self.data.seek(position); // of a source that cannot go back, the batch is lost
        }
        Some(done)
    }
}

/// Steps over batches that are there, as a stream: [`Session::stream`].
#[cfg(feature = "futures")]
#[must_use = "streams do nothing unless they are polled"]
pub struct StepStream<'s, I> {
    session: &'s mut Session,
    batches: I,
    call: Call,
    running: Option<crate::pending::Running>,
}

#[cfg(feature = "futures")]
impl<I: Iterator<Item = Vec<Arc<Tensor<'static>>>> + Unpin> futures_core::Stream for StepStream<'_, I> {
    type Item = Result<Metrics>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.running.is_none() {
            let Some(batch) = this.batches.next() else { return Poll::Ready(None) };
            this.running = Some(crate::pending::Running::step(batch, &this.call));
        }
        let running = this.running.as_mut().expect("it was made");
        let done = running.poll(this.session, context);
        if done.is_ready() {
            this.running = None;
        }
        done.map(Some)
    }
}

impl Session {
    /// A step for each batch, as a stream. A stream that is dropped ends the step that runs, as [`Pending`](crate::Pending)
    /// does.
    #[cfg(feature = "futures")]
    pub fn stream<I: IntoIterator<Item = Vec<Arc<Tensor<'static>>>>>(
        &mut self, batches: I, call: &Call,
    ) -> StepStream<'_, I::IntoIter> {
        StepStream { session: self, batches: batches.into_iter(), call: call.clone(), running: None }
    }
    /// The steps of a training, one for each batch: `for metrics in session.steps_over(&mut data, &call).take(1000)`.
    pub fn steps_over<'s>(&'s mut self, data: &'s mut Dataset, call: &Call) -> Steps<'s> {
        Steps { session: self, data, call: call.clone() }
    }
}
