use crate::call::Call;
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::{check, Code, Result};
use crate::handle::{given, given_text, handle, path_text, raw, text_of};
use crate::session::{optional, Session};
use epl_sys as sys;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a [`JobEvent`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobEventKind {
    /// A step was done.
    Step,
    /// The held-out data was measured; the text has the numbers as JSON.
    Measured,
    /// A checkpoint was written, to the path that is the text.
    Saved,
    /// The text is a sentence; training goes on.
    Warning,
    /// Nothing follows; `ended` says why.
    Done,
    /// Of a newer library.
    Unknown,
}

/// Why a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobEnd {
    /// It has not.
    Running,
    /// All steps were done.
    Steps,
    /// By [`Running::end`].
    Stopped,
    /// So many measurements in a row were no better.
    Patience,
    /// By [`Running::end`], or because a call was cancelled.
    Cancelled,
    /// Because a call has failed.
    Failed,
    /// A feed was finished.
    Data,
    /// Of a newer library.
    Unknown,
}

/// Numbers as they stand after the event; NaN where there is none yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct JobEvent {
    pub kind: JobEventKind,
    pub ended: JobEnd,
    /// Steps done, those of earlier runs included.
    pub step: i64,
    /// That are wanted in all; 0: until the data ends.
    pub steps: i64,
    /// Times through the data.
    pub epoch: f64,
    /// Seen; of `Measured` those that were measured.
    pub samples: i64,
    /// Of the last step, as are the next two.
    pub loss: f64,
    pub learning_rate: f64,
    /// Global, before clipping; none where it was not computed.
    pub gradient_norm: Option<f64>,
    /// As measured last.
    pub held_out_loss: f64,
    /// The number that says which weights are best, as measured last.
    pub monitored: f64,
    pub best_value: f64,
    /// Of which step the best weights are.
    pub best_step: Option<i64>,
    /// Of `Measured` and `Saved`: the best so far.
    pub best: bool,
    /// Of training, earlier runs included.
    pub elapsed: Duration,
    /// About.
    pub left: Option<Duration>,
    pub samples_per_second: f64,
    /// That a rank has used at its fullest.
    pub memory_bytes: i64,
    /// A path, a sentence, the numbers as JSON, or why the job has ended.
    pub text: String,
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

impl JobEvent {
    fn of(raw: &sys::epl_job_event) -> JobEvent {
        JobEvent {
            kind: match raw.kind {
                sys::EPL_JOB_STEP => JobEventKind::Step,
                sys::EPL_JOB_MEASURED => JobEventKind::Measured,
                sys::EPL_JOB_SAVED => JobEventKind::Saved,
                sys::EPL_JOB_WARNING => JobEventKind::Warning,
                sys::EPL_JOB_DONE => JobEventKind::Done,
                _ => JobEventKind::Unknown,
            },
            ended: match raw.ended {
                sys::EPL_JOB_RUNNING => JobEnd::Running,
                sys::EPL_JOB_ENDED_STEPS => JobEnd::Steps,
                sys::EPL_JOB_ENDED_STOPPED => JobEnd::Stopped,
                sys::EPL_JOB_ENDED_PATIENCE => JobEnd::Patience,
                sys::EPL_JOB_ENDED_CANCELLED => JobEnd::Cancelled,
                sys::EPL_JOB_ENDED_FAILED => JobEnd::Failed,
                sys::EPL_JOB_ENDED_DATA => JobEnd::Data,
                _ => JobEnd::Unknown,
            },
            step: raw.step,
            steps: raw.steps,
            epoch: raw.epoch,
            samples: raw.samples,
            loss: raw.loss,
            learning_rate: raw.learning_rate,
            gradient_norm: (raw.gradient_norm >= 0.0).then_some(raw.gradient_norm),
            held_out_loss: raw.held_out_loss,
            monitored: raw.monitored,
            best_value: raw.best_value,
            best_step: (raw.best_step >= 0).then_some(raw.best_step),
            best: raw.best != 0,
            elapsed: duration(raw.seconds).unwrap_or_default(),
            left: duration(raw.seconds_left),
            samples_per_second: raw.samples_per_second,
            memory_bytes: raw.memory_bytes,
            text: unsafe { text_of(raw.text, raw.text_length as usize) },
        }
    }
}

handle!(
    /// The loop around steps: it trains a session on a dataset, measures it on data that it does not train on, saves
    /// checkpoints, keeps the best weights, ends early, and goes on with an earlier run to the bit (docs/training.md).
    Job, epl_job, epl_job_destroy
);
// The header: one caller at a time, from any thread. `&mut self` is one caller.
unsafe impl Send for Job {}

impl Job {
    /// `settings` is a JSON object, as docs/training.md has it; empty for none.
    pub fn new(engine: &Engine, settings: impl std::fmt::Display) -> Result<Job> {
        let text = settings.to_string();
        let (settings, length) = raw(&text);
        given(|place| unsafe { sys::epl_job_create(engine.0.as_ptr(), settings, length, place) }).map(Job)
    }
    /// Sets one setting, before the job starts.
    pub fn set(&mut self, key: &str, value: impl ToString) -> Result<&mut Job> {
        let value = value.to_string();
        let ((key, key_length), (value, value_length)) = (raw(key), raw(&value));
        check(unsafe { sys::epl_job_set(self.0.as_ptr(), key, key_length, value, value_length) })?;
        Ok(self)
    }
    /// Takes the job's folder now, which [`start`](Job::start) does otherwise.
    pub fn take_folder(&mut self) -> Result<&mut Job> {
        check(unsafe { sys::epl_job_take_folder(self.0.as_ptr()) })?;
        Ok(self)
    }
    /// Refuses what would fail later, and loads the checkpoint that the job goes on from. Datasets that are not bound to
    /// the session's plan are bound to it. The time of `call` is that of this and of all events of the iteration.
    pub fn start<'a>(
        &'a mut self, session: &'a mut Session, data: &'a mut Dataset, held_out: Option<&'a mut Dataset>, call: &Call,
    ) -> Result<Running<'a>> {
        let measured = optional(held_out);
        let began = Instant::now();
        check(unsafe {
            sys::epl_job_start(self.0.as_ptr(), session.0.as_ptr(), data.0.as_ptr(), measured, &call.raw())
        })?;
        Ok(Running { job: self, session, _data: data, call: call.clone(), began, done: false })
    }
    /// As JSON: settings, paths, numbers and the history of the job and of those that it goes on with.
    pub fn describe(&mut self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_job_describe(self.0.as_ptr(), place) })
    }
}

/// A job that runs: an iterator of its events. A call that fails, and dropping it before its end, end the job, whose last
/// checkpoint is written all the same.
pub struct Running<'a> {
    job: &'a mut Job,
    session: &'a mut Session,
    _data: &'a mut Dataset,
    call: Call,
    began: Instant,
    done: bool,
}

impl Running<'_> {
    /// The session, between two events.
    pub fn session(&mut self) -> &mut Session {
        self.session
    }
    /// No step follows the one that runs; the events go on until the last checkpoint is written.
    pub fn end(&mut self, reason: &str) -> Result<()> {
        self.end_as(sys::EPL_JOB_ENDED_STOPPED, reason)
    }
    /// The next event. An error changes nothing: the same call again does the same work.
    pub fn next_event(&mut self, call: &Call) -> Result<JobEvent> {
        let mut event = sys::epl_job_event::default();
        check(unsafe { sys::epl_job_next(self.job.0.as_ptr(), &call.raw(), &mut event) })?;
        let event = JobEvent::of(&event);
        self.done |= event.kind == JobEventKind::Done;
        Ok(event)
    }
    /// As [`Job::describe`].
    pub fn describe(&mut self) -> Result<String> {
        self.job.describe()
    }
    fn end_as(&mut self, how: i32, reason: &str) -> Result<()> {
        let (reason, length) = raw(reason);
        check(unsafe { sys::epl_job_end(self.job.0.as_ptr(), how, reason, length) })
    }
    fn finish(&mut self, how: i32, reason: &str) {
        self.done |= self.end_as(how, reason).is_err();
        while !self.done {
            self.done |= self.next_event(&Call::new()).is_err();
        }
    }
}

impl Iterator for Running<'_> {
    type Item = Result<JobEvent>;
    fn next(&mut self) -> Option<Result<JobEvent>> {
        if self.done {
            return None;
        }
        let event = self.next_event(&self.call.left(self.began));
        if let Err(error) = &event {
            let stopped = matches!(error.code, Code::CANCELLED | Code::DEADLINE_EXCEEDED);
            let how = if stopped { sys::EPL_JOB_ENDED_CANCELLED } else { sys::EPL_JOB_ENDED_FAILED };
            self.finish(how, &error.to_string());
        }
        Some(event)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.finish(sys::EPL_JOB_ENDED_STOPPED, "");
        }
    }
}

impl std::fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Running")
    }
}

/// Runs a job from its start to its end, and gives its last event. `progress` is called with every other one; what it
/// returns says whether to go on.
///
/// ```
/// # use epl::{Call, Engine, Model, Plan, PlanOptions, Session, SessionOptions, Trainer};
/// # fn main() -> epl::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("epl-fit-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # std::env::set_current_dir(&folder).unwrap();
/// # std::fs::write("rows.csv", format!("a,b,y\n{}", "1,2,0\n3,1,1\n".repeat(20))).unwrap();
/// # let (engine, call) = (Engine::builder().build()?, Call::new());
/// # engine.write_template("mlp", r#"{"sizes": [2, 8, 2]}"#, "model.onnx", &call)?;
/// # let model = Model::load(&engine, "model.onnx", &call)?;
/// use epl::{optimizers, Dataset, JobEventKind, JobSettings, TrainerSettings};
/// let split = |rest| format!(r#"{{"batch": 8, "classes": true, "held_out": 0.2, {rest}}}"#);
/// let mut data = Dataset::open(&engine, "rows.csv", &split(r#""split": "train", "order": "shuffled""#), &call)?;
/// let mut held_out = Dataset::open(&engine, "rows.csv", &split(r#""split": "held_out", "partial": true"#), &call)?;
/// let how = TrainerSettings::new().optimizer(optimizers::AdamW::new().lr(0.05)).clip_norm(1.0);
/// let mut trainer = Trainer::parse(&engine, how)?;
/// trainer.bind_dataset(&model, &mut data)?;
/// let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call)?;
/// let mut session = Session::new(&plan, &SessionOptions::default(), &call)?;
/// let settings = JobSettings::new().epochs(10.0).folder("run").resume("auto").patience(3).metrics("accuracy");
/// let last = epl::fit(&engine, &mut session, &mut data, Some(&mut held_out), settings, &call, |event| {
///     if event.kind == JobEventKind::Measured {
///         println!("step {}: {}", event.step, event.text);
///     }
///     true // false ends the job
/// })?;
/// println!("ended by {:?} after {} steps", last.ended, last.step);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn fit(
    engine: &Engine, session: &mut Session, data: &mut Dataset, held_out: Option<&mut Dataset>,
    settings: impl std::fmt::Display, call: &Call, mut progress: impl FnMut(&JobEvent) -> bool,
) -> Result<JobEvent> {
    let mut job = Job::new(engine, settings)?;
    let mut running = job.start(session, data, held_out, call)?;
    while let Some(event) = running.next() {
        let event = event?;
        if event.kind == JobEventKind::Done {
            return Ok(event);
        }
        if !progress(&event) {
            running.end("the host has ended it")?;
        }
    }
    Err(crate::Error::invalid("the job has ended".to_string()))
}

/// The checkpoint that a path means: it, or the newest of a job's folder. A path that is neither stays as it is.
pub fn find_checkpoint(engine: &Engine, path: impl AsRef<Path>) -> Result<String> {
    let (path, length) = raw(path_text(path.as_ref())?);
    given_text(|place| unsafe { sys::epl_checkpoint_find(engine.0.as_ptr(), path, length, place) })
}
