//! A job trains one model. One thread has the session; others ask it for something between two steps. Predictions go
//! beside the steps: who holds `beside` has the predictor.
use crate::board::Board;
use crate::failure::{Failure, Result};
use crate::history::{write, History};
use crate::spec::{Phase, Spec, Status};
use crate::uploads::Uploads;
use crate::values::{tensors, value_of, Value};
use axum::http::StatusCode;
use epl::{Call, Dataset, Engine, Entry, Info, Plan, Predictor, Session, SessionOptions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// What the job's thread has.
pub struct Training {
    session: Session,
    data: Dataset,
    saved: Instant,
}

type Task = Box<dyn FnOnce(&mut Training) + Send>;

/// What answers beside the steps.
struct Beside {
    plan: Arc<Plan>,
    predictor: Option<Predictor>,
    inputs: Vec<Info>,
    outputs: Vec<Info>,
}

pub struct Job {
    pub spec: Spec,
    pub folder: PathBuf,
    pub history: Mutex<History>,
    engine: Arc<Engine>,
    board: Arc<Board>,
    told: Arc<dyn Fn(&str) -> String + Send + Sync>,
    status: Mutex<Status>,
    asked: Mutex<Option<Sender<Task>>>,
    beside: Mutex<Option<Beside>>,
    deleted: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Kept in the job's folder: the spec, whether it was to run, and the record of a job that has failed.
#[derive(Deserialize, Serialize)]
pub struct Note {
    pub spec: Spec,
    pub status: Status,
}

/// What all jobs have.
pub struct World {
    pub engine: Arc<Engine>,
    pub board: Arc<Board>,
    pub uploads: Arc<Uploads>,
    pub told: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

/// Opens a job's data.
pub fn open_data(world: &World, spec: &Spec, plan: &Plan) -> Result<Dataset> {
    let options = serde_json::Value::Object(spec.dataset.clone()).to_string();
    let mut data = Dataset::open(&world.engine, world.uploads.find(&spec.data)?, &options, &Call::new())?;
    data.bind(plan, Entry::TRAIN)?;
    Ok(data)
}

impl Job {
    /// One that has nothing yet; or the record of one that has failed.
    pub fn new(world: &World, folder: PathBuf, spec: Spec, status: Status) -> Job {
        Job {
            spec,
            folder,
            history: Mutex::new(History::new()),
            engine: world.engine.clone(),
            board: world.board.clone(),
            told: world.told.clone(),
            status: Mutex::new(status),
            asked: Mutex::new(None),
            beside: Mutex::new(None),
            deleted: AtomicBool::new(false),
            thread: Mutex::new(None),
        }
    }
    /// Makes what it trains with, and its thread.
    pub fn start(self: &Arc<Self>, world: &World, plan: Plan) -> Result<()> {
        let session = Session::new(&plan, &SessionOptions::default(), &Call::new())?;
        let outputs = plan.outputs(Entry::PREDICT)?;
        let (mut inputs, mut predictor) = (Vec::new(), None);
        if !outputs.is_empty() {
            inputs = plan.inputs(Entry::PREDICT)?;
            predictor = Some(Predictor::new(&session, &plan, &Call::new())?);
        }
        let data = open_data(world, &self.spec, &plan);
        let plan = Arc::new(plan);
        *self.beside.lock().unwrap() = Some(Beside { plan, predictor, inputs, outputs });
        let (sender, receiver) = mpsc::channel();
        *self.asked.lock().unwrap() = Some(sender);
        let job = Arc::clone(self);
        *self.thread.lock().unwrap() = Some(std::thread::spawn(move || job.run(session, data, &receiver)));
        Ok(())
    }
    pub fn status(&self) -> Status {
        self.status.lock().unwrap().clone()
    }
    /// Updates the status and tells the watchers.
    pub fn change(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock().unwrap();
        change(&mut status);
        self.board.send(&status);
        status.log = None;
    }
    /// Why a job answers no more.
    fn gone(&self) -> Failure {
        if self.deleted.load(Ordering::Acquire) {
            Failure::unknown()
        } else if self.board.ends() {
            Failure::ends()
        } else {
            Failure::new(StatusCode::CONFLICT, "the job has failed, and only its record is left")
        }
    }
    /// Runs a task in the job's thread, between two steps.
    fn ask<T: Send + 'static>(&self, task: impl FnOnce(&mut Training) -> Result<T> + Send + 'static) -> Result<T> {
        let (answer, given) = mpsc::channel();
        let task: Task = Box::new(move |training| {
            let _ = answer.send(task(training));
        });
        let sender = self.asked.lock().unwrap().clone().ok_or_else(|| self.gone())?;
        sender.send(task).map_err(|_| self.gone())?;
        drop(sender);
        given.recv().unwrap_or_else(|_| Err(self.gone()))
    }
    /// Starts, pauses and resumes. A pause is saved.
    pub fn set_phase(self: &Arc<Self>, phase: Phase) -> Result<Status> {
        let job = Arc::clone(self);
        self.ask(move |training| {
            let now = job.status().phase;
            if matches!(now, Phase::Done | Phase::Failed) {
                return Err(Failure::wrong(format!("the job is {}", now.name())));
            }
            job.change(|s| (s.phase, s.log) = (phase, Some(phase.name().into())));
            job.write_note()?;
            if phase == Phase::Paused {
                job.save(training)?;
            }
            Ok(job.status())
        })
    }
    pub fn save_now(self: &Arc<Self>) -> Result<Status> {
        let job = Arc::clone(self);
        self.ask(move |training| {
            job.save(training)?;
            Ok(job.status())
        })
    }
    /// A file with the weights as they are between two steps. It has no name any more: closed, it is gone. So a client
    /// that is slow to take it holds up no step.
    pub fn export(self: &Arc<Self>) -> Result<File> {
        let path = self.folder.join(format!("{}.onnx", crate::manager::new_id()));
        self.ask(move |training| {
            let made = training.session.export_onnx(&path, &Call::new()).map_err(Failure::from);
            let file = made.and_then(|()| Ok(File::open(&path)?));
            let _ = fs::remove_file(&path);
            file
        })
    }
    /// What a step is, and why.
    pub fn explain(&self) -> Result<String> {
        let beside = self.beside.lock().unwrap();
        let beside = beside.as_ref().ok_or_else(|| self.gone())?;
        Ok(beside.plan.print("explain", &Call::new())?)
    }
    /// The outputs beside the steps, with the weights of the last one that is done, and which step that was.
    pub fn predict(&self, given: &BTreeMap<String, Value>, call: &Call) -> Result<(i64, BTreeMap<String, Value>)> {
        let mut beside = self.beside.lock().unwrap();
        let beside = beside.as_mut().ok_or_else(|| self.gone())?;
        let Some(predictor) = &mut beside.predictor else {
            return Err(Failure::wrong("the model of this job has no outputs"));
        };
        let inputs = tensors(&self.engine, &beside.inputs, given)?;
        if predictor.steps() != self.status().step {
            predictor.refresh(call)?;
        }
        let found = predictor.predict(&inputs, call)?;
        let named = beside.outputs.iter().zip(&found);
        let outputs = named.map(|(info, one)| Ok((info.name.clone(), value_of(one)?)));
        Ok((predictor.steps(), outputs.collect::<Result<_>>()?))
    }
    /// Its folder goes by one rename, so that a kill leaves the whole job or nothing of it.
    pub fn move_to(self: &Arc<Self>, aside: &Path) -> Result<()> {
        let (job, target) = (Arc::clone(self), aside.to_path_buf());
        let take = move || {
            if job.deleted.swap(true, Ordering::AcqRel) {
                return Err(Failure::unknown()); // another client was first
            }
            let moved = match fs::rename(&job.folder, &target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()), // it was removed by hand
                other => other,
            };
            job.deleted.store(moved.is_ok(), Ordering::Release);
            Ok(moved?)
        };
        if self.status().phase == Phase::Failed {
            return take(); // nobody writes to its folder any more
        }
        self.ask(move |_| take())?;
        self.join();
        Ok(())
    }
    /// Ends a wait for requests.
    pub fn wake(&self) {
        if let Some(sender) = &*self.asked.lock().unwrap() {
            let _ = sender.send(Box::new(|_| ()));
        }
    }
    /// Waits until its thread has ended.
    pub fn join(&self) {
        if let Some(thread) = self.thread.lock().unwrap().take() {
            thread.join().expect("a job does not panic");
        }
    }

    /// The job's thread: until the service ends, which lets the step under way end, and saves, or until it is deleted.
    fn run(self: Arc<Self>, session: Session, data: Result<Dataset>, asked: &Receiver<Task>) {
        let result = data.and_then(|data| {
            let mut training = Training { session, data, saved: Instant::now() };
            self.train(&mut training, asked)
        });
        *self.asked.lock().unwrap() = None;
        *self.beside.lock().unwrap() = None; // a prediction under way ends first
        if let Err(failure) = result {
            // Who hears that it has failed finds its part of the budget free.
            let (id, error) = (self.status().id, (self.told)(&failure.message));
            eprintln!("job {id}: {error}");
            self.change(|s| (s.phase, s.error, s.memory_bytes) = (Phase::Failed, Some(error), 0));
        }
        if !self.deleted.load(Ordering::Acquire) {
            if let Err(failure) = self.write_note() {
                eprintln!("job {}: {failure}", self.status().id);
            }
        }
    }
    fn train(&self, training: &mut Training, asked: &Receiver<Task>) -> Result<()> {
        let checkpoint = self.checkpoint();
        if checkpoint.exists() {
            training.session.load(&checkpoint, Some(&mut training.data), &Call::new())?;
            let steps = training.session.steps();
            *self.history.lock().unwrap() = History::load(&self.history_file(), steps)?;
            let line = format!("goes on after step {steps}");
            self.change(|s| (s.step, s.checkpoint_step, s.log) = (steps, steps, Some(line)));
        }
        while !self.deleted.load(Ordering::Acquire) {
            if self.board.ends() {
                return self.save(training);
            }
            let running = self.status().phase == Phase::Running;
            if running && training.session.steps() >= self.spec.steps {
                self.save(training)?;
                self.change(|s| (s.phase, s.log) = (Phase::Done, Some("done".into())));
                continue;
            }
            let task = match running {
                true => asked.try_recv(),
                false => asked.recv().map_err(|_| TryRecvError::Disconnected),
            };
            match task {
                Ok(task) => task(training),
                Err(_) => self.step(training)?,
            }
        }
        Ok(())
    }
    fn step(&self, training: &mut Training) -> Result<()> {
        let batch = training.data.next_batch(&Call::new())?;
        let m = training.session.step(&batch, &Call::new())?;
        let finite = |one: f64| Some(one).filter(|one| one.is_finite());
        self.change(|s| {
            (s.step, s.loss, s.learning_rate) = (m.step, finite(m.loss), finite(m.learning_rate));
            s.seconds_per_step = finite(m.duration.as_secs_f64());
        });
        self.history.lock().unwrap().add(m.step, m.loss, m.learning_rate);
        let due = match self.spec.checkpoint {
            0 => training.saved.elapsed().as_secs_f64() >= self.spec.checkpoint_seconds,
            every => m.step % every == 0,
        };
        if due {
            self.save(training)?;
        }
        Ok(())
    }
    /// Writes a checkpoint, if there are steps that none has.
    fn save(&self, training: &mut Training) -> Result<()> {
        let steps = training.session.steps();
        training.saved = Instant::now();
        if steps == self.status().checkpoint_step {
            return Ok(());
        }
        training.session.save(self.checkpoint(), Some(&mut training.data), &Call::new())?;
        let line = format!("checkpoint at step {steps}");
        self.change(|s| (s.checkpoint_step, s.log) = (steps, Some(line)));
        self.history.lock().unwrap().save(&self.history_file())
    }
    fn checkpoint(&self) -> PathBuf {
        self.folder.join("checkpoint")
    }
    fn history_file(&self) -> PathBuf {
        self.folder.join("history.json")
    }
    pub fn write_note(&self) -> Result<()> {
        let note = Note { spec: self.spec.clone(), status: self.status() };
        write(&self.folder.join("job.json"), &serde_json::to_vec_pretty(&note).expect("a note is JSON"))
    }
}
